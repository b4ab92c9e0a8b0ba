"""How work here gets a lease: from joulewised where it runs, and from this process elsewhere."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from joulewise.control.daemon_socket import DEFAULT_SOCKET_PATH, connected_socket
from joulewise.control.guard import Guard, GuardProcess
from joulewise.control.lease import hold
from joulewise.device.jetson_string import is_jetson
from joulewise.device.nvml import loaded_library
from joulewise.device.nvml_string import is_nvml
from joulewise.domain.control import Holder
from joulewise.domain.ports import Gpu, GpuIdentity, Lease
from joulewise.simulator.fake_driver import loaded_driver
from joulewise.workflow.daemon_lease import DaemonLease
from joulewise.workflow.jetson_time import passes_time

SOCKET_VARIABLE = "JOULEWISE_SOCKET"
_OFF = "off"


def socket_path(environment: Mapping[str, str] | None = None) -> Path | None:
    """Where joulewised listens; `None` where `JOULEWISE_SOCKET` is `off`, and on Windows."""
    environment = os.environ if environment is None else environment
    named = environment.get(SOCKET_VARIABLE) or str(DEFAULT_SOCKET_PATH)
    return None if named == _OFF or sys.platform == "win32" else Path(named)


def lease_on(gpu: Gpu, holder: Holder | None = None) -> AbstractContextManager[Lease]:
    """A lease on this GPU for the length of a `with` block, however one is to be had here.

    A GPU that ends with this process, or lives in virtual time, is held by itself. Any other is
    leased from joulewised where that answers; where it does not, this process holds it, and a
    guard process gives its clocks back should it be killed. Only where nobody listens is
    joulewised passed over: else two would set the clocks of one GPU. It knows of no Jetson, so
    that one is held by whoever sets it; lock and journal lie where joulewised has its own.

    `holder` is how others are told who holds it: `None` is this process, and joulewised takes
    nothing but the name of the program from it.

    Raises what `hold` raises; NotPermitted where joulewised, or its socket, does not allow it;
    BusyError where it accepts nobody for a while.
    """
    if not is_guarded(gpu.identity):
        return hold(gpu, holder=holder)
    return _leased_or_held(gpu, holder)


@contextmanager
def _leased_or_held(gpu: Gpu, holder: Holder | None) -> Iterator[Lease]:
    path = None if is_jetson(gpu.identity.spec) else socket_path()
    connected = None if path is None else connected_socket(path)
    if path is not None and connected is not None:
        from joulewise.control.remote import (  # noqa: PLC0415 - only where it runs
            DaemonConnection,
            leased,
        )

        program = None if holder is None else holder.command
        connection = DaemonConnection(path, program, connected=connected)
        with closing(connection), leased(connection, gpu) as remote:
            yield DaemonLease(remote, connection, gpu.identity.uuid)
        return
    with _SHARED.use() as guard, hold(gpu, guard=guard, holder=holder) as lease:
        yield lease


def is_guarded(identity: GpuIdentity) -> bool:
    """Whether another process can reach this GPU in time, to give its clocks back.

    Elsewhere than on Linux there are no guard processes: there the next lease gives back.
    """
    if sys.platform != "linux" or identity.is_in_process:
        return False
    if not is_nvml(identity.spec):
        return is_jetson(identity.spec) and passes_time(identity.spec)
    driver = loaded_driver()
    return driver is None or not driver.is_virtual_time


def guard_process() -> GuardProcess:
    """A guard process that sees the GPUs that this process sees; close it at the end."""
    library = loaded_library()
    driver = loaded_driver()
    environment = dict(os.environ)
    if driver is not None and driver.state_path is not None:
        environment["FAKE_NVML_STATE"] = str(driver.state_path)
    # Where joulewise lies is no matter of this process alone: it may have been found by a path
    # that only this process knows of.
    root = str(Path(__file__).resolve().parents[2])
    code = "import sys; sys.path.append(sys.argv.pop(1)); " + _RUN
    named = () if library is None else ("--nvml-library", str(library))
    safely = "-I" if sys.flags.isolated else "-P"
    return GuardProcess([sys.executable, safely, "-c", code, root, *named], environment)


_RUN = "from joulewise.workflow.guarding import main; main()"


@dataclass(slots=True, kw_only=True, eq=False)
class _Use:
    """A guard process, and how many leases of the process that started it are under it."""

    guard: GuardProcess
    pid: int = field(default_factory=os.getpid)
    lease_count: int = 0


class _SharedGuard:
    """One guard process for all leases of this process, as long as there is one."""

    def __init__(self) -> None:
        self._change = threading.Lock()
        self._use: _Use | None = None

    @contextmanager
    def use(self) -> Iterator[Guard]:
        with self._change:
            if self._use is None:
                self._use = _Use(guard=guard_process())
            use = self._use
            use.lease_count += 1
        try:
            yield use.guard
        finally:
            self._leave(use)

    def _leave(self, use: _Use) -> None:
        # A forked child may leave the block of its parent, whose guard process goes on.
        if use.pid != os.getpid():
            return
        with self._change:
            use.lease_count -= 1
            is_last = use.lease_count == 0
            if is_last:
                self._use = None
        if is_last:
            use.guard.close()

    def forget_in_child(self) -> None:
        """A forked child has no lease, and so needs a guard of its own for its first."""
        self._change = threading.Lock()
        self._use = None


_SHARED = _SharedGuard()
if sys.platform != "win32":
    os.register_at_fork(after_in_child=_SHARED.forget_in_child)
