"""Plans to be carried out, and what arithmetic says of them."""

from __future__ import annotations

from collections.abc import Sequence

from joulewise.domain.plan import (
    Plan,
    PlannedLaunch,
    PlannedRequest,
    PlanRequest,
    Status,
)
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.transition import TransitionModel
from joulewise.domain.workload import Launch, Workload
from joulewise.simulator.oracle import open_oracle
from joulewise.simulator.presets import preset

DEVICE = "virtual:rtx3080ti,noise=0"


def launches_at(
    launches: Sequence[Launch], points: Sequence[OperatingPoint], region_length: int
) -> tuple[PlannedLaunch, ...]:
    """Regions of so many launches that take these points in turn."""
    return tuple(
        PlannedLaunch(
            kernel=launch.kernel,
            pass_=launch.pass_,
            point=points[number // region_length % len(points)],
        )
        for number, launch in enumerate(launches)
    )


def requests_for(
    launches: Sequence[PlannedLaunch], model: TransitionModel | None
) -> tuple[PlannedRequest, ...]:
    """One request per change around the cycle, its lag ahead."""
    requests = []
    for index, launch in enumerate(launches):
        before = launches[index - 1].point
        if before != launch.point:
            cost = model.cost(before, launch.point) if model else None
            lead_s = cost.lag_s if cost else 0.0
            requests.append(PlannedRequest(launch_index=index, lead_s=lead_s, point=launch.point))
    return tuple(requests)


def change_totals(
    launches: Sequence[PlannedLaunch], model: TransitionModel | None
) -> tuple[float, float]:
    """Time (s) and energy (J) of all changes around the cycle."""
    costs = [
        model.cost(launches[index - 1].point, launch.point) if model else None
        for index, launch in enumerate(launches)
    ]
    known = [cost for cost in costs if cost is not None]
    return sum(cost.stall_s for cost in known), sum(cost.energy_j for cost in known)


def plan_of(
    workload: Workload,
    launches: tuple[PlannedLaunch, ...],
    model: TransitionModel | None,
    *,
    budget: float | None = 0.006,
    device: str = DEVICE,
) -> Plan:
    """A plan that predicts what the physics and the model say."""
    oracle = open_oracle(device, workload.works)
    time_s, energy_j = oracle.true_iteration(launches)
    stalled_s, spent_j = change_totals(launches, model)
    baseline_time_s, baseline_energy_j = oracle.true_iteration(
        [PlannedLaunch(kernel=one.kernel, pass_=one.pass_, point=AUTO) for one in launches]
    )
    return Plan(
        status=Status.FEASIBLE,
        request=PlanRequest(max_slowdown_ratio=budget, transition=model),
        device=device,
        device_name=preset("rtx3080ti").name,
        workload=workload.name,
        sweep_sha256="0",
        baseline=AUTO,
        time_s=time_s + stalled_s,
        energy_j=energy_j + spent_j,
        baseline_time_s=baseline_time_s,
        baseline_energy_j=baseline_energy_j,
        slowdown_ratio=(time_s + stalled_s) / baseline_time_s,
        saving_ratio=1.0 - (energy_j + spent_j) / baseline_energy_j,
        bound_gap_ratio=None,
        guard_band_ratio=0.0,
        launches=launches,
        requests=requests_for(launches, model),
        transition_time_s=stalled_s,
        transition_energy_j=spent_j,
    )
