"""The same problem as a mixed-integer program for HiGHS: the planner's last resort."""

from __future__ import annotations

import numpy as np

from joulewise.plan.options import Options
from joulewise.plan.rest import Base, Closing

_NODE_LIMIT = 20_000


def solve_milp(options: Options, base: Base, *, incumbent_j: float) -> Closing:
    """Choose among all options by branch and cut.

    HiGHS keeps constraints within an absolute 1e-6. Times and energies are scaled to the largest
    change of time and to the gap that is left, so that this is little; a plan that overdraws the
    budget all the same is not taken, and the bound then leaves a gap.

    Args:
        options: What is left to choose from.
        base: The plan that times and energies are relative to.
        incumbent_j: Energy of a known plan relative to the base plan.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415
    from scipy.sparse import csr_array  # noqa: PLC0415

    count = options.classes.size
    energy_scale_j = incumbent_j - base.bound_j
    time_scale_s = float(np.abs(base.time_s).max())
    one_each = csr_array(
        (np.ones(count), (options.classes, np.arange(count))),
        shape=(options.class_count, count),
    )
    in_time = csr_array(base.time_s[None, :] / time_scale_s)
    result = milp(
        base.energy_j / energy_scale_j,
        constraints=[
            LinearConstraint(one_each, 1.0, 1.0),
            LinearConstraint(in_time, -np.inf, base.slack_s / time_scale_s),
        ],
        integrality=np.ones(count),
        bounds=Bounds(0.0, 1.0),
        options={"mip_rel_gap": 0.0, "node_limit": _NODE_LIMIT},
    )
    bound_j = base.bound_j
    if result.mip_dual_bound is not None:
        bound_j = max(bound_j, float(result.mip_dual_bound) * energy_scale_j)
    if result.x is None:
        return Closing(choice=None, energy_j=incumbent_j, bound_j=min(bound_j, incumbent_j))
    chosen = np.flatnonzero(np.asarray(result.x) > 0.5)  # noqa: PLR2004 - rounds to 0 or 1
    energy_j = float(base.energy_j[chosen].sum())
    if energy_j >= incumbent_j or base.time_s[chosen].sum() > base.slack_s:
        return Closing(choice=None, energy_j=incumbent_j, bound_j=min(bound_j, incumbent_j))
    return Closing(choice=chosen, energy_j=energy_j, bound_j=min(bound_j, energy_j))
