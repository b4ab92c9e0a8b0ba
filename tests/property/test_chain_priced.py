"""The solver at a price of time, against every plan of small chains."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.chains import chains, every_plan, prices, region_counts, stall_chains

from joulewise.plan.chain.problem import Chain
from joulewise.plan.chain.stalled import StalledSolver


def value(chain: Chain, choice: np.ndarray, price_w: float) -> float:
    time_s, energy_j = chain.totals(choice)
    return time_s if math.isinf(price_w) else energy_j + price_w * time_s


@settings(max_examples=120, deadline=None)
@given(stall_chains, prices)
def test_the_answer_at_a_price_is_the_least_of_every_plan(chain: Chain, price_w: float) -> None:
    expected = every_plan(chain).least_priced(price_w)
    found = StalledSolver(chain).least(price_w)
    assert found.bound == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert value(chain, found.choices[0], price_w) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@settings(max_examples=80, deadline=None)
@given(chains(region_counts=region_counts), prices)
def test_no_answer_has_more_regions_than_there_may_be(chain: Chain, price_w: float) -> None:
    expected = every_plan(chain).least_priced(price_w)
    found = StalledSolver(chain).least(price_w)
    assert found.bound == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert value(chain, found.choices[0], price_w) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert all(chain.is_possible(choice) for choice in found.choices)


@settings(max_examples=30, deadline=None)
@given(stall_chains, st.integers(1, 5), st.floats(0.1, 5.0))
def test_where_the_cycle_begins_does_not_matter(chain: Chain, shift: int, price_w: float) -> None:
    turned = Chain(
        time_s=np.roll(chain.time_s, shift, axis=0),
        energy_j=np.roll(chain.energy_j, shift, axis=0),
        changes=chain.changes,
    )
    expected = StalledSolver(chain).least(price_w).bound
    assert StalledSolver(turned).least(price_w).bound == pytest.approx(expected, rel=1e-9)


@settings(max_examples=30, deadline=None)
@given(stall_chains, st.floats(0.1, 5.0))
def test_two_iterations_in_a_row_cost_no_more_than_twice_one(chain: Chain, price_w: float) -> None:
    twice = Chain(
        time_s=np.concatenate([chain.time_s, chain.time_s]),
        energy_j=np.concatenate([chain.energy_j, chain.energy_j]),
        changes=chain.changes,
    )
    single = StalledSolver(chain).least(price_w)
    found = StalledSolver(twice).least(price_w)
    assert found.bound <= 2.0 * single.bound * (1.0 + 1e-9)
    # A cycle of least value around the longer chain is worth no less than its two halves may be.
    assert found.bound >= 2.0 * open_chain_least(chain, price_w) * (1.0 - 1e-9)


def open_chain_least(chain: Chain, price_w: float) -> float:
    """What the nodes need at least, changes left out."""
    return float((chain.energy_j + price_w * chain.time_s).min(axis=1).sum())
