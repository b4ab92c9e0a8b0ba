"""Figure 1: energy against time, with everything that the plan is compared to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from joulewise.domain.plan import FrontierPoint, Interval
from joulewise.report.compare import (
    ComparisonRow,
    Role,
    StaticPoint,
    comparison_rows,
    equal_slowdown_ratio,
    static_points,
)
from joulewise.report.figures import BLUE, GREY, ORANGE, TEAL, Figure, Json, axis, figure
from joulewise.report.inputs import ReportInputs
from joulewise.report.wording import change, percent, setting

_HOVER = "time %{x:+.2f} %<br>energy saved %{y:.2f} %"
_LEAST_WIDTH = 12.0  # percent of the baseline's time that is shown at least to the right
_MARKS: dict[Role, tuple[str, str, int]] = {  # colour, symbol, size
    Role.BASELINE: (GREY, "square", 11),
    Role.BEST_STATIC: (GREY, "triangle-up", 13),
    Role.BEST_PASS: (ORANGE, "triangle-down", 13),
    Role.PROMISED: (TEAL, "diamond-open", 13),
    Role.VERIFIED: (TEAL, "diamond", 13),
}
_HEIGHT_PX, _ROOM_PX = 500, 104  # of the figure; of what stands above and below the axes
_WIDTH_PX = 850  # of the axes on a wide page; on a narrow one labels may meet a line
_LABEL_RIGHT_PX, _LABEL_GAP_PX = 44, 21
_LETTER_PX, _PUSH_PX, _MOST_PUSH_PX = 6.5, 3, 90
_LEFT_SIDE_RATIO = 0.6  # marks further right have their labels on the left


def frontier_figure(inputs: ReportInputs) -> Figure:
    """Single points, both frontiers and the marked rows; x and y in percent."""
    statics = static_points(inputs.plan, inputs.sweep)
    rows = comparison_rows(inputs)
    limit_percent = (equal_slowdown_ratio(inputs.plan, inputs.verification) - 1.0) * 100
    x_range, y_range = _ranges(inputs, statics, rows)
    lines = (inputs.pass_frontier, inputs.kernel_frontier)
    frame = _Frame(x_range=x_range, y_range=y_range, lines=lines)
    traces: list[Json] = [_static_trace(statics)]
    traces += _frontier_trace(inputs.pass_frontier, "pass-level plans", ORANGE, "dot")
    traces += _frontier_trace(inputs.kernel_frontier, "kernel-level plans", BLUE, "solid")
    traces += [_mark(row) for row in rows]
    return figure(
        traces,
        {
            "height": _HEIGHT_PX,
            "margin": {"l": 64, "r": 24, "t": 44, "b": _ROOM_PX - 44},
            "hovermode": "closest",
            "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
            "xaxis": axis(
                "time per iteration against the baseline",
                {"range": x_range, "ticksuffix": " %", "tickformat": "+~g"},
            ),
            "yaxis": axis(
                "energy saved",
                {"range": y_range, "ticksuffix": " %", "tickformat": "~g"},
            ),
            "shapes": [_limit_line(limit_percent)],
            "annotations": [
                _limit_label(limit_percent),
                *_labels(rows, frame),
            ],
        },
    )


def _static_trace(statics: Sequence[StaticPoint]) -> Json:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "single points",
        "x": [(static.slowdown_ratio - 1.0) * 100 for static in statics],
        "y": [static.saving_ratio * 100 for static in statics],
        "text": [setting(static.point) for static in statics],
        "marker": {"size": 6, "color": GREY, "opacity": 0.75},
        "hovertemplate": f"one point throughout: %{{text}}<br>{_HOVER}<extra></extra>",
    }


def _frontier_trace(
    frontier: Sequence[FrontierPoint], name: str, colour: str, dash: str
) -> tuple[Json, ...]:
    """A frontier as steps: between two plans there is none, so that the left one counts."""
    if not frontier[1:]:  # a line needs two ends
        return ()
    return (
        {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "x": [(trade.slowdown_ratio - 1.0) * 100 for trade in frontier],
            "y": [trade.saving_ratio * 100 for trade in frontier],
            "line": {"color": colour, "width": 2.5, "shape": "hv", "dash": dash},
            "hovertemplate": f"{name}<br>{_HOVER}<extra></extra>",
        },
    )


def _mark(row: ComparisonRow) -> Json:
    colour, symbol, size = _MARKS[row.role]
    mark: dict[str, object] = {
        "type": "scatter",
        "mode": "markers",
        "name": row.label,
        "showlegend": False,
        "x": [(row.slowdown_ratio - 1.0) * 100],
        "y": [row.saving_ratio * 100],
        "marker": {
            "size": size,
            "symbol": symbol,
            "color": colour,
            "line": {"width": 2, "color": colour},
        },
        "hovertemplate": f"{row.label}<br>{_HOVER}<br>{row.clocks}<extra></extra>",
    }
    if row.slowdown_interval is not None and row.saving_interval is not None:
        mark["error_x"] = _error_bar(row.slowdown_ratio, row.slowdown_interval, colour)
        mark["error_y"] = _error_bar(row.saving_ratio, row.saving_interval, colour)
    return mark


def _error_bar(middle_ratio: float, interval: Interval, colour: str) -> Json:
    return {
        "type": "data",
        "symmetric": False,
        "array": [max(interval.high_ratio - middle_ratio, 0.0) * 100],
        "arrayminus": [max(middle_ratio - interval.low_ratio, 0.0) * 100],
        "color": colour,
        "thickness": 1.5,
        "width": 4,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Label:
    """The label of the mark of these ratios."""

    text: str
    slowdown_ratio: float
    saving_ratio: float

    @property
    def x(self) -> float:
        """Where the mark is, in percent as the axis."""
        return (self.slowdown_ratio - 1.0) * 100

    @property
    def y(self) -> float:
        """Where the mark is, in percent as the axis."""
        return self.saving_ratio * 100


class _Place(NamedTuple):
    """Where a label may stand: to the right of its mark or the left, so far from the top."""

    is_right: bool
    middle_px: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """What is shown, in percent, and what labels keep clear of."""

    x_range: Sequence[float]
    y_range: Sequence[float]
    lines: Sequence[Sequence[FrontierPoint]]

    @property
    def px_per_percent(self) -> float:
        """Upwards."""
        return (_HEIGHT_PX - _ROOM_PX) / (self.y_range[1] - self.y_range[0])

    def is_left(self, label: _Label) -> bool:
        """Whether the mark lies so far left that its label has room to its right."""
        width = self.x_range[1] - self.x_range[0]
        return label.x <= self.x_range[0] + _LEFT_SIDE_RATIO * width

    def mark_px(self, label: _Label) -> float:
        """Of the mark, from the top."""
        return (self.y_range[1] - label.y) * self.px_per_percent

    def is_clear(self, label: _Label, place: _Place) -> bool:
        """Whether the label, put there, lies within the axes and no line runs through it."""
        percent_per_px = (self.x_range[1] - self.x_range[0]) / _WIDTH_PX
        side = percent_per_px if place.is_right else -percent_per_px
        ends = (_LABEL_RIGHT_PX, _LABEL_RIGHT_PX + _LETTER_PX * len(label.text))
        left, right = sorted(label.x + end_px * side for end_px in ends)
        middle = self.y_range[1] - place.middle_px / self.px_per_percent
        half = _LABEL_GAP_PX / 2 / self.px_per_percent
        if not self.x_range[0] <= left <= right <= self.x_range[1]:
            return False
        return not any(
            _runs_through(line, left, right, middle - half, middle + half) for line in self.lines
        )


def _runs_through(
    line: Sequence[FrontierPoint], left: float, right: float, low: float, high: float
) -> bool:
    """Whether a line of steps enters a box, all in percent; upright parts count with their ends."""
    times = [(trade.slowdown_ratio - 1.0) * 100 for trade in line]
    savings = [trade.saving_ratio * 100 for trade in line]
    for index, (start, end) in enumerate(pairwise(times)):
        if start <= right and end >= left:
            bottom, top = sorted(savings[index : index + 2])
            is_level = low <= savings[index] <= high
            is_upright = left <= end <= right and bottom <= high and top >= low
            if is_level or is_upright:
                return True
    return False


def _labels(rows: Sequence[ComparisonRow], frame: _Frame) -> list[Json]:
    """A label beside every mark, pushed down where it would cover the one above or a line.

    Where nothing near is clear of the lines the label stands beside its mark all the same.
    Marks at the same place share one.
    """
    names: dict[tuple[float, float], list[str]] = {}
    for row in rows:
        place = (round(row.saving_ratio, 5), round(row.slowdown_ratio, 5))
        names.setdefault(place, []).append(row.label)
    labels: list[Json] = []
    lowest_px = -math.inf
    for saving_ratio, slowdown_ratio in sorted(names, reverse=True):
        name = " = ".join(names[saving_ratio, slowdown_ratio]).capitalize()
        label = _Label(
            text=f"{name}: {percent(saving_ratio, digit_count=1)}",
            slowdown_ratio=slowdown_ratio,
            saving_ratio=saving_ratio,
        )
        # Below the mark: the curves that it is compared with run above it.
        least_px = max(frame.mark_px(label) + _LABEL_GAP_PX / 2, lowest_px + _LABEL_GAP_PX)
        is_left = frame.is_left(label)
        places = [
            _Place(is_right=is_right, middle_px=least_px + push_px)
            for is_right in (is_left, not is_left)
            for push_px in range(0, _MOST_PUSH_PX, _PUSH_PX)
        ]
        place = next((one for one in places if frame.is_clear(label, one)), places[0])
        labels.append(_annotation(label, frame, place))
        lowest_px = place.middle_px
    return labels


def _annotation(label: _Label, frame: _Frame, place: _Place) -> Json:
    return {
        "x": label.x,
        "y": label.y,
        "text": label.text,
        "showarrow": True,
        "arrowhead": 0,
        "arrowwidth": 1,
        "arrowcolor": GREY,
        "standoff": 8,
        "xanchor": "left" if place.is_right else "right",
        "ax": _LABEL_RIGHT_PX if place.is_right else -_LABEL_RIGHT_PX,
        "ay": place.middle_px - frame.mark_px(label),
        "bgcolor": "rgba(255,255,255,0)",
        "borderpad": 1,
        "font": {"size": 12},
    }


def _limit_line(limit_percent: float) -> Json:
    return {
        "type": "line",
        "xref": "x",
        "yref": "paper",
        "x0": limit_percent,
        "x1": limit_percent,
        "y0": 0,
        "y1": 1,
        "layer": "below",
        "line": {"color": GREY, "width": 1, "dash": "dash"},
    }


def _limit_label(limit_percent: float) -> Json:
    return {
        "x": limit_percent,
        "xref": "x",
        "y": 1,
        "yref": "paper",
        "xanchor": "left",
        "yanchor": "top",
        "text": f" compared at {change(1.0 + limit_percent / 100)} or less",
        "showarrow": False,
        "font": {"size": 11},
    }


def _ranges(
    inputs: ReportInputs, statics: Sequence[StaticPoint], rows: Sequence[ComparisonRow]
) -> tuple[list[float], list[float]]:
    """What is shown at first, in percent: around the rows; the rest is a zoom away."""
    marked = [(row.slowdown_ratio - 1.0) * 100 for row in rows]
    trades = [
        ((trade.slowdown_ratio - 1.0) * 100, trade.saving_ratio * 100)
        for trade in (*inputs.pass_frontier, *inputs.kernel_frontier)
    ]
    trades += [
        ((static.slowdown_ratio - 1.0) * 100, static.saving_ratio * 100) for static in statics
    ]
    fastest = min(time for time, _ in trades)
    right = max(_LEAST_WIDTH, 1.6 * max(marked))
    left = min(-0.27 * right, fastest - 0.5, min(marked) - 0.5)
    savings = [saving for time, saving in trades if left <= time <= right]
    savings += [row.saving_ratio * 100 for row in rows]
    top = max(*savings, 1.0)
    low = max(min(savings), -0.2 * top)
    return [left, right], [low - 0.08 * top, 1.1 * top]
