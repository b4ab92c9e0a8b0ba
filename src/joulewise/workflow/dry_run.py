"""What applying an operating point would write to a GPU, call by call; writes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from joulewise.control.daemon.messages import GpuState, May, State, Status
from joulewise.control.journal import knobs_of
from joulewise.control.remote import DaemonConnection, reach
from joulewise.control.state import default_state_dir, journal_file
from joulewise.domain.errors import JoulewiseError
from joulewise.domain.points import KNOBS, ClockGrid, OperatingPoint
from joulewise.domain.ports import GpuIdentity, ReadBackGpu, WatchedGpu
from joulewise.workflow.dry_board import FileWrite, file_writes
from joulewise.workflow.lease_findings import lease_trace
from joulewise.workflow.leasing import is_guarded, socket_path


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One call that sets something, and the line for a shell that does the same.

    On a board a text is written to a file: `call` is that line itself, and `nvidia_smi` is
    `None`, for that tool sets nothing there.
    """

    call: str
    nvidia_smi: str | None
    file: str | None = None
    """The file that `text` is written to, on a board."""
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """What would be done, in order, and undone.

    `writes` set the point, `frees` drops locks that others left of clocks that it leaves to the
    driver, where the account may, and `gives_back` undoes what was set at the end. `journal` is
    the file that says meanwhile which knobs were touched (`touched`) and what the power limit was
    found at. `left_set` is a sentence on what a dead holder left, which would be given back before
    all that; `holder` holds the GPU now, so that nothing of this could be done. `daemon` is the
    socket of the joulewised that would do it; it then keeps the journal, and `refusal` says why it
    would not do it at all: `None`, it would, or there is none.
    """

    device: str
    device_name: str
    is_simulated: bool
    point: OperatingPoint
    writes: tuple[Write, ...]
    frees: tuple[Write, ...]
    gives_back: tuple[Write, ...]
    touched: tuple[str, ...]
    found_power_limit_w: float | None
    journal: Path | None
    daemon: Path | None
    holder: str | None
    left_set: str | None
    refusal: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Control:
    """Who would do it, and what is in the way."""

    daemon: Path | None = None
    holder: str | None = None
    left_set: str | None = None
    refusal: str | None = None


def dry_run(gpu: WatchedGpu, point: OperatingPoint) -> DryRun:
    """Say what applying this point would write; needs no rights.

    The order is that in which a GPU that nothing was asked of before is set: what lowers power
    first.

    Raises:
        NotSupported: a clock that a board does not list.
        DeviceError: the GPU does not answer, or joulewised does not.
        NotPermitted: this account may not ask joulewised, which would do it.
    """
    identity = gpu.identity
    planned = _planned(gpu, point)
    found_w = gpu.knob_state().power_limit_w
    control = _control(identity, point)
    is_ours = control.daemon is None and not point.is_auto
    return DryRun(
        device=identity.spec,
        device_name=identity.name,
        is_simulated=identity.is_simulated,
        point=point,
        writes=planned.writes,
        frees=planned.frees,
        gives_back=planned.gives_back,
        touched=tuple(knob for knob in KNOBS if knob in knobs_of(point)),
        found_power_limit_w=None if point.power_limit_w is None else found_w,
        journal=journal_file(identity, default_state_dir()) if is_ours else None,
        daemon=control.daemon,
        holder=control.holder,
        left_set=control.left_set,
        refusal=control.refusal,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """Calls, or writes to files."""

    writes: tuple[Write, ...]
    frees: tuple[Write, ...]
    gives_back: tuple[Write, ...]


def _planned(gpu: WatchedGpu, point: OperatingPoint) -> _Planned:
    identity = gpu.identity
    if isinstance(gpu, ReadBackGpu):
        of_files = file_writes(identity.spec, point)
        # What others have set of clocks that are left alone stays as it is.
        return _Planned(
            writes=tuple(map(_to_file, of_files.writes)),
            frees=(),
            gives_back=tuple(map(_to_file, of_files.gives_back)),
        )
    uuid, grid, found_w = identity.uuid, gpu.clock_grid(), gpu.knob_state().power_limit_w
    return _Planned(
        writes=tuple(_writes(uuid, point, grid)),
        frees=tuple(_frees(uuid, point, grid)),
        gives_back=tuple(_gives_back(uuid, point, found_w)),
    )


def _to_file(write: FileWrite) -> Write:
    return Write(
        call=f"echo {write.text} > {write.place}",
        nvidia_smi=None,
        file=write.place,
        text=write.text,
    )


def _control(identity: GpuIdentity, point: OperatingPoint) -> _Control:
    """As joulewised tells, where it answers; else as locks and journals of this account do."""
    path = socket_path() if is_guarded(identity) else None
    connection = None if path is None else reach(path)
    if path is not None and connection is not None:
        with closing(connection):
            return _of_daemon(connection, path, identity.uuid, point)
    trace = lease_trace(identity.uuid)
    return _Control(holder=trace.holder, left_set=trace.left_set)


def _of_daemon(
    connection: DaemonConnection, path: Path, uuid: str, point: OperatingPoint
) -> _Control:
    refusal = None
    try:
        connection.ask(
            May(
                gpu=uuid,
                sm_clock_mhz=point.sm_clock_mhz,
                mem_clock_mhz=point.mem_clock_mhz,
                power_limit_w=point.power_limit_w,
            )
        )
    except JoulewiseError as error:
        refusal = error.message
    answer = connection.ask(Status())
    gpus = answer.gpus if isinstance(answer, State) else ()
    state = next((gpu for gpu in gpus if gpu.gpu == uuid), None)
    return _Control(
        daemon=path,
        holder=_in_the_way(state),
        left_set=None if state is None else state.left_set,
        refusal=refusal,
    )


def _in_the_way(state: GpuState | None) -> str | None:
    """Who holds it; the idle policy makes way."""
    return None if state is None or state.is_lowered_idle else state.holder


def _frees(uuid: str, point: OperatingPoint, grid: ClockGrid) -> Iterator[Write]:
    if grid.mem_clocks_mhz and point.mem_clock_mhz is None:
        yield _reset(uuid, "Memory")
    if point.sm_clock_mhz is None:
        yield _reset(uuid, "Gpu")


def _writes(uuid: str, point: OperatingPoint, grid: ClockGrid) -> Iterator[Write]:
    if point.power_limit_w is not None:
        yield _limit(uuid, point.power_limit_w)
    if point.sm_clock_mhz is not None:
        yield _lock(uuid, "Gpu", grid.sm_clocks_mhz[0], point.sm_clock_mhz)
    if point.mem_clock_mhz is not None:
        yield _lock(uuid, "Memory", point.mem_clock_mhz, point.mem_clock_mhz)


def _gives_back(uuid: str, point: OperatingPoint, found_w: float | None) -> Iterator[Write]:
    if point.mem_clock_mhz is not None:
        yield _reset(uuid, "Memory")
    if point.sm_clock_mhz is not None:
        yield _reset(uuid, "Gpu")
    if point.power_limit_w is not None and found_w is not None:
        yield _limit(uuid, found_w)


# How nvidia-smi calls what NVML calls Gpu and Memory.
_SMI = {"Gpu": ("-lgc", "-rgc"), "Memory": ("-lmc", "-rmc")}


def _lock(uuid: str, domain: str, lowest_mhz: int, highest_mhz: int) -> Write:
    return Write(
        call=f"nvmlDeviceSet{domain}LockedClocks({lowest_mhz}, {highest_mhz})",
        nvidia_smi=f"nvidia-smi -i {uuid} {_SMI[domain][0]} {lowest_mhz},{highest_mhz}",
    )


def _reset(uuid: str, domain: str) -> Write:
    return Write(
        call=f"nvmlDeviceReset{domain}LockedClocks()",
        nvidia_smi=f"nvidia-smi -i {uuid} {_SMI[domain][1]}",
    )


def _limit(uuid: str, limit_w: float) -> Write:
    return Write(
        call=f"nvmlDeviceSetPowerManagementLimit({round(1000 * limit_w)})",
        nvidia_smi=f"nvidia-smi -i {uuid} -pl {limit_w:g}",
    )
