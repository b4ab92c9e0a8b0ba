"""Power that cannot be read for a while is never bridged in silence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulewise.domain.errors import MeasurementError, NotSupported
from joulewise.domain.measurement import GpuSample
from joulewise.domain.points import ClockGrid, KnobState, OperatingPoint, Touched
from joulewise.domain.ports import GpuIdentity
from joulewise.measure.meter import PowerIntegral
from joulewise.measure.settings import MeasureSettings
from joulewise.measure.span import POWER_SAMPLE_S, SpanEnergy, SpanMeter

IDLE_W, LOAD_W, LIMIT_W = 6.0, 53.3, 120.0
# A command begins so much after the first reading.
START_S = 0.02
WINDOW_S, STEP_S = 0.1, 0.0025
Gap = tuple[float, float]


@dataclass(kw_only=True)
class RailsGpu:
    """No counter; power is the mean of the last tenth of a second, and none within gaps."""

    power_w: Callable[[float], float]
    gaps: Sequence[Gap] = ()
    limit_w: float | None = None
    time_s: float = 0.0
    identity = GpuIdentity(spec="rails", name="Toy Orin", uuid="GPU-jetson-1", is_simulated=True)
    energy_counter_period_s = None

    def now_s(self) -> float:
        return self.time_s

    def wait(self, duration_s: float) -> None:
        self.time_s += duration_s

    def wait_for_energy_tick(self, timeout_s: float) -> GpuSample:
        raise NotSupported(f"no energy counter, however many of {timeout_s} s pass")

    def clock_grid(self) -> ClockGrid:
        return ClockGrid(sm_clocks_mhz=(306,), mem_clocks_mhz=())

    def knob_state(self) -> KnobState:
        return KnobState()

    def clocks_mhz(self) -> tuple[int | None, int | None]:
        return None, None

    def request(self, point: OperatingPoint) -> None:
        raise NotSupported(point.label)

    def reset(self, touched: Touched | None = None) -> None:
        pass

    def true_j(self, start_s: float, end_s: float) -> float:
        count = max(1, round((end_s - start_s) / STEP_S))
        step_s = (end_s - start_s) / count
        return step_s * sum(self.power_w(start_s + (one + 0.5) * step_s) for one in range(count))

    def sample(self) -> GpuSample:
        is_away = any(begin_s <= self.time_s < end_s for begin_s, end_s in self.gaps)
        mean_w = self.true_j(self.time_s - WINDOW_S, self.time_s) / WINDOW_S
        return GpuSample(
            time_s=self.time_s,
            energy_j=None,
            power_w=None if is_away else mean_w,
            sm_clock_mhz=None,
            mem_clock_mhz=None,
            temp_c=None,
            power_capped_s=None,
            thermally_throttled_s=None,
            other_process_count=None,
            power_limit_w=self.limit_w,
        )


def _measured(gpu: RailsGpu, span_s: float, *, read_s: float = POWER_SAMPLE_S) -> SpanEnergy:
    meter = SpanMeter(gpu)
    meter.open()
    gpu.wait(START_S)
    end_s = START_S + span_s
    while gpu.now_s() < end_s:
        gpu.wait(min(read_s, end_s - gpu.now_s()))
        if gpu.now_s() < end_s:
            meter.see(gpu.sample())
    return meter.close(START_S, gpu.now_s())


def _steady(span_s: float, load_w: float = LOAD_W) -> Callable[[float], float]:
    return lambda at_s: load_w if START_S <= at_s < START_S + span_s else IDLE_W


# Nothing is measured where nothing can be read at first.
gap_lists = st.lists(
    st.tuples(st.floats(0.001, 9.0), st.floats(0.01, 4.0)).map(lambda one: (one[0], sum(one))),
    max_size=4,
)


@given(span_s=st.floats(0.4, 6.0), gaps=gap_lists, limit_w=st.sampled_from([None, LIMIT_W]))
@settings(max_examples=50, deadline=None)
def test_whatever_readings_are_missing_a_steady_load_lies_within_what_stays_open_or_is_refused(
    span_s: float, gaps: list[Gap], limit_w: float | None
) -> None:
    gpu = RailsGpu(power_w=_steady(span_s), gaps=gaps, limit_w=limit_w)
    told, refusal = None, ""
    try:
        told = _measured(gpu, span_s)
    except MeasurementError as error:
        refusal = error.message
    true_j = gpu.true_j(START_S, START_S + span_s)
    if told is None:
        assert limit_w is None
        assert "no power could be read for" in refusal
    else:
        assert abs(told.energy_j - true_j) <= told.uncertainty_j + 1e-6


@given(begin_s=st.floats(0.2, 4.0), gap_s=st.floats(0.3, 6.0), load_w=st.floats(0.0, LIMIT_W))
@settings(max_examples=30, deadline=None)
def test_a_load_that_comes_only_while_nothing_is_read_lies_within_what_a_power_limit_leaves_open(
    begin_s: float, gap_s: float, load_w: float
) -> None:
    gap = (begin_s, begin_s + gap_s)

    def power_w(at_s: float) -> float:
        return load_w if gap[0] <= at_s < gap[1] - WINDOW_S - POWER_SAMPLE_S else IDLE_W

    gpu = RailsGpu(power_w=power_w, gaps=[gap], limit_w=LIMIT_W)
    told = _measured(gpu, 5.0)
    true_j = gpu.true_j(START_S, START_S + 5.0)
    assert abs(told.energy_j - true_j) <= told.uncertainty_j + 1e-6


def test_a_sensor_that_is_lost_for_good_leaves_no_energy_and_says_for_how_long() -> None:
    gpu = RailsGpu(power_w=_steady(8.0), gaps=[(3.0, 99.0)])
    with pytest.raises(MeasurementError, match=r"no power could be read for 5\.\d s of 8\.0 s"):
        _measured(gpu, 8.0)


def test_a_load_hidden_in_a_gap_leaves_no_energy_where_nothing_bounds_it() -> None:
    gpu = RailsGpu(power_w=lambda at_s: LOAD_W if 3 < at_s < 5.8 else IDLE_W, gaps=[(3.0, 6.0)])
    with pytest.raises(MeasurementError, match="nothing says how much was drawn then"):
        _measured(gpu, 8.0)


def test_nobody_looking_counts_as_unread_too() -> None:
    with pytest.raises(MeasurementError, match="no power could be read"):
        _measured(RailsGpu(power_w=_steady(8.0)), 8.0, read_s=2.0)


def test_a_short_gap_is_counted_as_open_and_named() -> None:
    whole = _measured(RailsGpu(power_w=_steady(8.0)), 8.0)
    told = _measured(RailsGpu(power_w=_steady(8.0), gaps=[(3.0, 3.5)]), 8.0)
    (from_power, *_) = told.caveats
    assert "no power could be read" not in whole.caveats[0].seen
    assert from_power.seen.endswith("; for 0.55 s no power could be read")
    assert told.uncertainty_j > whole.uncertainty_j + 0.5 * LOAD_W


def test_a_sensor_that_goes_right_after_the_span_leaves_its_last_second_open() -> None:
    whole = _measured(RailsGpu(power_w=_steady(4.0)), 4.0)
    told = _measured(RailsGpu(power_w=_steady(4.0), gaps=[(START_S + 4.01, 99.0)]), 4.0)
    assert abs(told.energy_j - 4.0 * LOAD_W) <= told.uncertainty_j
    assert told.uncertainty_j > whole.uncertainty_j


def _window(gpu: RailsGpu, meter: PowerIntegral) -> float:
    samples = [meter.edge()]
    while gpu.now_s() < 2.0:
        gpu.wait(meter.sample_s)
        samples.append(gpu.sample())
    gpu.wait(meter.sample_s)
    samples.append(meter.edge())
    return meter.energy_j(samples)


def _meter(gpu: RailsGpu) -> PowerIntegral:
    return PowerIntegral(gpu, MeasureSettings())


@pytest.mark.parametrize("gap", [(0.5, 0.7), (0.1, 1.9)])
def test_a_window_that_went_unread_for_long_gives_no_energy(gap: Gap) -> None:
    gpu = RailsGpu(power_w=lambda _: LOAD_W, gaps=[gap])
    with pytest.raises(MeasurementError, match=r"no power could be read for \d\.\d\d s of 2\.\d"):
        _window(gpu, _meter(gpu))


def test_a_single_reading_that_fails_in_a_window_is_bridged_and_named() -> None:
    gpu = RailsGpu(power_w=lambda _: LOAD_W, gaps=[(0.99, 1.01)])
    meter = _meter(gpu)
    assert _window(gpu, meter) == pytest.approx(2.05 * LOAD_W, rel=0.03)
    assert meter.caveats[0].seen.endswith("; for 0.10 s none could be read")


def test_a_window_whose_end_cannot_be_read_is_measured_again_and_not_given_up() -> None:
    gpu = RailsGpu(power_w=lambda _: LOAD_W, gaps=[(2.02, 99.0)])
    with pytest.raises(MeasurementError, match="at the edge of the window"):
        _window(gpu, _meter(gpu))
