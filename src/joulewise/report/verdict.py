"""One sentence that says what was found and how far to trust it."""

from __future__ import annotations

from collections.abc import Sequence

from joulewise.domain.plan import Plan, Status, Verification
from joulewise.report.compare import ComparisonRow, Role
from joulewise.report.wording import change, percent, points

_LEAST_SHOWN_RATIO = 0.0005  # below 0.05 points two savings read the same


def verdict(plan: Plan, verification: Verification | None, rows: Sequence[ComparisonRow]) -> str:
    """The sentence under which the whole report stands; `rows` as from `comparison_rows`."""
    if plan.status is Status.NO_GAIN:
        return (
            "Leave the clocks to the driver: no plan within the budget saves energy on "
            f"{plan.device_name}."
        )
    if verification is None:
        return (
            f"Promised, not verified: {percent(plan.saving_ratio, digit_count=1)} less energy at "
            f"{change(plan.slowdown_ratio)} time{_allowed(plan)}"
            f"{_lead_over_static(plan.saving_ratio, rows)}."
        )
    return _verified(plan, verification, rows)


def _verified(plan: Plan, verification: Verification, rows: Sequence[ComparisonRow]) -> str:
    saved = percent(verification.saving_ratio, digit_count=1)
    time = f"{change(verification.slowdown_ratio)} time{_allowed(plan)}"
    if verification.saving_interval.low_ratio <= 0.0:
        low, high = verification.saving_interval.low_ratio, verification.saving_interval.high_ratio
        return (
            f"No saving shown: on fresh runs the plan saves between {percent(low)} and "
            f"{percent(high)} energy at {time}."
        )
    if verification.is_within_budget is False:
        return (
            f"The promise on time is not shown to hold: fresh runs took {time} and used "
            f"{saved} less energy."
        )
    return (
        f"Verified on fresh runs: {saved} less energy at {time}"
        f"{_lead_over_static(verification.saving_ratio, rows)}."
    )


def _allowed(plan: Plan) -> str:
    budget_ratio = plan.request.max_slowdown_ratio
    if budget_ratio is None:
        return " (no bound on time)"
    return f" (allowed: {change(1.0 + budget_ratio)})"


def _lead_over_static(saving_ratio: float, rows: Sequence[ComparisonRow]) -> str:
    """How much more the plan saves than the best single point at equal slowdown."""
    static = next((row for row in rows if row.role is Role.BEST_STATIC), None)
    if static is None:
        return ""
    lead_ratio = saving_ratio - static.saving_ratio
    if lead_ratio > _LEAST_SHOWN_RATIO:
        return f", {points(lead_ratio)} more than the best single operating point saves"
    if lead_ratio < -_LEAST_SHOWN_RATIO:
        return f", {points(-lead_ratio)} less than the best single operating point saves"
    return "; the best single operating point saves as much"
