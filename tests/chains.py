"""Small random chains of launches with changes that cost something, and every plan of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from joulewise.domain.points import OperatingPoint
from joulewise.domain.transition import TransitionCost, TransitionDomain, TransitionModel
from joulewise.plan.chain.problem import Chain
from joulewise.plan.changes import change_costs
from tests.plan_tables import cells, fractions, whole

IntTable = NDArray[np.int64]
FloatTable = NDArray[np.float64]

MAX_NODES = 6
MAX_POINTS = 4

free_costs = st.just(0.0)
small_costs = st.floats(min_value=1e-3, max_value=0.5)
whole_costs = st.integers(min_value=0, max_value=4).map(float)
huge_costs = st.just(1e4)
unbounded: st.SearchStrategy[int | None] = st.none()
costs = st.sampled_from([free_costs, small_costs, whole_costs, huge_costs]).flatmap(lambda one: one)
spacings = st.sampled_from([free_costs, small_costs, whole_costs, st.floats(1.0, 30.0)]).flatmap(
    lambda one: one
)


def point_sets(
    min_size: int = 1, max_size: int = MAX_POINTS
) -> st.SearchStrategy[list[OperatingPoint]]:
    """Different points of three SM and three memory settings, auto among them."""
    settings = [
        OperatingPoint(sm_clock_mhz=sm, mem_clock_mhz=mem)
        for sm in (None, 100, 200)
        for mem in (None, 1000, 2000)
    ]
    return st.lists(
        st.sampled_from(settings), min_size=min_size, max_size=max_size, unique_by=settings.index
    )


@st.composite
def models(
    draw: st.DrawFn,
    points: list[OperatingPoint],
    *,
    stalls: st.SearchStrategy[float] = costs,
    energies: st.SearchStrategy[float] = costs,
    lags: st.SearchStrategy[float] = free_costs,
    dwells: st.SearchStrategy[float] = free_costs,
) -> TransitionModel:
    """One cost for all changes, one by domain, or one by domain and target."""
    kind = draw(st.sampled_from(["uniform", "by domain", "by target"]))

    def cost(domain: TransitionDomain, target: OperatingPoint | None) -> TransitionCost:
        return TransitionCost(
            domain=domain,
            target=target,
            stall_s=draw(stalls),
            lag_s=draw(lags),
            energy_j=draw(energies),
        )

    def same(domain: TransitionDomain) -> TransitionCost:
        return TransitionCost(
            domain=domain, stall_s=first.stall_s, lag_s=first.lag_s, energy_j=first.energy_j
        )

    first = cost(TransitionDomain.SM, None)
    if kind == "uniform":
        found = [same(domain) for domain in TransitionDomain]
    else:
        found = [first, *(cost(d, None) for d in TransitionDomain if d is not first.domain)]
    if kind == "by target":
        found += [cost(TransitionDomain.BOTH, target) for target in points if draw(st.booleans())]
    return TransitionModel(name="drawn", source="a test", costs=tuple(found), dwell_s=draw(dwells))


@st.composite
def chains(
    draw: st.DrawFn,
    *,
    stalls: st.SearchStrategy[float] = costs,
    energies: st.SearchStrategy[float] = costs,
    lags: st.SearchStrategy[float] = free_costs,
    dwells: st.SearchStrategy[float] = free_costs,
    region_counts: st.SearchStrategy[int | None] = unbounded,
) -> Chain:
    """Up to 6 nodes x 4 points; some cells absent, never one of the first point's."""
    points = draw(point_sets())
    node_count = draw(st.integers(1, MAX_NODES))
    is_present = np.array(
        [
            [True] + [draw(st.integers(0, 9)) > 0 for _ in range(len(points) - 1)]
            for _ in range(node_count)
        ]
    )
    model = draw(models(points, stalls=stalls, energies=energies, lags=lags, dwells=dwells))
    return Chain(
        time_s=np.where(is_present, draw(cells(node_count, len(points))), np.inf),
        energy_j=np.where(is_present, draw(cells(node_count, len(points))), np.inf),
        changes=change_costs(tuple(points), model),
        max_region_count=draw(region_counts),
    )


stall_chains = chains()
"""Changes that stall and take energy; no spacing."""
region_counts = st.none() | st.integers(1, MAX_NODES)
prices = st.sampled_from([0.0, math.inf]) | whole | fractions


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EveryPlan:
    """All M plans of a small chain: choices (M, N), time (s) and energy (J) of each.

    Whether a plan is possible, `Chain.is_possible` says, when it is asked for.
    """

    chain: Chain
    choices: IntTable
    time_s: FloatTable
    energy_j: FloatTable

    def least_energy_j(self, budget_s: float) -> float | None:
        """Least energy of a possible plan within a time; `None` where there is none."""
        return self.least_of(np.where(self.time_s <= budget_s, self.energy_j, np.inf))

    def least_priced(self, price_w: float) -> float:
        """Least energy + price x time (J) of a possible plan; at +inf the least time (s)."""
        if math.isinf(price_w):
            least = self.least_of(self.time_s)
        else:
            least = self.least_of(self.energy_j + price_w * self.time_s)
        assert least is not None
        return least

    def least_of(self, values: FloatTable) -> float | None:
        """Least of (M,) values over possible plans; `None` where none is finite."""
        for i in np.argsort(values, kind="stable"):
            if math.isinf(values[i]):
                break
            if self.chain.is_possible(self.choices[i]):
                return float(values[i])
        return None


def every_plan(chain: Chain) -> EveryPlan:
    """Every point at every node where all cells are present; the first point always is."""
    node_count, point_count = chain.time_s.shape
    choices = np.array(list(product(range(point_count), repeat=node_count)), dtype=np.int64)
    rows = np.arange(node_count)
    stalled_s, spent_j = chain.changes.of(choices, np.roll(choices, -1, axis=1))
    time_s = chain.time_s[rows, choices].sum(axis=1) + stalled_s.sum(axis=1)
    energy_j = chain.energy_j[rows, choices].sum(axis=1) + spent_j.sum(axis=1)
    is_whole = np.isfinite(time_s)
    return EveryPlan(
        chain=chain,
        choices=choices[is_whole],
        time_s=time_s[is_whole],
        energy_j=energy_j[is_whole],
    )


def single_points(chain: Chain) -> EveryPlan:
    """The plans that never change their point."""
    node_count = chain.time_s.shape[0]
    columns = np.flatnonzero(np.isfinite(chain.time_s).all(axis=0))
    return EveryPlan(
        chain=chain,
        choices=np.repeat(columns[:, None], node_count, axis=1),
        time_s=chain.time_s[:, columns].sum(axis=0),
        energy_j=chain.energy_j[:, columns].sum(axis=0),
    )
