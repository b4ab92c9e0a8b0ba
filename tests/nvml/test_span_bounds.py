"""Energy of a span against what the fake GPU truly drew, whatever runs before, in and after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.fake_nvml import DriverMaker
from tests.nvml.works import WORKS

from joulewise.device.nvml import stop
from joulewise.device.nvml_gpu import open_nvml
from joulewise.domain.caveats import CaveatKind
from joulewise.measure.span import POWER_SAMPLE_S, SpanEnergy, SpanMeter
from joulewise.simulator.fake_driver import FakeDriver
from joulewise.simulator.fake_runner import open_fake_session_parts

READ_EVERY_S = 0.1
GEMM = 0
KERNELS = (GEMM, 1, 2, None)
Load = tuple[float, int | None]
"""How long, and which of the works; `None`: at rest."""


@dataclass(slots=True, kw_only=True)
class Day:
    """Virtual time in which kernels come and go at their moments, whoever sleeps."""

    driver: FakeDriver
    due: list[tuple[float, Callable[[], None]]] = field(default_factory=list)

    def now_s(self) -> float:
        return self.driver.now_s()

    def sleep(self, duration_s: float) -> None:
        end_s = self.now_s() + duration_s
        while self.due and self.due[0][0] <= end_s:
            at_s, act = self.due.pop(0)
            self.driver.advance(max(0.0, at_s - self.now_s()))
            act()
        self.driver.advance(max(0.0, end_s - self.now_s()))

    def plan(self, loads: Sequence[Load]) -> None:
        """From now on, one after the other; forget what was planned before."""
        starts_s = accumulate((duration_s for duration_s, _ in loads), initial=self.now_s())
        self.due = [
            (at_s, partial(self.driver.run, 0, [] if kernel is None else [(kernel, 1)]))
            for at_s, (_, kernel) in zip(starts_s, loads, strict=False)
        ]


def measured(
    driver: FakeDriver, before: Sequence[Load], loads: Sequence[Load], span_s: float
) -> tuple[SpanEnergy, float]:
    """A span at whose start these loads begin to come and go; the energy told and the true one."""
    open_fake_session_parts(driver, 0, WORKS)
    day = Day(driver=driver)
    gpu = open_nvml("nvml:0", timer=day)
    day.plan(before)
    meter = SpanMeter(gpu)
    meter.open()
    pause_s = POWER_SAMPLE_S if meter.is_counter_missing else READ_EVERY_S
    while meter.is_counter_missing and day.due:
        # So long as others get ready.
        gpu.wait(pause_s)
        meter.see_before(gpu.sample())
    day.plan(loads)
    start_s, start_j = gpu.now_s(), driver.true_energy_j(0)
    end_s = start_s + span_s
    while gpu.now_s() < end_s:
        gpu.wait(min(pause_s, end_s - gpu.now_s()))
        if gpu.now_s() < end_s:
            meter.see(gpu.sample())
    true_j = driver.true_energy_j(0) - start_j
    told = meter.close(start_s, gpu.now_s())
    has_counter = driver.knob(0, "has_counter") > 0
    kinds = {caveat.kind for caveat in told.caveats}
    assert has_counter == (CaveatKind.ENERGY_FROM_POWER not in kinds)
    return told, true_j


loads = st.lists(
    st.tuples(st.floats(0.004, 0.4), st.sampled_from(KERNELS)), min_size=1, max_size=16
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    before=loads,
    loads=loads,
    span_s=st.floats(0.15, 3.0),
    period_s=st.sampled_from([0.02, 0.1]),
    phase_ratio=st.floats(0.0, 1.0),
)
def test_the_true_energy_lies_within_what_stays_open(
    make_driver: DriverMaker,
    before: Sequence[Load],
    loads: Sequence[Load],
    span_s: float,
    period_s: float,
    phase_ratio: float,
) -> None:
    driver = make_driver()
    driver.set_knob(0, "counter_period_s", period_s)
    driver.set_knob(0, "counter_phase_ratio", phase_ratio)
    told, true_j = measured(driver, before, loads, span_s)

    assert abs(told.energy_j - true_j) <= told.uncertainty_j


@pytest.mark.parametrize("lingering_s", [0.0, 0.02, 0.04, 0.08])
@pytest.mark.parametrize("phase_ratio", [0.1, 0.4, 0.7])
def test_work_that_goes_on_after_the_command_is_within_what_stays_open(
    make_driver: DriverMaker, lingering_s: float, phase_ratio: float
) -> None:
    driver = make_driver()
    driver.set_knob(0, "counter_phase_ratio", phase_ratio)
    told, true_j = measured(driver, [], [(1.0 + lingering_s, GEMM), (9.0, None)], 1.0)

    assert abs(told.energy_j - true_j) <= told.uncertainty_j < 0.15 * told.energy_j


def test_an_idle_gpu_leaves_little_open(make_driver: DriverMaker) -> None:
    told, true_j = measured(make_driver(), [], [], 2.0)

    assert abs(told.energy_j - true_j) <= told.uncertainty_j < 0.1 * told.energy_j


BOARDS = ("rtx3080ti", "a100-sxm", "h100-sxm", "rtx4090")
# Of these the older tells the mean of a second on most boards, and does not say so.
DRIVERS = ("595.45.04", "470.57.02")
around = st.lists(
    st.tuples(st.floats(0.004, 0.4), st.sampled_from(KERNELS)), min_size=0, max_size=8
)


@pytest.mark.parametrize("version", DRIVERS)
@pytest.mark.parametrize("has_counter", [0, 1])
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_the_true_energy_of_a_steady_load_lies_within_what_stays_open_on_every_board(
    make_driver: DriverMaker,
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    has_counter: int,
    data: st.DataObject,
) -> None:
    # The driver reads its version anew when NVML is begun.
    monkeypatch.setenv("FAKE_NVML_DRIVER", version)
    stop()
    driver = make_driver(data.draw(st.sampled_from(BOARDS)))
    driver.set_knob(0, "has_counter", has_counter)
    span_s, kernel = data.draw(st.tuples(st.floats(0.05, 4.0), st.sampled_from(KERNELS)))
    loads = [(span_s, kernel), *data.draw(around)]
    told, true_j = measured(driver, data.draw(around), loads, span_s)

    assert abs(told.energy_j - true_j) <= told.uncertainty_j
