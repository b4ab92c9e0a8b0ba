"""What a plan, verified or not, comes to: the same for every command that has one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rich.console import Console

from joulewise.cli.outcome import Outcome
from joulewise.domain.caveats import Caveat, CaveatKind, first_of_each_kind, is_simulated
from joulewise.domain.efficiency import plan_efficiency
from joulewise.domain.plan import Granularity, Plan, Status, Verification
from joulewise.domain.points import OperatingPoint
from joulewise.report.regions import change_indices, plan_regions

Render = Callable[[Console], None]


def plan_caveats(plan: Plan, seen: Verification | None) -> tuple[Caveat, ...]:
    """Doubts of both, one of a kind; once there are fresh runs, 'not verified' does not hold."""
    if seen is None:
        return plan.caveats
    doubts = (*seen.caveats, *plan.caveats)
    return first_of_each_kind(*(one for one in doubts if one.kind is not CaveatKind.NOT_VERIFIED))


def plan_outcome(
    plan: Plan, seen: Verification | None, render: Render, extra: Mapping[str, object]
) -> Outcome:
    """Figures of fresh runs where there are any, with the promise beside them.

    Times and energies are the ratios times the plan's baseline, as in the table for people:
    runs differ by a common shift, so only ratios carry over from one to another.
    A saving whose interval includes zero is none: the status is then `no_gain`.
    """
    caveats = plan_caveats(plan, seen)
    if seen is None:
        return Outcome(
            status=plan.status,
            render=render,
            slowdown_ratio=plan.slowdown_ratio,
            saving_ratio=plan.saving_ratio,
            energy_j=plan.energy_j,
            time_s=plan.time_s,
            bound_gap_ratio=plan.bound_gap_ratio,
            caveats=caveats,
            extra={
                **_frame(plan),
                "efficiency": plan_efficiency(plan),
                "is_simulated": is_simulated(caveats),
                **extra,
            },
        )
    return Outcome(
        status=plan.status if seen.saving_interval.low_ratio > 0 else Status.NO_GAIN,
        render=render,
        slowdown_ratio=seen.slowdown_ratio,
        saving_ratio=seen.saving_ratio,
        energy_j=(1 - seen.saving_ratio) * plan.baseline_energy_j,
        time_s=seen.slowdown_ratio * plan.baseline_time_s,
        bound_gap_ratio=plan.bound_gap_ratio,
        caveats=caveats,
        extra={
            "promised_slowdown_ratio": seen.promised_slowdown_ratio,
            "promised_saving_ratio": seen.promised_saving_ratio,
            "slowdown_interval": seen.slowdown_interval,
            "saving_interval": seen.saving_interval,
            "is_within_budget": seen.is_within_budget,
            "pair_count": len(seen.pairs),
            **_frame(plan),
            "efficiency": plan_efficiency(plan, seen),
            "is_simulated": is_simulated(seen.caveats),
            **extra,
        },
    )


def _frame(plan: Plan) -> dict[str, object]:
    """What the figures are of."""
    return {
        "workload": plan.workload,
        "device": plan.device,
        "device_name": plan.device_name,
        "objective": plan.request.objective,
        "max_slowdown_ratio": plan.request.max_slowdown_ratio,
        "baseline_time_s": plan.baseline_time_s,
        "baseline_energy_j": plan.baseline_energy_j,
        "guard_band_ratio": plan.guard_band_ratio,
        **_changes(plan),
    }


def _changes(plan: Plan) -> dict[str, object]:
    """How often the point changes, around the iteration, and what of that is counted."""
    model = plan.request.transition
    change_count = len(change_indices(plan))
    return {
        "transition": None if model is None else model.name,
        "change_count": change_count,
        "region_count": max(1, change_count),
        "request_count": len(plan.requests),
        "transition_time_s": None if model is None else plan.transition_time_s,
        "transition_energy_j": None if model is None else plan.transition_energy_j,
    }


def requests_document(plan: Plan) -> list[dict[str, object]]:
    """The plan as it is carried out: what to ask for, before which launch, how long ahead."""
    return [
        {
            "launch_index": request.launch_index,
            "lead_s": request.lead_s,
            **point_document(request.point),
        }
        for request in plan.requests
    ]


def regions_document(plan: Plan) -> dict[str, object]:
    """The regions of a plan whose launches, not kernels, have points; else nothing."""
    request = plan.request
    if request.transition is None and request.granularity is not Granularity.REGION:
        return {}
    return {
        "regions": [
            {
                "first_launch": region.first_launch,
                "last_launch": region.last_launch,
                **point_document(region.point),
            }
            for region in plan_regions(plan)
        ]
    }


def point_document(point: OperatingPoint) -> dict[str, object]:
    """A point as machines read it; null stands for auto."""
    return {
        "sm_clock_mhz": point.sm_clock_mhz,
        "mem_clock_mhz": point.mem_clock_mhz,
        "power_limit_w": point.power_limit_w,
    }
