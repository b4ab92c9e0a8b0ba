"""Whether the clocks that were asked for are the clocks that ran."""

from __future__ import annotations

from collections.abc import Sequence

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.measurement import GpuSample
from joulewise.domain.points import ClockGrid, OperatingPoint


def held_sm_clock_mhz(samples: Sequence[GpuSample]) -> float | None:
    """Mean SM clock of samples under load; `None` where the device does not tell."""
    return _mean_mhz([sample.sm_clock_mhz for sample in samples])


def clock_caveats(
    samples: Sequence[GpuSample],
    point: OperatingPoint,
    grid: ClockGrid,
    *,
    is_sm_excused: bool = False,
) -> tuple[Caveat, ...]:
    """ClockNotHeld where a clock lies more than one step of the grid off the clock asked.

    A clock that was left to the driver cannot be missed. `is_sm_excused` says that the power
    limit already explains a lower SM clock.
    """
    held_mem_mhz = _mean_mhz([sample.mem_clock_mhz for sample in samples])
    missed = [_missed("memory clock", point.mem_clock_mhz, held_mem_mhz, grid.mem_clocks_mhz)]
    sm_clock_mhz = held_sm_clock_mhz(samples)
    is_below = None not in (sm_clock_mhz, point.sm_clock_mhz) and (
        (sm_clock_mhz or 0) < (point.sm_clock_mhz or 0)
    )
    if not (is_sm_excused and is_below):
        missed.append(_missed("SM clock", point.sm_clock_mhz, sm_clock_mhz, grid.sm_clocks_mhz))
    return tuple(
        Caveat(kind=CaveatKind.CLOCK_NOT_HELD, seen=seen) for seen in missed if seen is not None
    )


def _missed(
    name: str, asked_mhz: int | None, held_mhz: float | None, listed_mhz: Sequence[int]
) -> str | None:
    if asked_mhz is None or held_mhz is None:
        return None
    if abs(asked_mhz - held_mhz) <= _step_mhz(asked_mhz, listed_mhz):
        return None
    return f"asked for a {name} of {asked_mhz} MHz, ran at {held_mhz:.0f} MHz"


def _step_mhz(clock_mhz: int, listed_mhz: Sequence[int]) -> int:
    """Distance to the nearest other listed clock; 0 for a list of one."""
    return min((abs(clock_mhz - other) for other in listed_mhz if other != clock_mhz), default=0)


def _mean_mhz(clocks_mhz: Sequence[int | None]) -> float | None:
    known = [clock for clock in clocks_mhz if clock is not None]
    return sum(known) / len(known) if known else None
