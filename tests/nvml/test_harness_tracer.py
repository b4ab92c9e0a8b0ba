"""The clock as a spinning micro-kernel on the fake driver sees it."""

from __future__ import annotations

import numpy as np
import pytest
from tests.fake_nvml import DriverMaker, open_fake
from tests.nvml.works import WORKS

from joulewise.domain.errors import InputError, MeasurementError
from joulewise.domain.points import OperatingPoint
from joulewise.domain.ports import ClockTrace
from joulewise.domain.session import DeviceSession
from joulewise.simulator.fake_driver import FakeDriver
from joulewise.simulator.presets import preset

SM_CLOCKS_MHZ = preset("rtx3080ti").grid.sm_clocks_mhz
LOW_MHZ, HIGH_MHZ = SM_CLOCKS_MHZ[30], SM_CLOCKS_MHZ[60]


def traced(session: DeviceSession, *, before_s: float = 0.05, after_s: float = 0.1) -> ClockTrace:
    """A change from the low to the high clock."""
    assert session.tracer is not None
    session.gpu.request(OperatingPoint(sm_clock_mhz=LOW_MHZ))
    session.gpu.wait(0.5)
    high = OperatingPoint(sm_clock_mhz=HIGH_MHZ)
    return session.tracer.trace(
        lambda: session.gpu.request(high), before_s=before_s, after_s=after_s
    )


@pytest.mark.parametrize(("call_s", "lag_s"), [(0.0, 0.02), (0.004, 0.02), (0.02, 0.005)])
@pytest.mark.parametrize("stall_s", [0.0, 0.003])
def test_a_trace_shows_when_the_clock_moved_and_stood_still(
    driver: FakeDriver, stall_s: float, call_s: float, lag_s: float
) -> None:
    """A change within the call is seen as well."""
    for name, value in {"set_call_s": call_s, "lag_s": lag_s, "stall_s": stall_s}.items():
        driver.set_knob(0, name, value)
    trace = traced(open_fake(driver, WORKS))
    paces_mhz = np.diff(trace.cycles) / np.diff(trace.times_s) / 1e6
    middles_s = (trace.times_s[1:] + trace.times_s[:-1]) / 2
    changes_s = trace.asked_s + lag_s

    assert call_s == pytest.approx(trace.returned_s - trace.asked_s, abs=1e-7)
    assert LOW_MHZ == pytest.approx(float(np.median(paces_mhz[middles_s < changes_s])))
    later = paces_mhz[middles_s > changes_s + stall_s + 1e-4]
    assert HIGH_MHZ == pytest.approx(float(np.median(later)))
    still_s = float(np.diff(trace.times_s)[paces_mhz < 1.0].sum())
    assert stall_s == pytest.approx(still_s, abs=4e-5)
    assert call_s == driver.knob(0, "set_call_s")
    assert float(np.diff(trace.times_s).max()) < 2e-5


def test_a_trace_is_as_fine_as_a_micro_kernel(driver: FakeDriver) -> None:
    trace = traced(open_fake(driver, WORKS), before_s=0.02, after_s=0.03)
    steps_s = np.diff(trace.times_s)
    assert trace.times_s.shape == trace.cycles.shape
    assert 1e-5 <= float(np.median(steps_s)) <= 2e-5
    assert (steps_s > 0).all()
    assert (np.diff(trace.cycles) >= 0).all()
    assert 0.02 == pytest.approx(trace.asked_s - float(trace.times_s[0]), abs=1e-6)
    assert 0.03 == pytest.approx(float(trace.times_s[-1]) - trace.returned_s, abs=1e-6)


def test_what_the_act_raises_comes_out_and_the_gpu_is_free_again(driver: FakeDriver) -> None:
    session = open_fake(driver, WORKS)
    assert session.tracer is not None

    def refuse() -> None:
        raise MeasurementError("not now")

    with pytest.raises(MeasurementError, match="not now"):
        session.tracer.trace(refuse, before_s=0.001, after_s=0.001)
    with session.runner.loop("gemm", run="r") as loop:
        loop.run_for(0.01)
        with pytest.raises(MeasurementError, match="has to wait"):
            session.tracer.trace(refuse, before_s=0.001, after_s=0.001)


@pytest.mark.parametrize("before_s", [-1.0, float("nan"), 1e6])
def test_times_that_are_none_are_refused(driver: FakeDriver, before_s: float) -> None:
    session = open_fake(driver, WORKS)
    assert session.tracer is not None
    with pytest.raises(InputError, match="before_s"):
        session.tracer.trace(lambda: None, before_s=before_s, after_s=0.0)


def test_real_time_is_traced_by_a_thread_the_call_included(make_driver: DriverMaker) -> None:
    driver = make_driver(is_virtual_time=False)
    trace = traced(open_fake(driver, WORKS), before_s=0.02, after_s=0.05)
    assert trace.returned_s > trace.asked_s
    assert float(trace.times_s[0]) < trace.asked_s
    assert trace.returned_s < float(trace.times_s[-1])
    whole_mhz = np.ptp(trace.cycles) / np.ptp(trace.times_s) / 1e6
    assert LOW_MHZ < whole_mhz < HIGH_MHZ
