"""Devices by name: what there is, and opening one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from joulewise.domain.errors import InputError
from joulewise.domain.points import ClockGrid, OperatingPoint
from joulewise.domain.session import DeviceSession
from joulewise.domain.transition import TransitionModel
from joulewise.domain.workload import Workload
from joulewise.simulator.presets import preset, preset_names
from joulewise.simulator.virtual import is_virtual, open_virtual

# The paper sweeps every 14th of 127 SM clocks: ten, spread evenly over the list.
DEFAULT_SM_CLOCK_COUNT = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLine:
    """One device that `--device` takes."""

    device: str
    name: str
    is_simulated: bool
    is_calibrated: bool
    sm_clock_count: int
    mem_clock_count: int


def device_lines() -> tuple[DeviceLine, ...]:
    """Every device that is there."""
    specs = [(name, preset(name)) for name in preset_names()]
    return tuple(
        DeviceLine(
            device=f"virtual:{name}",
            name=spec.name,
            is_simulated=True,
            is_calibrated=spec.is_calibrated,
            sm_clock_count=len(spec.grid.sm_clocks_mhz),
            mem_clock_count=len(spec.grid.mem_clocks_mhz),
        )
        for name, spec in specs
    )


def open_session(
    device: str, workload: Workload, transition: TransitionModel | None = None
) -> DeviceSession:
    """Open a device ready to run the kernels of a workload.

    A virtual device plays `transition` where its string says nothing of changing clocks, so
    that a plan made with that model can be replayed; hardware does what it does.

    Raises InputError for an unknown device, an option it does not have, or a workload that
    does not say what its kernels do.
    """
    if not is_virtual(device):
        raise InputError(
            f"{device!r} is not a device",
            field="device",
            hint=f"Known: {', '.join(line.device for line in device_lines())}.",
        )
    lacking = [k for k in workload.kernels if k not in {work.kernel for work in workload.works}]
    if lacking:
        raise InputError(
            f"the workload {workload.name!r} does not say what kernel {lacking[0]!r} computes "
            "and moves, so a virtual device cannot run it",
            field="workload",
            hint='Add its entry to "works" in the workload file.',
        )
    return open_virtual(device, workload.works, transition)


def points_to_measure(
    grid: ClockGrid,
    sm_clocks_mhz: Sequence[int | None] | None,
    mem_clocks_mhz: Sequence[int | None] | None,
) -> tuple[OperatingPoint, ...]:
    """Every pair of the given clocks; by default auto with ten SM clocks and all memory clocks.

    A device with one memory clock offers nothing to choose there, so it stays at auto.
    Raises InputError for a clock that the device does not list.
    """
    sm = chosen_clocks(sm_clocks_mhz, grid.sm_clocks_mhz, "sm-clocks")
    mem = chosen_clocks(mem_clocks_mhz, grid.mem_clocks_mhz, "mem-clocks")
    if sm is None:
        sm = (None, *_spread(grid.sm_clocks_mhz, DEFAULT_SM_CLOCK_COUNT))
    if mem is None:
        mem = (None, *(grid.mem_clocks_mhz if len(grid.mem_clocks_mhz) > 1 else ()))
    return grid.points(sm, mem)


def chosen_clocks(
    asked: Sequence[int | None] | None, listed: tuple[int, ...], field: str
) -> tuple[int | None, ...] | None:
    """The clocks asked for, if any were. Raises InputError for one that is not listed."""
    if asked is None:
        return None
    for clock in asked:
        if clock is not None and clock not in listed:
            nearest = sorted(listed, key=lambda known, clock=clock: abs(known - clock))[:3]  # type: ignore[misc]
            raise InputError(
                f"the device lists no clock of {clock} MHz",
                field=field,
                hint=f"Nearest: {', '.join(map(str, sorted(nearest)))}.",
            )
    return tuple(asked)


def _spread(listed: tuple[int, ...], count: int) -> tuple[int, ...]:
    if len(listed) <= count:
        return listed
    last = len(listed) - 1
    return tuple(listed[round(i * last / (count - 1))] for i in range(count))
