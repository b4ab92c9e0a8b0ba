"""The linear program: how little energy a pipeline can need within a time.

Every operation gets a start, and a duration between its fastest and its most frugal option that
costs what the lower convex hull of its options says. The iteration's time is a variable as well,
for waiting costs energy too. Source: the time-cost tradeoff problem of project scheduling,
Kelley, Critical-Path Planning and Scheduling, Operations Research 9 (1961).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from joulewise.domain.errors import PlanError
from joulewise.domain.sweep import FloatTable, IntTable
from joulewise.plan.pipeline.graph import iteration_time
from joulewise.plan.pipeline.options import PassOptions
from joulewise.plan.pipeline.problem import PipelineProblem

if TYPE_CHECKING:
    from highspy import Highs


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Relaxed:
    """An optimum of the linear program.

    `duration_s` (N,) may lie between two options. `price_w` (N,) is how much energy the rest
    could save with a second less of that operation. No plan within the time needs less than
    `bound_j`, whatever its operations run: options or what bound points stand for.
    """

    time_s: float
    duration_s: FloatTable
    price_w: FloatTable
    bound_j: float


class PipelineProgram:
    """The program of one problem, built once; every answer starts from the one before."""

    def __init__(self, problem: PipelineProblem) -> None:
        self._problem = problem
        self._least_time_s = problem.least_time_s()
        fastest_s = np.array([options.bound_time_s.min() for options in problem.passes])
        self._bound_time_s = iteration_time(problem.graph, fastest_s[problem.pass_of])
        slowest_s = np.array([options.bound_time_s.max() for options in problem.passes])
        self._longest_time_s = iteration_time(problem.graph, slowest_s[problem.pass_of])
        self._segments = _segments_of(problem)
        # The solver's tolerances are absolute: operations shall take about 1.
        self._unit_s = float(problem.time_s[problem.pass_of, 0].mean())
        self._tails, self._heads = rows_of(problem)
        self._highs = self._model()

    def solve(self, max_time_s: float) -> Relaxed:
        """Least energy within a time, which must be at least the least possible.

        Raises:
            PlanError: The solver gave up.
        """
        # With every operation at its slowest nothing is left to gain from more time.
        limit_s = max(min(max_time_s, self._longest_time_s), self._least_time_s)
        self._highs.changeColBounds(0, self._least_time_s / self._unit_s, limit_s / self._unit_s)
        self._highs.run()
        status = self._highs.modelStatusToString(self._highs.getModelStatus())
        if status != "Optimal":
            raise PlanError(f"the pipeline's linear program ended as {status!r}")
        solution = self._highs.getSolution()
        values = np.array(solution.col_value) * self._unit_s
        # Rows are of the kind >=, so their prices are not negative but for rounding.
        row_price_w = np.maximum(np.array(solution.row_dual), 0.0)
        count = self._problem.pass_of.size
        price_w = _sums(self._tails, row_price_w, count)
        # Where waiting costs nothing, nothing is gained by an early end.
        is_free = self._problem.waiting_power_w == 0.0
        time_s = limit_s if is_free else float(np.clip(values[0], self._least_time_s, limit_s))
        return Relaxed(
            time_s=time_s,
            duration_s=self._durations_s(values[1 + count :]),
            price_w=price_w,
            bound_j=self._bound_j(row_price_w, price_w, limit_s),
        )

    def _durations_s(self, segment_s: FloatTable) -> FloatTable:
        problem = self._problem
        fastest_s = problem.time_s[problem.pass_of, 0]
        beyond_s = _sums(self._segments.operations, segment_s, fastest_s.size)
        durations_s: FloatTable = fastest_s + np.maximum(beyond_s, 0.0)
        return durations_s

    def _bound_j(self, row_price_w: FloatTable, price_w: FloatTable, limit_s: float) -> float:
        """What the prices prove, whatever the solver's tolerances.

        Waiting times are not negative, so charging them at any prices that are not negative
        gives a lower bound: then every option, every start within [0, limit] and the
        iteration's time are best chosen one by one. Options here are all ways to run an
        operation, also those that the program and its plans do not choose from.
        """
        problem = self._problem
        count = price_w.size
        into_w = _sums(self._heads, row_price_w, count + 1)
        own_j = sum(
            float(_least_j(options, price_w[problem.pass_of == place]).sum())
            for place, options in enumerate(problem.passes)
        )
        starts_j = np.minimum(price_w - into_w[:-1], 0.0).sum() * limit_s
        rate_w = problem.waiting_power_w - into_w[-1]
        return float(own_j + starts_j + min(rate_w * self._bound_time_s, rate_w * limit_s))

    def _model(self) -> Highs:
        from highspy import HighsLp, MatrixFormat, kHighsInf  # noqa: PLC0415 - slow to load

        problem, segments = self._problem, self._segments
        count, row_count = problem.pass_of.size, self._tails.size
        segment_count = segments.operations.size
        fastest = problem.time_s[problem.pass_of, 0] / self._unit_s
        model = HighsLp()
        model.num_col_ = 1 + count + segment_count
        model.num_row_ = row_count
        # Energy stays in J: the unit of cost is watts times the unit of time.
        model.col_cost_ = np.concatenate(
            [[problem.waiting_power_w], np.zeros(count), segments.rate_w]
        )
        model.col_lower_ = np.zeros(1 + count + segment_count)
        model.col_upper_ = np.concatenate(
            [np.full(1 + count, kHighsInf), segments.width_s / self._unit_s]
        )
        model.row_lower_ = fastest[self._tails]
        model.row_upper_ = np.full(row_count, kHighsInf)
        starts, columns, values = self._matrix()
        model.a_matrix_.format_ = MatrixFormat.kRowwise
        model.a_matrix_.start_ = starts
        model.a_matrix_.index_ = columns
        model.a_matrix_.value_ = values
        # Without presolve each answer starts from the last.
        highs = quiet_solver({"presolve": "off", "solver": "simplex", "threads": 1})
        highs.passModel(model)
        return highs

    def _matrix(self) -> tuple[IntTable, IntTable, FloatTable]:
        """Rows: start of what comes after - start of what comes before - its segments >= fastest.

        The end of the iteration comes after all that nothing else waits for.
        """
        count = self._problem.pass_of.size
        segments = self._segments
        begins = np.searchsorted(segments.operations, np.arange(count + 1))
        sizes = np.diff(begins)[self._tails]
        starts = np.concatenate([[0], np.cumsum(sizes + 2)])
        columns = np.empty(starts[-1], dtype=np.int64)
        values = np.full(starts[-1], -1.0)
        first = starts[:-1]
        columns[first] = np.where(self._heads == count, 0, 1 + self._heads)
        values[first] = 1.0
        columns[first + 1] = 1 + self._tails
        rows = np.repeat(np.arange(self._tails.size), sizes)
        inner = np.arange(rows.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        columns[first[rows] + 2 + inner] = 1 + count + begins[self._tails[rows]] + inner
        return starts, columns, values


def _least_j(options: PassOptions, price_w: FloatTable) -> FloatTable:
    """(n,) least that an operation of a pass can come to, time charged at n prices."""
    least_j: FloatTable = (options.bound_net_j + price_w[:, None] * options.bound_time_s).min(
        axis=1
    )
    return least_j


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Segments:
    """The hull's segments of every operation, by operation and from fast to frugal, all (S,).

    `rate_w` is the energy per second of more time: negative and rising along an operation.
    """

    operations: IntTable
    width_s: FloatTable
    rate_w: FloatTable


def _segments_of(problem: PipelineProblem) -> _Segments:
    widths = [np.diff(options.time_s[options.hull]) for options in problem.passes]
    rates = [
        np.diff(options.net_j[options.hull]) / width
        for options, width in zip(problem.passes, widths, strict=True)
    ]
    sizes = np.array([width.size for width in widths])
    return _Segments(
        operations=np.repeat(np.arange(problem.pass_of.size), sizes[problem.pass_of]),
        width_s=np.concatenate([widths[place] for place in problem.pass_of]),
        rate_w=np.concatenate([rates[place] for place in problem.pass_of]),
    )


def rows_of(problem: PipelineProblem) -> tuple[IntTable, IntTable]:
    """What comes before and after in each row; N stands for the end of the iteration."""
    graph, count = problem.graph, problem.pass_of.size
    last = np.flatnonzero((graph.successors == count).all(axis=1))
    tails = np.concatenate([graph.edges[:, 0], last])
    heads = np.concatenate([graph.edges[:, 1], np.full(last.size, count)])
    return tails, heads


def _sums(keys: IntTable, values: FloatTable, count: int) -> FloatTable:
    """(count,) sum of the values of each key."""
    return np.bincount(keys, weights=values, minlength=count).astype(np.float64)


def quiet_solver(settings: Mapping[str, bool | int | float | str]) -> Highs:
    """A solver that prints nothing.

    HiGHS announces itself on standard output when it is given the options of its callbacks,
    before anyone could tell it not to.
    """
    from highspy import Highs  # noqa: PLC0415 - slow to load

    class Quiet(Highs):
        def enableCallbacks(self) -> None:  # noqa: N802 - the name is theirs
            self.silent()

    highs: Highs = Quiet()  # type: ignore[no-untyped-call]
    for option, value in settings.items():
        highs.setOptionValue(option, value)
    return highs
