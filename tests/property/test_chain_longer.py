"""Longer chains, against plain lists of partial plans that drop nothing but what is dominated."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulewise.domain.points import OperatingPoint
from joulewise.domain.transition import TransitionCost, TransitionDomain, TransitionModel
from joulewise.plan.chain.problem import Chain
from joulewise.plan.chain.solve import solve_chain
from joulewise.plan.changes import change_costs

POINTS = tuple(
    OperatingPoint(sm_clock_mhz=sm, mem_clock_mhz=mem) for mem in (1000, 2000) for sm in (100, 200)
)
Trades = list[tuple[float, float]]


def random_chain(seed: int, node_count: int, stall_ratio: float) -> Chain:
    """Faster points need more power; kernels differ in how much they gain by them.

    `stall_ratio` is what changes cost about, as a share of a node's time.
    """
    rng = np.random.default_rng(seed)
    work = rng.lognormal(0.0, 1.0, (node_count, 1))
    shares = rng.random((node_count, 1))
    sm = np.array([1.0, 2.0, 1.0, 2.0])
    mem = np.array([1.0, 1.0, 2.0, 2.0])
    time_s = work * (shares / sm + (1.0 - shares) / mem) * (1.0 + 0.05 * rng.random((1, 4)))
    energy_j = time_s * (1.0 + 0.4 * sm**2 + 0.3 * mem)
    costs = stall_ratio * rng.uniform(0.5, 1.5, 3)
    model = TransitionModel(
        name="drawn",
        source="a test",
        costs=tuple(
            TransitionCost(domain=domain, stall_s=float(cost), energy_j=float(cost))
            for domain, cost in zip(TransitionDomain, costs, strict=True)
        ),
    )
    return Chain(time_s=time_s, energy_j=energy_j, changes=change_costs(POINTS, model))


def least_energy_j(chain: Chain, budget_s: float) -> float | None:
    """Walk from every start, keep every partial plan that no other beats: slow and plain."""
    found = [
        energy_j
        for start in range(len(POINTS))
        for time_s, energy_j in trades_from(chain, start)
        if time_s <= budget_s
    ]
    return min(found) if found else None


def trades_from(chain: Chain, start: int) -> Trades:
    node_count, point_count = chain.time_s.shape
    every = range(point_count)
    costs = {(p, q): change(chain, p, q) for p in every for q in every}

    def step(lists: dict[int, Trades], target: int) -> Trades:
        return undominated(
            [
                (t + costs[source, target][0], e + costs[source, target][1])
                for source, trades in lists.items()
                for t, e in trades
            ]
        )

    lists = {start: [(float(chain.time_s[0, start]), float(chain.energy_j[0, start]))]}
    for k in range(1, node_count):
        lists = {
            q: [
                (t + float(chain.time_s[k, q]), e + float(chain.energy_j[k, q]))
                for t, e in step(lists, q)
            ]
            for q in every
        }
    return step(lists, start)


def change(chain: Chain, source: int, target: int) -> tuple[float, float]:
    times, energies = chain.changes.of(np.array([source]), np.array([target]))
    return float(times[0]), float(energies[0])


def undominated(trades: Trades) -> Trades:
    kept: Trades = []
    for time_s, energy_j in sorted(trades):
        if not kept or energy_j < kept[-1][1]:
            kept.append((time_s, energy_j))
    return kept


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(9, 12),
    st.sampled_from([0.02, 0.1, 0.3, 1.0]),
    st.floats(0.0, 0.6),
)
def test_a_longer_chain_is_solved_to_proof(
    seed: int, node_count: int, stall_ratio: float, slowdown: float
) -> None:
    chain = random_chain(seed, node_count, stall_ratio)
    budget_s = float(chain.time_s[:, -1].sum()) * (1.0 + slowdown) * (1.0 + 1e-12)
    expected = least_energy_j(chain, budget_s)
    assert expected is not None
    proven = solve_chain(chain, budget_s, gap_ratio=0.0)
    assert proven is not None
    assert proven.energy_j == pytest.approx(expected, rel=1e-9)
    assert proven.bound_j == pytest.approx(expected, rel=1e-9)
    closed = solve_chain(chain, budget_s, gap_ratio=1e-2)
    assert closed is not None
    assert closed.bound_j <= expected * (1.0 + 1e-9)
    assert closed.energy_j - closed.bound_j <= 1e-2 * closed.energy_j
