from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.clock_judgement import CAUSES, HEAT, POWER_LIMIT
from joulewise.domain.measurement import EventReason, GpuSample
from joulewise.domain.points import AUTO, ClockGrid, OperatingPoint, PowerLimitRange
from joulewise.measure.clocks import (
    clock_doubts,
    foreign_clock_on_the_way,
    foreign_limit,
    held_sm_clock_mhz,
)
from joulewise.measure.held_down import held_down, unexplained

GRID = ClockGrid(
    sm_clocks_mhz=tuple(range(210, 2101, 15)),
    mem_clocks_mhz=(405, 5001, 9501),
    power_limits=PowerLimitRange(least_w=100.0, found_w=350.0),
)
POINT = OperatingPoint(sm_clock_mhz=1500, mem_clock_mhz=9501)
FOREIGN, NOT_HELD = CaveatKind.FOREIGN_CONTROL, CaveatKind.CLOCK_NOT_HELD
NOTHING: frozenset[EventReason] = frozenset()
BARE = GpuSample(
    time_s=0.0,
    energy_j=None,
    power_w=None,
    sm_clock_mhz=None,
    mem_clock_mhz=None,
    temp_c=None,
    power_capped_s=None,
    thermally_throttled_s=None,
    other_process_count=None,
)


def _samples(
    clocks_mhz: Sequence[int],
    *,
    mem_mhz: int | None = 9501,
    reasons: frozenset[EventReason] | None = NOTHING,
) -> list[GpuSample]:
    """One sample a second, with nothing against the clock unless said otherwise."""
    return [
        replace(
            BARE,
            time_s=float(second),
            sm_clock_mhz=clock,
            mem_clock_mhz=mem_mhz,
            event_reasons=reasons,
        )
        for second, clock in enumerate(clocks_mhz)
    ]


def _kinds(caveats: Sequence[Caveat]) -> list[CaveatKind]:
    return [caveat.kind for caveat in caveats]


@pytest.mark.parametrize(
    ("clocks_mhz", "kinds"),
    [
        ([1500, 1500, 1500], []),
        ([1485, 1485, 1515], []),
        ([1470, 1470, 1470], [NOT_HELD]),
        ([1500, 1200, 1500], [FOREIGN]),
        ([1500, 1500, 1530], [FOREIGN]),
        ([1800, 1800, 1800], [FOREIGN]),
    ],
)
def test_a_clock_asked_for_is_held_or_missed_or_somebody_elses(
    clocks_mhz: list[int], kinds: list[CaveatKind]
) -> None:
    assert kinds == _kinds(clock_doubts(_samples(clocks_mhz), POINT, GRID))


@pytest.mark.parametrize(
    ("clocks_mhz", "reached_mhz", "kinds"),
    [
        ([1905, 1905, 1890], None, []),
        ([1905, 1905, 1800], None, [FOREIGN]),
        ([1905, 1905, 1905], 1965, []),
        ([1800, 1800, 1800], 1965, [FOREIGN]),
        ([1500, 1500, 1500], None, [FOREIGN]),
    ],
)
def test_a_clock_left_to_the_driver_is_somebody_elses_where_it_lies_below_what_it_reaches(
    clocks_mhz: list[int], reached_mhz: int | None, kinds: list[CaveatKind]
) -> None:
    doubts = clock_doubts(_samples(clocks_mhz), AUTO, GRID, reached_mhz=reached_mhz)
    assert kinds == _kinds(doubts)


@pytest.mark.parametrize(
    "reason",
    [EventReason.POWER_CAP, EventReason.SW_THERMAL, EventReason.POWER_BRAKE, EventReason.UNKNOWN],
)
def test_nothing_is_claimed_of_others_while_the_device_names_a_reason(reason: EventReason) -> None:
    samples = _samples([1905, 1500, 1400], reasons=frozenset({reason}))
    assert () == clock_doubts(samples, AUTO, GRID)
    # Power of one kernel is one power, so the clock that it allows does not jump unseen.
    is_alone = reason is EventReason.POWER_CAP
    assert [FOREIGN] * is_alone == _kinds(clock_doubts(samples, AUTO, GRID, counted_mhz=1000.0))


@pytest.mark.parametrize(
    ("free_mhz", "kinds"), [(1500, []), (1400, []), (1905, []), (1320, []), (1200, [FOREIGN])]
)
def test_a_clock_lower_than_at_the_power_limit_while_nothing_holds_it_down_is_somebody_elses(
    free_mhz: int, kinds: list[CaveatKind]
) -> None:
    capped = frozenset({EventReason.POWER_CAP})
    samples = _samples([1400, 1415, free_mhz, 1400], reasons=capped)
    samples[2] = replace(samples[2], event_reasons=NOTHING)
    assert kinds == _kinds(clock_doubts(samples, AUTO, GRID, is_sm_excused=True))


def test_idleness_explains_no_low_clock_under_load() -> None:
    samples = _samples([1905, 1500, 1905], reasons=frozenset({EventReason.GPU_IDLE}))
    assert [FOREIGN] == _kinds(clock_doubts(samples, AUTO, GRID))


def test_a_device_that_names_no_reasons_gets_no_others_claimed() -> None:
    samples = _samples([1905, 1500, 1905], reasons=None)
    assert () == clock_doubts(samples, AUTO, GRID, counted_mhz=1000.0)
    missed = clock_doubts(_samples([1500, 1200, 1200], reasons=None), POINT, GRID)
    assert [NOT_HELD] == _kinds(missed)


@pytest.mark.parametrize(
    ("counted_mhz", "kinds"), [(1499.0, []), (1503.0, []), (1490.0, [FOREIGN]), (1510.0, [FOREIGN])]
)
def test_cycles_tell_of_a_lock_that_came_and_went_between_readings(
    counted_mhz: float, kinds: list[CaveatKind]
) -> None:
    doubts = clock_doubts(_samples([1500] * 4), POINT, GRID, counted_mhz=counted_mhz)
    assert kinds == _kinds(doubts)


@pytest.mark.parametrize(
    ("clocks_mhz", "counted_mhz", "kinds"),
    [
        ([1905, 1905, 1890], 1893.0, []),
        ([1905, 1905, 1890], 1872.0, []),
        ([1905, 1905, 1890], 1860.0, [FOREIGN]),
        ([1905, 1890, 1905], 1935.0, [FOREIGN]),
    ],
)
def test_a_clock_that_wanders_by_a_step_of_the_grid_is_nobody_elses(
    clocks_mhz: list[int], counted_mhz: float, kinds: list[CaveatKind]
) -> None:
    doubts = clock_doubts(_samples(clocks_mhz), AUTO, GRID, counted_mhz=counted_mhz)
    assert kinds == _kinds(doubts)


def test_a_clock_at_the_power_limit_may_lie_between_two_that_are_listed() -> None:
    samples = _samples([1770] * 4, reasons=frozenset({EventReason.POWER_CAP}))
    for counted_mhz, kinds in ((1784.0, []), (1771.0, []), (1760.0, [FOREIGN])):
        assert kinds == _kinds(clock_doubts(samples, AUTO, GRID, counted_mhz=counted_mhz))


def test_the_clock_held_is_the_counted_one_where_there_is_one() -> None:
    samples = _samples([1500, 1200])
    assert (1350.0, 1499.5) == (held_sm_clock_mhz(samples), held_sm_clock_mhz(samples, 1499.5))
    assert held_sm_clock_mhz([BARE]) is None


def test_a_low_memory_clock_explains_a_low_sm_clock() -> None:
    point = OperatingPoint(mem_clock_mhz=405)
    assert () == clock_doubts(_samples([420, 420], mem_mhz=405), point, GRID)


def test_a_memory_clock_far_below_its_highest_at_auto_is_somebody_elses() -> None:
    assert [FOREIGN] == _kinds(clock_doubts(_samples([1905] * 2, mem_mhz=5001), AUTO, GRID))
    # A device that takes no memory locks lists no memory clocks: nothing is known of them.
    bare_grid = replace(GRID, mem_clocks_mhz=())
    assert () == clock_doubts(_samples([1905] * 2, mem_mhz=5001), AUTO, bare_grid)


def test_a_memory_clock_that_falls_within_a_window_is_somebody_elses_on_any_device() -> None:
    bare_grid = replace(GRID, mem_clocks_mhz=())
    samples = [*_samples([1905] * 2), replace(_samples([1905] * 3)[2], mem_clock_mhz=5001)]
    for grid in (GRID, bare_grid):
        assert [FOREIGN] == _kinds(clock_doubts(samples, AUTO, grid))
    # From the state of graphics to that of computing it falls by itself.
    slower = [*samples[:2], replace(samples[2], mem_clock_mhz=9251)]
    assert () == clock_doubts(slower, AUTO, bare_grid)


@pytest.mark.parametrize(
    ("limit_w", "asked_w", "is_foreign"),
    [(350.0, None, False), (300.0, None, True), (250.0, 250.0, False), (350.0, 250.0, True)],
)
def test_another_power_limit_than_found_or_asked_for_is_somebody_elses(
    *, limit_w: float, asked_w: float | None, is_foreign: bool
) -> None:
    samples = [replace(sample, power_limit_w=limit_w) for sample in _samples([1500] * 2)]
    doubts = foreign_limit(samples, OperatingPoint(power_limit_w=asked_w), GRID)
    assert [FOREIGN] * is_foreign == _kinds(doubts)


@pytest.mark.parametrize(
    ("limit_w", "asked_w", "is_foreign"),
    [
        (300.0, None, False),
        (350.0, None, True),
        (250.0, None, True),
        (300.0, 320.0, False),
        (250.0, 250.0, False),
        (300.0, 250.0, True),
    ],
)
def test_a_limit_that_was_enforced_from_the_first_goes_with_the_device(
    *, limit_w: float, asked_w: float | None, is_foreign: bool
) -> None:
    limits = PowerLimitRange(least_w=100.0, found_w=350.0, enforced_w=300.0)
    samples = [replace(sample, power_limit_w=limit_w) for sample in _samples([1500] * 2)]
    point = OperatingPoint(power_limit_w=asked_w)
    doubts = foreign_limit(samples, point, replace(GRID, power_limits=limits))
    assert [FOREIGN] * is_foreign == _kinds(doubts)


def test_nothing_is_said_of_a_power_limit_that_nobody_knows() -> None:
    samples = _samples([1500, 1500])
    assert () == foreign_limit(samples, AUTO, GRID)
    limited = [replace(sample, power_limit_w=200.0) for sample in samples]
    assert () == foreign_limit(limited, AUTO, replace(GRID, power_limits=None))


@pytest.mark.parametrize(
    ("clock_mhz", "kinds"), [(900, [FOREIGN]), (1200, []), (1500, []), (1900, [FOREIGN])]
)
def test_an_iteration_is_held_within_the_clocks_that_it_visits(
    clock_mhz: int, kinds: list[CaveatKind]
) -> None:
    points = [OperatingPoint(sm_clock_mhz=1200), OperatingPoint(sm_clock_mhz=1600)]
    samples = _samples([1200, clock_mhz, 1600])
    assert kinds == _kinds(foreign_clock_on_the_way(samples, points, GRID))


def test_an_iteration_that_visits_auto_may_run_as_fast_as_it_likes() -> None:
    points = [AUTO, OperatingPoint(sm_clock_mhz=1600)]
    assert () == foreign_clock_on_the_way(_samples([1905, 1600]), points, GRID)
    assert () == foreign_clock_on_the_way(_samples([300, 1600]), [AUTO], GRID)


def test_counters_say_for_how_long_the_clock_was_held_down() -> None:
    first, *_, last = _samples([1500] * 5)
    samples = [
        replace(first, power_capped_s=10.0, thermally_throttled_s=3.0),
        replace(last, power_capped_s=11.0, thermally_throttled_s=3.03),
    ]
    (capped,) = held_down(samples, *CAUSES)
    assert CaveatKind.POWER_CAPPED == capped.kind
    assert "the power limit held the clock down for 25% of the window" == capped.seen


def test_event_reasons_stand_in_for_counters_that_do_not_exist() -> None:
    samples = _samples([1500] * 4)
    samples[2] = replace(samples[2], event_reasons=frozenset({EventReason.HW_THERMAL}))
    assert ["heat held the clock down for 25% of the window"] == [
        caveat.seen for caveat in held_down(samples, HEAT)
    ]
    counted = [replace(sample, thermally_throttled_s=0.0) for sample in samples]
    assert () == held_down(counted, HEAT)


def test_a_device_with_neither_counters_nor_reasons_gets_no_capping_claimed() -> None:
    assert () == held_down(_samples([1500] * 3, reasons=None), *CAUSES)


def test_a_power_brake_is_told_from_the_power_limit() -> None:
    samples = _samples([1500] * 3, reasons=frozenset({EventReason.POWER_BRAKE}))
    assert () == held_down(samples, POWER_LIMIT)
    (braked,) = held_down(samples, *CAUSES)
    assert CaveatKind.POWER_CAPPED == braked.kind
    assert "power supply" in braked.helps


def test_only_the_stretch_in_which_a_counter_grew_is_explained() -> None:
    samples = [
        replace(sample, power_capped_s=capped_s)
        for sample, capped_s in zip(
            _samples([1905, 1905, 1500, 1905]), (0, 0, 0.5, 0.5), strict=True
        )
    ]
    assert [0.0, 1.0, 3.0] == [sample.time_s for sample in unexplained(samples)]
    assert () == clock_doubts(samples, AUTO, GRID)
