"""Whether the knobs that were asked for are the ones that ran, and who else may have set them.

NVML has no reason for "limited by a clock lock" and no way to ask for locks, so somebody
else's lock shows only as a clock that is not what was asked for while nothing that the device
tells holds it down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.clock_judgement import (
    CLEARLY_BELOW_RATIO,
    POWER_LIMIT,
    grid_step_mhz,
    is_clearly_low,
    is_other_limit,
    limit_to_be_w,
)
from joulewise.domain.measurement import GpuSample
from joulewise.domain.points import ClockGrid, OperatingPoint
from joulewise.measure.held_down import (
    can_explain,
    held_by_nothing_but,
    held_down,
    names,
    unexplained,
)

# A clock left to the driver falls by a step now and then as the chip warms; two in a window.
_FREE_STEP_COUNT = 2
_FREE_WITHIN_RATIO = 0.02
# Between warm-up and window it may fall by more.
_REACHED_WITHIN_RATIO = 0.06
# Cycles that the GPU counted itself, against the clock that it reads: what a chip reaches may
# lie between two listed clocks.
_COUNTED_WITHIN_RATIO = 0.003
_LABEL_WITHIN_MHZ = 0.5
# The clock of one kernel at the power limit wanders by so much; a lock lies further off.
_CAPPED_WITHIN_RATIO = 0.06


@dataclass(frozen=True, slots=True, kw_only=True)
class _Domain:
    """One clock of the samples of a window."""

    name: str
    asked_mhz: int | None
    listed_mhz: tuple[int, ...]
    """Empty where it is not known what the device reaches."""
    all_mhz: tuple[int, ...]
    free_mhz: tuple[int, ...]
    """Of those samples in which nothing held the clock down."""
    reached_mhz: int | None = None
    """What it was seen to reach earlier; `None` where that is not known."""


def held_sm_clock_mhz(
    samples: Sequence[GpuSample], counted_mhz: float | None = None
) -> float | None:
    """Mean SM clock under load, as the GPU counted it or else as samples read it.

    `None` where the device does not tell.
    """
    return _mean_mhz(_read_sm(samples)) if counted_mhz is None else counted_mhz


def clock_doubts(
    samples: Sequence[GpuSample],
    point: OperatingPoint,
    grid: ClockGrid,
    *,
    counted_mhz: float | None = None,
    reached_mhz: int | None = None,
    is_sm_excused: bool = False,
) -> tuple[Caveat, ...]:
    """ClockNotHeld and ForeignControl, where the clocks are not those asked for.

    ClockNotHeld: a clock lies more than one step of the grid off the clock asked, all through
    the window. ForeignControl: it moved within the window, or ran above the clock asked, or, at
    auto, lies below what the device reaches, while nothing held it down; or it was lower while
    nothing held it down than while the power limit did. Wandering by a step of the grid is what
    clocks do by themselves.

    Args:
        samples: Of one window under load, in order of time.
        point: What was asked for.
        grid: What the device lists.
        counted_mhz: Mean SM clock from cycles that the GPU counted over the whole window.
        reached_mhz: SM clock that the device was seen to reach at this point before.
        is_sm_excused: Whether a caveat for the power limit, heat or sync boost already explains
            a lower SM clock.
    """
    free = unexplained(samples)
    caveats = []
    for domain in _domains(samples, free, point, grid, reached_mhz):
        is_governed = grid.is_governed and domain.asked_mhz is None
        can_tell = can_explain(samples) and not is_governed
        caveat = _doubt(domain, is_excused=is_sm_excused, can_tell=can_tell)
        if caveat is not None:
            caveats.append(caveat)
    is_told = any(caveat.kind is CaveatKind.FOREIGN_CONTROL for caveat in caveats)
    if not is_told and can_explain(samples) and not (grid.is_governed and not point.sm_clock_mhz):
        seen = _below_capped(samples, grid) or _moved_between(samples, counted_mhz, grid)
        if seen is not None:
            caveats.append(Caveat(kind=CaveatKind.FOREIGN_CONTROL, seen=seen))
    return tuple(caveats)


def foreign_limit(
    samples: Sequence[GpuSample], point: OperatingPoint, grid: ClockGrid
) -> tuple[Caveat, ...]:
    """ForeignControl where another power limit is in force than the one asked for or found.

    A lower one that was in force when the device was opened goes with the device: no limit
    asked for lifts it.
    """
    wanted_w = limit_to_be_w(point, grid)
    if wanted_w is None:
        return ()
    is_asked = point.power_limit_w is not None and wanted_w == point.power_limit_w
    for sample in samples:
        limit_w = sample.power_limit_w
        if limit_w is not None and is_other_limit(limit_w, wanted_w):
            seen = f"a power limit of {limit_w:g} W was in force, not the {wanted_w:g} W "
            seen += "asked for" if is_asked else "found"
            return (Caveat(kind=CaveatKind.FOREIGN_CONTROL, seen=seen),)
    return ()


def foreign_clock_on_the_way(
    samples: Sequence[GpuSample], points: Sequence[OperatingPoint], grid: ClockGrid
) -> tuple[Caveat, ...]:
    """ForeignControl where the SM clock left the range of the points that an iteration visits.

    Within the range nothing can be told from samples, and a foreign lock lasts until the next
    change there. Lower clocks are no wonder where the memory clock is low too.
    """
    clocks_mhz = [point.sm_clock_mhz for point in points]
    known_mhz = [clock for clock in clocks_mhz if clock is not None]
    if not known_mhz or not can_explain(samples):
        return ()
    lowest, highest = min(known_mhz), max(known_mhz)
    least = lowest - grid_step_mhz(lowest, grid.sm_clocks_mhz)
    most = highest + grid_step_mhz(highest, grid.sm_clocks_mhz)
    for sample in unexplained(samples):
        clock, memory = sample.sm_clock_mhz, sample.mem_clock_mhz
        if clock is None:
            continue
        is_memory_low = is_clearly_low(memory, grid.known_mem_clocks_mhz)
        is_above = clock > most and None not in clocks_mhz
        if is_above or (clock < least and not is_memory_low):
            seen = f"the SM clock ran at {clock} MHz, and the plan visits {lowest} to {highest} MHz"
            return (Caveat(kind=CaveatKind.FOREIGN_CONTROL, seen=seen),)
    return ()


def _domains(
    samples: Sequence[GpuSample],
    free: Sequence[GpuSample],
    point: OperatingPoint,
    grid: ClockGrid,
    reached_mhz: int | None,
) -> tuple[_Domain, _Domain]:
    memory = _Domain(
        name="memory clock",
        asked_mhz=point.mem_clock_mhz,
        listed_mhz=grid.known_mem_clocks_mhz,
        all_mhz=_read_memory(samples),
        free_mhz=_read_memory(free),
    )
    # A low memory clock holds the SM clock down on some boards, and no reason tells so.
    is_memory_low = is_clearly_low(point.mem_clock_mhz, grid.known_mem_clocks_mhz)
    sm = _Domain(
        name="SM clock",
        asked_mhz=point.sm_clock_mhz,
        listed_mhz=() if is_memory_low and point.sm_clock_mhz is None else grid.sm_clocks_mhz,
        all_mhz=_read_sm(samples),
        free_mhz=_read_sm(free),
        reached_mhz=reached_mhz,
    )
    return memory, sm


def _doubt(domain: _Domain, *, is_excused: bool, can_tell: bool) -> Caveat | None:
    held_mhz = _mean_mhz(domain.all_mhz)
    if held_mhz is None:
        return None
    if domain.asked_mhz is None:
        seen = _below_free(domain) if can_tell else None
        return None if seen is None else Caveat(kind=CaveatKind.FOREIGN_CONTROL, seen=seen)
    asked_mhz = domain.asked_mhz
    step_mhz = grid_step_mhz(asked_mhz, domain.listed_mhz)
    if can_tell:
        seen = _off_for_a_while(domain, asked_mhz, step_mhz)
        if seen is not None:
            return Caveat(kind=CaveatKind.FOREIGN_CONTROL, seen=seen)
    is_below = held_mhz < asked_mhz
    if abs(asked_mhz - held_mhz) <= step_mhz or (
        is_below and is_excused and domain.name == "SM clock"
    ):
        return None
    seen = f"asked for a {domain.name} of {asked_mhz} MHz, ran at {held_mhz:.0f} MHz"
    return Caveat(kind=CaveatKind.CLOCK_NOT_HELD, seen=seen)


def _off_for_a_while(domain: _Domain, asked_mhz: int, step_mhz: int) -> str | None:
    """Where a clock asked for ran above that, or left it within the window."""
    highest = max(domain.all_mhz)
    if highest > asked_mhz + step_mhz:
        return f"asked for a {domain.name} of {asked_mhz} MHz at most, ran at {highest} MHz"
    if not domain.free_mhz:
        return None
    lowest = min(domain.free_mhz)
    if lowest < asked_mhz - step_mhz and max(domain.free_mhz) - lowest > step_mhz:
        return (
            f"asked for a {domain.name} of {asked_mhz} MHz, which fell to {lowest} MHz "
            "within the window while nothing held it down"
        )
    return None


def _below_free(domain: _Domain) -> str | None:
    """Where a clock left to the driver lies below what the device reaches."""
    if not domain.free_mhz:
        return None
    lowest, highest = min(domain.free_mhz), max(domain.free_mhz)
    step_mhz = _FREE_STEP_COUNT * grid_step_mhz(highest, domain.listed_mhz)
    words = f"the {domain.name} was left to the driver and ran at {lowest} MHz"
    within_ratio = _FREE_WITHIN_RATIO if domain.listed_mhz else 1.0 - CLEARLY_BELOW_RATIO
    if highest - lowest > max(step_mhz, within_ratio * highest):
        return f"{words} for a while and at {highest} MHz before or after, with nothing against it"
    reached = domain.reached_mhz or 0
    if reached - lowest > max(step_mhz, _REACHED_WITHIN_RATIO * reached):
        return f"{words}, though it had reached {reached} MHz and nothing held it down"
    if is_clearly_low(lowest, domain.listed_mhz):
        return f"{words}, far below its highest, while nothing held it down"
    return None


def _below_capped(samples: Sequence[GpuSample], grid: ClockGrid) -> str | None:
    """Where nothing held the SM clock down at a lower one than that at the power limit.

    One kernel over and over runs about one clock there; let go, the clock rises from it.
    """
    capped = _read_sm([one for one in samples if names(one, POWER_LIMIT)])
    free = _read_sm([one for one in samples if one.event_reasons == frozenset()])
    if not capped or not free:
        return None
    lowest = min(capped)
    step_mhz = _FREE_STEP_COUNT * grid_step_mhz(lowest, grid.sm_clocks_mhz)
    if lowest - min(free) <= max(step_mhz, _CAPPED_WITHIN_RATIO * lowest):
        return None
    return (
        f"the SM clock ran at {min(free)} MHz while nothing held it down, and at {lowest} MHz "
        "at the power limit"
    )


def _moved_between(
    samples: Sequence[GpuSample], counted_mhz: float | None, grid: ClockGrid
) -> str | None:
    """Where cycles tell of another clock than any sample read, so that it moved in between.

    A clock that was seen to wander may have wandered a step further, and one at the power limit
    may lie between the one listed that it reads and the next. What else than the power limit
    held it down may have done so between two readings only.
    """
    read = _read_sm(samples)
    if counted_mhz is None or not read or not held_by_nothing_but(POWER_LIMIT, samples):
        return None
    lowest, highest = min(read), max(read)
    step_mhz = grid_step_mhz(lowest, grid.sm_clocks_mhz)
    slack_mhz = _LABEL_WITHIN_MHZ + _COUNTED_WITHIN_RATIO * highest
    slack_mhz += step_mhz if lowest < highest else 0
    above_mhz = step_mhz if held_down(samples, POWER_LIMIT) else 0
    if lowest - slack_mhz <= counted_mhz <= highest + above_mhz + slack_mhz:
        return None
    seen = f"{lowest} MHz" if lowest == highest else f"{lowest} to {highest} MHz"
    return (
        f"the SM clock read {seen}, and the GPU counted {counted_mhz:.1f} MHz in the mean: it "
        "moved between readings, and nothing held it down"
    )


def _read_sm(samples: Sequence[GpuSample]) -> tuple[int, ...]:
    return tuple(one.sm_clock_mhz for one in samples if one.sm_clock_mhz is not None)


def _read_memory(samples: Sequence[GpuSample]) -> tuple[int, ...]:
    return tuple(one.mem_clock_mhz for one in samples if one.mem_clock_mhz is not None)


def _mean_mhz(clocks_mhz: Sequence[int]) -> float | None:
    return sum(clocks_mhz) / len(clocks_mhz) if clocks_mhz else None
