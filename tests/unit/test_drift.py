"""What is called drift, from readings made up by hand."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.control.drift import Drift, DriftWatch
from joulewise.domain.caveats import CaveatKind
from joulewise.domain.measurement import EventReason, GpuSample
from joulewise.domain.points import AUTO, ClockGrid, OperatingPoint, PowerLimitRange

GRID = ClockGrid(
    sm_clocks_mhz=tuple(range(210, 2101, 15)),
    mem_clocks_mhz=(405, 5001, 9501),
    power_limits=PowerLimitRange(least_w=100.0, found_w=350.0, enforced_w=350.0),
)
LOW = OperatingPoint(sm_clock_mhz=1005)
NOTHING: frozenset[EventReason] = frozenset()
IDLE = frozenset({EventReason.GPU_IDLE})
CAPPED = frozenset({EventReason.POWER_CAP})
SYNCED = frozenset({EventReason.SYNC_BOOST})


def reading(  # noqa: PLR0913 - what a reading may differ in
    time_s: float,
    sm_clock_mhz: int | None = 1005,
    *,
    mem_clock_mhz: int | None = 9501,
    reasons: frozenset[EventReason] | None = NOTHING,
    limit_w: float | None = 350.0,
    capped_s: float | None = None,
    hot_s: float | None = None,
    process_count: int | None = 1,
) -> GpuSample:
    return GpuSample(
        time_s=time_s,
        energy_j=None,
        power_w=None,
        sm_clock_mhz=sm_clock_mhz,
        mem_clock_mhz=mem_clock_mhz,
        temp_c=None,
        power_capped_s=capped_s,
        thermally_throttled_s=hot_s,
        other_process_count=process_count,
        power_limit_w=limit_w,
        event_reasons=reasons,
    )


def watched(
    samples: Iterable[GpuSample], point: OperatingPoint = LOW, grid: ClockGrid = GRID
) -> list[Drift]:
    watch = DriftWatch(point, grid, asked_s=0.0)
    return [watch.feed(sample) for sample in samples]


def kinds(drift: Drift) -> list[CaveatKind]:
    return [caveat.kind for caveat in drift.caveats]


def test_a_clock_that_is_held_is_no_drift() -> None:
    seen = watched(reading(second) for second in range(20))

    assert [Drift()] * 20 == seen


def test_an_idle_gpu_with_low_clocks_is_no_drift() -> None:
    seen = watched(reading(second, 210, mem_clock_mhz=405, reasons=IDLE) for second in range(20))

    assert [Drift()] * 20 == seen


def test_what_is_read_within_a_second_of_the_request_says_nothing() -> None:
    seen = watched(reading(tenth / 10, 2100) for tenth in range(10))

    assert [Drift()] * 10 == seen


def test_a_clock_above_the_lock_is_taken_over_at_the_third_reading() -> None:
    seen = watched(reading(2 + second, 1500) for second in range(4))

    assert [frozenset(), frozenset()] == [one.taken_over for one in seen[:2]]
    assert frozenset({"sm_clock_mhz"}) == seen[2].taken_over
    assert [CaveatKind.FOREIGN_CONTROL] == kinds(seen[2])
    assert "runs at 1500 MHz, above the 1005 MHz" in seen[2].caveats[0].seen
    assert ((seen[2].caveats), ()) == (seen[2].new, seen[3].new)


def test_a_knob_once_taken_over_stays_so_whatever_follows() -> None:
    *_, last = watched([*(reading(2 + n, 1500) for n in range(3)), reading(9, 1005)])

    assert frozenset({"sm_clock_mhz"}) == last.taken_over
    assert [CaveatKind.FOREIGN_CONTROL] == kinds(last)


def test_a_board_that_dithers_a_step_above_and_below_is_no_drift() -> None:
    seen = watched(reading(2 + n, clock) for n, clock in enumerate((1020, 1005, 990) * 5))

    assert [Drift()] * 15 == seen


def test_readings_above_the_lock_count_only_in_a_row() -> None:
    seen = watched(reading(2 + n, clock) for n, clock in enumerate((1500, 1500, 1005) * 4))

    assert {frozenset()} == {one.taken_over for one in seen}


def test_an_idle_gap_between_readings_above_the_lock_does_not_hide_them() -> None:
    idle = [reading(3 + n, 210, reasons=IDLE) for n in range(3)]
    *_, last = watched([reading(2, 1500), *idle, reading(7, 1500), reading(8, 1500)])

    assert frozenset({"sm_clock_mhz"}) == last.taken_over


@pytest.mark.parametrize("clock_mhz", [1500, 600])
def test_what_was_seen_before_a_long_rest_is_no_evidence_any_more(clock_mhz: int) -> None:
    """A reading under load, 50 at rest, and so on: none of them belong together."""
    times_s = [2.0 + n for n in range(51 * 4)]
    samples = [
        reading(time_s, 210, reasons=IDLE) if n % 51 else reading(time_s, clock_mhz)
        for n, time_s in enumerate(times_s)
    ]

    assert {Drift()} == set(watched(samples))


def test_readings_in_a_row_count_however_seldom_they_are_taken() -> None:
    *_, last = watched(reading(2 + 60 * n, 1500) for n in range(3))

    assert frozenset({"sm_clock_mhz"}) == last.taken_over


def test_a_gpu_at_rest_proves_nothing_by_a_high_clock() -> None:
    seen = watched(reading(2 + n, 1500, reasons=IDLE) for n in range(5))

    assert [Drift()] * 5 == seen


def test_sync_boost_is_told_in_its_own_words() -> None:
    *_, last = watched(reading(2 + n, 900, reasons=SYNCED) for n in range(4))

    assert "sync boost held the clock down" in last.caveats[0].seen


def test_a_memory_clock_above_its_lock_is_taken_over_too() -> None:
    point = OperatingPoint(mem_clock_mhz=5001)
    *_, last = watched((reading(2 + n, 1905, mem_clock_mhz=9501) for n in range(3)), point)

    assert frozenset({"mem_clock_mhz"}) == last.taken_over


def test_a_clock_that_falls_for_no_reason_is_foreign_but_not_taken_over() -> None:
    held = [reading(2 + n) for n in range(3)]
    *_, last = watched([*held, *(reading(6 + n, 600) for n in range(3))])

    assert [CaveatKind.FOREIGN_CONTROL] == kinds(last)
    assert frozenset() == last.taken_over


def test_a_clock_that_never_reached_the_lock_is_not_held() -> None:
    *_, last = watched(reading(2 + n, 600) for n in range(3))

    assert [CaveatKind.CLOCK_NOT_HELD] == kinds(last)
    assert "names no reason" in last.caveats[0].seen


def test_a_reason_that_no_other_doubt_stands_for_is_named() -> None:
    reasons = frozenset({EventReason.HW_SLOWDOWN})
    *_, last = watched(reading(2 + n, 600, reasons=reasons) for n in range(3))

    assert [CaveatKind.CLOCK_NOT_HELD] == kinds(last)
    assert "HwSlowdown" in last.caveats[0].seen


def test_a_device_that_does_not_tell_why_is_judged_only_above_the_lock() -> None:
    *_, below = watched(reading(2 + n, 600, reasons=None) for n in range(5))
    *_, above = watched(reading(2 + n, 1500, reasons=None) for n in range(5))

    assert (Drift(), frozenset({"sm_clock_mhz"})) == (below, above.taken_over)


@pytest.mark.parametrize(
    ("samples", "kind"),
    [
        ([reading(2 + n, 900, reasons=CAPPED) for n in range(4)], CaveatKind.POWER_CAPPED),
        ([reading(2 + n, 900, capped_s=0.5 * n) for n in range(4)], CaveatKind.POWER_CAPPED),
        ([reading(2 + n, 900, hot_s=0.5 * n) for n in range(4)], CaveatKind.THERMALLY_THROTTLED),
        ([reading(2 + n, 900, reasons=SYNCED) for n in range(4)], CaveatKind.CLOCK_NOT_HELD),
    ],
)
def test_what_the_device_says_holds_the_clock_down_is_told_and_nothing_else(
    samples: list[GpuSample], kind: CaveatKind
) -> None:
    *_, last = watched(samples)

    assert [kind] == kinds(last)


def test_a_cap_that_is_over_is_told_no_more() -> None:
    capped = [reading(2 + n, 900, reasons=CAPPED) for n in range(4)]
    *_, last = watched([*capped, *(reading(6 + n) for n in range(10))])

    assert Drift() == last


@pytest.mark.parametrize(
    ("asked_w", "seen_w", "taken_over"),
    [(250.0, 300.0, {"power_limit_w"}), (250.0, 200.0, set()), (None, 300.0, set())],
)
def test_another_power_limit_is_foreign_and_ours_is_gone_where_it_is_higher(
    asked_w: float | None, seen_w: float, taken_over: set[str]
) -> None:
    point = OperatingPoint(power_limit_w=asked_w)
    *_, last = watched((reading(2 + n, 1905, limit_w=seen_w) for n in range(3)), point)

    assert [CaveatKind.FOREIGN_CONTROL] == kinds(last)
    assert taken_over == last.taken_over


def test_a_limit_that_was_kept_down_from_outside_before_is_no_drift() -> None:
    limits = PowerLimitRange(least_w=100.0, found_w=350.0, enforced_w=240.0)
    grid = ClockGrid(sm_clocks_mhz=GRID.sm_clocks_mhz, mem_clocks_mhz=(), power_limits=limits)
    seen = watched((reading(2 + n, 1905, limit_w=240.0) for n in range(5)), AUTO, grid)

    assert [Drift()] * 5 == seen


def test_a_free_clock_far_below_its_highest_looks_like_a_lock() -> None:
    *_, last = watched((reading(2 + n, 600) for n in range(3)), AUTO)

    assert [CaveatKind.FOREIGN_CONTROL] == kinds(last)
    assert "left to the driver" in last.caveats[0].seen


@pytest.mark.parametrize("sm_clock_mhz", [None, 1005])
def test_low_clocks_of_a_gpu_on_which_nobody_computes_are_no_drift(
    sm_clock_mhz: int | None,
) -> None:
    point = OperatingPoint(sm_clock_mhz=sm_clock_mhz)
    screen = (reading(2 + n, 300, mem_clock_mhz=405, process_count=0) for n in range(5))
    *_, last = watched(screen, point)

    assert Drift() == last


def test_a_free_memory_clock_far_below_its_highest_looks_like_a_lock_too() -> None:
    *_, last = watched((reading(2 + n, 1905, mem_clock_mhz=5001) for n in range(3)), AUTO)

    assert [CaveatKind.FOREIGN_CONTROL] == kinds(last)
    assert "memory clock" in last.caveats[0].seen


def test_a_free_clock_is_excused_by_a_low_memory_clock() -> None:
    point = OperatingPoint(mem_clock_mhz=405)
    *_, last = watched((reading(2 + n, 600, mem_clock_mhz=405) for n in range(5)), point)

    assert Drift() == last


anything = st.builds(
    reading,
    st.just(5.0),
    st.one_of(st.none(), st.sampled_from(GRID.sm_clocks_mhz)),
    mem_clock_mhz=st.one_of(st.none(), st.sampled_from(GRID.mem_clocks_mhz)),
    reasons=st.one_of(st.none(), st.frozensets(st.sampled_from(EventReason))),
    limit_w=st.one_of(st.none(), st.sampled_from([200.0, 250.0, 350.0])),
)


@given(st.lists(anything, max_size=12), st.sampled_from(GRID.sm_clocks_mhz))
def test_no_clock_is_taken_over_that_was_never_seen_clearly_above_its_lock(
    samples: list[GpuSample], asked_mhz: int
) -> None:
    point = OperatingPoint(sm_clock_mhz=asked_mhz)
    above = [one for one in samples if (one.sm_clock_mhz or 0) > asked_mhz + 15]
    *_, last = watched([*samples, reading(9, None)], point)

    assert "sm_clock_mhz" not in last.taken_over or len(above) >= 3
    assert last.taken_over <= {"sm_clock_mhz"}


@given(st.lists(anything, max_size=12))
def test_everything_that_is_told_was_new_once_and_only_once(samples: list[GpuSample]) -> None:
    point = OperatingPoint(sm_clock_mhz=1005, mem_clock_mhz=5001, power_limit_w=250.0)
    seen = watched(samples, point)

    new = [caveat.kind for drift in seen for caveat in drift.new]
    told = {caveat.kind for drift in seen for caveat in drift.caveats}
    assert told == set(new)
    # Three knobs, and what holds clocks down, may each be doubted as foreign or as not held.
    assert all(new.count(kind) <= 3 for kind in new)
