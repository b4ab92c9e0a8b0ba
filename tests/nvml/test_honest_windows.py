"""Windows on the fake driver: whatever disturbs one is told, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from tests.fake_nvml import DriverMaker, open_fake
from tests.nvml.fake_binding import opened

from joulewise.domain.caveats import CaveatKind
from joulewise.domain.measurement import Window
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.ports import KernelLoop
from joulewise.domain.session import DeviceSession
from joulewise.measure.settings import MeasureSettings
from joulewise.measure.window import REPEAT_STRIDE, measure_window
from joulewise.simulator.fake_driver import FakeDriver
from joulewise.simulator.physics import SteadyTable, steady_state
from joulewise.simulator.presets import preset
from joulewise.workload.gpt3_xl import gpt3_xl

WORKS = gpt3_xl().works
ONCE = MeasureSettings(repeat_count=0)
WARM_S = 3.0
WINDOW_S = 5.0
WINDOW_COUNT = 55
CAPPED, HOT = CaveatKind.POWER_CAPPED, CaveatKind.THERMALLY_THROTTLED
FOREIGN, NOT_HELD = CaveatKind.FOREIGN_CONTROL, CaveatKind.CLOCK_NOT_HELD
CROWDED = CaveatKind.OTHER_PROCESS_ON_GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One window to come: where, of what, at which point."""

    driver: FakeDriver
    session: DeviceSession
    kernel: str
    point: OperatingPoint
    rng: np.random.Generator

    def running_mhz(self) -> float:
        """The clock that runs now."""
        return self.driver.true_sm_clock_mhz(0)

    def lower_clock_mhz(self, most_ratio: float) -> int:
        """A listed clock well below the one that runs."""
        clocks = self.session.gpu.clock_grid().sm_clocks_mhz
        below = [clock for clock in clocks if clock <= most_ratio * self.running_mhz()]
        return int(self.rng.choice(below))

    def next_above_mhz(self, clock_mhz: int) -> int:
        """The next listed clock."""
        clocks = self.session.gpu.clock_grid().sm_clocks_mhz
        return min(clock for clock in clocks if clock > clock_mhz)

    @property
    def lower_clock_kind(self) -> CaveatKind:
        """What a lower clock all through the window is, with nothing to tell whose it is."""
        return FOREIGN if self.point.sm_clock_mhz is None else NOT_HELD

    def steady(self, point: OperatingPoint) -> SteadyTable:
        """What the physics of the profile makes of the kernel there."""
        work = next(work for work in WORKS if work.kernel == self.kernel)
        return steady_state(preset(self.driver.profile(0)), [work], [point])

    def knob(self, name: str, value: float) -> None:
        """Turn a knob of the board."""
        self.driver.set_knob(0, name, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The doubts that a trouble casts, and what holds most of the window under it."""

    kinds: frozenset[CaveatKind]
    point: OperatingPoint
    """Whatever decides whether the power limit holds the clock down, ceilings included."""


Trouble = Callable[[Case], Expected]
"""Disturbs a window that is about to begin."""


def _expected(case: Case, *kinds: CaveatKind, sm_clock_mhz: int | None = None) -> Expected:
    point = case.point if sm_clock_mhz is None else replace(case.point, sm_clock_mhz=sm_clock_mhz)
    return Expected(kinds=frozenset(kinds), point=point)


def _nothing(case: Case) -> Expected:
    return _expected(case)


def _wandering(case: Case) -> Expected:
    """As clocks do by themselves."""
    case.knob("dither_s", float(case.rng.uniform(0.02, 0.06)))
    return _expected(case)


def _lock_before(case: Case) -> Expected:
    clock = case.lower_clock_mhz(0.9)
    case.driver.foreign_lock(0, at_s=case.driver.now_s(), min_clock_mhz=clock, max_clock_mhz=clock)
    return _expected(case, case.lower_clock_kind, sm_clock_mhz=clock)


def _lock_above(case: Case) -> Expected:
    """Somebody gives the clocks back while ours are locked."""
    asked = case.point.sm_clock_mhz
    assert asked is not None
    case.driver.foreign_lock(0, at_s=case.driver.now_s(), min_clock_mhz=0, max_clock_mhz=0)
    free = replace(case.point, sm_clock_mhz=None)
    # At the power limit already, the clock stays where it was, or wanders by a step.
    least_mhz = case.next_above_mhz(case.next_above_mhz(asked))
    has_moved = case.steady(free).sm_clock_held_mhz[0, 0] >= least_mhz
    return Expected(kinds=frozenset({FOREIGN} if has_moved else ()), point=free)


def _lock_within(case: Case) -> Expected:
    """For 2 to 60 % of the window, mostly short; then the clock is as it was."""
    clock, asked = case.lower_clock_mhz(0.65), case.point.sm_clock_mhz
    share = 0.02 * 30.0 ** float(case.rng.random())
    begin_s = case.driver.now_s() + float(case.rng.uniform(0.2, (1.0 - share) * WINDOW_S - 0.1))
    case.driver.foreign_lock(0, at_s=begin_s, min_clock_mhz=clock, max_clock_mhz=clock)
    case.driver.foreign_lock(
        0,
        at_s=begin_s + share * WINDOW_S,
        min_clock_mhz=case.session.gpu.clock_grid().sm_clocks_mhz[0] if asked else 0,
        max_clock_mhz=asked or 0,
    )
    return _expected(case, FOREIGN)


def _limit(case: Case) -> Expected:
    limits = case.session.gpu.clock_grid().power_limits
    assert limits is not None
    limit_w = float(case.rng.uniform(limits.least_w, 0.95 * limits.found_w))
    case.knob("enforced_limit_w", limit_w)
    return Expected(kinds=frozenset({FOREIGN}), point=replace(case.point, power_limit_w=limit_w))


def _ceiling(case: Case, knob: str, kind: CaveatKind) -> Expected:
    clock = case.lower_clock_mhz(0.9)
    case.knob(knob, clock)
    return _expected(case, kind, sm_clock_mhz=clock)


def _silent_ceiling(case: Case) -> Expected:
    return _ceiling(case, "silent_ceiling_mhz", case.lower_clock_kind)


def _brake(case: Case) -> Expected:
    return _ceiling(case, "power_brake_mhz", CAPPED)


def _heat(case: Case) -> Expected:
    return _ceiling(case, "hw_thermal_mhz", HOT)


def _sync_boost(case: Case) -> Expected:
    return _ceiling(case, "sync_boost_mhz", NOT_HELD)


def _process(case: Case) -> Expected:
    case.knob("other_process_count", 1.0)
    return _expected(case, CROWDED)


TROUBLES: dict[str, Trouble] = {
    "nothing": _nothing,
    "a wandering clock": _wandering,
    "a foreign lock before": _lock_before,
    "a foreign lock within": _lock_within,
    "locks given back": _lock_above,
    "a foreign power limit": _limit,
    "a minimum not held": _silent_ceiling,
    "a power brake": _brake,
    "heat": _heat,
    "sync boost": _sync_boost,
    "another process": _process,
}


def _point(session: DeviceSession, rng: np.random.Generator, *, is_locked: bool) -> OperatingPoint:
    """Any point whose clock the chip can take up, at the memory's highest clock."""
    grid = session.gpu.clock_grid()
    usable = [
        clock for clock in grid.sm_clocks_mhz if 600 <= clock <= 0.85 * grid.sm_clocks_mhz[-1]
    ]
    if not is_locked:
        return AUTO
    return OperatingPoint(sm_clock_mhz=int(rng.choice(usable)))


def _measured(case: Case, trouble: Trouble) -> tuple[Window, Expected]:
    """A window, and what should be told of it."""
    gpu = case.session.gpu
    # Found at the first question, which takes a second that the trouble should not fall into.
    assert gpu.energy_counter_period_s is not None
    gpu.request(case.point)
    with case.session.runner.loop(case.kernel, run="law") as loop:
        loop.run_for(WARM_S)
        reached_mhz = gpu.sample().sm_clock_mhz
        expected = trouble(case)
        if trouble is not _lock_within:
            loop.run_for(0.2)
        window = measure_window(gpu, loop, case.point, 0, ONCE, reached_mhz=reached_mhz)
    return window, expected


@pytest.mark.parametrize("profile", ["rtx3080ti", "a100-sxm", "h100-sxm", "rtx4090"])
def test_every_disturbed_window_is_flagged_with_what_disturbed_it_and_nothing_else(
    make_driver: DriverMaker, profile: str
) -> None:
    wrong = []
    for number in range(WINDOW_COUNT):
        rng = np.random.default_rng([number, *profile.encode()])
        name = list(TROUBLES)[number % len(TROUBLES)]
        driver = make_driver(profile)
        session = open_fake(driver, WORKS, "nvml:0")
        is_locked = name == "locks given back" or bool(rng.random() < 0.6)
        case = Case(
            driver=driver,
            session=session,
            kernel=str(rng.choice(session.runner.kernels)),
            point=_point(session, rng, is_locked=is_locked),
            rng=rng,
        )
        case.knob("counter_phase_ratio", float(rng.random()))
        case.knob("gain_ratio", float(rng.uniform(0.95, 1.05)))
        window, expected = _measured(case, TROUBLES[name])
        is_capped = bool(case.steady(expected.point).is_power_capped[0, 0])
        right = expected.kinds | ({CAPPED} if is_capped else set())
        if right != {caveat.kind for caveat in window.caveats}:
            wrong.append((name, case.kernel, case.point.label, right, window))
    assert [] == wrong


@pytest.mark.parametrize("name", ["a foreign lock within", "a foreign lock before"])
def test_a_foreign_lock_that_passes_costs_a_repeat_and_no_caveat(
    driver: FakeDriver, name: str
) -> None:
    session = open_fake(driver, WORKS, "nvml:0")
    point = OperatingPoint(sm_clock_mhz=1200)
    session.gpu.request(point)
    with session.runner.loop(WORKS[0].kernel, run="r") as loop:
        loop.run_for(WARM_S)
        begin_s = driver.now_s() + (2.0 if name.endswith("within") else 0.0)
        driver.foreign_lock(0, at_s=begin_s, min_clock_mhz=600, max_clock_mhz=600)
        driver.foreign_lock(0, at_s=begin_s + 1.5, min_clock_mhz=210, max_clock_mhz=1200)
        window = measure_window(session.gpu, loop, point, 0, MeasureSettings())
    assert (REPEAT_STRIDE, ()) == (window.window, window.caveats)
    assert window.sm_clock_held_mhz == pytest.approx(1200.0, rel=1e-6)


def _one(
    driver: FakeDriver, point: OperatingPoint, disturb: Callable[[KernelLoop], None]
) -> Window:
    session = open_fake(driver, WORKS, "nvml:0")
    session.gpu.request(point)
    with session.runner.loop(WORKS[0].kernel, run="r") as loop:
        loop.run_for(WARM_S)
        disturb(loop)
        return measure_window(session.gpu, loop, point, 0, MeasureSettings(repeat_count=1))


def _seen(window: Window) -> dict[CaveatKind, str]:
    return {caveat.kind: caveat.seen for caveat in window.caveats}


def test_clock_below_the_requested_minimum_with_success_returned(driver: FakeDriver) -> None:
    driver.set_knob(0, "silent_ceiling_mhz", 900.0)
    window = _one(driver, OperatingPoint(sm_clock_mhz=1200), lambda _loop: None)
    assert {NOT_HELD: "asked for a SM clock of 1200 MHz, ran at 900 MHz"} == _seen(window)


def test_a_locked_clock_is_not_held_at_the_power_limit(make_driver: DriverMaker) -> None:
    """As an H200 locked to 1830 MHz under its 700 W."""
    driver = make_driver("h100-sxm")
    session = open_fake(driver, WORKS)
    gemm = next(work.kernel for work in WORKS if "gemm_feedforward" in work.kernel)
    point = OperatingPoint(sm_clock_mhz=1830)
    session.gpu.request(point)
    with session.runner.loop(gemm, run="r") as loop:
        loop.run_for(WARM_S)
        window = measure_window(session.gpu, loop, point, 0, MeasureSettings())
    assert {CAPPED} == set(_seen(window))
    assert window.sm_clock_held_mhz is not None
    assert window.sm_clock_held_mhz < 1700.0


def test_caps_silently_back_to_stock_after_a_driver_reload(driver: FakeDriver) -> None:
    window = _one(driver, OperatingPoint(sm_clock_mhz=1200), lambda _loop: driver.reload())
    assert "asked for a SM clock of 1200 MHz at most, ran at 1875 MHz" == _seen(window)[FOREIGN]


def _set_limit(limit_w: float) -> None:
    """As nvidia-smi -pl does."""
    with opened() as (nvml, handle):
        nvml.nvmlDeviceSetPowerManagementLimit(handle, round(1000 * limit_w))


def test_a_limit_of_our_own_that_somebody_raised_is_told(driver: FakeDriver) -> None:
    point = OperatingPoint(power_limit_w=200.0)
    window = _one(driver, point, lambda _loop: _set_limit(300.0))
    assert "a power limit of 300 W was in force, not the 200 W asked for" == _seen(window)[FOREIGN]


def test_a_limit_that_somebody_lowered_or_raised_while_ours_was_auto_is_told_ever_after(
    driver: FakeDriver,
) -> None:
    gemm = next(work.kernel for work in WORKS if "gemm_logits" in work.kernel)
    _set_limit(150.0)
    session = open_fake(driver, WORKS, "nvml:0")
    session.gpu.request(AUTO)
    settings = MeasureSettings(repeat_count=0)
    seen = []
    with session.runner.loop(gemm, run="r") as loop:
        for limit_w in (150.0, 120.0, 350.0):
            _set_limit(limit_w)
            loop.run_for(WARM_S)
            seen.append(_seen(measure_window(session.gpu, loop, AUTO, 0, settings)).get(FOREIGN))
    told = "a power limit of {} W was in force, not the 150 W found"
    assert [None, told.format(120), told.format(350)] == seen


@pytest.mark.parametrize("asked_w", [None, 250.0, 340.0])
def test_a_limit_that_the_machine_enforces_from_the_first_is_a_doubt_of_the_gpu_not_of_windows(
    driver: FakeDriver, asked_w: float | None
) -> None:
    driver.set_knob(0, "enforced_limit_w", 300.0)
    session = open_fake(driver, WORKS, "nvml:0")
    assert FOREIGN in {caveat.kind for caveat in session.gpu.identity.caveats}
    window = _one(driver, OperatingPoint(power_limit_w=asked_w), lambda _loop: None)
    assert ({CAPPED}, 0) == (set(_seen(window)), window.window)
