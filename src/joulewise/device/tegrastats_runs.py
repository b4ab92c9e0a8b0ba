"""Where one run of tegrastats ends in a log and the next begins, and how far its lines lie apart.

Stamps are whole seconds, and many lines share one, so lines are spread evenly over the time that
the stamps tell.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from joulewise.domain.tegrastats import TegrastatsLine

# A stamp is cut off to whole seconds, so that two lines may seem a second further apart, and a
# board that is busy may miss a line or two.
_CUT_OFF_S = 1.0
_MISSED_COUNT = 3.0
# Printed means are cut off to whole mW.
_MEAN_ERROR_W = 0.004
_OTHERS = "it tells of other rails"
# Standard deviation of a time that was cut off to whole seconds.
_STAMP_ERROR_S = 1.0 / math.sqrt(12.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """How far lines lie apart, and the standard error of that; `None`: it was given."""

    interval_s: float
    interval_error_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """A run begins at `index`, `after_s` after the line before; `None`: not known.

    `why` says how that is seen, in words that follow "begins another run:".
    """

    index: int
    after_s: float | None
    why: str


def breaks(lines: Sequence[TegrastatsLine]) -> tuple[Break, ...]:
    """Where time goes back or stands still for long, means start anew, or rails are others."""
    longest_s = _longest_step_s(lines)
    rails_at = _others_from(lines)
    found = (
        _break(index, one, other, longest_s)
        or (Break(index=index, after_s=None, why=_OTHERS) if index in rails_at else None)
        for index, (one, other) in enumerate(pairwise(lines), start=1)
    )
    return tuple(one for one in found if one is not None)


def interval(lines: Sequence[TegrastatsLine]) -> Interval | None:
    """Distance of lines by least squares of their stamps; `None` where all show one second.

    The standard error is that of a fit to times that were cut off to whole seconds.
    """
    told = [(index, line.stamp) for index, line in enumerate(lines) if line.stamp is not None]
    if len(told) < 2 or told[-1][1] <= told[0][1]:  # noqa: PLR2004 - one tells no distance
        return None
    # A line that lost its stamp holds its place all the same.
    places = [index for index, _ in told]
    told_s = [(stamp - told[0][1]).total_seconds() for _, stamp in told]
    slope_s, _ = statistics.linear_regression(places, told_s)
    middle = statistics.fmean(places)
    spread = math.sqrt(sum((index - middle) ** 2 for index in places))
    return Interval(interval_s=slope_s, interval_error_s=_STAMP_ERROR_S / spread)


def _others_from(lines: Sequence[TegrastatsLine]) -> frozenset[int]:
    """Where lines begin that tell of other rails: two of them, for one alone was cut off."""
    found: list[int] = []
    known = lines[0].labels if lines else ()
    for index, (one, other) in enumerate(pairwise(lines)):
        if one.labels == other.labels and one.labels != known:
            known = one.labels
            if index:
                found.append(index)
    return frozenset(found)


def _break(
    index: int, one: TegrastatsLine, other: TegrastatsLine, longest_s: float
) -> Break | None:
    step_s = _step_s(one, other)
    if step_s is not None and step_s < 0:
        why = f"time goes back from {one.stamp} to {other.stamp}"
        return Break(index=index, after_s=None, why=why)
    if step_s is not None and step_s > longest_s:
        why = f"no line for {step_s:g} s before it"
        return Break(index=index, after_s=step_s, why=why)
    if _is_mean_new(one, other):
        return Break(index=index, after_s=None, why="its running means start anew")
    return None


def _longest_step_s(lines: Sequence[TegrastatsLine]) -> float:
    steps = [step for one, other in pairwise(lines) if (step := _step_s(one, other)) is not None]
    forward = [step for step in steps if step >= 0]
    if not forward:
        return math.inf
    usual_s = max(statistics.median(forward), _CUT_OFF_S)
    mean_s = statistics.fmean(step for step in forward if step <= _MISSED_COUNT * usual_s)
    return _MISSED_COUNT * mean_s + _CUT_OFF_S


def _step_s(one: TegrastatsLine, other: TegrastatsLine) -> float | None:
    if one.stamp is None or other.stamp is None:
        return None
    return (other.stamp - one.stamp).total_seconds()


def _is_mean_new(one: TegrastatsLine, other: TegrastatsLine) -> bool:
    """Whether a mean over one line alone follows one that lies elsewhere.

    A mean that goes on moves less than all the way to the new reading.
    """
    before = {reading.rail: reading.running_mean_w for reading in one.rails}
    if one.labels != other.labels or not other.rails:
        return False
    moved = False
    for reading in other.rails:
        mean_w, was_w = reading.running_mean_w, before[reading.rail]
        if mean_w is None or was_w is None or mean_w != reading.power_w:
            return False
        moved = moved or abs(mean_w - was_w) > _MEAN_ERROR_W
    return moved
