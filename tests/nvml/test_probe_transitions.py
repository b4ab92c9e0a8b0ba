"""What changes cost on the fake driver, found through the real binding."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fake_nvml import DriverMaker, open_fake
from tests.nvml.works import WORKS

from joulewise.control.lease import hold
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.session import DeviceSession
from joulewise.domain.transition import TransitionDomain, TransitionModel
from joulewise.measure.change_accounts import MeasuredChange
from joulewise.measure.change_times import ReadBack
from joulewise.measure.settings import MeasureSettings
from joulewise.measure.transitions import measure_transitions
from joulewise.simulator.fake_driver import FakeDriver
from joulewise.store.transition_files import read_transition

SLOW = OperatingPoint(sm_clock_mhz=840)
FAST = OperatingPoint(sm_clock_mhz=1155)
SETTINGS = MeasureSettings(window_count=3)
Measured = tuple[TransitionModel, tuple[MeasuredChange, ...]]


def measured(session: DeviceSession, state_dir: Path, *points: OperatingPoint) -> Measured:
    with hold(session.gpu, state_dir=state_dir) as lease:
        return measure_transitions(session, lease, "short", points, settings=SETTINGS)


@pytest.mark.parametrize(
    ("call_s", "lag_s", "stall_s"),
    [
        (0.0, 0.01, 0.0),
        (0.005, 0.006, 0.0),
        (0.005, 0.005, 0.001),
        (0.0, 0.15, 0.0),
        (0.0, 0.01, 0.05),
        (0.02, 0.0, 0.0),
        (0.004, 0.0005, 0.0),
    ],
)
def test_call_lag_and_stall_of_a_traced_clock_are_found(
    driver: FakeDriver, tmp_path: Path, call_s: float, lag_s: float, stall_s: float
) -> None:
    """Within 2 %, or two readings of the micro-kernel's clocks."""
    for name, value in {"set_call_s": call_s, "lag_s": lag_s, "stall_s": stall_s}.items():
        driver.set_knob(0, name, value)

    model, changes = measured(open_fake(driver, WORKS), tmp_path, SLOW, FAST)

    assert [(SLOW, FAST), (FAST, SLOW)] == [(one.before, one.after) for one in changes]
    for one in changes:
        assert one.call_s == pytest.approx(call_s, abs=1e-6)
        assert one.lag_s == pytest.approx(lag_s, rel=0.02, abs=3e-5)
        assert one.stall_s == pytest.approx(stall_s, rel=0.02, abs=3e-5)
        assert one.is_stall_seen == (stall_s > 0)
    assert model.dwell_s == max(one.worst_call_s for one in changes)
    assert {TransitionDomain.SM} == {cost.domain for cost in model.costs}
    assert [840, 1155, None] == sorted(
        (cost.target and cost.target.sm_clock_mhz for cost in model.costs),
        key=lambda clock: clock or 9999,
    )


def test_a_stall_that_hides_in_a_call_is_charged_all_the_same(
    driver: FakeDriver, tmp_path: Path
) -> None:
    """In virtual time nobody looks while a call blocks."""
    for name, value in {"set_call_s": 0.004, "lag_s": 0.001, "stall_s": 0.0002}.items():
        driver.set_knob(0, name, value)

    model, _ = measured(open_fake(driver, WORKS), tmp_path, SLOW, FAST)

    assert all(0.0002 <= cost.stall_s + cost.unseen_stall_s < 0.004 for cost in model.costs)


def test_what_the_tracer_sees_is_what_the_driver_reads_back(
    driver: FakeDriver, tmp_path: Path
) -> None:
    for name, value in {"set_call_s": 0.002, "lag_s": 0.02, "stall_s": 0.003}.items():
        driver.set_knob(0, name, value)
    session = open_fake(driver, WORKS)

    _, traced = measured(session, tmp_path, SLOW, FAST)
    _, read_back = measured(replace(session, tracer=None), tmp_path, SLOW, FAST)

    for one, other in zip(traced, read_back, strict=True):
        assert one.call_s == pytest.approx(other.call_s, rel=0.01)
        assert one.lag_s == pytest.approx(other.lag_s, rel=0.02)
        assert one.stall_s == pytest.approx(other.stall_s, rel=0.02)
        assert one.energy_j == pytest.approx(other.energy_j, rel=0.05)


def test_a_changed_memory_clock_is_read_back_for_no_cycle_tells_of_it(
    driver: FakeDriver, tmp_path: Path
) -> None:
    for name, value in {"set_call_s": 0.005, "lag_s": 0.02, "stall_s": 0.004}.items():
        driver.set_knob(0, name, value)
    memory = [replace(SLOW, mem_clock_mhz=clock) for clock in (5001, 9501)]

    _, changes = measured(open_fake(driver, WORKS), tmp_path, *memory)

    assert {TransitionDomain.MEMORY} == {one.domain for one in changes}
    for one in changes:
        assert one.call_s == pytest.approx(0.005, rel=0.001)
        assert one.lag_s == pytest.approx(0.02, rel=0.02)
        assert one.stall_s == pytest.approx(0.004, rel=0.02)


@pytest.mark.parametrize("read_call_s", [0.0, 0.0005])
def test_what_reading_takes_is_no_part_of_a_call_or_a_lag_that_is_read_back(
    driver: FakeDriver, tmp_path: Path, read_call_s: float
) -> None:
    """A sample reads some ten things, to see a clock come it takes two.

    What the request itself reads before it sets anything is part of it.
    """
    knobs = {"set_call_s": 0.004, "lag_s": 0.01, "read_call_s": read_call_s}
    for name, value in knobs.items():
        driver.set_knob(0, name, value)
    session = open_fake(driver, WORKS)

    with (
        hold(session.gpu, state_dir=tmp_path) as lease,
        session.runner.loop("short", run="r") as loop,
    ):
        lease.apply(FAST)
        asked_s = driver.now_s()
        lease.apply(SLOW)
        call_s = driver.now_s() - asked_s
        times = ReadBack(session.gpu, lease, loop, 3).times(SLOW, FAST)

    assert times is not None
    for one in (times.there, times.back):
        assert one.calls_s == pytest.approx(3 * [call_s])
        lag_s = call_s - 0.004 + 0.01
        assert one.lags_s == pytest.approx(3 * [lag_s], abs=max(0.0002, read_call_s))
        assert one.lag_doubt_s >= read_call_s


@pytest.mark.parametrize("wake_s", [0.3, 1.5])
def test_a_gpu_that_takes_a_while_to_wake_up_is_probed_awake(
    driver: FakeDriver, tmp_path: Path, wake_s: float
) -> None:
    driver.set_knob(0, "wake_s", wake_s)

    _, changes = measured(open_fake(driver, WORKS), tmp_path, SLOW, FAST)

    for one in changes:
        assert one.lag_s == pytest.approx(0.01, rel=0.02)
        assert not one.is_stall_seen


def test_a_clock_left_to_the_driver_is_traced_too(driver: FakeDriver, tmp_path: Path) -> None:
    _, changes = measured(open_fake(driver, WORKS), tmp_path, AUTO, SLOW)

    assert all(one.lag_s == pytest.approx(0.01, rel=0.02) for one in changes)


@pytest.mark.parametrize("profile", ["a100-sxm", "h100-sxm", "rtx4090"])
def test_every_gpu_of_the_fake_driver_is_probed(
    make_driver: DriverMaker, tmp_path: Path, profile: str
) -> None:
    driver = make_driver(profile)
    driver.set_knob(0, "stall_s", 0.002)
    session = open_fake(driver, WORKS, "nvml:0")
    clocks = session.gpu.clock_grid().sm_clocks_mhz
    low, middle = (OperatingPoint(sm_clock_mhz=clocks[len(clocks) // n]) for n in (3, 2))

    _, changes = measured(session, tmp_path, low, middle)

    for one in changes:
        assert one.lag_s == pytest.approx(driver.knob(0, "lag_s"), rel=0.02)
        assert one.stall_s == pytest.approx(0.002, rel=0.02)


@pytest.mark.integration
def test_the_command_writes_a_model_that_plan_reads(fake_library: Path, tmp_path: Path) -> None:
    """In a process of its own, as a user would call it."""
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(fake_library.parent),
        "FAKE_NVML_STATE": str(tmp_path / "driver.state"),
        "FAKE_NVML_PROFILE": "rtx3080ti",
        "FAKE_NVML_TIME": "virtual",
        "JOULEWISE_STATE_DIR": str(tmp_path / "state"),
    }
    done = subprocess.run(
        [
            *(sys.executable, "-m", "joulewise", "probe", "transitions", "--device", "nvml:0"),
            *("--workload", "gpt3-xl", "--kernel", "21_bias_reduce", "--json"),
            *("--sm-clocks", "840,1155", "--out", str(tmp_path / "own.json")),
        ],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert 0 == done.returncode, done.stdout + done.stderr
    model = read_transition(tmp_path / "own.json")
    assert model.dwell_s == pytest.approx(0.004)
    assert all(cost.lag_s == pytest.approx(0.01, rel=0.02) for cost in model.costs)
    assert model.is_simulated
    document = json.loads(done.stdout)
    assert ["840/auto", "1155/auto"] == [
        OperatingPoint(sm_clock_mhz=one["after"]["sm_clock_mhz"]).label
        for one in reversed(document["changes"])
    ]
    assert "SimulatedDevice" in str(document["caveats"])
