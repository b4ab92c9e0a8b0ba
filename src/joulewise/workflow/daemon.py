"""`joulewised`: wires GPUs, their guard, the desk, the socket and the metrics, and runs them."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from joulewise.control.daemon.absent import AbsentGpu
from joulewise.control.daemon.activation import ServiceManager, handed_socket
from joulewise.control.daemon.changes_log import ChangesLog
from joulewise.control.daemon.desk import LeaseDesk
from joulewise.control.daemon.keeper import GpuKeeper, Others
from joulewise.control.daemon.policy import Policy, read_policy
from joulewise.control.daemon.server import DaemonServer
from joulewise.control.daemon.socket_file import listening_at
from joulewise.control.daemon.trusted_file import checked_state_dir
from joulewise.control.guard import Guard
from joulewise.control.idle import LONGEST_GAP_S, IdlePolicy
from joulewise.control.journal import damage, read_journal
from joulewise.control.journal import is_left as journal_is_left
from joulewise.control.lease import GpuLease, take_lease
from joulewise.control.lock import holder_at
from joulewise.control.state import journal_file, lock_file
from joulewise.device.nvml import is_fake_library, use_library
from joulewise.device.nvml_discovery import FoundGpu, gpu_count, look_at, seen_gpus
from joulewise.device.nvml_gpu import NvmlGpu, open_nvml
from joulewise.device.real_time import MonotonicTimer
from joulewise.domain.control import ControlledGpu, DaemonCounts, Holder
from joulewise.domain.errors import DeviceError, JoulewiseError, NotSupported
from joulewise.domain.points import ClockGrid
from joulewise.domain.ports import Gpu, GpuIdentity
from joulewise.workflow.lease_findings import LeaseTrace
from joulewise.workflow.leasing import guard_process

Gpus = Callable[[], tuple[ControlledGpu, ...]]
Counts = Callable[[], DaemonCounts]
ServeMetrics = Callable[[str, Gpus, Counts], Callable[[], None]]
"""Serves what these tell at an address, until what it returns is called."""

# Threads that take turns at Python do so this often; else an answer may wait 5 ms for another's.
_SWITCH_PERIOD_S = 0.0005


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonOptions:
    """What the command line says; `None` leaves it to the policy file."""

    config: Path | None = None
    socket: Path | None = None
    state_dir: Path | None = None
    nvml_library: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedDaemon:
    """What a daemon would do: its policy, the GPUs that it sees and those that do not answer."""

    policy: Policy
    gpus: tuple[CheckedGpu, ...]
    silent: tuple[str, ...] = ()

    def rules_of(self, gpu: CheckedGpu) -> tuple[int, ...]:
        """Numbers, from 1, of the rules in the file about this GPU."""
        rules = enumerate(self.policy.rules, start=1)
        return tuple(
            number for number, rule in rules if rule.covers_gpu(gpu.uuid) and not rule.is_built_in
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedGpu:
    """A GPU as the daemon would open it."""

    device: str
    uuid: str
    name: str
    is_simulated: bool
    grid: ClockGrid


def check(options: DaemonOptions) -> CheckedDaemon:
    """Read the policy and look at the GPUs; sets nothing, listens nowhere.

    Raises:
        InputError: the policy or an option is wrong, or others can change the state folder.
        NotSupported: there is no driver or no GPU.
        DeviceError: no GPU answers.
    """
    policy = _policy(options)
    if policy.settings.state_dir.exists():
        checked_state_dir(policy.settings.state_dir)
    gpus, silent = _open_gpus(policy)
    for gpu in gpus:
        _idle_policy(policy, gpu.clock_grid())
    return CheckedDaemon(
        policy=policy,
        gpus=tuple(
            CheckedGpu(
                device=gpu.identity.spec,
                uuid=gpu.uuid,
                name=gpu.identity.name,
                is_simulated=gpu.identity.is_simulated,
                grid=gpu.clock_grid(),
            )
            for gpu in gpus
        ),
        silent=tuple(one.text for one in silent),
    )


def serve(options: DaemonOptions, *, serve_metrics: ServeMetrics | None = None) -> bool:
    """Run the daemon until SIGTERM or SIGINT; whether every lease is given back by then.

    Where it is not, a driver call hangs: end the process, and the guard process goes on trying.

    Args:
        options: What the command line says.
        serve_metrics: Serves metrics where the policy file names an address for them.

    Raises:
        InputError: the policy, an option, the socket's place or the state folder is wrong.
        BusyError: another daemon listens there.
        NotSupported, DeviceError: there is no GPU that answers.
    """
    policy = _policy(options)
    gpus, silent = _open_gpus(policy)
    state_dir = checked_state_dir(policy.settings.state_dir)
    sys.setswitchinterval(_SWITCH_PERIOD_S)
    _allow_many_files()
    with ExitStack() as stack:
        listening = stack.enter_context(_listening(policy.settings.socket))
        log = ChangesLog()
        stack.callback(log.close)
        for one in silent:
            log.write("gpu left out", result=one.text)
        wiring = _Wiring(policy, state_dir)
        desk = LeaseDesk(
            [wiring.keeper(gpu) for gpu in gpus],
            policy,
            log,
            absent=[wiring.absent(one) for one in silent],
        )
        is_hanging = False
        try:
            is_hanging = not asyncio.run(_run(desk, policy, log, listening, serve_metrics))
        finally:
            # Where a driver call hangs, its guard gives back once this process has ended.
            if not is_hanging:
                for guard in wiring.guards:
                    guard.close()
        return not is_hanging


class _Wiring:
    """Makes keepers of GPUs, each with a guard process of its own."""

    def __init__(self, policy: Policy, state_dir: Path) -> None:
        self._policy = policy
        self._state_dir = state_dir
        self.guards: list[Guard] = []

    def keeper(self, gpu: NvmlGpu) -> GpuKeeper:
        # One for each GPU, so that one that hangs keeps no other from being given back.
        guard = guard_process()
        self.guards.append(guard)
        return GpuKeeper(
            gpu,
            partial(_take, self._state_dir, guard),
            others=partial(_others, gpu.identity, self._state_dir),
            index=gpu.index,
            idle=_idle_policy(self._policy, gpu.clock_grid()),
        )

    def absent(self, silent: SilentGpu) -> AbsentGpu:
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
        return self.keeper(_opened(look_at(index, MonotonicTimer().sleep), self._policy))


def _policy(options: DaemonOptions) -> Policy:
    """The policy file, with what the command line says in its place."""
    if options.nvml_library is not None:
        use_library(options.nvml_library)
    policy = read_policy(options.config)
    settings = policy.settings
    if options.socket is not None:
        settings = replace(settings, socket=options.socket)
    if options.state_dir is not None:
        settings = replace(settings, state_dir=options.state_dir)
    if policy.idle is not None:
        period_s = min(settings.sample_period_s, LONGEST_GAP_S)
        settings = replace(settings, sample_period_s=period_s)
    return replace(policy, settings=settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class SilentGpu:
    """A GPU that cannot be opened, and why, in words."""

    index: int
    text: str
    uuid: str | None = None
    name: str | None = None


def _open_gpus(policy: Policy) -> tuple[tuple[NvmlGpu, ...], tuple[SilentGpu, ...]]:
    """Every GPU that answers, and why the others do not."""
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
        hint="In a container start it with --gpus all; elsewhere look at nvidia-smi -L.",
    )


def _opened(found: FoundGpu, policy: Policy) -> NvmlGpu:
    option = ",memory_lock=on" if policy.may_lock_memory(found.uuid) else ""
    gpu = open_nvml(f"nvml:{found.uuid}{option}")
    gpu.clock_grid()
    return gpu


def _idle_policy(policy: Policy, grid: ClockGrid) -> IdlePolicy | None:
    if policy.idle is None:
        return None
    return IdlePolicy(after_s=policy.idle.after_s, grid=grid, sm_clock_mhz=policy.idle.sm_clock_mhz)


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


@contextmanager
def _listening(path: Path) -> Iterator[socket.socket]:
    """The socket that the service manager hands over, or else our own."""
    handed = handed_socket()
    if handed is None:
        with listening_at(path) as listening:
            yield listening
        return
    with handed:
        yield handed


def _allow_many_files() -> None:
    """Connections take a descriptor or two each; the usual bound is low."""
    import resource  # noqa: PLC0415 - Unix only

    _, greatest = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(greatest, 65536), greatest))


async def _run(
    desk: LeaseDesk,
    policy: Policy,
    log: ChangesLog,
    listening: socket.socket,
    serve_metrics: ServeMetrics | None,
) -> bool:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stopping.set)
    # What asyncio has to say of connections that break is of no use to anybody.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    loop.set_exception_handler(partial(_log_fault, log))
    server = DaemonServer(desk, policy.settings, log)
    await desk.open()
    close_metrics = _metrics(policy, serve_metrics, desk, server.counts, log)
    server.start(listening)
    manager = ServiceManager()
    count = len(desk.gpus())
    manager.ready(f"{count} GPUs")
    log.write("started", result=f"pid {os.getpid()}, {count} GPUs")
    try:
        await _until(stopping, manager)
    finally:
        manager.stopping()
        is_all_given_back = await server.close()
        close_metrics()
        log.write("stopped")
    return is_all_given_back


def _metrics(
    policy: Policy,
    serve_metrics: ServeMetrics | None,
    desk: LeaseDesk,
    counts: Counts,
    log: ChangesLog,
) -> Callable[[], None]:
    """Serve them where that is asked for; leases are served without them, too."""
    listen = policy.settings.metrics_listen
    if listen is None or serve_metrics is None:
        return _nothing
    try:
        return serve_metrics(listen, desk.gpus, counts)
    except JoulewiseError as error:
        problem = f"joulewised serves no metrics: {error}"
        log.write("no metrics", asked=listen, result=str(error))
        desk.problems = (*desk.problems, problem)
        return _nothing


def _nothing() -> None:
    """Close no metrics."""


async def _until(stopping: asyncio.Event, manager: ServiceManager) -> None:
    """Wait for the end; meanwhile say that the loop turns, to whoever wants to know."""
    while not stopping.is_set():
        with suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), manager.watchdog_period_s)
        manager.alive()


def _log_fault(
    log: ChangesLog, _loop: asyncio.AbstractEventLoop, context: dict[str, object]
) -> None:
    error = context.get("exception")
    said = f"{type(error).__name__}: {error}" if error is not None else context.get("message")
    log.write("fault", result=str(said))
