"""Frontiers of small chains, and mixtures, against every plan; and what `no_gain` proves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.chains import (
    EveryPlan,
    chains,
    every_plan,
    region_counts,
    spacings,
    stall_chains,
)

from joulewise.domain.plan import PlanRequest, Status
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.sweep import FloatTable
from joulewise.domain.transition import uniform_transition
from joulewise.domain.workload import Launch, Pass
from joulewise.plan.chain.budgets import between
from joulewise.plan.chain.frontiers import chain_totals
from joulewise.plan.chain.mixing import Goal, known, mixtures
from joulewise.plan.chain.problem import Chain
from joulewise.plan.chain.solve import solve_chain
from joulewise.plan.changes import change_costs
from joulewise.plan.frontier import frontier
from joulewise.plan.solve import solve
from joulewise.plan.statics import best_pass_level
from joulewise.plan.table import PlanTable, coarsened

POINTS = (
    AUTO,
    *(
        OperatingPoint(sm_clock_mhz=sm, mem_clock_mhz=mem)
        for sm in (1000, 1200, 1500, 1700)
        for mem in (5000, 9000)
    ),
)
PASSES = (Pass.FORWARD, Pass.BACKWARD, Pass.OPTIMIZER)


def drawn_table(seed: int, class_count: int, point_count: int, **costs: float) -> PlanTable:
    """Classes of their own work at points of their own, the baseline first."""
    rng = np.random.default_rng(seed)
    points = POINTS[:point_count]
    work = rng.uniform(0.5, 2.0, (class_count, 1))
    shape = (class_count, point_count - 1)
    slower = np.concatenate([np.ones((class_count, 1)), rng.uniform(0.95, 1.4, shape)], axis=1)
    saving = np.concatenate([np.ones((class_count, 1)), rng.uniform(0.7, 1.1, shape)], axis=1)
    model = uniform_transition("drawn", "a test", **costs)
    return PlanTable(
        class_names=tuple(f"k{i}" for i in range(class_count)),
        points=points,
        baseline_index=0,
        time_s=work * slower,
        energy_j=work * 300.0 * saving,
        launch_classes=np.arange(class_count),
        launches=tuple(
            Launch(kernel=f"k{i}", pass_=PASSES[i * len(PASSES) // class_count])
            for i in range(class_count)
        ),
        changes=change_costs(points, model),
    )


def possible(chain: Chain) -> tuple[FloatTable, FloatTable]:
    """Times and energies of every possible plan."""
    plans: EveryPlan = every_plan(chain)
    kept = [i for i, choice in enumerate(plans.choices) if chain.is_possible(choice)]
    return plans.time_s[kept], plans.energy_j[kept]


def is_total(plans: EveryPlan, time_s: float, energy_j: float) -> bool:
    is_same = np.isclose(plans.time_s, time_s, rtol=1e-9)
    return bool((is_same & np.isclose(plans.energy_j, energy_j, rtol=1e-9)).any())


@settings(max_examples=40, deadline=None)
@given(chains(lags=spacings, region_counts=region_counts))
def test_a_frontier_of_few_plans_misses_none(chain: Chain) -> None:
    times, energies = possible(chain)
    found_s, found_j = chain_totals(chain)
    if not times.size:
        assert not found_s.size
        return
    for budget_s in (np.unique(times) * (1.0 + 1e-12)).tolist():
        expected_j = energies[times <= budget_s].min()
        within = found_j[found_s <= budget_s * (1.0 + 1e-12)]
        assert within.size
        assert within.min() == pytest.approx(expected_j, rel=1e-9)


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([1e-3, 0.02, 0.1]))
def test_budgets_between_two_plans_find_all_that_save_something(seed: int, stall_s: float) -> None:
    table = drawn_table(seed, 3, 4, stall_s=stall_s, energy_j=60.0 * stall_s)
    assert table.changes is not None
    chain = Chain(time_s=table.time_s, energy_j=table.energy_j, changes=table.changes)
    plans = every_plan(chain)
    ends = [int(np.argmin(plans.time_s)), int(np.argmin(plans.energy_j))]
    found_s, found_j = between(chain, plans.time_s[ends], plans.energy_j[ends])
    known_s = np.append(found_s, plans.time_s[ends])
    known_j = np.append(found_j, plans.energy_j[ends])
    for time_s, energy_j in zip(found_s.tolist(), found_j.tolist(), strict=True):
        assert is_total(plans, time_s, energy_j)
    for budget_s in plans.time_s.tolist():
        expected_j = plans.energy_j[plans.time_s <= budget_s].min()
        within = known_j[known_s <= budget_s * (1.0 + 1e-11)]
        assert within.min() <= expected_j * (1.0 + 2e-6)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([{"stall_s": 1e-3}, {"lag_s": 0.3}]))
def test_no_pass_level_plan_beats_the_frontier_of_passes(
    seed: int, costs: dict[str, float]
) -> None:
    table = drawn_table(seed, 6, 9, energy_j=0.06, **costs)
    passes = coarsened(table, granularity=PlanRequest().granularity.PASS)
    points = frontier(passes)
    for max_slowdown_ratio in (0.0, 0.01, 0.05, 0.1):
        best = best_pass_level(table, max_slowdown_ratio)
        assert best is not None
        limit = 1.0 + max_slowdown_ratio + 1e-9
        least_j = min(point.energy_j for point in points if point.slowdown_ratio <= limit)
        assert least_j == pytest.approx(best.energy_j, rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(stall_chains, st.data())
def test_the_totals_of_mixtures_are_those_of_plans(chain: Chain, data: st.DataObject) -> None:
    plans = every_plan(chain)
    one, other = (
        known(chain, plans.choices[data.draw(st.integers(0, plans.time_s.size - 1))])
        for _ in range(2)
    )
    goal = Goal(budget_s=float(plans.time_s.max()), price_w=data.draw(st.floats(0.0, 5.0)))
    for mixture in mixtures(chain, one, other):
        times, energies = mixture.totals(goal)
        for time_s, energy_j in zip(times.tolist(), energies.tolist(), strict=True):
            assert is_total(plans, time_s, energy_j)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.5]), st.sampled_from([None, 1e-3]))
def test_where_nothing_was_gained_the_gap_says_what_may_still_be(
    seed: int, lag_s: float, gap_ratio: float | None
) -> None:
    rng = np.random.default_rng(seed)
    table = drawn_table(
        seed,
        int(rng.integers(3, 7)),
        4,
        stall_s=float(rng.uniform(0.01, 0.2)),
        lag_s=lag_s,
        energy_j=float(rng.uniform(1.0, 40.0)),
    )
    solution = solve(table, PlanRequest(max_slowdown_ratio=0.0), gap_ratio=gap_ratio)
    if solution.status is not Status.NO_GAIN:
        assert solution.energy_j < table.baseline_energy_j
        return
    assert table.changes is not None
    chain = Chain(time_s=table.time_s, energy_j=table.energy_j, changes=table.changes)
    least_j = every_plan(chain).least_energy_j(table.baseline_time_s * (1.0 + 1e-12))
    assert least_j is not None
    assert solution.bound_gap_ratio is not None
    assert 1.0 - least_j / table.baseline_energy_j <= solution.bound_gap_ratio + 1e-9


def test_the_gap_of_the_baseline_is_what_the_bound_leaves_open() -> None:
    gaps: list[float] = []
    for seed in (4, 8, 10):
        table = drawn_table(seed, 14, 5, stall_s=0.02, energy_j=3.0)
        assert table.changes is not None
        solution = solve(table, PlanRequest(max_slowdown_ratio=0.0), gap_ratio=None)
        assert solution.status is Status.NO_GAIN
        assert solution.bound_gap_ratio is not None
        chain = Chain(time_s=table.time_s, energy_j=table.energy_j, changes=table.changes)
        answer = solve_chain(chain, table.baseline_time_s * (1.0 + 5e-13), gap_ratio=None)
        assert answer is not None
        left_j = table.baseline_energy_j - answer.bound_j
        assert solution.bound_gap_ratio == pytest.approx(left_j / table.baseline_energy_j)
        gaps.append(solution.bound_gap_ratio)
    # That there is nothing to gain is not always proven.
    assert max(gaps) > 1e-3


def test_a_guard_that_leaves_the_baseline_alone_proves_it() -> None:
    table = drawn_table(1, 4, 4, stall_s=0.01)
    request = PlanRequest(max_slowdown_ratio=0.0)
    alone = solve(table, request, guard_band_ratio=0.9)
    assert alone.status is Status.NO_GAIN
    assert alone.bound_gap_ratio == 0.0
    assert solve(replace(table, changes=None), request, guard_band_ratio=0.9).status is alone.status
