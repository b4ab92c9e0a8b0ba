from __future__ import annotations

from dataclasses import replace

import pytest

from joulewise.domain.caveats import CaveatKind
from joulewise.domain.errors import DeviceLost, MeasurementError, NotSupported
from joulewise.domain.measurement import CellMeasurement, GpuSample
from joulewise.domain.points import AUTO, ClockGrid, OperatingPoint
from joulewise.domain.ports import Gpu, GpuIdentity
from joulewise.domain.session import DeviceSession
from joulewise.measure.cell import CellVisit, measure_visit
from joulewise.measure.settings import MeasureSettings
from joulewise.measure.steady import measure_idle_power_w
from joulewise.measure.window import REPEAT_STRIDE
from joulewise.simulator.oracle import open_oracle
from joulewise.simulator.virtual import open_virtual
from joulewise.workload.gpt3_xl import gpt3_xl

WORKS = gpt3_xl().works[:1]
KERNEL = WORKS[0].kernel
QUIET = "virtual:rtx3080ti,noise=0"
SETTINGS = MeasureSettings()


class ChangedGpu:
    """A virtual GPU some of whose readings are replaced, or kept from moving."""

    def __init__(
        self,
        gpu: Gpu,
        *,
        lacks: tuple[str, ...] = (),
        stuck_tick_count: int = 0,
        is_counter_frozen: bool = False,
    ) -> None:
        self._gpu = gpu
        self._lacks = lacks
        self._stuck_tick_count = stuck_tick_count
        self._frozen_j = 1.0 if is_counter_frozen else None

    @property
    def identity(self) -> GpuIdentity:
        return self._gpu.identity

    @property
    def energy_counter_period_s(self) -> float:
        return self._gpu.energy_counter_period_s

    def clock_grid(self) -> ClockGrid:
        return self._gpu.clock_grid()

    def sample(self) -> GpuSample:
        return self._changed(self._gpu.sample())

    def wait_for_energy_tick(self, timeout_s: float) -> GpuSample:
        if self._stuck_tick_count:
            self._stuck_tick_count -= 1
            self._gpu.wait(timeout_s)
            raise MeasurementError("the energy counter did not move")
        return self._changed(self._gpu.wait_for_energy_tick(timeout_s))

    def wait(self, duration_s: float) -> None:
        self._gpu.wait(duration_s)

    def request(self, point: OperatingPoint) -> None:
        self._gpu.request(point)

    def reset(self) -> None:
        self._gpu.reset()

    def _changed(self, sample: GpuSample) -> GpuSample:
        changed = {
            "temp_c": lambda: replace(sample, temp_c=None),
            "energy_j": lambda: replace(sample, energy_j=None),
            "sm_clock_mhz": lambda: replace(sample, sm_clock_mhz=None),
            "power_capped_s": lambda: replace(sample, power_capped_s=None),
        }
        for name in self._lacks:
            sample = changed[name]()
        return sample if self._frozen_j is None else replace(sample, energy_j=self._frozen_j)


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
    stuck = replace(session, gpu=ChangedGpu(session.gpu, stuck_tick_count=1))
    assert [window.window for window in _measure(stuck).windows] == [REPEAT_STRIDE, 1, 2]


def test_a_counter_that_always_stands_still_is_an_error_and_no_zero() -> None:
    session = open_virtual(QUIET, WORKS)
    frozen = replace(session, gpu=ChangedGpu(session.gpu, is_counter_frozen=True))
    with pytest.raises(MeasurementError, match="stood still"):
        _measure(frozen)


def test_a_device_without_energy_counter_is_an_error_and_no_zero() -> None:
    session = open_virtual(QUIET, WORKS)
    meterless = replace(session, gpu=ChangedGpu(session.gpu, lacks=("energy_j",)))
    with pytest.raises(NotSupported, match="no energy counter"):
        _measure(meterless)


def test_a_device_without_thermometer_is_measured_with_a_caveat() -> None:
    session = open_virtual(QUIET, WORKS)
    cell = _measure(replace(session, gpu=ChangedGpu(session.gpu, lacks=("temp_c",))))
    assert CaveatKind.NOT_STEADY in _kinds(cell)
    assert [window.temp_c for window in cell.windows] == [None, None, None]


def test_a_device_that_tells_no_clock_gets_none_invented() -> None:
    session = open_virtual(QUIET, WORKS)
    dull = replace(session, gpu=ChangedGpu(session.gpu, lacks=("sm_clock_mhz",)))
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
