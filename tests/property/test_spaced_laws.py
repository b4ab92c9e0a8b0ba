"""Laws of planning where changes must lie apart, against every plan of small chains."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.chains import (
    chains,
    costs,
    every_plan,
    free_costs,
    huge_costs,
    prices,
    region_counts,
    single_points,
    small_costs,
    spacings,
    stall_chains,
    whole_costs,
)

from joulewise.domain.sweep import IntTable
from joulewise.plan.chain.problem import Chain
from joulewise.plan.chain.spaced import SpacedSolver
from joulewise.plan.chain.stalled import StalledSolver
from joulewise.plan.changes import ChangeCosts

NEAR = 1e-9
"""Ratio that sums of the same numbers in another order keep."""

lagging = chains(stalls=free_costs, energies=free_costs, lags=spacings)
dwelling = chains(stalls=free_costs, energies=free_costs, dwells=spacings)
all_kinds = chains(lags=spacings, dwells=spacings, region_counts=region_counts)
whole_chains = chains(
    stalls=whole_costs,
    energies=whole_costs,
    lags=st.integers(0, 20).map(float),
    dwells=whole_costs,
    region_counts=region_counts,
).map(lambda chain: replace(chain, time_s=np.ceil(chain.time_s), energy_j=np.ceil(chain.energy_j)))


def priced(chain: Chain, choice: IntTable, price_w: float) -> float:
    time_s, energy_j = chain.totals(choice)
    return time_s if math.isinf(price_w) else energy_j + price_w * time_s


def with_spacings(chain: Chain, factor_ratio: float) -> Chain:
    """The chain with all spacings that much longer."""
    changes = chain.changes
    longer = ChangeCosts(
        sm_groups=changes.sm_groups,
        mem_groups=changes.mem_groups,
        stall_s=changes.stall_s,
        lag_s=changes.lag_s * factor_ratio,
        energy_j=changes.energy_j,
        dwell_s=changes.dwell_s * factor_ratio,
    )
    return replace(chain, changes=longer)


def turned(chain: Chain, node_count: int) -> Chain:
    """The same cycle, counted from another node on."""
    return replace(
        chain,
        time_s=np.roll(chain.time_s, node_count, axis=0),
        energy_j=np.roll(chain.energy_j, node_count, axis=0),
    )


@pytest.mark.parametrize("drawn", [lagging, dwelling, all_kinds], ids=["lag", "dwell", "all"])
def test_bound_and_plans_close_in_on_the_optimum(drawn: st.SearchStrategy[Chain]) -> None:
    @settings(max_examples=60, deadline=None)
    @given(chain=drawn, price_w=prices)
    def holds(chain: Chain, price_w: float) -> None:
        answer = SpacedSolver(chain).least(price_w)

        # Where rounding decides whether a region is long enough, either answer will do.
        least = every_plan(with_spacings(chain, 1.0 - NEAR)).least_priced(price_w)
        most = every_plan(with_spacings(chain, 1.0 + NEAR)).least_priced(price_w)
        found = [priced(chain, choice, price_w) for choice in answer.choices]
        assert all(chain.is_possible(choice) for choice in answer.choices)
        assert least * (1.0 - NEAR) <= answer.bound <= min(found)
        assert found[0] <= most * (1.0 + NEAR)
        assert found == pytest.approx(sorted(found), rel=NEAR)

    holds()


@settings(max_examples=120, deadline=None)
@given(chain=whole_chains, price_w=st.integers(0, 9).map(float))
def test_with_whole_numbers_bound_optimum_and_plan_are_one(chain: Chain, price_w: float) -> None:
    answer = SpacedSolver(chain).least(price_w)

    optimum = every_plan(chain).least_priced(price_w)
    assert optimum == priced(chain, answer.choices[0], price_w)
    assert answer.bound == pytest.approx(optimum, rel=NEAR)


@settings(max_examples=40, deadline=None)
@given(chain=whole_chains)
def test_among_the_fastest_plans_the_one_of_least_energy_comes_first(chain: Chain) -> None:
    found = SpacedSolver(chain).least(math.inf).choices[0]

    plans = every_plan(chain)
    totals = sorted(zip(plans.time_s, plans.energy_j, map(tuple, plans.choices), strict=True))
    fastest = next(t for t in totals if chain.is_possible(np.array(t[2])))
    assert fastest[:2] == chain.totals(found)


@settings(max_examples=50, deadline=None)
@given(chain=stall_chains, price_w=prices)
def test_without_spacing_the_answer_is_that_for_stalls_alone(chain: Chain, price_w: float) -> None:
    spaced = SpacedSolver(chain).least(price_w)
    stalled = StalledSolver(chain).least(price_w)

    expected = priced(chain, stalled.choices[0], price_w)
    assert expected == pytest.approx(priced(chain, spaced.choices[0], price_w), rel=NEAR)
    assert spaced.bound == pytest.approx(expected, rel=NEAR)


@settings(max_examples=40, deadline=None)
@given(
    chain=chains(stalls=free_costs, energies=free_costs, lags=huge_costs)
    | chains(lags=spacings, region_counts=st.just(1)),
    price_w=prices,
)
def test_where_no_change_is_possible_the_best_single_point_is_left(
    chain: Chain, price_w: float
) -> None:
    answer = SpacedSolver(chain).least(price_w)

    best = single_points(chain).least_priced(price_w)
    assert best == pytest.approx(priced(chain, answer.choices[0], price_w), rel=NEAR)
    assert answer.bound == pytest.approx(best, rel=NEAR)
    assert 1 == np.unique(answer.choices[0]).size


@settings(max_examples=50, deadline=None)
@given(chain=all_kinds, price_w=prices, factor_ratio=st.floats(1.0, 4.0))
def test_a_longer_spacing_never_helps(chain: Chain, price_w: float, factor_ratio: float) -> None:
    longer = with_spacings(chain, factor_ratio)

    before = SpacedSolver(chain).least(price_w)
    after = SpacedSolver(longer).least(price_w)

    assert before.bound <= priced(chain, after.choices[0], price_w) * (1.0 + NEAR)
    assert chain.is_possible(after.choices[0])


@settings(max_examples=40, deadline=None)
@given(chain=whole_chains, price_w=st.integers(0, 9).map(float), node_count=st.integers(1, 5))
def test_it_does_not_matter_where_an_iteration_begins(
    chain: Chain, price_w: float, node_count: int
) -> None:
    answer = SpacedSolver(chain).least(price_w)
    other = SpacedSolver(turned(chain, node_count)).least(price_w)

    assert answer.bound == pytest.approx(other.bound, rel=NEAR)


@settings(max_examples=60, deadline=None)
@given(chain=whole_chains, price_w=st.integers(1, 9).map(float))
def test_in_other_units_of_time_the_answer_is_the_same(chain: Chain, price_w: float) -> None:
    changes = chain.changes
    in_halves = replace(
        chain,
        time_s=2.0 * chain.time_s,
        changes=replace(with_spacings(chain, 2.0).changes, stall_s=np.array(2.0 * changes.stall_s)),
    )

    answer = SpacedSolver(chain).least(price_w)
    other = SpacedSolver(in_halves).least(price_w / 2.0)

    assert answer.bound == pytest.approx(other.bound, rel=NEAR)


@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    lag_s=st.floats(1.0, 12.0),
    stall_s=small_costs | free_costs,
    price_w=st.floats(0.0, 5.0),
    node_count=st.integers(40, 90),
)
def test_longer_cycles_are_closed_too(
    seed: int, lag_s: float, stall_s: float, price_w: float, node_count: int
) -> None:
    rng = np.random.default_rng(seed)
    sm, memory = (grid.ravel() for grid in np.meshgrid(np.arange(4), np.arange(3)))
    made = np.full((3, sm.size), 1.0)
    chain = Chain(
        time_s=rng.uniform(0.1, 2.0, (node_count, 1)) * rng.uniform(0.8, 1.2, (1, sm.size)),
        energy_j=rng.uniform(0.5, 5.0, (node_count, sm.size)),
        changes=ChangeCosts(
            sm_groups=sm,
            mem_groups=memory,
            stall_s=stall_s * made,
            lag_s=np.array([[1.0], [1.5], [2.0]]) * lag_s * made,
            energy_j=stall_s * made,
            dwell_s=0.0,
        ),
    )

    answer = SpacedSolver(chain).least(price_w)

    best = priced(chain, answer.choices[0], price_w)
    assert chain.is_possible(answer.choices[0])
    assert answer.bound == pytest.approx(best, rel=NEAR)
    rolled = SpacedSolver(turned(chain, node_count // 2)).least(price_w)
    assert rolled.bound == pytest.approx(answer.bound, rel=NEAR)


@settings(max_examples=60, deadline=None)
@given(chain=chains(stalls=costs, lags=small_costs, region_counts=st.integers(2, 4)))
def test_the_regions_are_never_more_than_allowed(chain: Chain) -> None:
    most_count = chain.max_region_count or 0
    for choice in SpacedSolver(chain).least(1.0).choices:
        change_count = int((choice != np.roll(choice, 1)).sum())
        assert change_count <= most_count
