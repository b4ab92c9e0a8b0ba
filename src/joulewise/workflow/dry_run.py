"""What applying an operating point would write to an NVIDIA GPU, call by call; writes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from joulewise.control.journal import knobs_of, still_set
from joulewise.control.state import default_state_dir, state_file
from joulewise.domain.points import KNOBS, ClockGrid, OperatingPoint
from joulewise.domain.ports import WatchedGpu
from joulewise.workflow.lease_findings import lease_trace
from joulewise.workflow.leasing import answers, socket_path


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One call that sets something, and the line of nvidia-smi that does the same."""

    call: str
    nvidia_smi: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """What would be done, in order, and undone.

    `frees` drops clock locks that others left, where the account may; `writes` set the point,
    and `gives_back` undoes them at the end. `journal` is the file that says meanwhile which
    knobs were touched (`touched`) and what the power limit was found at. `left_set` is a
    sentence on what a dead holder left, which would be given back before all that; `holder`
    holds the GPU now, so that nothing of this could be done. `daemon` is the socket of the
    joulewised that would do it; it then keeps the journal.
    """

    device: str
    device_name: str
    is_simulated: bool
    point: OperatingPoint
    frees: tuple[Write, ...]
    writes: tuple[Write, ...]
    gives_back: tuple[Write, ...]
    touched: tuple[str, ...]
    found_power_limit_w: float | None
    journal: Path | None
    daemon: Path | None
    holder: str | None
    left_set: str | None


def dry_run(gpu: WatchedGpu, point: OperatingPoint) -> DryRun:
    """Say what applying this point would write; needs no rights.

    The order is that in which a GPU that nothing was asked of before is set: what lowers power
    first. Raises DeviceError where the GPU does not answer.
    """
    identity, grid = gpu.identity, gpu.clock_grid()
    found_w = gpu.knob_state().power_limit_w
    path = socket_path()
    daemon = path if path is not None and answers(path) else None
    trace = lease_trace(identity.uuid)
    journal = state_file(identity, default_state_dir(), ".journal.json")
    left = None
    if trace.journal is not None and trace.holder is None:
        left = still_set(trace.entry, trace.journal)
    return DryRun(
        device=identity.spec,
        device_name=identity.name,
        is_simulated=identity.is_simulated,
        point=point,
        frees=tuple(_frees(identity.uuid, grid)),
        writes=tuple(_writes(identity.uuid, point, grid)),
        gives_back=tuple(_gives_back(identity.uuid, point, found_w)),
        touched=tuple(knob for knob in KNOBS if knob in knobs_of(point)),
        found_power_limit_w=None if point.power_limit_w is None else found_w,
        journal=None if daemon is not None or point.is_auto else journal,
        daemon=daemon,
        holder=trace.holder,
        left_set=left,
    )


def _frees(uuid: str, grid: ClockGrid) -> Iterator[Write]:
    if grid.mem_clocks_mhz:
        yield _reset(uuid, "Memory")
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
