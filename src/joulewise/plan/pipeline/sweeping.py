"""Sweeps: every operation in turn takes the option of least value that still fits.

Each operation knows when it can start, since those before it have chosen, and when it must end,
since those after it still stand as they were. So whatever time one leaves over is handed on to
the next, and no plan ever runs over. Many plans for many budgets are swept side by side.

Axes: N operations in order of their levels, m options of each, B budgets, R plans for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from joulewise.domain.sweep import FloatTable, IntTable
from joulewise.plan.pipeline.problem import PipelineProblem
from joulewise.plan.pipeline.program import Relaxed

TIME_TOLERANCE_RATIO = 1e-12
"""A plan may run over its time by this share of it, for sums are rounded."""

_OPTION_COUNT = 8
_NEAR_RATIO = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Menu:
    """m options of each operation for each budget, from fast to frugal; the first is the fastest.

    All (N, m, B, 1). `places` are those among the undominated options of the operation's pass.
    Where there are fewer than m, the last is repeated.
    """

    places: IntTable
    time_s: FloatTable
    net_j: FloatTable


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plans:
    """Plans after a sweep: `is_forward` says in which direction.

    `slots` (N, B, R) are places on the menu, `time_s` (N, B, R) durations, `end_s` (N, B, R) the
    ends, counted from where the sweep began.
    """

    is_forward: bool
    slots: IntTable
    time_s: FloatTable
    end_s: FloatTable

    def picked(self, columns: IntTable) -> Plans:
        """The plans in these (B, Q) or (1, Q) columns of each budget."""
        columns = np.broadcast_to(columns, (self.slots.shape[1], columns.shape[1]))
        return Plans(
            is_forward=self.is_forward,
            slots=np.take_along_axis(self.slots, columns[None], axis=2),
            time_s=np.take_along_axis(self.time_s, columns[None], axis=2),
            end_s=np.take_along_axis(self.end_s, columns[None], axis=2),
        )

    def joined(self, other: Plans) -> Plans:
        """These and others, all swept in one direction."""
        return Plans(
            is_forward=self.is_forward,
            slots=np.concatenate([self.slots, other.slots], axis=2),
            time_s=np.concatenate([self.time_s, other.time_s], axis=2),
            end_s=np.concatenate([self.end_s, other.end_s], axis=2),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Walk:
    """One direction of time: spans of operations, and for each span what comes before it.

    `before` holds, for each span, index arrays to take the latest end of; N stands for nothing.
    """

    spans: tuple[tuple[int, int], ...]
    before: tuple[tuple[IntTable, ...], ...]


class Sweeping:
    """What all sweeps of one problem share."""

    def __init__(self, problem: PipelineProblem, relaxed: Sequence[Relaxed]) -> None:
        graph = problem.graph
        order = np.concatenate(graph.levels)
        self.order = order
        self._problem = problem
        ends = np.cumsum([level.size for level in graph.levels]).tolist()
        spans = tuple(zip([0, *ends[:-1]], ends, strict=True))
        rank = np.append(np.argsort(order), order.size)
        self._walks = {
            True: _walk(spans, rank[graph.predecessors[order]]),
            False: _walk(spans[::-1], rank[graph.successors[order]]),
        }
        self.limit_s = np.array([one.time_s for one in relaxed])[:, None]
        self.duration_s = np.stack([one.duration_s[order] for one in relaxed], axis=1)
        self.price_w = np.stack([one.price_w[order] for one in relaxed], axis=1)
        self.menu = _menu(problem, order, self.duration_s, self.price_w)

    def start(self) -> Plans:
        """The program's durations, which may lie between options, as if swept backwards."""
        time_s = self.duration_s[:, :, None]
        walk = self._walks[False]
        end_s = np.zeros((time_s.shape[0] + 1, *time_s.shape[1:]))
        for (begin, end), before in zip(walk.spans, walk.before, strict=True):
            end_s[begin:end] = _latest(end_s, before) + time_s[begin:end]
        return Plans(
            is_forward=False,
            slots=np.zeros(time_s.shape, dtype=np.int64),
            time_s=time_s,
            end_s=end_s[:-1],
        )

    def near(self) -> Plans:
        """Down to options that take no longer than in the program; and the same, or one more."""
        menu = self.menu
        is_below = menu.time_s <= self.duration_s[:, None, :, None] * (1.0 + _NEAR_RATIO)
        is_next = np.concatenate([np.ones_like(is_below[:, :1]), is_below[:, :-1]], axis=1)
        is_near = np.concatenate([is_below, is_next], axis=3)
        slowest_first = -np.ones((1, 1, 1, 1))
        return self._swept(self.start(), np.where(is_near, 0.0, np.inf), slowest_first)

    def sold(self, plans: Plans, share_ratio: FloatTable) -> Plans:
        """Time sold at a share of the program's prices, in the direction opposite to the last.

        Args:
            plans: R plans, or one that stands for all.
            share_ratio: (N, B, R) or what broadcasts to it.
        """
        price_w = (self.price_w[:, :, None] * share_ratio)[:, None]
        return self._swept(plans, self.menu.net_j, price_w)

    def energy_j(self, plans: Plans) -> FloatTable:
        """(B, R) energy of the whole iteration, waiting included; +inf where it is late."""
        iteration_s = plans.end_s.max(axis=0)
        net_j = _taken(self.menu.net_j, plans.slots).sum(axis=0)
        is_late = iteration_s > self.limit_s * (1.0 + TIME_TOLERANCE_RATIO)
        return np.where(is_late, np.inf, net_j + self._problem.waiting_power_w * iteration_s)

    def places(self, plans: Plans) -> IntTable:
        """(N, B, R) places among the undominated options, in the order of the problem."""
        places = np.empty(plans.slots.shape, dtype=np.int64)
        menu = self.menu.places
        places[self.order] = np.take(menu, _flat(menu.shape, plans.slots))
        return places

    def _swept(self, plans: Plans, base_j: FloatTable, price_w: FloatTable) -> Plans:
        """Each takes the least base + price x time that fits; the fastest where none does."""
        walk = self._walks[not plans.is_forward]
        option_s = self.menu.time_s
        must_end_s = self.limit_s - (plans.end_s - plans.time_s)
        must_end_s += 0.25 * TIME_TOLERANCE_RATIO * self.limit_s
        shape = np.broadcast_shapes(must_end_s[0].shape, base_j.shape[2:], price_w.shape[2:])
        count = option_s.shape[0]
        end_s = np.zeros((count + 1, *shape))
        time_s = np.empty((count, *shape))
        slots = np.empty((count, *shape), dtype=np.int64)
        base_j, price_w = (np.broadcast_to(a, (count, *a.shape[1:])) for a in (base_j, price_w))
        for (begin, end), before in zip(walk.spans, walk.before, strict=True):
            start_s = _latest(end_s, before)
            times = option_s[begin:end]
            values = base_j[begin:end] + price_w[begin:end] * times
            left_s = must_end_s[begin:end] - start_s
            fitting = np.where(times <= left_s[:, None], values, np.inf)
            fitting.argmin(axis=1, out=slots[begin:end])
            time_s[begin:end] = _taken(times, slots[begin:end])
            np.add(start_s, time_s[begin:end], out=end_s[begin:end])
        return Plans(is_forward=not plans.is_forward, slots=slots, time_s=time_s, end_s=end_s[:-1])


def _walk(spans: tuple[tuple[int, int], ...], before: IntTable) -> _Walk:
    """Columns of `before` that hold nothing for a whole span are left out."""
    nothing = before.shape[0]
    columns = [
        tuple(
            np.ascontiguousarray(column)
            for column in before[begin:end].T
            if (column != nothing).any()
        )
        for begin, end in spans
    ]
    return _Walk(spans=spans, before=tuple(columns))


def _latest(end_s: FloatTable, before: tuple[IntTable, ...]) -> FloatTable:
    """Latest end of what comes before; 0 where nothing does."""
    if not before:
        return np.zeros(end_s.shape[1:])[None]
    latest = end_s[before[0]]
    for column in before[1:]:
        np.maximum(latest, end_s[column], out=latest)
    return latest


def _taken(table: FloatTable, slots: IntTable) -> FloatTable:
    """(n, B, R) entries of a (n, m, B, 1) table at these slots."""
    taken: FloatTable = np.take(table, _flat(table.shape, slots))
    return taken


def _flat(shape: tuple[int, ...], slots: IntTable) -> IntTable:
    """(n, B, R) positions of these slots in a flat table of this (n, m, B, 1) shape."""
    count, slot_count, budget_count, _ = shape
    places: IntTable = slots + (np.arange(count) * slot_count)[:, None, None]
    if budget_count > 1:
        places *= budget_count
        places += np.arange(budget_count)[:, None]
    return places


def _menu(
    problem: PipelineProblem, order: IntTable, duration_s: FloatTable, price_w: FloatTable
) -> Menu:
    """The options that cost least at the program's prices, with the fastest and its neighbours."""
    own = problem.pass_of[order]
    times, energies = problem.time_s[own][:, :, None], problem.net_j[own][:, :, None]
    count = min(_OPTION_COUNT, times.shape[1])
    cost_j = energies + price_w[:, None] * np.where(np.isinf(times), 0.0, times)
    last = np.isfinite(times).sum(axis=1) - 1
    below = (times <= duration_s[:, None] * (1.0 + _NEAR_RATIO)).sum(axis=1) - 1
    below = np.maximum(below, 0)
    for wanted in (below, np.minimum(below + 1, last), np.zeros_like(below)):
        np.put_along_axis(cost_j, wanted[:, None], -np.inf, axis=1)
    places = np.sort(np.argsort(cost_j, axis=1, kind="stable")[:, :count], axis=1)
    places = np.minimum(places, last[:, None])
    return Menu(
        places=places[..., None],
        time_s=np.take_along_axis(times, places, axis=1)[..., None],
        net_j=np.take_along_axis(energies, places, axis=1)[..., None],
    )
