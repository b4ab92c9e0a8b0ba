"""A plan of given launches that promises nothing; tests say what matters to them."""

from __future__ import annotations

from collections.abc import Sequence

from joulewise.domain.plan import Plan, PlannedLaunch, PlannedRequest, PlanRequest, Status
from joulewise.domain.points import AUTO


def bare_plan(
    launches: Sequence[PlannedLaunch],
    request: PlanRequest | None = None,
    requests: Sequence[PlannedRequest] = (),
) -> Plan:
    """An iteration of 1 s and 1 J, changes included, as long and as dear as its baseline."""
    points = [launch.point for launch in launches]
    model = None if request is None else request.transition
    costs = [
        cost
        for index, point in enumerate(points)
        if model is not None and (cost := model.cost(points[index - 1], point)) is not None
    ]
    return Plan(
        status=Status.FEASIBLE,
        request=PlanRequest() if request is None else request,
        device="virtual:x",
        device_name="X",
        workload="w",
        sweep_sha256="0" * 64,
        baseline=AUTO,
        time_s=1.0,
        energy_j=1.0,
        baseline_time_s=1.0,
        baseline_energy_j=1.0,
        slowdown_ratio=1.0,
        saving_ratio=0.0,
        bound_gap_ratio=None,
        guard_band_ratio=0.0,
        launches=tuple(launches),
        requests=tuple(requests),
        transition_time_s=sum(cost.stall_s for cost in costs),
        transition_energy_j=sum(cost.energy_j for cost in costs),
    )
