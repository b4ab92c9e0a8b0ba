"""Plans around a chain whose changes must lie apart, for a lag or a dwell, at one price of time."""

from __future__ import annotations

import heapq
import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from joulewise.domain.sweep import FloatTable, IntTable
from joulewise.plan.chain.problem import Chain, Priced
from joulewise.plan.chain.spaced_arrivals import Arrivals
from joulewise.plan.chain.spaced_frame import Frame
from joulewise.plan.chain.spaced_rules import ROUNDING_RATIO, SpacingRules
from joulewise.plan.chain.spaced_run import Openings, Run

LANE_CELL_COUNT = 2**22
"""Cells (nodes x points x lanes) that one price may take to close the cycle."""
LEAST_LANE_COUNT = 16
"""Lanes that one price may take at least."""
_LARGEST_BATCH_CELL_COUNT = 2**25
_SMALL_CELL_COUNT = 2**11
_TOLERANCE_RATIO = 1e-6
_RETURNED_COUNT = 8
_ONE_REGION_LAYER_COUNT = 2


class SpacedSolver:
    """Least energy + price x time where regions must outlast the spacing of the next change.

    A change away from point p is allowed where p has run long enough. So the last start of its
    region that will do follows from a search in the running sums of time, and the least cost
    over all starts up to it is a running minimum: O(N P) per price and distinct spacing.

    The cycle is cut open. The chain that may begin with any point, as if it had long run, is a
    relaxation; branch and bound over the region that runs up to the cut closes it. On small
    chains the answer is exact; on large ones the lanes are counted, and the bound says what is
    left open.
    """

    def __init__(self, chain: Chain) -> None:
        """Prepare what prices have no part in."""
        self.chain = chain
        self._frame = Frame(chain)
        self._lenient = SpacingRules(self._frame, is_strict=False)
        self._strict: SpacingRules | None = None

    def least(self, price_w: float) -> Priced:
        """Possible plans, the best first, and a lower bound on all possible plans.

        `price_w`: energy that a second of iteration time is worth, J/s. At +inf the least time
        is sought, less energy breaking ties, and the bound is a time in s.
        """
        found = self._searched(price_w, replace(self.chain, max_region_count=None), 1)
        most_count = self.chain.max_region_count
        if most_count is None:
            return found
        possible = tuple(choice for choice in found.choices if self.chain.is_possible(choice))
        if possible and possible[0] is found.choices[0]:
            return Priced(choices=possible, bound=found.bound)
        return self._searched(price_w, self.chain, 1 + most_count)

    def _searched(self, price_w: float, chain: Chain, layer_count: int) -> Priced:
        search = _Search(self._frame, self._lenient, chain, price_w, layer_count)
        search.run()
        plans = search.plans
        if search.is_refused:
            # Rounding decides whether some plan keeps the spacing: find one that surely does.
            if self._strict is None:
                self._strict = SpacingRules(self._frame, is_strict=True)
            strict = _Search(self._frame, self._strict, chain, price_w, layer_count)
            strict.run()
            plans = plans + strict.plans
        bound = self._frame.bound(search.bound, price_w)
        return Priced(choices=_best_first(plans), bound=bound)


def _best_first(plans: list[tuple[float, IntTable]]) -> tuple[IntTable, ...]:
    distinct = {choice.tobytes(): (cost, choice) for cost, choice in plans}
    ordered = sorted(distinct.values(), key=lambda plan: plan[0])
    return tuple(choice for _, choice in ordered[:_RETURNED_COUNT])


class _Branch(NamedTuple):
    """Plans whose last region has this point and begins at one of these nodes; the least first."""

    bound: float
    column: int
    first: int
    last: int


class _Lane:
    """What one lane found: by the node that the last region begins at, cost and array's lane."""

    def __init__(self, run: Run, number: int, branch: _Branch) -> None:
        self.run = run
        self.column = branch.column
        frame = run.rules.frame
        nodes = np.arange(frame.node_count)
        begun = run.begun.reshape(nodes.size, -1, run.layer_count)[:, number]
        best = begun.argmin(axis=1)
        self.lanes = best + number * run.layer_count
        self.costs: FloatTable = begun[nodes, best] + run.sums[-1, branch.column]
        np.maximum(self.costs, branch.bound, out=self.costs)
        is_whole = nodes >= frame.first_present[-1, branch.column]
        self.costs[~is_whole | (nodes < branch.first) | (nodes > branch.last)] = np.inf

    def traced(self, node: int) -> IntTable:
        """The plan whose last region begins at this node."""
        return self.run.traced(self.column, node, int(self.lanes[node]))


class _Search:
    """Branch and bound over the region that runs up to the cut: its point and its first node.

    The lane of a branch lets the region be as old as the earliest first node makes it, so it
    bounds all of them.
    """

    def __init__(
        self,
        frame: Frame,
        rules: SpacingRules,
        chain: Chain,
        price_w: float,
        layer_count: int,
    ) -> None:
        self.frame = frame
        self.rules = rules
        self.chain = chain
        self.price_w = price_w
        self.layer_count = layer_count
        self.sums = frame.priced_sums(price_w)
        self.arrivals = Arrivals(frame.chain.changes, rules, frame.priced_changes(price_w))
        self.plans: list[tuple[float, IntTable]] = []
        self.best = math.inf
        self.is_refused = False
        self._closed_bound = math.inf
        self._branches: list[_Branch] = []

    @property
    def bound(self) -> float:
        """No possible plan costs less."""
        left = self._branches[0].bound if self._branches else math.inf
        return min(self.best, self._closed_bound, left)

    def run(self) -> None:
        """Search until the cycle is closed or the lanes are spent."""
        singles = self.frame.singles()
        if singles.size:
            column = singles[self.sums[-1, singles].argmin()]
            self._offer(np.full(self.frame.node_count, column, dtype=np.int64))
        # Two regions have two changes.
        if self.frame.node_count == 1 or self.layer_count == _ONE_REGION_LAYER_COUNT:
            return
        self._branch_at_every_point()
        cell_count = self.sums.size * self.layer_count
        left_count = max(LEAST_LANE_COUNT, LANE_CELL_COUNT // cell_count)
        largest_count = max(1, _LARGEST_BATCH_CELL_COUNT // cell_count)
        batch_count = 2
        while left_count > 0 and self._is_open():
            count = min(batch_count, largest_count, left_count)
            branches: list[_Branch] = []
            while len(branches) < count and self._is_open():
                branches.append(heapq.heappop(self._branches))
            self._run_branches(branches)
            left_count -= len(branches)
            batch_count *= 4

    def _is_open(self) -> bool:
        return bool(self._branches) and self._pays(self._branches[0].bound)

    def _pays(self, cost: float) -> bool:
        """Whether a bound leaves room below the best plan."""
        if math.isinf(cost) or math.isinf(self.best):
            return math.isfinite(cost)
        is_small = self.sums.size <= _SMALL_CELL_COUNT
        tolerance_ratio = ROUNDING_RATIO if is_small else _TOLERANCE_RATIO
        return cost < self.best - tolerance_ratio * abs(self.best)

    def _offer(self, turned: IntTable) -> bool:
        """Take a plan along if it is possible; whether it is."""
        choice = self.frame.of_chain(turned)
        if not self.chain.is_possible(choice):
            return False
        cost = self.frame.priced(choice, self.price_w)
        self.plans.append((cost, choice))
        self.best = min(self.best, cost)
        return True

    def _branch_at_every_point(self) -> None:
        """Bound every point before the cut at once, wherever its region began."""
        run = Run(self.sums, self.arrivals, None, self.layer_count)
        node_count = self.frame.node_count
        last = run.least[node_count]
        if (hole := self.frame.holes[node_count - 1]) is not None:
            last = last + hole
        bounds = last.min(axis=1) + self.sums[node_count]
        column = int(bounds.argmin())
        lane = int(last[column].argmin())
        start = run.first(column, node_count, lane)
        if start > 0 and math.isfinite(bounds[column]):
            # The open chain's best plan may close by itself.
            self._offer(run.traced(column, start - 1, lane))
        for column, bound in enumerate(bounds.tolist()):
            self._push(_Branch(bound, column, 0, node_count - 1))

    def _push(self, branch: _Branch) -> None:
        if math.isfinite(branch.bound):
            heapq.heappush(self._branches, branch)

    def _run_branches(self, branches: list[_Branch]) -> None:
        columns = np.array([branch.column for branch in branches])
        firsts = np.array([branch.first for branch in branches])
        ages_s = self.frame.time_sums_s[-1, columns] - self.frame.time_sums_s[firsts, columns]
        openings = Openings(columns=columns, ages_s=ages_s)
        run = Run(self.sums, self.arrivals, openings, self.layer_count)
        for number, branch in enumerate(branches):
            self._settle(_Lane(run, number, branch), branch)

    def _settle(self, lane: _Lane, branch: _Branch) -> None:
        """Take the plans that close; split what is left where the best one did not."""
        self._settle_exact(lane, branch.first)
        column, costs = branch.column, lane.costs
        while True:
            node = int(costs.argmin())
            if not self._pays(float(costs[node])):
                break
            if not self._offer(lane.traced(node)):
                self._push(_Branch(float(costs[:node].min()), column, branch.first, node - 1))
                self._push(_Branch(float(costs[node:].min()), column, node, branch.last))
                return
            self._closed_bound = min(self._closed_bound, float(costs[node]))
            costs[node] = np.inf
        self._push(_Branch(float(costs.min()), column, branch.first, branch.last))

    def _settle_exact(self, lane: _Lane, first: int) -> None:
        """Close the first nodes for which the lane is no relaxation: its own, and all old ones."""
        sums_s = self.frame.time_sums_s[:, lane.column]
        is_exact = self.rules.is_old(sums_s[-1] - sums_s[:-1])
        is_exact[first] = True
        costs = np.where(is_exact, lane.costs, np.inf)
        lane.costs[is_exact] = np.inf
        node = int(costs.argmin())
        cost = float(costs[node])
        self._closed_bound = min(self._closed_bound, cost)
        if self._pays(cost) and not self._offer(lane.traced(node)):
            # Rounding decides whether the spacing is kept.
            self.is_refused = True
