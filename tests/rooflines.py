"""A small world of kernels with a known truth, apart from the product's own physics.

Clocks speed kernels up until memory holds them back, voltage rises above a knee, and a
regulator lowers the clock where power would pass a limit. Formulas are plainer than those of
`joulewise.simulator`, so that what fits both fits more than one model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.measurement import CellMeasurement, Window
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.sweep import BoolTable, FloatTable, Sweep, SweepSource
from joulewise.domain.workload import Launch, Workload

SOURCE = SweepSource(device="rooflines", device_name="rooflines", tool="tests")
POWER_LIMIT_W = 300.0
_CAPPED = Caveat(kind=CaveatKind.POWER_CAPPED, seen="capped")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class World:
    """The truth about K kernels at P points."""

    kernels: tuple[str, ...]
    points: tuple[OperatingPoint, ...]
    time_s: FloatTable
    power_w: FloatTable
    sm_clock_mhz: FloatTable
    is_capped: BoolTable

    @property
    def energy_j(self) -> FloatTable:
        """(K, P) joules per launch."""
        return self.time_s * self.power_w

    @property
    def baseline_index(self) -> int:
        """Column of (auto, auto)."""
        return self.points.index(AUTO)

    def workload(self, launch_count: int = 3) -> Workload:
        """Every kernel so many times, in turn."""
        launches = tuple(Launch(kernel=kernel) for kernel in self.kernels) * launch_count
        return Workload(name="rooflines", launches=launches)

    def exact_sweep(self) -> Sweep:
        """The truth as a sweep without scatter."""
        return _sweep(self, self.time_s, self.energy_j, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Standard deviations as shares of the value."""

    time_ratio: float = 0.002
    power_ratio: float = 0.01
    shift_ratio: float = 0.0


def world(
    kernel_count: int = 12,
    sm_clocks_mhz: Sequence[int | None] = (None, 600, 800, 1000, 1200, 1400, 1600, 1800),
    mem_clocks_mhz: Sequence[int | None] = (None, 2000, 4000, 8000),
    seed: int = 0,
    power_limit_w: float = POWER_LIMIT_W,
) -> World:
    """Kernels from compute-bound to memory-bound at all pairs of these clocks."""
    rng = np.random.default_rng(seed)
    points = tuple(
        OperatingPoint(sm_clock_mhz=sm, mem_clock_mhz=mem)
        for mem in mem_clocks_mhz
        for sm in sm_clocks_mhz
    )
    size_s = np.exp(rng.uniform(np.log(1e-3), np.log(2e-2), kernel_count))[:, None]
    balance = rng.uniform(0.3, 1.6, kernel_count)[:, None]
    activity = rng.uniform(0.7, 1.2, (2, kernel_count, 1))
    wanted = np.array([point.sm_clock_mhz or 1800 for point in points], dtype=np.float64)
    memory = np.array([point.mem_clock_mhz or 8000 for point in points], dtype=np.float64) / 8000
    is_auto = np.array([point.mem_clock_mhz is None for point in points])
    clock = np.tile(wanted / 1800, (kernel_count, 1))

    def run(clock: FloatTable) -> tuple[FloatTable, FloatTable]:
        compute, traffic = size_s / clock, size_s * balance / memory
        time_s = (compute**3 + traffic**3) ** (1 / 3) + 5e-6
        voltage = 1 + 1.2 * np.maximum(clock - 0.6, 0) ** 2 + 0.05 * is_auto * (clock > 0.9)
        core = activity[0] * 220 * voltage**2 * size_s / time_s
        moved = activity[1] * 60 * size_s * balance / time_s
        return time_s, 40 + 25 * memory + 20 * voltage**2 * clock + core + moved

    low, high = np.full_like(clock, 0.2), clock.copy()
    is_capped = run(clock)[1] > power_limit_w
    for _ in range(40):
        middle = (low + high) / 2
        above = run(middle)[1] > power_limit_w
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    clock = np.where(is_capped, low, clock)
    time_s, power_w = run(clock)
    return World(
        kernels=tuple(f"kernel-{k}" for k in range(kernel_count)),
        points=points,
        time_s=time_s,
        power_w=power_w,
        sm_clock_mhz=clock * 1800,
        is_capped=is_capped,
    )


def noisy_sweep(
    truth: World, noise: Noise, *, seed: int = 0, window_count: int = 3, absent_ratio: float = 0.0
) -> Sweep:
    """Medians of noisy windows; every point's visit has a shift of its own."""
    rng = np.random.default_rng([seed, 1])
    shape = truth.time_s.shape
    shift = rng.normal(size=shape[1]) * noise.shift_ratio
    times = truth.time_s * np.exp(
        shift + noise.time_ratio * rng.normal(size=(window_count, *shape))
    )
    powers = truth.power_w * np.exp(noise.power_ratio * rng.normal(size=(window_count, *shape)))
    present = rng.random(shape) >= absent_ratio
    present[:, truth.baseline_index] = True
    windows = times, times * powers
    return _sweep(truth, np.median(times, 0), np.median(windows[1], 0), windows, present)


def _sweep(
    truth: World,
    time_s: FloatTable,
    energy_j: FloatTable,
    windows: tuple[FloatTable, FloatTable] | None,
    present: BoolTable | None = None,
) -> Sweep:
    if present is None:
        present = np.ones(time_s.shape, dtype=np.bool_)
    deviation = (
        (None, None) if windows is None else tuple(w.std(axis=0, ddof=1) * present for w in windows)
    )
    count = 0 if windows is None else len(windows[0])
    return Sweep(
        kernels=truth.kernels,
        points=truth.points,
        baseline=AUTO,
        source=SOURCE,
        is_present=present,
        time_s=np.where(present, time_s, np.inf),
        energy_j=np.where(present, energy_j, np.inf),
        time_std_s=deviation[0],
        energy_std_j=deviation[1],
        window_count=np.where(present, count, 0) if count else None,
        sm_clock_held_mhz=np.where(present, truth.sm_clock_mhz, 0.0),
        cell_caveats={
            (truth.kernels[k], truth.points[p]): (_CAPPED,)
            for k, p in zip(*np.nonzero(truth.is_capped & present), strict=True)
        },
    )


@dataclass(slots=True)
class Bench:
    """Measures cells of a world afresh, and remembers what it was asked for."""

    truth: World
    noise: Noise
    seed: int = 0
    asked: list[tuple[tuple[str, OperatingPoint], ...]] = field(default_factory=list)
    next_window: int = 0

    def __call__(
        self, cells: Sequence[tuple[str, OperatingPoint]], window_count: int
    ) -> tuple[CellMeasurement, ...]:
        """Fresh windows, all of one run with one shift."""
        self.asked.append(tuple(cells))
        rng = np.random.default_rng([self.seed, 2, self.next_window])
        shift = np.random.default_rng([self.seed, 3]).normal() * self.noise.shift_ratio
        first, self.next_window = self.next_window, self.next_window + window_count
        found = []
        for kernel, point in cells:
            k, p = self.truth.kernels.index(kernel), self.truth.points.index(point)
            blur = shift + self.noise.time_ratio * rng.normal(size=window_count)
            times = self.truth.time_s[k, p] * np.exp(blur)
            powers = self.truth.power_w[k, p] * np.exp(
                self.noise.power_ratio * rng.normal(size=window_count)
            )
            windows = tuple(
                Window(
                    window=first + n,
                    time_s=float(times[n]),
                    energy_j=float(times[n] * powers[n]),
                    duration_s=5.0,
                    launch_count=100,
                    sm_clock_held_mhz=float(self.truth.sm_clock_mhz[k, p]),
                    temp_c=None,
                    caveats=(_CAPPED,) if self.truth.is_capped[k, p] else (),
                )
                for n in range(window_count)
            )
            found.append(
                CellMeasurement(
                    kernel=kernel, point=point, run="fresh", idle_power_w=None, windows=windows
                )
            )
        return tuple(found)


def rms_ratio(seen: FloatTable, true: FloatTable, cells: BoolTable) -> float:
    """Root mean square of the relative error over these cells."""
    return float(np.sqrt(np.mean(np.log(seen[cells] / true[cells]) ** 2)))


def near(truth: World) -> BoolTable:
    """(K, P) cells up to 30 % slower than the baseline."""
    return np.asarray(truth.time_s <= 1.3 * truth.time_s[:, [truth.baseline_index]])
