"""The same problem as a mixed-integer program for HiGHS: the last resort of the planner."""

from __future__ import annotations

import numpy as np

from joulewise.domain.sweep import FloatTable, IntTable
from joulewise.plan.core import PROVEN_RATIO, Base, Closing
from joulewise.plan.options import Options

_NODE_LIMIT = 20_000
_FEASIBILITY = 1e-9


def solve_milp(options: Options, base: Base, *, incumbent_j: float) -> Closing:
    """Choose among all options by branch and cut, relative to the base plan.

    HiGHS takes a budget as kept within an absolute tolerance, so times are scaled to the slack's
    order and a plan that overdraws the budget is not taken; its bound still holds, for it is one
    on a wider problem.

    Args:
        options: What is left to choose from.
        base: The plan that times and energies are relative to.
        incumbent_j: Energy of a known plan relative to the base plan.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    count = options.classes.size
    energy_scale = base.total_energy_j * 1e-6
    time_scale = float(np.abs(base.time_s).max())
    one_each = csr_array(
        (np.ones(count), (options.classes, np.arange(count))),
        shape=(options.class_count, count),
    )
    in_time = csr_array((base.time_s / time_scale)[None, :])
    result = milp(
        base.excess_j / energy_scale,
        constraints=[
            LinearConstraint(one_each, 1.0, 1.0),
            LinearConstraint(in_time, -np.inf, base.slack_s / time_scale),
        ],
        integrality=np.ones(count),
        bounds=Bounds(0.0, 1.0),
        options={"mip_rel_gap": PROVEN_RATIO, "node_limit": _NODE_LIMIT},
    )
    ...
