"""Which of two ways of seeing a stall counts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from joulewise.domain.errors import MeasurementError
from joulewise.domain.measurement import Window
from joulewise.domain.points import OperatingPoint
from joulewise.measure.change_accounts import ChangeSample, MeasuredChange, summary
from joulewise.measure.change_times import ChangeTimes, PairTimes

SLOW, FAST = OperatingPoint(sm_clock_mhz=840), OperatingPoint(sm_clock_mhz=1155)
TRACED = ChangeTimes(
    calls_s=(0.004, 0.005, 0.009),
    lags_s=(0.010, 0.011, 0.020),
    lag_doubt_s=3e-5,
    stalls_s=(0.001, 0.001, 0.001),
    stall_least_s=3e-5,
)


def windows(time_s: float) -> tuple[Window, ...]:
    """Three that scatter by a thousandth."""
    return tuple(
        Window(
            window=number,
            time_s=time_s * (1 + 0.001 * number),
            energy_j=200 * time_s,
            duration_s=5.0,
            launch_count=1000,
            sm_clock_held_mhz=None,
            temp_c=60.0,
        )
        for number in range(3)
    )


def counted(stall_s: float) -> tuple[ChangeSample, ...]:
    """Repeats that agree on a stall."""
    return 3 * (
        ChangeSample(stall_s=stall_s, launch_s=1e-6, energy_j=0.1, hold_s=0.03, mean_power_w=200.0),
    )


def changes(times: ChangeTimes, counted_s: float) -> tuple[MeasuredChange, MeasuredChange]:
    pair = PairTimes(there=times, back=replace(times, lags_s=(0.002, 0.003, 0.003)))
    return summary(SLOW, FAST, pair, (windows(1e-4), windows(8e-5)), counted(counted_s))


def test_each_direction_has_its_own_times_medians_and_the_longest() -> None:
    there, back = changes(TRACED, 0.001)

    assert (SLOW, FAST, FAST, SLOW) == (there.before, there.after, back.before, back.after)
    assert [(0.005, 0.009, 0.011, 0.020), (0.005, 0.009, 0.003, 0.003)] == [
        (one.call_s, one.worst_call_s, one.lag_s, one.worst_lag_s) for one in (there, back)
    ]


@pytest.mark.parametrize(
    ("counted_s", "stall_s"),
    [
        (0.0, 0.001),
        (0.00101, 0.001),
        (0.003, 0.003),
    ],
    ids=["launches show less", "launches show as much", "launches miss more beyond doubt"],
)
def test_a_traced_stall_counts_unless_launches_miss_more(counted_s: float, stall_s: float) -> None:
    """A window scatters by a thousandth and a hold lasts 30 ms: 0.1 ms are beyond doubt."""
    there, _ = changes(TRACED, counted_s)

    assert stall_s == there.stall_s
    assert there.is_stall_seen


def test_where_nobody_could_look_launches_are_counted() -> None:
    """As while a call of 4 ms blocks the only thread there is."""
    there, _ = changes(replace(TRACED, stalls_s=(0.0,) * 3, stall_least_s=0.004), 0.0015)

    assert 0.0015 == there.stall_s
    assert there.is_stall_seen


def test_without_a_trace_launches_are_counted() -> None:
    there, _ = changes(replace(TRACED, stalls_s=(), stall_least_s=0.0), 0.002)

    assert 0.002 == there.stall_s


def test_a_point_and_itself_have_no_change_between_them() -> None:
    pair = PairTimes(there=TRACED, back=TRACED)
    with pytest.raises(MeasurementError, match="no change"):
        summary(SLOW, SLOW, pair, (windows(1e-4), windows(1e-4)), counted(0.0))
