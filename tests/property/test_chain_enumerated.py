from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.chains import chains, every_plan, region_counts, spacings

from joulewise.plan.chain.enumerated import all_plans, cheapest_plan, is_enumerable
from joulewise.plan.chain.problem import Chain

any_chains = chains(lags=spacings, dwells=spacings, region_counts=region_counts)


@settings(max_examples=60, deadline=None)
@given(any_chains)
def test_all_plans_are_those_that_are_possible(chain: Chain) -> None:
    whole = every_plan(chain)
    expected = {tuple(choice.tolist()) for choice in whole.choices if chain.is_possible(choice)}

    found = [tuple(choice) for plans in all_plans(chain) for choice in plans.choices.tolist()]

    assert is_enumerable(chain)
    assert len(found) == len(set(found))
    assert expected == set(found)


@settings(max_examples=60, deadline=None)
@given(any_chains, st.floats(0.5, 60.0), st.sampled_from([0, 1, 2]))
def test_the_cheapest_plan_is_that_of_brute_force(
    chain: Chain, budget_s: float, exponent: int
) -> None:
    whole = every_plan(chain)
    values = np.where(whole.time_s <= budget_s, whole.time_s**exponent * whole.energy_j, np.inf)
    expected = whole.least_of(values)

    choice = cheapest_plan(chain, budget_s, exponent)

    if expected is None:
        assert choice is None
    else:
        assert choice is not None
        time_s, energy_j = chain.totals(choice)
        assert chain.is_possible(choice)
        assert time_s <= budget_s * (1 + 1e-12)
        assert expected == pytest.approx(time_s**exponent * energy_j, rel=1e-9)


@given(chains())
def test_long_chains_are_not_enumerated(chain: Chain) -> None:
    if chain.time_s.shape[1] == 1:
        return
    repeated = Chain(
        time_s=np.tile(np.where(np.isfinite(chain.time_s), chain.time_s, 1.0), (40, 1)),
        energy_j=np.tile(np.where(np.isfinite(chain.energy_j), chain.energy_j, 1.0), (40, 1)),
        changes=chain.changes,
    )

    assert not is_enumerable(repeated)
