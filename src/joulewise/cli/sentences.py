"""Verdicts in one sentence, and the rows of the tables beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from joulewise.cli.render import joules, percent, seconds, signed_percent
from joulewise.domain.caveats import CaveatKind
from joulewise.domain.plan import FrontierPoint, Interval, Plan, Status, Verification
from joulewise.report.compare import ComparisonRow
from joulewise.report.verdict import verdict

_ROWS_SHOWN_COUNT = 20


def comparison_rows(rows: Sequence[ComparisonRow]) -> Iterator[tuple[str, ...]]:
    """setting, time, energy, slowdown, saving."""
    for row in rows:
        yield (
            row.label,
            seconds(row.time_s),
            joules(row.energy_j),
            signed_percent(row.slowdown_ratio - 1),
            percent(row.saving_ratio),
        )


def frontier_rows(points: Sequence[FrontierPoint]) -> Iterator[tuple[str, ...]]:
    """time, energy, slowdown, saving: at most twenty, spread evenly, both ends included."""
    last = len(points) - 1
    shown = min(len(points), _ROWS_SHOWN_COUNT)
    indices = sorted({round(i * last / max(1, shown - 1)) for i in range(shown)})
    for point in (points[index] for index in indices):
        yield (
            seconds(point.time_s),
            joules(point.energy_j),
            signed_percent(point.slowdown_ratio - 1),
            percent(point.saving_ratio),
        )


def verification_rows(seen: Verification) -> Iterator[tuple[str, ...]]:
    """what, promised, verified, interval."""
    yield (
        "slowdown",
        signed_percent(seen.promised_slowdown_ratio - 1),
        signed_percent(seen.slowdown_ratio - 1),
        _interval(seen.slowdown_interval, offset=-1),
    )
    yield (
        "saving",
        percent(seen.promised_saving_ratio, 2),
        percent(seen.saving_ratio, 2),
        _interval(seen.saving_interval),
    )


def _interval(interval: Interval, *, offset: float = 0) -> str:
    low = signed_percent(interval.low_ratio + offset)
    high = signed_percent(interval.high_ratio + offset)
    return f"{low} … {high}"


def plan_sentence(plan: Plan, out: Path | None) -> str:
    """What the plan promises."""
    if plan.status is Status.NO_GAIN:
        return "Leave the clocks alone: no setting saves energy within the budget."
    proven = "proven best in this table" if plan.status is Status.OPTIMAL else "good, not proven"
    kept = (
        f", {percent(plan.guard_band_ratio, 2)} of the time kept back as a guard band"
        if plan.guard_band_ratio > 0
        else ""
    )
    where = f"; written to {out}" if out is not None else ""
    return (
        f"The plan promises {percent(plan.saving_ratio)} less energy at "
        f"{signed_percent(plan.slowdown_ratio - 1)} time ({proven}{kept}){where}."
    )


def tune_sentence(plan: Plan, seen: Verification, rows: Sequence[ComparisonRow]) -> str:
    """The verdict of `tune`, simulated or measured; the same as on the report."""
    is_simulated = any(caveat.kind is CaveatKind.SIMULATED_DEVICE for caveat in plan.caveats)
    origin = f"{'Simulated' if is_simulated else 'Measured on'} {plan.device_name}"
    return f"{origin}. {verdict(plan, seen, rows)}"
