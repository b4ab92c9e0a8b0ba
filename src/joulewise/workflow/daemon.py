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

from joulewise.control.daemon.activation import ServiceManager, handed_socket
from joulewise.control.daemon.changes_log import ChangesLog
from joulewise.control.daemon.desk import LeaseDesk
from joulewise.control.daemon.policy import Policy, read_policy
from joulewise.control.daemon.serial_thread import SerialThread
from joulewise.control.daemon.server import DaemonServer
from joulewise.control.daemon.socket_file import check_place, listening_at, sole_daemon
from joulewise.control.daemon.trusted_file import checked_state_dir
from joulewise.control.idle import LONGEST_GAP_S
from joulewise.device.nvml import use_library
from joulewise.domain.control import ControlledGpu, DaemonCounts
from joulewise.domain.errors import JoulewiseError
from joulewise.domain.points import ClockGrid
from joulewise.workflow.daemon_gpus import Wiring, idle_policy_for, open_gpus

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
    check_place(policy.settings.socket)
    if policy.settings.state_dir.exists():
        checked_state_dir(policy.settings.state_dir)
    gpus, silent = open_gpus(policy)
    for gpu in gpus:
        idle_policy_for(policy, gpu.clock_grid())
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

    Where one is not, its driver refuses or hangs: end the process, and the guard process goes on
    trying.

    Args:
        options: What the command line says.
        serve_metrics: Serves metrics where the policy file names an address for them.

    Raises:
        InputError: the policy, an option, the socket's place or the state folder is wrong.
        BusyError: another daemon listens there, or uses this state folder.
        NotSupported, DeviceError: there is no GPU that answers.
    """
    policy = _policy(options)
    gpus, silent = open_gpus(policy)
    state_dir = checked_state_dir(policy.settings.state_dir)
    sys.setswitchinterval(_SWITCH_PERIOD_S)
    _allow_many_files()
    with ExitStack() as stack:
        listening = stack.enter_context(_listening(policy.settings.socket))
        stack.enter_context(sole_daemon(state_dir))
        log = ChangesLog()
        stack.callback(log.close)
        for one in silent:
            log.write("gpu left out", result=one.text)
        wiring = Wiring(policy, state_dir)
        desk = LeaseDesk(
            [wiring.keeper(gpu) for gpu in gpus],
            policy,
            log,
            absent=[wiring.absent(one) for one in silent],
        )
        is_given_back = True
        try:
            run = _Run(
                desk=desk, wiring=wiring, log=log, options=options, serve_metrics=serve_metrics
            )
            is_given_back = asyncio.run(run.run(listening))
        finally:
            # Else guards give back once this process has ended.
            if is_given_back:
                wiring.close()
        return is_given_back


def _policy(options: DaemonOptions) -> Policy:
    """The policy file, with what the command line says in its place."""
    if options.nvml_library is not None:
        use_library(options.nvml_library)
    return _read_policy(options)


def _read_policy(options: DaemonOptions) -> Policy:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """The daemon on its event loop."""

    desk: LeaseDesk
    wiring: Wiring
    log: ChangesLog
    options: DaemonOptions
    serve_metrics: ServeMetrics | None

    async def run(self, listening: socket.socket) -> bool:
        """Serve until a signal ends it; whether every lease is given back by then."""
        loop = asyncio.get_running_loop()
        stopping, reading = asyncio.Event(), SerialThread("reads the policy")
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)
        # What asyncio has to say of connections that break is of no use to anybody.
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)
        loop.set_exception_handler(partial(_log_fault, self.log))
        server = DaemonServer(self.desk, self.log)
        loop.add_signal_handler(
            signal.SIGHUP, lambda: server.spawn(self._read_policy_anew(reading))
        )
        await self.desk.open()
        close_metrics = self._metrics(server.counts)
        server.start(listening)
        manager = ServiceManager()
        count = len(self.desk.gpus())
        gpus = f"{count} GPU" if count == 1 else f"{count} GPUs"
        manager.ready(gpus)
        self.log.write("started", result=f"pid {os.getpid()}, {gpus}")
        left: list[str] = []
        try:
            await _until(stopping, manager)
        finally:
            manager.stopping()
            is_all_given_back = await server.close()
            close_metrics()
            left = list(self.desk.left_set())
            if not is_all_given_back:
                left.append("A driver does not answer.")
            said = f"not all is given back, guard processes go on: {' '.join(left)}"
            self.log.write("stopped", result=said if left else None)
        return not left

    async def _read_policy_anew(self, reading: SerialThread) -> None:
        """Go by the policy file as it is now; one that is wrong is told, and the old one stays."""
        try:
            # Names of accounts are looked up, which may take long.
            policy = await reading.start(partial(_read_policy, self.options))
            old = self.desk.policy.settings
            settings = replace(
                policy.settings,
                socket=old.socket,
                state_dir=old.state_dir,
                heartbeat_timeout_s=old.heartbeat_timeout_s,
                sample_period_s=old.sample_period_s,
                metrics_listen=old.metrics_listen,
            )
            policy = replace(policy, settings=settings)
            self.desk.adopt_policy(policy, partial(idle_policy_for, policy))
        except JoulewiseError as error:
            self.log.write("policy not read anew", result=str(error))
        else:
            self.wiring.policy = policy
            self.log.write("policy read anew", result=policy.file)

    def _metrics(self, counts: Counts) -> Callable[[], None]:
        """Serve them where that is asked for; leases are served without them, too."""
        desk, listen = self.desk, self.desk.policy.settings.metrics_listen
        if listen is None or self.serve_metrics is None:
            return _nothing
        try:
            return self.serve_metrics(listen, desk.gpus, counts)
        except JoulewiseError as error:
            problem = f"joulewised serves no metrics: {error}"
            self.log.write("no metrics", asked=listen, result=str(error))
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
