"""Devices by name: what there is, and opening one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from joulewise.domain.errors import InputError
from joulewise.domain.points import ClockGrid, OperatingPoint
from joulewise.domain.session import DeviceSession
from joulewise.domain.transition import TransitionModel
from joulewise.domain.workload import Workload
from joulewise.simulator.clock_driver import board_transition
from joulewise.simulator.device_string import parse_device
from joulewise.simulator.presets import preset, preset_names
from joulewise.simulator.virtual import is_virtual, open_virtual

# The paper sweeps every 14th of 127 SM clocks: ten, spread evenly over the list.
DEFAULT_SM_CLOCK_COUNT = 10
_ALIKE_RATIO = 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLine:
    """One device that `--device` takes.

    `lag_s` and `stall_s` are what a change of point costs on it, unless the string says else.
    """

    device: str
    name: str
    is_simulated: bool
    is_calibrated: bool
    sm_clock_count: int
    mem_clock_count: int
    lag_s: float
    stall_s: float


def device_lines() -> tuple[DeviceLine, ...]:
    """Every device that is there."""
    return tuple(_device_line(name) for name in preset_names())


def _device_line(name: str) -> DeviceLine:
    device, spec = f"virtual:{name}", preset(name)
    costs = board_transition(parse_device(device), None).costs
    return DeviceLine(
        device=device,
        name=spec.name,
        is_simulated=True,
        is_calibrated=spec.is_calibrated,
        sm_clock_count=len(spec.grid.sm_clocks_mhz),
        mem_clock_count=len(spec.grid.mem_clocks_mhz),
        lag_s=max(cost.lag_s for cost in costs),
        stall_s=max(cost.stall_s for cost in costs),
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
    _refuse_unknown(device)
    lacking = [k for k in workload.kernels if k not in {work.kernel for work in workload.works}]
    if lacking:
        raise InputError(
            f"the workload {workload.name!r} does not say what kernel {lacking[0]!r} computes "
            "and moves, so a virtual device cannot run it",
            field="workload",
            hint='Add its entry to "works" in the workload file.',
        )
    return open_virtual(device, workload.works, transition)


def _refuse_unknown(device: str) -> None:
    """No such device; say which one may have been meant."""
    name = device.partition(":")[2].partition(",")[0].strip()
    if is_virtual(device) and (not name or name in preset_names()):
        return
    known = [f"virtual:{preset_name}" for preset_name in preset_names()]
    asked = name if is_virtual(device) else device.strip().partition(",")[0]
    alike = get_close_matches(f"virtual:{asked.lower()}", known, n=1, cutoff=_ALIKE_RATIO)
    meant = f"Did you mean {alike[0]}? " if alike else ""
    raise InputError(
        f"no virtual GPU is called {name!r}" if is_virtual(device) else f"{device!r} is no device",
        field="device",
        hint=f"{meant}Known: {', '.join(known)}.",
    )


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
