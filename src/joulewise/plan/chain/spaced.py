"""Plans around a chain whose changes must lie apart, for a lag or a dwell, at one price of time."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, replace

import numpy as np

from joulewise.domain.sweep import FloatTable, IntTable
from joulewise.plan.chain.problem import Chain, Priced
from joulewise.plan.chain.spaced_arrivals import Arrivals
from joulewise.plan.chain.spaced_frame import Frame
from joulewise.plan.chain.spaced_rules import SpacingRules
from joulewise.plan.chain.spaced_run import Layers, Openings, Run

LANE_CELL_COUNT = 2**23
"""Cells (nodes x points x lanes) that one price may take to close the cycle."""
LEAST_LANE_COUNT = 16
"""Lanes that one price may take at least."""
_LARGEST_BATCH_CELL_COUNT = 2**25
_TOLERANCE_RATIO = 1e-10
_RETURNED_COUNT = 8


class SpacedSolver:
    """Least energy + price x time where regions must outlast the spacing of the next change.

    A change away from point p is allowed where p has run long enough, so the last start of its
    region that will do follows from a search in the running sums of time, and the least cost
    over all earlier starts is a running minimum: O(N P) per price and distinct spacing.

    The cycle is cut open. Wherever the region across the cut began, and at whichever point,
    the open chain is a relaxation; branch and bound over both closes it. On small chains the
    answer is exact; on large ones the lanes are counted, and the bound says what is left open.
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
        found = self._searched(price_w, replace(self.chain, max_region_count=None), Layers())
        most_count = self.chain.max_region_count
        if most_count is None:
            return found
        possible = tuple(choice for choice in found.choices if self.chain.is_possible(choice))
        if possible and possible[0] is found.choices[0]:
            return Priced(choices=possible, bound=found.bound)
        return self._searched(price_w, self.chain, Layers(count=1 + most_count))

    def _searched(self, price_w: float, chain: Chain, layers: Layers) -> Priced:
        search = _Search(self._frame, self._lenient, chain, price_w, layers)
        search.run()
        plans = search.plans
        if search.is_refused:
            # Rounding decides whether some plan keeps the spacing: find one that surely does.
            if self._strict is None:
                self._strict = SpacingRules(self._frame, is_strict=True)
            strict = _Search(self._frame, self._strict, chain, price_w, layers)
            strict.run()
            plans = plans + strict.plans
        bound = self._frame.bound(search.bound, price_w)
        return Priced(choices=_best_first(plans), bound=bound)


def _best_first(plans: list[tuple[float, IntTable]]) -> tuple[IntTable, ...]:
    distinct = {choice.tobytes(): (cost, choice) for cost, choice in plans}
    ordered = sorted(distinct.values(), key=lambda plan: plan[0])
    return tuple(choice for _, choice in ordered[:_RETURNED_COUNT])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Lane:
    """What one lane found: by start from node 1 to N the least cost, and the array's lane."""

    run: Run
    column: int
    costs: FloatTable
    lanes: IntTable


class _Search:
    """Branch and bound over the region across the cut: its point, and the node it began at.

    A branch is a point with a range of nodes; node N stands for a start at the cut itself. Its
    lane lets the region be as old as the earliest start makes it, so it bounds all of them.
    """

    def __init__(
        self,
        frame: Frame,
        rules: SpacingRules,
        chain: Chain,
        price_w: float,
        layers: Layers,
    ) -> None:
        self.frame = frame
        self.rules = rules
        self.chain = chain
        self.price_w = price_w
        self.layers = layers
        self.sums = frame.priced_sums(price_w)
        self.arrivals = Arrivals(frame.chain.changes, rules, frame.priced_changes(price_w))
        self.plans: list[tuple[float, IntTable]] = []
        self.best = math.inf
        self.is_refused = False
        self._refused_bound = math.inf
        self._branches: list[tuple[float, int, int, int]] = []

    @property
    def bound(self) -> float:
        """No possible plan costs less."""
        left = self._branches[0][0] if self._branches else math.inf
        return min(self.best, self._refused_bound, left)

    def run(self) -> None:
        """Search until the cycle is closed or the lanes are spent."""
        for column in self.frame.singles().tolist():
            self._offer(np.full(self.frame.node_count, column, dtype=np.int64))
        if self.frame.node_count < 2 or self.layers.count == 2:  # noqa: PLR2004
            return
        self._branch_at_every_point()
        cell_count = self.sums.size * self.layers.count
        left_count = max(LEAST_LANE_COUNT, LANE_CELL_COUNT // cell_count)
        largest_count = max(1, _LARGEST_BATCH_CELL_COUNT // cell_count)
        batch_count = 2
        while left_count > 0 and self._is_open():
            count = min(batch_count, largest_count, left_count)
            branches = []
            while len(branches) < count and self._is_open():
                branches.append(heapq.heappop(self._branches))
            self._run_branches(branches)
            left_count -= len(branches)
            batch_count *= 4

    def _is_open(self) -> bool:
        return bool(self._branches) and self._pays(self._branches[0][0])

    def _pays(self, cost: float) -> bool:
        """Whether a bound leaves room below the best plan."""
        if math.isinf(cost):
            return False
        return cost < self.best - _TOLERANCE_RATIO * abs(self.best)

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
        """Bound every point across the cut at once, wherever its region began."""
        node_count = self.frame.node_count
        openings = Openings(columns=None, ages_s=np.array([math.inf]))
        run = Run(self.sums, self.arrivals, openings, self.layers)
        last = run.least[node_count - 1].min(axis=1)
        if (hole := self.frame.holes[node_count - 1]) is not None:
            last = last + hole[:, 0]
        bounds = np.minimum(last + self.sums[node_count], run.closed.min(axis=1))
        if not np.isfinite(bounds).any():
            return
        self._offer_open(run, int(bounds.argmin()))
        for column in np.flatnonzero(np.isfinite(bounds)).tolist():
            self._push(float(bounds[column]), column, 1, node_count)

    def _offer_open(self, run: Run, column: int) -> None:
        """The open chain's best plan may close by itself."""
        node_count = self.frame.node_count
        lane = int(run.closed[column].argmin())
        start = node_count
        open_lane = int(run.least[node_count - 1, column].argmin())
        open_cost = float(run.least[node_count - 1, column, open_lane] + self.sums[-1, column])
        if self.frame.is_present[-1, column] and open_cost < run.closed[column, lane]:
            lane = open_lane
            start = run.first(column, node_count - 1, lane)
        turned = run.traced(column, start, lane)
        if turned[0] == column:
            self._offer(turned)

    def _push(self, bound: float, column: int, first: int, last: int) -> None:
        if math.isfinite(bound):
            heapq.heappush(self._branches, (bound, column, first, last))

    def _run_branches(self, branches: list[tuple[float, int, int, int]]) -> None:
        node_count = self.frame.node_count
        columns = np.array([column for _, column, _, _ in branches])
        firsts = np.array([first for _, _, first, _ in branches])
        ages_s = self.frame.time_sums_s[-1, columns] - self.frame.time_sums_s[firsts, columns]
        openings = Openings(columns=columns, ages_s=ages_s)
        run = Run(self.sums, self.arrivals, openings, self.layers)
        begun = run.begun.reshape(node_count, -1, self.layers.count)
        for i, (bound, column, first, last) in enumerate(branches):
            lanes = begun[:, i].argmin(axis=1)
            costs = begun[np.arange(node_count), i, lanes] + self.sums[-1, column]
            costs = np.maximum(costs, bound)
            numbers = np.arange(1, node_count + 1)
            is_whole = numbers >= self.frame.first_present[-1, column]
            costs[~is_whole | (numbers < first) | (numbers > last)] = np.inf
            lane = _Lane(
                run=run, column=column, costs=costs, lanes=lanes + i * self.layers.count
            )
            self._settle(lane, first, last)

    def _settle(self, lane: _Lane, first: int, last: int) -> None:
        """Take the plans that close; split what is left where the best one did not."""
        self._settle_exact(lane, first)
        while True:
            place = int(lane.costs.argmin())
            cost = float(lane.costs[place])
            if not self._pays(cost):
                break
            start = place + 1
            if not self._offer(lane.run.traced(lane.column, start, int(lane.lanes[place]))):
                self._push(float(lane.costs[: start - 1].min()), lane.column, first, start - 1)
                self._push(float(lane.costs[start - 1 :].min()), lane.column, start, last)
                return
            lane.costs[place] = np.inf
        self._push(float(lane.costs.min()), lane.column, first, last)

    def _settle_exact(self, lane: _Lane, first: int) -> None:
        """Close the starts for which the lane is no relaxation: its own, and all old ones."""
        sums_s = self.frame.time_sums_s[:, lane.column]
        is_exact = self.rules.is_old(sums_s[-1] - sums_s[1:])
        is_exact[first - 1] = True
        costs = np.where(is_exact, lane.costs, np.inf)
        lane.costs[is_exact] = np.inf
        place = int(costs.argmin())
        cost = float(costs[place])
        if self._pays(cost):
            if self._offer(lane.run.traced(lane.column, place + 1, int(lane.lanes[place]))):
                return
            # Rounding decides whether the spacing is kept.
            self.is_refused = True
        if math.isfinite(cost):
            self._refused_bound = min(self._refused_bound, cost)
