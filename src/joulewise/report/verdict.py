"""One sentence that says what was found and how far to trust it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from joulewise.domain.caveats import Caveat, CaveatKind, is_simulated
from joulewise.domain.plan import Interval, Plan, Status, Verification
from joulewise.report.compare import ComparisonRow, Role
from joulewise.report.regions import change_indices
from joulewise.report.wording import change, counted, percent, points

_LEAST_SHOWN_RATIO = 0.0005  # below 0.05 points two savings read the same
_SMALLEST_GAP_RATIO = 1e-4  # what still shows with two digits
_RIVAL = "the best single point saves"
_NOT_COUNTED = "changes of clocks not counted"


def headline(
    plan: Plan,
    verification: Verification | None,
    rows: Sequence[ComparisonRow],
    *,
    is_table_simulated: bool,
) -> str:
    """The verdict behind what it was found on, simulated or measured.

    `is_table_simulated` is about the sweep that the plan was made from, which is all there is
    where nothing was run afresh; a simulated model of transitions makes no simulation of it.
    """
    said = verdict(plan, verification, rows)
    if verification is not None:
        where = ran_on(verification.device_name, verification.device, verification.caveats)
    elif is_table_simulated:
        where = f"Simulated {plan.device_name} ({plan.device})."
    else:
        # A table from elsewhere may have been measured, or not: it is planned as it stands.
        return said
    return f"{where} {said}"


def ran_on(device_name: str, device: str, caveats: Iterable[Caveat]) -> str:
    """What figures with these doubts come from: a model, a recording or hardware."""
    doubts = tuple(caveats)
    if device_name.startswith("not named"):
        device_name = f"a GPU {device_name}"
    if is_simulated(doubts):
        return f"Simulated {device_name} ({device})."
    if any(caveat.kind is CaveatKind.RECORDING_REPLAYED for caveat in doubts):
        return f"Replayed from {device}."
    return f"Measured on {device_name} ({device})."


def verdict(plan: Plan, verification: Verification | None, rows: Sequence[ComparisonRow]) -> str:
    """The sentence under which the whole report stands; `rows` as from `comparison_rows`."""
    if plan.status is Status.NO_GAIN:
        return f"Leave the clocks alone: {_no_gain(rows)}."
    if verification is None:
        aside = f", {_NOT_COUNTED}" if leaves_changes_out(plan) else ""
        saved = percent(plan.saving_ratio, digit_count=1)
        return (
            f"Promised, not verified{aside}: {saved} less energy at "
            f"{change(plan.slowdown_ratio)} time{_allowed(plan)}"
            f"{_lead_over_static(plan, plan.saving_ratio, _as_promised(plan), rows)}."
        )
    return _verified(plan, verification, rows)


def _no_gain(rows: Sequence[ComparisonRow]) -> str:
    """Why nothing was chosen; a rival that saves was not, for its time is in doubt."""
    rivals = (row for row in rows if row.role in {Role.BEST_STATIC, Role.BEST_PASS})
    if any(row.saving_ratio >= _LEAST_SHOWN_RATIO for row in rivals):
        return "no plan that saves energy is certain to keep the budget"
    return "no plan within the budget saves energy"


def proof(status: Status, bound_gap_ratio: float | None) -> str:
    """How far a plan can lie above the least that is possible."""
    if bound_gap_ratio is None and status is not Status.OPTIMAL:
        return "good, not proven best"
    if status is Status.OPTIMAL:
        return "proven best"
    gap = percent(bound_gap_ratio or 0.0)
    if gap == percent(0.0):
        return f"less than {percent(_SMALLEST_GAP_RATIO)} above the least possible"
    return f"at most {gap} above the least possible"


def leaves_changes_out(plan: Plan) -> bool:
    """Whether the plan changes clocks and neither counts that nor is run with it."""
    return plan.request.transition is None and bool(change_indices(plan))


def _verified(plan: Plan, verification: Verification, rows: Sequence[ComparisonRow]) -> str:
    saved = f"{percent(verification.saving_ratio, digit_count=1)} less energy"
    time = f"{change(verification.slowdown_ratio)} time"
    span, saving_span = verification.slowdown_interval, verification.saving_interval
    is_apart = leaves_changes_out(plan)
    aside = f", kernel by kernel and {_NOT_COUNTED}," if is_apart else ""
    if saving_span.low_ratio <= 0.0:
        low, high = percent(saving_span.low_ratio), percent(saving_span.high_ratio)
        return (
            f"No saving shown: on fresh runs{aside} the plan saves between {low} and {high} energy "
            f"at {time}{_allowed(plan)}."
        )
    budget_ratio = plan.request.max_slowdown_ratio
    lead = _lead_over_static(plan, verification.saving_ratio, saving_span, rows)
    lead += _missed_promise(plan, saving_span)
    if budget_ratio is None or span.high_ratio <= 1.0 + budget_ratio:
        how = f"kernel by kernel, {_NOT_COUNTED}" if is_apart else "on fresh runs"
        return f"Verified {how}: {saved} at {time}{_allowed(plan)}{lead}."
    if span.low_ratio > 1.0 + budget_ratio:
        return f"The plan broke its budget: on fresh runs{aside} {saved} at {time}{_allowed(plan)}."
    return (
        f"Fresh runs{aside} show {saved} at {time} (allowed: {change(1.0 + budget_ratio)}; "
        f"{change(span.high_ratio)} is not excluded){lead}."
    )


def _missed_promise(plan: Plan, interval: Interval) -> str:
    """A promise of energy that fresh runs exclude is said, also where the budget held."""
    if plan.saving_ratio <= interval.high_ratio + _LEAST_SHOWN_RATIO:
        return ""
    return f"; {percent(plan.saving_ratio, digit_count=1)} had been promised"


def _as_promised(plan: Plan) -> Interval:
    """A promise knows no interval; what reads the same counts as the same."""
    return Interval(
        low_ratio=plan.saving_ratio - _LEAST_SHOWN_RATIO,
        high_ratio=plan.saving_ratio + _LEAST_SHOWN_RATIO,
    )


def _allowed(plan: Plan) -> str:
    budget_ratio = plan.request.max_slowdown_ratio
    if budget_ratio is None:
        return " (no bound on time)"
    return f" (allowed: {change(1.0 + budget_ratio)})"


def _lead_over_static(
    plan: Plan, saving_ratio: float, interval: Interval, rows: Sequence[ComparisonRow]
) -> str:
    """How the plan stands beside the best single point; no lead where the interval has both."""
    static = next((row for row in rows if row.role is Role.BEST_STATIC), None)
    if static is None:
        return ""
    rival_ratio = static.saving_ratio
    if rival_ratio < _LEAST_SHOWN_RATIO < interval.low_ratio:
        return f"; {_none_of_the_points(static)}"
    if interval.low_ratio > rival_ratio:
        return f", {points(saving_ratio - rival_ratio)} more than {_RIVAL}"
    if interval.high_ratio < rival_ratio:
        less = points(rival_ratio - saving_ratio)
        return f", {less} less than {_RIVAL}{_why_not_the_rival(plan, static)}"
    return f", no more than {_RIVAL}"


def _none_of_the_points(static: ComparisonRow) -> str:
    """A coarse choice of clocks may just have no good one."""
    if static.point_count is None or static.point_count == 1:
        return "no single point that was measured saves any"
    return (
        f"none of the {counted(static.point_count, 'single point')} measured saves any "
        "(--sm-clocks measures more)"
    )


def _why_not_the_rival(plan: Plan, rival: ComparisonRow) -> str:
    """Where a rival that saves more was not chosen, for the guard band excludes it."""
    budget_ratio, guard_ratio = plan.request.max_slowdown_ratio, plan.guard_band_ratio
    if budget_ratio is None or rival.slowdown_ratio <= 1.0 + budget_ratio - guard_ratio:
        return ""
    return (
        f": that one, at {change(rival.slowdown_ratio)} time, is too near the budget, of which "
        f"{points(guard_ratio)} are kept back so that fresh runs hold it"
    )
