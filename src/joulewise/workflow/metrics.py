"""All GPUs as they are now, for metrics: read when somebody asks, without a daemon or rights."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from joulewise.control.state import (
    ROOT_STATE_DIR,
    STATE_DIR_VARIABLE,
    default_state_dir,
    lock_file,
)
from joulewise.device.nvml_facts import driver_facts, gpu_facts
from joulewise.device.nvml_gpu import open_nvml
from joulewise.device.real_time import MonotonicTimer
from joulewise.domain.control import ControlledGpu
from joulewise.domain.errors import InputError, JoulewiseError, NotSupported
from joulewise.domain.gpu_facts import GpuFacts
from joulewise.domain.ports import GpuIdentity, Timer, WatchedGpu
from joulewise.workflow.absent_gpus import is_recognized, recognized, traces_beside
from joulewise.workflow.jetson_boards import board_here, is_integrated, open_board
from joulewise.workflow.lease_findings import lease_trace
from joulewise.workflow.machine_time import machine_timer

FRESH_S = 0.5
"""A reading is told again so long; scrapes ask no GPU more often."""
PATIENCE_S = 3.0
"""A GPU that takes longer to read counts as not answering, until it is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPlace:
    """One GPU of this machine: what is known of it without reading, and how it is opened."""

    known: ControlledGpu
    open: Callable[[], WatchedGpu]


class GpuWatch:
    """Reads several GPUs at once, each on a thread of its own: none waits for another."""

    def __init__(
        self,
        places: Sequence[GpuPlace],
        control: Callable[[ControlledGpu], ControlledGpu],
        *,
        timer: Timer | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Watch these; nothing is read before the first question.

        Args:
            places: The GPUs.
            control: Adds to a GPU who holds it.
            timer: The time that readings age in; `None` for that of the machine.
            patience_s: How long a question waits for a GPU.
        """
        timer = MonotonicTimer() if timer is None else timer
        self._control = control
        self._readers = tuple(_Reader(place, timer, patience_s) for place in places)

    def gpus(self) -> tuple[ControlledGpu, ...]:
        """Each GPU as it is now, or was at most FRESH_S ago; waits no longer than patience allows.

        Callers may be on different threads.
        """
        for reader in self._readers:
            reader.ask()
        return tuple(self._control(reader.told()) for reader in self._readers)

    def close(self) -> None:
        """End the threads; one that waits for its driver ends when that answers."""
        for reader in self._readers:
            reader.close()


class _Reader:
    """Reads one GPU on its own thread, one reading at a time."""

    def __init__(self, place: GpuPlace, timer: Timer, patience_s: float) -> None:
        self._place = place
        self._timer = timer
        self._patience_s = patience_s
        self._changed = threading.Condition()
        self._gpu: WatchedGpu | None = None
        self._seen = place.known
        self._read_at_s: float | None = None
        self._asked_at_s: float | None = None
        """When the reading was asked for that is not there yet."""
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def ask(self) -> None:
        """Have it read, unless it was a moment ago or is being read."""
        now_s = self._timer.now_s()
        with self._changed:
            is_fresh = self._read_at_s is not None and now_s - self._read_at_s < FRESH_S
            if is_fresh or self._asked_at_s is not None or self._is_closed:
                return
            self._asked_at_s = now_s
            self._changed.notify_all()
            if self._thread is None or not self._thread.is_alive():
                # A daemon thread, for a driver may never answer.
                self._thread = threading.Thread(
                    target=self._run, name=f"read {self._place.known.uuid}", daemon=True
                )
                self._thread.start()

    def told(self) -> ControlledGpu:
        """The reading asked for; without a sample where it takes too long."""
        with self._changed:
            if self._asked_at_s is not None:
                left_s = self._asked_at_s + self._patience_s - self._timer.now_s()
                self._changed.wait_for(lambda: self._asked_at_s is None, max(0.0, left_s))
            is_overdue = self._asked_at_s is not None
            return replace(self._seen, sample=None) if is_overdue else self._seen

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._asked_at_s is not None or self._is_closed)
                if self._is_closed:
                    return
            seen = replace(self._place.known, sample=None)
            try:
                seen = self._read()
            finally:
                # Whatever ends this thread, the next question starts another.
                with self._changed:
                    self._seen, self._read_at_s = seen, self._timer.now_s()
                    self._asked_at_s = None
                    self._changed.notify_all()

    def _read(self) -> ControlledGpu:
        """Open it where need be, and read it; one that fails is opened anew the next time."""
        known = self._place.known
        try:
            if self._gpu is None:
                self._gpu = self._place.open()
            sample = self._gpu.sample()
        except JoulewiseError:
            self._gpu = None
            return replace(known, sample=None)
        identity = self._gpu.identity
        return replace(
            known, uuid=identity.uuid, name=identity.name, sample=sample, caveats=identity.caveats
        )


def watch_machine() -> GpuWatch:
    """Watch every GPU that the NVIDIA driver lists, also one that does not answer now.

    On a Jetson the board's own GPU is watched by its files, whatever NVML lists of it.

    Raises:
        NotSupported: there is no driver and no board, or the driver lists no GPU.
    """
    driver, board = driver_facts(), _board_place()
    if driver.problem is not None and not board:
        raise NotSupported(driver.problem, hint=driver.hint)
    timer = machine_timer()
    facts = () if driver.problem is not None else gpu_facts()
    listed = [
        _known(gpu, is_fake=driver.is_fake)
        for gpu in facts
        if not board or not is_integrated(gpu.name.value)
    ]
    known = _told_apart(listed)
    places = (
        *(_place(one, gpu.device, timer) for gpu, one in zip(listed, known, strict=True)),
        *board,
    )
    if not places:
        raise NotSupported(
            "the NVIDIA driver lists no GPU", hint="joulewise doctor says what is wrong."
        )
    return GpuWatch(places, with_lease)


def watch_board() -> GpuWatch:
    """Watch the board that this machine is, of which joulewised knows nothing, if it is one."""
    return GpuWatch(_board_place(), with_lease)


def with_lease(gpu: ControlledGpu) -> ControlledGpu:
    """Who holds it, and what a dead holder left set, where this account may see that."""
    if not is_recognized(gpu) or not _may_see_lease(gpu):
        return replace(gpu, is_control_known=False)
    trace = lease_trace(gpu.uuid)
    if trace.named is None or trace.named.is_giving_back:
        return replace(gpu, left_set=trace.left_set, left_open=trace.damage)
    holder = trace.named.holder
    if holder is None:
        return replace(gpu, is_control_known=False)
    return replace(
        gpu, holder=holder, is_lowered_idle=holder.is_idle_policy, left_open=trace.damage
    )


def _may_see_lease(gpu: ControlledGpu) -> bool:
    """Whether the files of whoever may set clocks on this machine can be looked at."""
    identity = GpuIdentity(
        spec=gpu.device, name=gpu.name, uuid=gpu.uuid, is_simulated=gpu.is_simulated
    )
    try:
        folders = {default_state_dir()}
        if sys.platform == "linux" and STATE_DIR_VARIABLE not in os.environ:
            folders.add(ROOT_STATE_DIR)
        return all(_may_look(folder, lock_file(identity, folder)) for folder in folders)
    except (InputError, OSError):
        return False


def _may_look(folder: Path, lock: Path) -> bool:
    """Whether this account may look into the folder and try the lock, where they are there."""
    if not folder.exists():
        return True
    if not os.access(folder, os.R_OK | os.X_OK):
        return False
    return not lock.exists() or os.access(lock, os.R_OK | os.W_OK)


def _known(gpu: GpuFacts, *, is_fake: bool) -> ControlledGpu:
    """What is known without reading; one that tells no UUID now has its number in place of it."""
    uuid = gpu.uuid.value
    device = f"nvml:{gpu.index if uuid is None else uuid}"
    return ControlledGpu(
        uuid=uuid or device,
        name=gpu.name.value or "unknown",
        device=device,
        is_simulated=is_fake,
        index=gpu.index,
    )


def _told_apart(listed: Sequence[ControlledGpu]) -> tuple[ControlledGpu, ...]:
    """The same, and the one that does not answer as what leases tell it to be."""
    silent_count = sum(not is_recognized(gpu) for gpu in listed)
    traces = traces_beside([gpu.uuid for gpu in listed]) if silent_count == 1 else {}
    return tuple(gpu if is_recognized(gpu) else recognized(gpu, traces) for gpu in listed)


def _board_place() -> tuple[GpuPlace, ...]:
    gpu = board_here()
    if gpu is None:
        return ()
    identity = gpu.identity
    known = ControlledGpu(
        uuid=identity.uuid,
        name=identity.name,
        device=identity.spec,
        is_simulated=identity.is_simulated,
    )
    return (GpuPlace(known=known, open=lambda: open_board(identity.spec)),)


def _place(known: ControlledGpu, device: str, timer: Timer) -> GpuPlace:
    return GpuPlace(known=known, open=lambda: open_nvml(device, timer=timer))
