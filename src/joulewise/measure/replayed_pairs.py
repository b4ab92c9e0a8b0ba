"""Pairs of baseline and plan for a verification, each side replayed as whole iterations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.measurement import ReplayWindow
from joulewise.domain.plan import Plan, VerificationPair
from joulewise.domain.ports import Lease
from joulewise.domain.session import DeviceSession
from joulewise.measure.replay import Schedule, replay_schedule, schedule_of
from joulewise.measure.settings import MeasureSettings


def replayed_pairs(
    session: DeviceSession,
    lease: Lease,
    plan: Plan,
    pair_count: int,
    *,
    settings: MeasureSettings,
) -> Iterator[tuple[VerificationPair, tuple[ReplayWindow, ...]]]:
    """Replay both sides of every pair in one measuring run, so that its shift cancels.

    The order of the sides turns around from pair to pair. Where the plan is the baseline, both
    sides share one window.
    """
    planned, baseline = schedule_of(plan), baseline_schedule(plan)
    for number in range(pair_count):
        sides = (baseline, planned) if number % 2 == 0 else (planned, baseline)
        seen: dict[Schedule, ReplayWindow] = {}
        for side in sides:
            if side not in seen:
                seen[side] = replay_schedule(
                    session,
                    lease,
                    side,
                    settings=settings,
                    run=f"verify/{number}",
                    is_soak_optional=True,
                )
        pair = VerificationPair(
            baseline_time_s=seen[baseline].time_s,
            baseline_energy_j=seen[baseline].energy_j,
            plan_time_s=seen[planned].time_s,
            plan_energy_j=seen[planned].energy_j,
        )
        yield pair, tuple(seen.values())


def baseline_schedule(plan: Plan) -> Schedule:
    """The launches of a plan, all of them at its baseline."""
    return Schedule(
        launches=tuple(replace(launch, point=plan.baseline) for launch in plan.launches)
    )


def changes_point(plan: Plan) -> bool:
    """Whether a plan has launches at different points."""
    first = plan.launches[0].point
    # Most launches share one record of their point.
    return any(one.point is not first and one.point != first for one in plan.launches)


def uncounted_transitions(plan: Plan) -> tuple[Caveat, ...]:
    """TransitionsNotCounted where a plan changes clocks and has no model of what that costs."""
    if plan.request.transition is not None or not changes_point(plan):
        return ()
    point_count = len({launch.point for launch in plan.launches})
    return (
        Caveat(
            kind=CaveatKind.TRANSITIONS_NOT_COUNTED,
            seen=f"the plan changes between {point_count} operating points",
        ),
    )


def assumed_transitions(session: DeviceSession, plan: Plan) -> tuple[Caveat, ...]:
    """TransitionsAssumed where a virtual board plays the very model that the plan stands on."""
    model = plan.request.transition
    if model is None or not plan.requests or session.transition != model:
        return ()
    return (
        Caveat(
            kind=CaveatKind.TRANSITIONS_ASSUMED,
            seen=f"the virtual board plays the transition model {model.name!r} that the plan "
            "was made with, so the replay shows that the plan can be carried out, not that "
            "changes cost this on hardware",
        ),
    )
