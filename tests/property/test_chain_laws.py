"""Laws of planning around a chain of launches, against every plan of small ones."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.chains import (
    EveryPlan,
    chains,
    every_plan,
    free_costs,
    huge_costs,
    region_counts,
    single_points,
    spacings,
    stall_chains,
)

from joulewise.plan.chain.close import Closer
from joulewise.plan.chain.mixing import Goal, known, mixtures
from joulewise.plan.chain.problem import Chain, ChainAnswer
from joulewise.plan.chain.products import least_chain_product
from joulewise.plan.chain.search import PriceSearch
from joulewise.plan.chain.solve import least_time, solve_chain
from joulewise.plan.chain.stalled import StalledSolver
from joulewise.plan.knapsack import cheapest_within
from joulewise.plan.options import options_of

shares = st.floats(0.0, 1.0)


def budget(plans: EveryPlan, share: float) -> float:
    """A time that some plan just keeps, the fastest at 0, none but slower ones at 1."""
    times = np.unique(plans.time_s)
    return float(times[int(share * (times.size - 1))]) * (1.0 + 1e-12)


def solved(chain: Chain, budget_s: float, gap_ratio: float | None = 0.0) -> ChainAnswer:
    answer = solve_chain(chain, budget_s, gap_ratio=gap_ratio)
    assert answer is not None
    return answer


def scaled(chain: Chain, *, time: float = 1.0, energy: float = 1.0, stall: float = 1.0) -> Chain:
    """All times, all energies, or only what changes cost, by a factor."""
    return replace(
        chain,
        time_s=chain.time_s * time,
        energy_j=chain.energy_j * energy,
        changes=replace(
            chain.changes,
            stall_s=chain.changes.stall_s * (time * stall),
            energy_j=chain.changes.energy_j * (energy * stall),
        ),
    )


@settings(max_examples=120, deadline=None)
@given(chains(region_counts=region_counts), shares)
def test_an_answer_to_proof_is_the_best_of_every_plan(chain: Chain, share: float) -> None:
    plans = every_plan(chain)
    budget_s = budget(plans, share)
    expected = plans.least_energy_j(budget_s)
    answer = solve_chain(chain, budget_s, gap_ratio=0.0)
    if expected is None:
        assert answer is None
        return
    assert answer is not None
    assert answer.energy_j == pytest.approx(expected, rel=1e-9)
    assert answer.bound_j == pytest.approx(expected, rel=1e-9)
    assert answer.time_s <= budget_s
    assert chain.is_possible(answer.choice)
    assert (answer.time_s, answer.energy_j) == chain.totals(answer.choice)


@settings(max_examples=30, deadline=None)
@given(stall_chains, shares)
def test_a_quick_answer_lies_between_its_bound_and_the_best_single_point(
    chain: Chain, share: float
) -> None:
    plans = every_plan(chain)
    budget_s = budget(plans, share)
    expected = plans.least_energy_j(budget_s)
    assert expected is not None
    answer = solved(chain, budget_s, gap_ratio=None)
    assert answer.bound_j <= expected * (1.0 + 1e-9)
    assert expected <= answer.energy_j * (1.0 + 1e-9)
    single_j = single_points(chain).least_energy_j(budget_s)
    assert single_j is None or answer.energy_j <= single_j * (1.0 + 1e-9)


@settings(max_examples=30, deadline=None)
@given(chains(lags=spacings, region_counts=region_counts), st.sampled_from([None, 0.0]))
def test_no_plan_is_found_below_the_least_time(chain: Chain, gap_ratio: float | None) -> None:
    plans = every_plan(chain)
    expected_s = plans.least_of(plans.time_s)
    if expected_s is None:
        assert solve_chain(chain, math.inf, gap_ratio=gap_ratio) is None
        return
    assert solve_chain(chain, expected_s * (1.0 - 1e-6), gap_ratio=gap_ratio) is None
    assert solve_chain(chain, expected_s * (1.0 + 1e-9), gap_ratio=gap_ratio) is not None
    least = least_time(chain)
    assert least.found_s == pytest.approx(expected_s, rel=1e-9)
    assert least.bound_s == pytest.approx(expected_s, rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(
    chains(lags=spacings, region_counts=region_counts),
    st.sampled_from([None, 0.0, 1e-3]),
)
def test_without_a_budget_the_least_energy_is_that_of_every_plan(
    chain: Chain, gap_ratio: float | None
) -> None:
    plans = every_plan(chain)
    expected_j = plans.least_of(plans.energy_j)
    answer = solve_chain(chain, math.inf, gap_ratio=gap_ratio)
    if expected_j is None:
        assert answer is None
        return
    assert answer is not None
    assert answer.energy_j == pytest.approx(expected_j, rel=1e-9)
    assert answer.bound_j == pytest.approx(expected_j, rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(chains(lags=spacings, dwells=spacings, region_counts=region_counts), shares)
def test_where_changes_must_lie_apart_the_bound_holds_too(chain: Chain, share: float) -> None:
    plans = every_plan(chain)
    budget_s = budget(plans, share)
    expected_j = plans.least_energy_j(budget_s)
    answer = solve_chain(chain, budget_s)
    if expected_j is None:
        assert answer is None
        return
    # The solver at a price finds the fastest of small chains, so some plan is always there.
    assert answer is not None
    assert answer.bound_j <= expected_j * (1.0 + 1e-9)
    assert expected_j <= answer.energy_j * (1.0 + 1e-9)
    assert chain.is_possible(answer.choice)


@settings(max_examples=30, deadline=None)
@given(chains(lags=spacings), st.data())
def test_a_search_without_a_budget_bounds_mixtures_by_a_number(
    chain: Chain, data: st.DataObject
) -> None:
    plans = every_plan(chain)
    one, other = (
        known(chain, plans.choices[data.draw(st.integers(0, plans.time_s.size - 1))])
        for _ in range(2)
    )
    for mixture in mixtures(chain, one, other):
        for price_w in (0.0, 1.0):
            goal = Goal(budget_s=math.inf, price_w=price_w)
            bound_j = mixture.bound_j(goal)
            found = mixture.best(goal, limit_j=math.inf)
            assert not math.isnan(bound_j)
            assert found is None or bound_j <= found.energy_j * (1.0 + 1e-9)


@settings(max_examples=30, deadline=None)
@given(chains(region_counts=region_counts), shares, st.integers(0, 12))
def test_a_search_cut_short_still_bounds_every_plan(
    chain: Chain, share: float, label_count: int
) -> None:
    plans = every_plan(chain)
    budget_s = budget(plans, share)
    expected = plans.least_energy_j(budget_s)
    solver = StalledSolver(chain)
    search = PriceSearch(chain, solver, budget_s)
    assume(expected is not None and search.run(tolerance_ratio=1e-6))
    best = search.best()
    assert best is not None
    assert expected is not None
    closer = Closer(chain, solver, best, Goal(budget_s=budget_s, price_w=search.price_w))
    closer.run(0.0, label_count=label_count)
    assert closer.bound_j <= expected * (1.0 + 1e-9)
    assert expected <= closer.best.energy_j * (1.0 + 1e-9)


@settings(max_examples=30, deadline=None)
@given(chains(stalls=free_costs, energies=free_costs), shares)
def test_where_changes_are_free_the_answer_is_the_knapsack_s(chain: Chain, share: float) -> None:
    budget_s = budget(every_plan(chain), share)
    expected = cheapest_within(options_of(chain.time_s, chain.energy_j), budget_s)
    assert expected is not None
    assert solved(chain, budget_s).energy_j == pytest.approx(expected.energy_j, rel=1e-9)
    # A bound on regions that binds nothing leads through the chain's own search.
    bounded = replace(chain, max_region_count=chain.time_s.shape[0])
    assert solved(bounded, budget_s).energy_j == pytest.approx(expected.energy_j, rel=1e-9)


@settings(max_examples=30, deadline=None)
@given(chains(stalls=huge_costs, energies=huge_costs), shares)
def test_where_changes_cost_too_much_the_answer_is_the_best_single_point(
    chain: Chain, share: float
) -> None:
    singles = single_points(chain)
    budget_s = budget(singles, share)
    expected = singles.least_energy_j(budget_s)
    assert expected is not None
    answer = solved(chain, budget_s)
    assert answer.energy_j == pytest.approx(expected, rel=1e-12)
    assert (answer.choice == answer.choice[0]).all()


@settings(max_examples=30, deadline=None)
@given(stall_chains, shares, st.floats(1.0, 4.0))
def test_costlier_changes_never_make_a_better_plan(
    chain: Chain, share: float, factor: float
) -> None:
    budget_s = budget(single_points(chain), share)
    cheap, costly = solved(chain, budget_s), solved(scaled(chain, stall=factor), budget_s)
    assert cheap.energy_j <= costly.energy_j * (1.0 + 1e-9)


@settings(max_examples=30, deadline=None)
@given(stall_chains, shares, st.integers(1, 5))
def test_one_more_region_never_makes_a_worse_plan(
    chain: Chain, share: float, region_count: int
) -> None:
    budget_s = budget(single_points(chain), share)
    few = solved(replace(chain, max_region_count=region_count), budget_s)
    more = solved(replace(chain, max_region_count=region_count + 1), budget_s)
    assert more.energy_j <= few.energy_j * (1.0 + 1e-9)


@settings(max_examples=30, deadline=None)
@given(stall_chains, shares, st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_other_units_of_time_and_energy_change_nothing(
    chain: Chain, share: float, time: float, energy: float
) -> None:
    budget_s = budget(every_plan(chain), share) * (1.0 + 1e-9)
    expected = solved(chain, budget_s)
    other = solved(scaled(chain, time=time, energy=energy), budget_s * time)
    assert other.energy_j == pytest.approx(expected.energy_j * energy, rel=1e-9)


@settings(max_examples=50, deadline=None)
@given(chains(region_counts=region_counts), st.integers(1, 2))
def test_without_a_budget_the_least_product_is_that_of_every_plan(
    chain: Chain, exponent: int
) -> None:
    plans = every_plan(chain)
    products = plans.time_s**exponent * plans.energy_j
    expected = plans.least_of(products)
    answer = least_chain_product(chain, exponent, math.inf)
    assert answer is not None
    assert answer.product == pytest.approx(expected, rel=1e-9)
    assert answer.bound == pytest.approx(expected, rel=1e-9)
    plan = known(chain, answer.columns)
    assert plan.time_s**exponent * plan.energy_j == pytest.approx(answer.product, rel=1e-12)


@settings(max_examples=30, deadline=None)
@given(stall_chains, st.integers(1, 2), shares)
def test_within_a_budget_the_least_product_is_bounded(
    chain: Chain, exponent: int, share: float
) -> None:
    plans = every_plan(chain)
    budget_s = budget(plans, share)
    products = np.where(plans.time_s <= budget_s, plans.time_s**exponent * plans.energy_j, np.inf)
    answer = least_chain_product(chain, exponent, budget_s)
    assert answer is not None
    assert answer.bound <= products.min() * (1.0 + 1e-9)
    assert products.min() <= answer.product * (1.0 + 1e-9)
    assert known(chain, answer.columns).time_s <= budget_s
