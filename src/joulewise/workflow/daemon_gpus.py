"""GPUs of the daemon: opened, guarded, and looked at for what others do with them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from joulewise.control.daemon.absent import AbsentGpu
from joulewise.control.daemon.keeper import GpuKeeper
from joulewise.control.daemon.others import Others
from joulewise.control.daemon.policy import Policy
from joulewise.control.guard import Guard
from joulewise.control.idle import IdlePolicy
from joulewise.control.journal import damage, read_journal
from joulewise.control.journal import is_left as journal_is_left
from joulewise.control.lease import GpuLease, take_lease
from joulewise.control.lock import holder_at
from joulewise.control.state import journal_file, lock_file
from joulewise.device.nvml import is_fake_library
from joulewise.device.nvml_discovery import FoundGpu, gpu_count, look_at, seen_gpus
from joulewise.device.nvml_gpu import NvmlGpu, open_nvml
from joulewise.device.real_time import MonotonicTimer
from joulewise.domain.control import ControlledGpu, Holder
from joulewise.domain.errors import DeviceError, InputError, JoulewiseError, NotSupported
from joulewise.domain.points import ClockGrid
from joulewise.domain.ports import Gpu, GpuIdentity
from joulewise.workflow.lease_findings import LeaseTrace
from joulewise.workflow.leasing import guard_process


@dataclass(frozen=True, slots=True, kw_only=True)
class SilentGpu:
    """A GPU that cannot be opened, and why, in words."""

    index: int
    text: str
    uuid: str | None = None
    name: str | None = None


def open_gpus(policy: Policy) -> tuple[tuple[NvmlGpu, ...], tuple[SilentGpu, ...]]:
    """Every GPU that answers, and why the others do not.

    Raises NotSupported where there is none, DeviceError where none answers.
    """
    pause = MonotonicTimer().sleep
    found, hidden = seen_gpus(gpu_count(pause), pause)
    silent = [SilentGpu(index=index, text=f"nvml:{index}: {error}") for index, error in hidden]
    opened = []
    for gpu in found:
        try:
            opened.append(_opened(gpu, policy))
        except JoulewiseError as error:
            text, index = f"{gpu.title}: {error}", gpu.device.index
            silent.append(SilentGpu(index=index, text=text, uuid=gpu.uuid, name=gpu.name))
    if opened:
        return tuple(opened), tuple(silent)
    if silent:
        said = "; ".join(one.text for one in silent)
        raise DeviceError(f"no GPU here can be controlled: {said}")
    raise NotSupported(
        "the NVIDIA driver sees no GPU",
        hint="In a container start it with --gpus all; elsewhere look at nvidia-smi -L. A Jetson "
        "needs no joulewised, which does not know it: root sets its clocks without one.",
    )


def _opened(found: FoundGpu, policy: Policy) -> NvmlGpu:
    option = ",memory_lock=on" if policy.may_lock_memory(found.uuid) else ""
    gpu = open_nvml(f"nvml:{found.uuid}{option}")
    gpu.clock_grid()
    return gpu


def idle_policy_for(policy: Policy, grid: ClockGrid) -> IdlePolicy | None:
    """The idle policy of a GPU that lists these clocks; `None`: there is none.

    Raises InputError for a clock that it does not list.
    """
    if policy.idle is None:
        return None
    clock_mhz = policy.idle.sm_clock_mhz
    try:
        return IdlePolicy(after_s=policy.idle.after_s, grid=grid, sm_clock_mhz=clock_mhz)
    except InputError as error:
        raise InputError(
            error.message, file=policy.file, field=f"idle.{error.field}", hint=error.hint
        ) from error


def _take(state_dir: Path, guard: Guard, gpu: Gpu, holder: Holder) -> GpuLease:
    return take_lease(gpu, state_dir=state_dir, guard=guard, holder=holder)


def _others(identity: GpuIdentity, state_dir: Path) -> Others:
    """Who has the lock and lives, and what a journal says, or one that was damaged."""
    journal = journal_file(identity, state_dir)
    # First the lock: a journal that is there after nobody held it is a dead holder's.
    named = holder_at(lock_file(identity, state_dir))
    is_left, left_open = journal_is_left(journal), damage(journal)
    if named is None or named.is_giving_back:
        trace = LeaseTrace(named=named, journal=journal, entry=read_journal(journal))
        left_set = trace.left_set if is_left else None
        return Others(is_left=is_left, left_set=left_set, left_open=left_open)
    if named.pid == os.getpid():
        # A lease of this daemon, begun since it was seen to have none.
        return Others(left_open=left_open)
    holder = named.holder or Holder(pid=named.pid or 0)
    return Others(holder=holder, is_left=is_left, left_open=left_open)


class Wiring:
    """Makes keepers of GPUs, each with a guard process of its own."""

    def __init__(self, policy: Policy, state_dir: Path) -> None:
        """Make none yet; `policy` may be exchanged, and holds for those made after that."""
        self.policy = policy
        self._state_dir = state_dir
        self._guards: list[Guard] = []

    def close(self) -> None:
        """End the guard processes; all is given back."""
        for guard in self._guards:
            guard.close()

    def keeper(self, gpu: NvmlGpu) -> GpuKeeper:
        """The keeper of a GPU that answers. Raises NotSupported, DeviceLost."""
        # One for each GPU, so that one that hangs keeps no other from being given back.
        guard = guard_process()
        keeper = GpuKeeper(
            gpu,
            partial(_take, self._state_dir, guard),
            others=partial(_others, gpu.identity, self._state_dir),
            index=gpu.index,
            idle=idle_policy_for(self.policy, gpu.clock_grid()),
        )
        # Not before all is well: a GPU that does not answer is tried again and again.
        self._guards.append(guard)
        return keeper

    def absent(self, silent: SilentGpu) -> AbsentGpu:
        """What is known of a GPU that does not answer, and how it is tried again."""
        uuid = silent.uuid or f"nvml:{silent.index}"
        known = ControlledGpu(
            uuid=uuid,
            name=silent.name or "unknown",
            device=f"nvml:{uuid}" if silent.uuid else uuid,
            is_simulated=is_fake_library(),
            index=silent.index,
        )
        return AbsentGpu(known=known, open=partial(self._open, silent.index))

    def _open(self, index: int) -> GpuKeeper:
        """Raises JoulewiseError as long as it does not answer."""
        return self.keeper(_opened(look_at(index, MonotonicTimer().sleep), self.policy))
