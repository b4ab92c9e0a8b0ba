"""Time the planner beside HiGHS alone on the same tables, in the same run.

    python benchmarks/bench_planner.py            all sizes (several minutes, nearly all HiGHS)
    python benchmarks/bench_planner.py --quick    without 460 and 4,600 kernels (half a minute)

Tables are generated: rooflines over a voltage-frequency curve, smooth and with 0.4 % noise, at
budgets of 0.6 and 5 % over the highest clocks. Times are medians of wall time; both solvers
run in one process, HiGHS through `scipy.optimize.milp` on all cells and to the same relative gap
of 1e-9. Ours is the whole of `solve`. The column before the verdict times the whole frontier.
HiGHS is not asked about 4,600 kernels, which it takes many minutes for: the gap that ours proves
says how good its plan is.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter

# One core, as promised; set before numpy starts its threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from joulewise.domain.plan import PlanRequest
from joulewise.domain.points import OperatingPoint
from joulewise.domain.workload import Launch
from joulewise.plan.frontier import frontier
from joulewise.plan.solve import solve
from joulewise.plan.table import PlanTable

FloatTable = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One table to plan on."""

    kernel_count: int
    sm_clock_count: int
    noise_ratio: float
    max_slowdown_ratio: float
    own_runs: int
    highs_runs: int
    goal_ms: float | None = None
    goal_speedup_ratio: float | None = None
    goal_gap_ratio: float | None = None


def plausible_table(case: Case, *, seed: int) -> PlanTable:
    """K kernels at SM clocks x 6 memory clocks: times from rooflines, power from voltage."""
    rng = np.random.default_rng(seed)
    count = case.kernel_count
    sm_clocks = np.linspace(210, 2100, case.sm_clock_count).round().astype(int)
    mem_clocks = np.array([405, 810, 5001, 7001, 9251, 9501])
    sm, mem = (grid.ravel() for grid in np.meshgrid(sm_clocks, mem_clocks, indexing="ij"))
    compute_s = rng.lognormal(0.0, 1.0, (count, 1)) / (sm / 2100.0)
    memory_s = rng.lognormal(0.0, 1.0, (count, 1)) / (mem / 9501.0)
    scale_s = 10.0 ** rng.uniform(-4.5, -1.5, (count, 1))
    time_s = scale_s * (compute_s**4 + memory_s**4) ** 0.25
    voltage = np.maximum(0.7, 0.55 + 0.5 * sm / 2100.0)
    share = compute_s / (compute_s + memory_s)
    power_w = (
        90.0
        + voltage**2 * sm / 2100.0 * (40.0 + 200.0 * share)
        + 80.0 * mem / 9501.0 * (1.0 - share)
    )
    noise = 1.0 + case.noise_ratio * rng.standard_normal((2, *time_s.shape))
    names = tuple(f"k{i}" for i in range(count))
    return PlanTable(
        class_names=names,
        points=tuple(
            OperatingPoint(sm_clock_mhz=int(s), mem_clock_mhz=int(m))
            for s, m in zip(sm, mem, strict=True)
        ),
        baseline_index=sm.size - 1,
        time_s=time_s * noise[0],
        energy_j=power_w * time_s * noise[1],
        launch_classes=np.arange(count),
        launches=tuple(Launch(kernel=name) for name in names),
    )


def highs_energy_j(table: PlanTable, max_slowdown_ratio: float) -> float:
    """Least energy by HiGHS on every cell; times and energies scaled to thousands."""
    class_count, point_count = table.time_s.shape
    count = class_count * point_count
    classes = np.repeat(np.arange(class_count), point_count)
    scale_s, scale_j = table.baseline_time_s / 1e4, table.baseline_energy_j / 1e4
    in_time = csr_array(table.time_s.ravel()[None, :] / scale_s)
    result = milp(
        table.energy_j.ravel() / scale_j,
        constraints=[
            LinearConstraint(csr_array((np.ones(count), (classes, np.arange(count)))), 1.0, 1.0),
            LinearConstraint(in_time, -np.inf, 1e4 * (1.0 + max_slowdown_ratio)),
        ],
        integrality=np.ones(count),
        bounds=Bounds(0.0, 1.0),
        options={"mip_rel_gap": 1e-9},
    )
    return float(result.fun * scale_j)


def median_ms(run: Callable[[], object], count: int) -> float:
    """Median wall time over several runs."""
    times = []
    for _ in range(count):
        start_s = perf_counter()
        run()
        times.append(perf_counter() - start_s)
    return 1e3 * statistics.median(times)


def report(case: Case) -> bool:
    """Print one row; whether the optimum agrees and every goal is met."""
    table = plausible_table(case, seed=1)
    request = PlanRequest(max_slowdown_ratio=case.max_slowdown_ratio)
    solution = solve(table, request)
    own_ms = median_ms(lambda: solve(table, request), case.own_runs)
    frontier_ms = median_ms(lambda: frontier(table), 3)
    gap_ratio = solution.bound_gap_ratio or 0.0
    misses = []
    if case.goal_ms is not None and own_ms > case.goal_ms:
        misses.append("TOO SLOW")
    if case.goal_gap_ratio is not None and gap_ratio > case.goal_gap_ratio:
        misses.append("GAP TOO WIDE")
    peer = f"{'':>10} {'':>8} {'':>8}"
    if case.highs_runs:
        peer_ms, peer_j = timed_highs(table, case)
        difference = solution.energy_j / peer_j - 1.0
        peer = f"{peer_ms:>10.1f} {peer_ms / own_ms:>7.0f}x {difference:>+9.1e}"
        if abs(difference) > 1e-7:
            misses.append("OPTIMA DIFFER")
        if case.goal_speedup_ratio is not None and peer_ms < case.goal_speedup_ratio * own_ms:
            misses.append(f"LESS THAN {case.goal_speedup_ratio:.0f}x")
    goal = "" if case.goal_ms is None else f"{case.goal_ms:.0f}"
    size = f"{case.kernel_count} x {6 * case.sm_clock_count}"
    print(
        f"{size:>11} {case.noise_ratio:>6.1%} {case.max_slowdown_ratio:>6.1%} {own_ms:>9.1f}"
        f" {goal:>5} {peer} {gap_ratio:>8.0e} {frontier_ms:>9.1f}  {', '.join(misses) or 'met'}",
        flush=True,
    )
    return not misses


def timed_highs(table: PlanTable, case: Case) -> tuple[float, float]:
    """Median milliseconds of HiGHS, and its least energy."""
    found_j = [0.0]

    def run() -> None:
        found_j[0] = highs_energy_j(table, case.max_slowdown_ratio)

    return median_ms(run, case.highs_runs), found_j[0]


def cases(*, is_quick: bool) -> list[Case]:
    """Sizes x noise x budgets."""
    small = Case(
        kernel_count=46,
        sm_clock_count=11,
        noise_ratio=0.0,
        max_slowdown_ratio=0.006,
        own_runs=15,
        highs_runs=5,
        goal_ms=20.0,
    )
    fine = replace(small, sm_clock_count=127, highs_runs=3, goal_ms=60.0)
    large = replace(
        fine, kernel_count=460, own_runs=5, highs_runs=1, goal_ms=None, goal_speedup_ratio=50.0
    )
    huge = replace(
        fine, kernel_count=4_600, own_runs=3, highs_runs=0, goal_ms=2_500.0, goal_gap_ratio=1e-4
    )
    found = [
        replace(size, noise_ratio=noise_ratio, max_slowdown_ratio=max_slowdown_ratio)
        for size in (small, fine)
        for noise_ratio in (0.0, 0.004)
        for max_slowdown_ratio in (0.006, 0.05)
    ]
    if not is_quick:
        found += [
            replace(size, noise_ratio=noise_ratio)
            for size in (large, huge)
            for noise_ratio in (0.0, 0.004)
        ]
    return found


def main() -> int:
    """Run all cases; exit 1 where an optimum differs or a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="leave the large tables out")
    is_quick = parser.parse_args().quick
    print(
        f"{'table':>11} {'noise':>6} {'budget':>6} {'ours ms':>9} {'goal':>5} {'HiGHS ms':>10}"
        f" {'ratio':>8} {'energy':>9} {'gap':>8} {'front ms':>9}"
    )
    fine_count = 0
    chosen = cases(is_quick=is_quick)
    for case in chosen:
        fine_count += report(case)
    return 0 if fine_count == len(chosen) else 1


if __name__ == "__main__":
    raise SystemExit(main())
