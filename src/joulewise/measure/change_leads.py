"""How far ahead to ask for each change, from what was measured of them all.

Each knob is set by a call of its own, one after the other. So a change of several knobs comes
into force piece by piece, and what one kernel shows of it may be the first piece only: a clock
that the power limit holds down does not show its lock. What the calls took tells the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from joulewise.domain.points import KNOBS, OperatingPoint
from joulewise.domain.transition import ChangeLead, changed_knob_count
from joulewise.measure.change_accounts import MeasuredChange
from joulewise.measure.statistics import median


def with_whole_lags(changes: Sequence[MeasuredChange]) -> tuple[MeasuredChange, ...]:
    """The changes, none with a lag shorter than that of the knob that is set last.

    Its call begins when those before it have returned, and it takes as long to come into force
    as a change of one knob alone. Knobs that were not measured alone say nothing.
    """
    return tuple(
        replace(change, lag_s=max(change.lag_s, parts.least_lag_s)) if parts else change
        for change, parts in _with_parts(changes)
    )


def measured_leads(changes: Sequence[MeasuredChange]) -> tuple[ChangeLead, ...]:
    """One lead for each change, as long as its lag; of several measurements the longest.

    Args:
        changes: As `with_whole_lags` gives them.
    """
    leads: dict[tuple[OperatingPoint, OperatingPoint], ChangeLead] = {}
    for change, parts in _with_parts(changes):
        key = change.before, change.after
        if key in leads and change.lag_s <= leads[key].lead_s:
            continue
        leads[key] = ChangeLead(
            before=change.before,
            after=change.after,
            lead_s=change.lag_s,
            partial_s=min(change.lag_s, parts.partial_s) if parts else 0.0,
        )
    return tuple(leads.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """Of a change of several knobs: the least lag of the last, and the time from first to last."""

    least_lag_s: float
    partial_s: float


def _with_parts(
    changes: Sequence[MeasuredChange],
) -> list[tuple[MeasuredChange, _Parts | None]]:
    """Each change with the times of its parts, where they have any."""
    alone_s = _lags_alone_s(changes)
    return [(change, _parts(change, alone_s)) for change in changes]


def _parts(change: MeasuredChange, alone_s: dict[str, float]) -> _Parts | None:
    count = changed_knob_count(change.before, change.after)
    # Where the request takes no time all knobs are set at once.
    if count == 1 or not change.call_s:
        return None
    serial_s = change.call_s * (count - 1) / count
    lags_s = [alone_s[knob] for knob in _changed_knobs(change) if knob in alone_s]
    if not lags_s:
        return _Parts(least_lag_s=0.0, partial_s=serial_s)
    return _Parts(
        least_lag_s=serial_s + min(lags_s), partial_s=serial_s + max(lags_s) - min(lags_s)
    )


def _lags_alone_s(changes: Sequence[MeasuredChange]) -> dict[str, float]:
    """By knob, the middle lag of the changes of that knob alone."""
    lags_s: dict[str, list[float]] = {}
    for change in changes:
        knobs = _changed_knobs(change)
        if len(knobs) == 1:
            lags_s.setdefault(knobs[0], []).append(change.lag_s)
    return {knob: median(values) for knob, values in lags_s.items()}


def _changed_knobs(change: MeasuredChange) -> list[str]:
    return [knob for knob in KNOBS if getattr(change.before, knob) != getattr(change.after, knob)]
