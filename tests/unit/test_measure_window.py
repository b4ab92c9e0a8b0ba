from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.changed_gpus import ChangedGpu

from joulewise.domain.caveats import CaveatKind
from joulewise.domain.errors import DeviceLost, MeasurementError, NotSupported
from joulewise.domain.measurement import CellMeasurement, GpuSample
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.session import DeviceSession
from joulewise.measure.cell import CellVisit, measure_visit
from joulewise.measure.settings import MeasureSettings
from joulewise.measure.steady import measure_idle_power_w
from joulewise.measure.window import REPEAT_STRIDE, measure_window
from joulewise.simulator.oracle import open_oracle
from joulewise.simulator.virtual import open_virtual
from joulewise.workload.gpt3_xl import gpt3_xl

WORKS = gpt3_xl().works[:1]
KERNEL = WORKS[0].kernel
QUIET = "virtual:rtx3080ti,noise=0"
SETTINGS = MeasureSettings()


def _lacking(session: DeviceSession, *names: str, has_counter: bool = True) -> DeviceSession:
    blank: dict[str, Callable[[GpuSample], GpuSample]] = {
        "energy_j": lambda sample: replace(sample, energy_j=None),
        "power_w": lambda sample: replace(sample, power_w=None),
        "temp_c": lambda sample: replace(sample, temp_c=None),
        "sm_clock_mhz": lambda sample: replace(sample, sm_clock_mhz=None),
    }

    def without(sample: GpuSample) -> GpuSample:
        for name in names:
            sample = blank[name](sample)
        return sample

    return replace(session, gpu=ChangedGpu(session.gpu, without, has_counter=has_counter))


def _unchanged(sample: GpuSample) -> GpuSample:
    return sample


def _measure(
    session: DeviceSession, point: OperatingPoint = AUTO, settings: MeasureSettings = SETTINGS
) -> CellMeasurement:
    session.gpu.request(point)
    visit = CellVisit(kernel=KERNEL, point=point, run="test", window_count=settings.window_count)
    return measure_visit(session, visit, settings)


def _kinds(cell: CellMeasurement) -> set[CaveatKind]:
    return {caveat.kind for window in cell.windows for caveat in window.caveats}


def test_without_noise_a_window_gives_the_true_time_and_energy() -> None:
    point = OperatingPoint(sm_clock_mhz=1200, mem_clock_mhz=9501)
    cell = _measure(open_virtual(f"{QUIET},gain=0", WORKS), point)
    time_s, energy_j = open_oracle(QUIET, WORKS).table([point])
    for window in cell.windows:
        assert window.time_s == pytest.approx(time_s[0, 0], rel=1e-9)
        # The counter counts whole microjoules.
        assert window.energy_j == pytest.approx(energy_j[0, 0], rel=1e-6)


def test_a_window_lasts_five_seconds_and_ends_on_counter_ticks() -> None:
    cell = _measure(open_virtual(QUIET, WORKS))
    periods = [window.duration_s / 0.1 for window in cell.windows]
    assert all(50 <= count <= 52 for count in periods)
    assert periods == pytest.approx([round(count) for count in periods])


def test_a_slow_counter_makes_the_window_longer() -> None:
    session = open_virtual(f"{QUIET},counter_period=500ms", WORKS)
    cell = _measure(session)
    assert all(window.duration_s >= 25.0 for window in cell.windows)
    assert CaveatKind.COUNTER_TOO_COARSE not in _kinds(cell)


def test_a_window_of_few_counter_periods_says_so() -> None:
    session = open_virtual(f"{QUIET},counter_period=500ms", WORKS)
    cell = _measure(session, settings=MeasureSettings(window_s=5.0, counter_period_count=1))
    assert CaveatKind.COUNTER_TOO_COARSE in _kinds(cell)


def test_a_counter_that_goes_back_costs_a_repeat_and_no_caveat() -> None:
    undisturbed = _measure(open_virtual(QUIET, WORKS))
    after_warm_up_s = 100.0
    device = f"{QUIET},counter_reset={after_warm_up_s:g}"
    settings = MeasureSettings(window_count=10)
    cell = _measure(open_virtual(device, WORKS), settings=settings)
    repeated = [window for window in cell.windows if window.window >= REPEAT_STRIDE]
    assert len(repeated) == 1
    assert {window.energy_j for window in cell.windows} == {undisturbed.windows[0].energy_j}
    assert CaveatKind.OTHER_PROCESS_ON_GPU not in _kinds(cell)


def test_a_counter_that_stands_still_once_costs_a_repeat() -> None:
    session = open_virtual(QUIET, WORKS)
    stuck = replace(session, gpu=ChangedGpu(session.gpu, _unchanged, stuck_tick_count=1))
    cell = _measure(stuck)
    assert [window.window for window in cell.windows] == [REPEAT_STRIDE, 1, 2]
    assert CaveatKind.ENERGY_FROM_POWER not in _kinds(cell)


def test_a_counter_that_always_stands_still_is_replaced_by_power_and_gives_no_zero() -> None:
    true_j = _measure(open_virtual(QUIET, WORKS)).windows[0].energy_j
    session = open_virtual(QUIET, WORKS)

    def frozen(sample: GpuSample) -> GpuSample:
        return replace(sample, energy_j=1.0)

    cell = _measure(replace(session, gpu=ChangedGpu(session.gpu, frozen)))
    assert [window.energy_j for window in cell.windows] == pytest.approx([true_j] * 3, rel=2e-3)
    assert all(
        CaveatKind.ENERGY_FROM_POWER in {caveat.kind for caveat in window.caveats}
        for window in cell.windows
    )


@pytest.mark.parametrize("has_counter", [True, False])
def test_without_energy_counter_power_is_added_up_with_a_caveat(*, has_counter: bool) -> None:
    true_j = _measure(open_virtual(QUIET, WORKS)).windows[0].energy_j
    meterless = _lacking(open_virtual(QUIET, WORKS), "energy_j", has_counter=has_counter)
    cell = _measure(meterless)
    assert cell.windows[0].energy_j == pytest.approx(true_j, rel=2e-3)
    assert CaveatKind.ENERGY_FROM_POWER in _kinds(cell)


@pytest.mark.parametrize("has_counter", [True, False])
def test_a_device_that_tells_neither_energy_nor_power_is_an_error_and_no_zero(
    *,
    has_counter: bool,
) -> None:
    meterless = _lacking(open_virtual(QUIET, WORKS), "energy_j", "power_w", has_counter=has_counter)
    with pytest.raises(NotSupported, match="tells no power"):
        _measure(meterless)
    assert measure_idle_power_w(meterless.gpu, SETTINGS) is None


def test_power_readings_of_nothing_are_an_error_and_no_zero() -> None:
    session = open_virtual(QUIET, WORKS)

    def dead(sample: GpuSample) -> GpuSample:
        return replace(sample, energy_j=None, power_w=0.0)

    with pytest.raises(MeasurementError, match="nothing was drawn"):
        _measure(replace(session, gpu=ChangedGpu(session.gpu, dead)))


def test_a_counter_that_runs_faster_than_the_board_can_draw_is_an_error() -> None:
    session = open_virtual(QUIET, WORKS)

    def racing(sample: GpuSample) -> GpuSample:
        return replace(sample, energy_j=2.0 * (sample.energy_j or 0.0))

    with pytest.raises(MeasurementError, match="power limit is 350 W"):
        _measure(replace(session, gpu=ChangedGpu(session.gpu, racing)))


def test_a_power_limit_that_somebody_raised_explains_more_power_than_the_one_found() -> None:
    session = open_virtual(QUIET, WORKS)

    def raised(sample: GpuSample) -> GpuSample:
        return replace(
            sample,
            energy_j=2.0 * (sample.energy_j or 0.0),
            power_w=2.0 * (sample.power_w or 0.0),
            power_limit_w=700.0,
        )

    cell = _measure(replace(session, gpu=ChangedGpu(session.gpu, raised)))
    assert CaveatKind.FOREIGN_CONTROL in _kinds(cell)


def test_a_reading_of_energy_that_is_missing_within_a_window_spoils_nothing() -> None:
    plain = _measure(open_virtual(QUIET, WORKS))
    session = open_virtual(QUIET, WORKS)

    class Gappy(ChangedGpu):
        """Lacks every third reading, but none at the edge of a window."""

        def wait_for_energy_tick(self, timeout_s: float) -> GpuSample:
            return session.gpu.wait_for_energy_tick(timeout_s)

    numbers = itertools.count()
    gpu = Gappy(
        session.gpu,
        lambda sample: sample if next(numbers) % 3 else replace(sample, energy_j=None),
    )
    assert plain.windows == _measure(replace(session, gpu=gpu)).windows


@pytest.mark.parametrize(("gain_ratio", "is_told"), [(1.0, False), (0.96, False), (0.6, True)])
def test_a_counter_that_disagrees_with_power_is_told_of_every_window(
    *, gain_ratio: float, is_told: bool
) -> None:
    session = open_virtual(QUIET, WORKS)

    def scaled(sample: GpuSample) -> GpuSample:
        return replace(sample, energy_j=gain_ratio * (sample.energy_j or 0.0))

    cell = _measure(replace(session, gpu=ChangedGpu(session.gpu, scaled)))
    for window in cell.windows:
        assert is_told == (
            CaveatKind.COUNTER_DISAGREES in {caveat.kind for caveat in window.caveats}
        )


def test_a_thermometer_that_falls_silent_in_the_warm_up_leaves_a_window_in_doubt() -> None:
    session = open_virtual(QUIET, WORKS)

    def silent(sample: GpuSample) -> GpuSample:
        return replace(sample, temp_c=None) if sample.time_s > 3.0 else sample

    cell = _measure(replace(session, gpu=ChangedGpu(session.gpu, silent)))
    seen = {caveat.seen for window in cell.windows for caveat in window.caveats}
    assert {"the device told no temperature after 0 s"} == seen


def test_heat_explains_a_lower_clock() -> None:
    session = open_virtual(f"{QUIET},ambient=60", WORKS)
    cell = _measure(session, OperatingPoint(sm_clock_mhz=1875))
    assert CaveatKind.THERMALLY_THROTTLED in _kinds(cell)
    assert CaveatKind.CLOCK_NOT_HELD not in _kinds(cell)


def test_a_counter_that_starts_anew_within_a_window_costs_a_repeat() -> None:
    session = open_virtual(QUIET, WORKS)
    seen: list[float] = []

    def reset_once(sample: GpuSample) -> GpuSample:
        """Counts from zero between two windows' edges, so that only samples within show it."""
        seen.append(sample.time_s)
        lost_j = 4000.0 if len(seen) < 12 else 0.0
        return replace(sample, energy_j=(sample.energy_j or 0.0) + lost_j)

    gpu = ChangedGpu(session.gpu, reset_once)
    with session.runner.loop(KERNEL, run="test") as loop:
        window = measure_window(gpu, loop, AUTO, 0, SETTINGS)
    assert window.window == REPEAT_STRIDE


def test_samples_within_a_window_change_no_bit_of_it() -> None:
    point = OperatingPoint(sm_clock_mhz=1200, mem_clock_mhz=9501)
    watched = _measure(open_virtual("virtual:rtx3080ti,seed=4", WORKS), point)
    seldom = replace(SETTINGS, sample_s=100.0)
    assert watched == _measure(open_virtual("virtual:rtx3080ti,seed=4", WORKS), point, seldom)


def test_a_device_without_thermometer_is_measured_with_a_caveat() -> None:
    cell = _measure(_lacking(open_virtual(QUIET, WORKS), "temp_c"))
    assert CaveatKind.NOT_STEADY in _kinds(cell)
    assert [window.temp_c for window in cell.windows] == [None, None, None]


def test_a_device_that_tells_no_clock_gets_none_invented() -> None:
    dull = _lacking(open_virtual(QUIET, WORKS), "sm_clock_mhz")
    cell = _measure(dull, OperatingPoint(sm_clock_mhz=1860, mem_clock_mhz=405))
    assert [window.sm_clock_held_mhz for window in cell.windows] == [None, None, None]
    assert CaveatKind.CLOCK_NOT_HELD not in _kinds(cell)


def test_a_passing_foreign_process_costs_repeats_and_no_caveat() -> None:
    clean = _measure(open_virtual(QUIET, WORKS))
    cell = _measure(open_virtual(f"{QUIET},foreign=0..90", WORKS))
    assert cell.windows[0].window >= REPEAT_STRIDE
    assert cell.windows[0].energy_j == pytest.approx(clean.windows[0].energy_j, rel=1e-6)
    assert CaveatKind.OTHER_PROCESS_ON_GPU not in _kinds(cell)


def test_a_foreign_process_that_stays_is_a_caveat() -> None:
    cell = _measure(open_virtual(f"{QUIET},foreign=0..100000", WORKS))
    assert CaveatKind.OTHER_PROCESS_ON_GPU in _kinds(cell)


def test_heat_that_stays_is_a_caveat() -> None:
    cell = _measure(open_virtual(f"{QUIET},ambient=60", WORKS))
    assert CaveatKind.THERMALLY_THROTTLED in _kinds(cell)


def test_a_clock_the_memory_state_does_not_allow_is_kept_with_a_caveat() -> None:
    point = OperatingPoint(sm_clock_mhz=1200, mem_clock_mhz=405)
    cell = _measure(open_virtual(QUIET, WORKS), point)
    assert _kinds(cell) == {CaveatKind.CLOCK_NOT_HELD}
    assert "asked for a SM clock of 1200 MHz, ran at 420 MHz" in {
        caveat.seen for window in cell.windows for caveat in window.caveats
    }


def test_a_power_cap_explains_a_lower_clock() -> None:
    works = gpt3_xl().works
    session = open_virtual(QUIET, works)
    point = OperatingPoint(sm_clock_mhz=1905, mem_clock_mhz=9501)
    session.gpu.request(point)
    caveats = set()
    for work in works:
        visit = CellVisit(kernel=work.kernel, point=point, run="test", window_count=1)
        (window,) = measure_visit(session, visit, SETTINGS).windows
        kinds = frozenset(caveat.kind for caveat in window.caveats)
        caveats.add(kinds)
        if CaveatKind.POWER_CAPPED in kinds:
            assert (window.sm_clock_held_mhz or 0.0) < 1905
    assert frozenset({CaveatKind.POWER_CAPPED}) in caveats
    assert frozenset({CaveatKind.POWER_CAPPED, CaveatKind.CLOCK_NOT_HELD}) not in caveats


def test_a_lost_device_ends_the_measurement() -> None:
    with pytest.raises(DeviceLost):
        _measure(open_virtual(f"{QUIET},lost_after=47", WORKS))


def test_a_warm_up_without_end_is_cut_short_with_a_caveat() -> None:
    settings = MeasureSettings(step_s=1.0, steady_s=10.0, warm_up_max_s=5.0)
    cell = _measure(open_virtual(QUIET, WORKS), settings=settings)
    assert CaveatKind.NOT_STEADY in _kinds(cell)


def test_idle_power_is_less_than_under_load_and_is_not_told_beside_a_foreign_process() -> None:
    session = open_virtual(QUIET, WORKS)
    idle_power_w = measure_idle_power_w(session.gpu, SETTINGS)
    window = _measure(session).windows[0]
    assert idle_power_w is not None
    assert 0.0 < idle_power_w < window.energy_j / window.time_s
    busy = open_virtual(f"{QUIET},foreign=0..100000", WORKS)
    assert measure_idle_power_w(busy.gpu, SETTINGS) is None


def test_a_window_at_auto_that_ran_slower_than_its_neighbours_was_somebody_elses() -> None:
    session = open_virtual(QUIET, WORKS)
    times_s: list[float] = []

    def noted(sample: GpuSample) -> GpuSample:
        times_s.append(sample.time_s)
        return sample

    _measure(replace(session, gpu=ChangedGpu(session.gpu, noted)))
    within_second_s = times_s[-1] - 7.5

    def locked(sample: GpuSample) -> GpuSample:
        """A lock that was there from the first, with nothing to tell of it."""
        is_locked = sample.time_s < within_second_s
        return replace(sample, sm_clock_mhz=1725) if is_locked else sample

    session = open_virtual(QUIET, WORKS)
    cell = _measure(replace(session, gpu=ChangedGpu(session.gpu, locked)))
    assert [window.window for window in cell.windows] == [0, 1 + REPEAT_STRIDE, 2]
    assert [
        CaveatKind.FOREIGN_CONTROL in {caveat.kind for caveat in window.caveats}
        for window in cell.windows
    ] == [True, False, False]
