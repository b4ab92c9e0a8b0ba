"""What a fitted RTX 3080 Ti does, beside what the paper says; noise off, shipped physics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from calibration.facts import BASELINE, SWEPT_POINTS, FrontierFact, KernelFacts
from joulewise.domain.plan import Granularity, Objective, PlanRequest, Scope
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.sweep import Sweep, SweepSource
from joulewise.domain.workload import KernelWork
from joulewise.plan.solve import Solution, solve
from joulewise.plan.table import PlanTable, plan_table
from joulewise.simulator.physics import SteadyTable, steady_state
from joulewise.simulator.spec import GpuSpec
from joulewise.workload.gpt3_xl import gpt3_xl

# Points of energy that the frontier may lie off, by tolerated slowdown in per cent.
_FRONTIER_TOLERANCES: Final = {1: 0.6, 2: 0.6, 5: 1.2, 10: 1.5, 20: 2.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the table; `least` and `greatest` are `None` where nothing is judged."""

    name: str
    paper: float | None
    value: float
    least: float | None = None
    greatest: float | None = None

    def is_met(self, value: float) -> bool | None:
        """Whether a value of this figure lies where it should."""
        if self.least is None or self.greatest is None:
            return None
        return bool(self.least <= value <= self.greatest)


def figures(
    spec: GpuSpec,
    works: Sequence[KernelWork],
    facts: KernelFacts,
    frontier: Sequence[FrontierFact],
) -> tuple[Figure, ...]:
    """All figures of one fit, in the order in which they are printed."""
    steady = steady_state(spec, works, SWEPT_POINTS)
    sweep = _noise_free_sweep(works, steady)
    workload = gpt3_xl()
    kernels = plan_table(sweep, workload, Granularity.KERNEL)
    return (
        *_plans(kernels, plan_table(sweep, workload, Granularity.PASS)),
        *_optima(kernels),
        *_frontier(kernels, frontier),
        *_residuals(steady, facts),
    )


def _plans(kernels: PlanTable, passes: PlanTable) -> tuple[Figure, ...]:
    strict = _planned(kernels, 0.0)
    local = _planned(kernels, 0.0, scope=Scope.LOCAL)
    relaxed = _planned(passes, 0.006, granularity=Granularity.PASS)
    strict_pass = _planned(passes, 0.0, granularity=Granularity.PASS)
    column = SWEPT_POINTS.index(OperatingPoint(mem_clock_mhz=9501))
    static = kernels.totals(np.full(len(kernels.class_names), column))
    time_pct = 100 * (static[0] / kernels.baseline_time_s - 1)
    energy_pct = 100 * (static[1] / kernels.baseline_energy_j - 1)
    return (
        _within("kernel-global strict, energy %", -15.64, -15.6, 0.8, _energy_pct(strict)),
        _within("kernel-local strict, energy %", -11.54, -11.5, 1.2, _energy_pct(local)),
        _within("static memory 9501, energy %", -9.63, -9.6, 3.0, energy_pct),
        Figure(
            name="static memory 9501, time %", paper=0.05, value=time_pct, least=-2.5, greatest=0.5
        ),
        _within("pass-global at 0.6 %, energy %", -9.67, -9.7, 3.0, _energy_pct(relaxed)),
        Figure(name="pass-global strict, energy %", paper=-2.07, value=_energy_pct(strict_pass)),
    )


def _optima(kernels: PlanTable) -> tuple[Figure, ...]:
    product = _planned(kernels, None, objective=Objective.EDP)
    least = _planned(kernels, None, objective=Objective.MIN_ENERGY)
    value = product.slowdown_ratio * (1 - product.saving_ratio)
    return (
        _within("EDP against baseline", 0.7993, 0.80, 0.02, value),
        Figure(name="  EDP, at energy %", paper=-27.52, value=_energy_pct(product)),
        Figure(name="  EDP, at time %", paper=10.28, value=_time_pct(product)),
        _within("least energy, energy %", -36.94, -36.9, 1.0, _energy_pct(least)),
        Figure(name="  least energy, at time %", paper=84.0, value=_time_pct(least)),
    )


def _frontier(kernels: PlanTable, facts: Sequence[FrontierFact]) -> tuple[Figure, ...]:
    by_slowdown = {round(100 * (f.slowdown_ratio - 1), 3): f.global_energy_ratio for f in facts}
    lines = []
    for slowdown_pct, tolerance in _FRONTIER_TOLERANCES.items():
        paper = 100 * (by_slowdown[slowdown_pct] - 1)
        value = _energy_pct(_planned(kernels, slowdown_pct / 100))
        lines.append(
            _within(f"frontier at {slowdown_pct} %, energy %", paper, paper, tolerance, value)
        )
    return tuple(lines)


def _residuals(steady: SteadyTable, facts: KernelFacts) -> tuple[Figure, ...]:
    """Root mean squares over the 46 kernels, in points."""
    each = np.arange(len(facts.kernels))
    time = steady.time_s / steady.time_s[:, [BASELINE]]
    energy = steady.energy_j / steady.energy_j[:, [BASELINE]]
    off = {
        "chosen points, time": time[each, facts.chosen] - facts.chosen_time_ratio,
        "chosen points, energy": energy[each, facts.chosen] - facts.chosen_energy_ratio,
        "baseline, time": steady.time_s[:, BASELINE] / facts.time_s - 1,
        "baseline, energy": steady.energy_j[:, BASELINE] / facts.energy_j - 1,
        "least time": time.min(axis=1) / facts.least_time_ratio - 1,
        "greatest time": time.max(axis=1) / facts.greatest_time_ratio - 1,
        "least energy": energy.min(axis=1) / facts.least_energy_ratio - 1,
        "greatest energy": energy.max(axis=1) / facts.greatest_energy_ratio - 1,
    }
    limits = {"chosen points, time": 0.5, "chosen points, energy": 1.5}
    return tuple(
        Figure(
            name=f"{name}, RMS points",
            paper=None,
            value=100 * float(np.sqrt(np.mean(values**2))),
            least=0.0 if name in limits else None,
            greatest=limits.get(name),
        )
        for name, values in off.items()
    )


def _within(name: str, paper: float, centre: float, tolerance: float, value: float) -> Figure:
    return Figure(
        name=name, paper=paper, value=value, least=centre - tolerance, greatest=centre + tolerance
    )


def _planned(
    table: PlanTable,
    budget_ratio: float | None,
    *,
    objective: Objective = Objective.ENERGY,
    granularity: Granularity = Granularity.KERNEL,
    scope: Scope = Scope.GLOBAL,
) -> Solution:
    request = PlanRequest(
        objective=objective, granularity=granularity, scope=scope, max_slowdown_ratio=budget_ratio
    )
    return solve(table, request)


def _energy_pct(solution: Solution) -> float:
    return -100 * solution.saving_ratio


def _time_pct(solution: Solution) -> float:
    return 100 * (solution.slowdown_ratio - 1)


def _noise_free_sweep(works: Sequence[KernelWork], steady: SteadyTable) -> Sweep:
    return Sweep(
        kernels=tuple(work.kernel for work in works),
        points=SWEPT_POINTS,
        baseline=AUTO,
        source=SweepSource(
            device="virtual:rtx3080ti,noise=0",
            device_name="twin",
            tool="calibration",
            is_simulated=True,
        ),
        is_present=np.ones_like(steady.time_s, dtype=np.bool_),
        time_s=steady.time_s,
        energy_j=steady.energy_j,
    )
