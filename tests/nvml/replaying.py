"""Iterations played on the fake driver and on the virtual GPU, to be compared."""

from __future__ import annotations

from dataclasses import dataclass

from tests.fake_nvml import open_fake
from tests.nvml.works import WORKS

from joulewise.domain.measurement import IterationTiming
from joulewise.domain.plan import PlannedLaunch, PlannedRequest
from joulewise.domain.points import OperatingPoint
from joulewise.domain.session import DeviceSession
from joulewise.domain.transition import TransitionModel, uniform_transition
from joulewise.domain.workload import Pass
from joulewise.simulator.fake_driver import FakeDriver
from joulewise.simulator.presets import preset

# Iterations neither begin nor end with a tick, so ticks come often.
TICK_S = 0.01
VIRTUAL = f"virtual:rtx3080ti,noise=0,counter_period={TICK_S}"
SM_CLOCKS_MHZ = preset("rtx3080ti").grid.sm_clocks_mhz
LOW, HIGH = (
    OperatingPoint(sm_clock_mhz=SM_CLOCKS_MHZ[len(SM_CLOCKS_MHZ) // part]) for part in (4, 2)
)
STALL_POWER_W = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """One iteration as it went, in the mean."""

    timing: IterationTiming
    mean_w: float

    @property
    def time_s(self) -> float:
        return self.timing.elapsed_s / self.timing.iteration_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What was asked when, from the beginning on."""

    asked: tuple[tuple[float, str], ...]
    timing: IterationTiming


def launches_of(*parts: tuple[str, OperatingPoint, int]) -> tuple[PlannedLaunch, ...]:
    return tuple(
        PlannedLaunch(kernel=kernel, pass_=Pass.FORWARD, point=point)
        for kernel, point, count in parts
        for _ in range(count)
    )


def fake_session(
    driver: FakeDriver, *, lag_s: float, stall_s: float = 0.0, dwell_s: float = 0.0
) -> DeviceSession:
    """A fake GPU whose calls return at once, as those of a virtual one do."""
    knobs = {
        "set_call_s": 0.0,
        "counter_period_s": TICK_S,
        "lag_s": lag_s,
        "stall_s": stall_s,
        "dwell_s": dwell_s,
        "stall_power_w": STALL_POWER_W,
    }
    for name, value in knobs.items():
        driver.set_knob(0, name, value)
    return open_fake(driver, WORKS)


def model_of(lag_s: float, stall_s: float = 0.0, dwell_s: float = 0.0) -> TransitionModel:
    return uniform_transition(
        "same",
        "a test",
        lag_s=lag_s,
        stall_s=stall_s,
        dwell_s=dwell_s,
        energy_j=STALL_POWER_W * stall_s,
    )


def replay(
    session: DeviceSession,
    launches: tuple[PlannedLaunch, ...],
    requests: tuple[PlannedRequest, ...],
    *,
    warm_s: float = 0.0,
    iteration_count: int = 20,
) -> Replay:
    """Iterations from the third on, begun `warm_s` after the first."""
    assert session.iterations is not None
    gpu = session.gpu
    gpu.request(launches[0].point)
    gpu.wait(1.0)
    with session.iterations.iterate(launches, requests, gpu.request, run="r") as loop:
        loop.run_for(warm_s)
        loop.run_iterations(2)
        loop.begin_window(0)
        start = gpu.sample()
        loop.run_iterations(iteration_count)
        end = gpu.sample()
        timing = loop.end_window()
    assert start.energy_j is not None
    assert end.energy_j is not None
    power_w = (end.energy_j - start.energy_j) / (end.time_s - start.time_s)
    return Replay(timing=timing, mean_w=power_w)


def asked_in(
    session: DeviceSession,
    launches: tuple[PlannedLaunch, ...],
    requests: tuple[PlannedRequest, ...],
) -> Asked:
    assert session.iterations is not None
    gpu = session.gpu
    gpu.request(launches[0].point)
    gpu.wait_for_energy_tick(1.0)
    # A virtual loop waits for a tick.
    gpu.wait(1.0 - 1e-9 if session.transition is None else 1.0)
    asked: list[tuple[float, str]] = []

    def ask(point: OperatingPoint) -> None:
        asked.append((gpu.sample().time_s, point.label))
        gpu.request(point)

    with session.iterations.iterate(launches, requests, ask, run="r") as loop:
        begun_s = gpu.sample().time_s
        loop.begin_window(0)
        loop.run_iterations(30)
        timing = loop.end_window()
    return Asked(
        asked=tuple((at_s - begun_s, label) for at_s, label in asked if at_s > begun_s),
        timing=timing,
    )


MIXED = launches_of(("gemm", LOW, 4), ("copy", HIGH, 30), ("short", HIGH, 40), ("gemm", LOW, 2))
