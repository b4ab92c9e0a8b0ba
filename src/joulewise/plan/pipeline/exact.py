"""Small pipelines, solved exactly: the linear program with whole options only.

Each operation takes one of its undominated options, so no plan of options lies below what the
mixed-integer program proves. It is bounded by a number of nodes, not by time: the same problem
always has the same answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from joulewise.domain.sweep import FloatTable, IntTable
from joulewise.plan.pipeline.problem import PipelineProblem
from joulewise.plan.pipeline.program import quiet_solver, rows_of

if TYPE_CHECKING:
    from highspy import HighsLp

MOST_CHOICES_COUNT = 150
"""Options of all operations together."""
_MOST_NODES_COUNT = 1_000
_TOLERANCE = 1e-9
# Less than what counts as proven, more than what the solver's sums are off by.
_ROUNDING_RATIO = 2e-10


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Exact:
    """(N,) places among the undominated options, and what no plan of options falls below.

    `places` is `None` where the nodes ran out before any plan was found.
    """

    places: IntTable | None
    bound_j: float


def is_small(problem: PipelineProblem) -> bool:
    """Whether it can be solved exactly: few options, and no way to run besides them."""
    if any(options.profile.bound_points for options in problem.passes):
        return False
    sizes = np.array([options.time_s.size for options in problem.passes])
    return int(sizes[problem.pass_of].sum()) <= MOST_CHOICES_COUNT


def solve_exactly(problem: PipelineProblem, limit_s: float) -> Exact | None:
    """The least energy within a time; `None` where the solver proves nothing.

    Args:
        problem: One that `is_small`.
        limit_s: At least the least possible time.
    """
    from highspy import SolutionStatus  # noqa: PLC0415 - slow to load

    choices = _choices_of(problem)
    highs = quiet_solver(
        {
            "threads": 1,
            "mip_max_nodes": _MOST_NODES_COUNT,
            "mip_rel_gap": 0.1 * _TOLERANCE,
            "mip_abs_gap": 0.0,
            "mip_feasibility_tolerance": _TOLERANCE,
            "primal_feasibility_tolerance": _TOLERANCE,
        }
    )
    highs.passModel(_model(problem, choices, limit_s))
    highs.run()
    info = highs.getInfo()
    bound_j = float(info.mip_dual_bound)
    if not np.isfinite(bound_j):
        return None
    places = None
    if info.primal_solution_status == SolutionStatus.kSolutionStatusFeasible:
        values = np.array(highs.getSolution().col_value)[-choices.operations.size :]
        count = problem.pass_of.size
        table = np.full((count, problem.time_s.shape[1]), -1.0)
        table[choices.operations, choices.places] = values
        places = table.argmax(axis=1)
    return Exact(places=places, bound_j=bound_j - _ROUNDING_RATIO * abs(bound_j))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Choices:
    """Every option of every operation, by operation, all (X,)."""

    operations: IntTable
    places: IntTable
    time_s: FloatTable
    net_j: FloatTable


def _choices_of(problem: PipelineProblem) -> _Choices:
    times = problem.time_s[problem.pass_of]
    operations, places = np.nonzero(np.isfinite(times))
    return _Choices(
        operations=operations,
        places=places,
        time_s=times[operations, places],
        net_j=problem.net_j[problem.pass_of][operations, places],
    )


def _model(problem: PipelineProblem, choices: _Choices, limit_s: float) -> HighsLp:
    """Columns: the iteration's time, starts, one for each option. Rows: waits, one option each."""
    from highspy import HighsLp, HighsVarType, MatrixFormat, kHighsInf  # noqa: PLC0415

    count, choice_count = problem.pass_of.size, choices.operations.size
    unit_s = float(problem.time_s[problem.pass_of, 0].mean())
    tails, heads = rows_of(problem)
    matrix = np.zeros((tails.size + count, 1 + count + choice_count))
    rows = np.arange(tails.size)
    matrix[rows, np.where(heads == count, 0, 1 + heads)] = 1.0
    matrix[rows, 1 + tails] = -1.0
    is_own = choices.operations == tails[:, None]
    matrix[: tails.size, 1 + count :] = np.where(is_own, -choices.time_s / unit_s, 0.0)
    matrix[tails.size + choices.operations, 1 + count + np.arange(choice_count)] = 1.0
    row_of, columns = np.nonzero(matrix)
    model = HighsLp()
    model.num_col_, model.num_row_ = matrix.shape[1], matrix.shape[0]
    model.col_cost_ = np.concatenate(
        [[problem.waiting_power_w * unit_s], np.zeros(count), choices.net_j]
    )
    model.col_lower_ = np.zeros(model.num_col_)
    model.col_upper_ = np.concatenate([np.full(1 + count, limit_s / unit_s), np.ones(choice_count)])
    model.row_lower_ = np.concatenate([np.zeros(tails.size), np.ones(count)])
    model.row_upper_ = np.concatenate([np.full(tails.size, kHighsInf), np.ones(count)])
    model.a_matrix_.format_ = MatrixFormat.kRowwise
    model.a_matrix_.start_ = np.searchsorted(row_of, np.arange(model.num_row_ + 1))
    model.a_matrix_.index_ = columns
    model.a_matrix_.value_ = matrix[row_of, columns]
    kinds = [HighsVarType.kContinuous] * (1 + count) + [HighsVarType.kInteger] * choice_count
    model.integrality_ = kinds
    return model
