"""A training job in time of its own, for tests of the live governor: steps, a sensor, a clock."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from joulewise.domain.finetuning import ClockChoice, ClockCost, StepMark
from joulewise.domain.measurement import GpuSample
from joulewise.finetune.accounting import PowerLog
from joulewise.finetune.live import LiveGovernor, LiveSettings
from joulewise.finetune.live_schedule import Purpose, StepScheduler

CLOCKS = (306, 510, 714, 918, 1300)
EMPTY = GpuSample(
    time_s=0.0,
    energy_j=None,
    power_w=None,
    sm_clock_mhz=None,
    mem_clock_mhz=None,
    temp_c=None,
    power_capped_s=None,
    thermally_throttled_s=None,
    other_process_count=None,
    average_power_w=20.0,
)


def u_curve(clock_mhz: int) -> tuple[float, float]:
    """Seconds and watts of a step: compute-bound, with a floor of power; best at 714 MHz."""
    return 500.0 / clock_mhz, 12.0 + 45.0 * (clock_mhz / 1300) ** 2.6


@dataclass(slots=True, kw_only=True)
class World:
    """A job on a board in time of its own: steps, a slow power sensor, and a governor."""

    scheduler: StepScheduler
    cost: Callable[[int], tuple[float, float]] = u_curve
    governor_mhz: int = 1300
    noise_ratio: float = 0.01
    sensor_s: float = 0.15
    time_s: float = 0.0
    step: int = 0
    marked_s: float = -1.0
    set_mhz: int | None = None
    history: list[tuple[int | None, Purpose | None, float]] = field(default_factory=list)
    log: PowerLog = field(default_factory=PowerLog)
    random: random.Random = field(default_factory=lambda: random.Random(7))  # noqa: S311
    _shown_w: float = 20.0
    _moved_s: float = -1.0

    def __post_init__(self) -> None:
        self.read(20.0)
        self.apply()

    def apply(self) -> None:
        self.set_mhz = self.scheduler.asked_mhz
        self.scheduler.applied(self.time_s, self.log.shown_within_s())

    def run(self, step_count: int) -> None:
        # As a program marks it: at first, and after what was no training.
        has_paused = self.time_s != self.marked_s
        marks = [StepMark(step=self.step, time_s=self.time_s)] if has_paused else []
        for _ in range(step_count):
            duration_s, power_w = self.cost(self.set_mhz or self.governor_mhz)
            duration_s *= math.exp(self.random.gauss(0, self.noise_ratio))
            power_w *= math.exp(self.random.gauss(0, self.noise_ratio))
            self.history.append((self.set_mhz, self.scheduler.purpose, duration_s))
            end_s = self.time_s + duration_s
            while self.time_s + 0.1 < end_s:
                self.time_s += 0.1
                self.read(power_w)
            self.time_s = end_s
            self.step += 1
            self.marked_s = end_s
            marks.append(StepMark(step=self.step, time_s=end_s))
            self.read(power_w)
            self.scheduler.see(marks, self.log)
            marks = []
            if self.scheduler.asked_mhz != self.set_mhz:
                self.apply()

    def read(self, power_w: float) -> None:
        if self.time_s - self._moved_s >= self.sensor_s:
            self._shown_w, self._moved_s = power_w, self.time_s
        self.log.add(replace(EMPTY, time_s=self.time_s, power_w=self._shown_w))


def least(costs: Sequence[ClockCost], _: ClockCost | None) -> ClockChoice:
    best = min(costs, key=lambda cost: cost.energy_j)
    return ClockChoice(policy="probe", sm_clock_mhz=best.sm_clock_mhz, reason="least energy")


def advice(clock_mhz: int | None = 918) -> ClockChoice:
    return ClockChoice(policy="tree", sm_clock_mhz=clock_mhz, reason="rules")


def governor(**changes: object) -> LiveGovernor:
    probed = LiveSettings(probe_clocks_mhz=(510, 714, 918), check_every_s=60.0)
    return LiveGovernor(advice(), replace(probed, **changes), least)  # type: ignore[arg-type]
