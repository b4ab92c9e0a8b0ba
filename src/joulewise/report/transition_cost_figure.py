"""The figure of `joulewise transition-cost`: saving and time against latency."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from joulewise.report.figures import BLUE, GREY, ORANGE, Figure, Json, axis, figure
from joulewise.report.transition_cost import (
    TransitionCostRow,
    TransitionCosts,
    latency_text,
)

Pick = Callable[[TransitionCostRow], float | None]

_OURS = "the plan that counts its changes"
_NAIVE = "the kernel plan that does not"
_STATIC = "best single point"
_DIVIDE = 0.42  # of the height: times below, savings above
_MOST_TICKS = 12
# Percent of the baseline's time; below the first the scale is even, above it logarithmic.
_EVEN = 0.3
_TIME_TICKS = (-50, -10, -2, -0.5, 0, 0.5, 2, 10, 50, 200, 1000, 5000, 20_000, 100_000)


def transition_cost_figure(costs: TransitionCosts) -> Figure:
    """Saving above, time below; latency on a scale of powers of ten with 0 at its left end."""
    rows = costs.rows
    places = _places([row.latency_s for row in rows])
    saving = [
        _line(rows, places, lambda row: row.saving_ratio, _OURS, BLUE, "solid"),
        _line(rows, places, lambda row: row.naive_saving_ratio, _NAIVE, ORANGE, "dot"),
        _line(rows, places, lambda row: row.static_saving_ratio, _STATIC, GREY, "dash"),
    ]
    time = [
        _line(rows, places, lambda row: row.slowdown_ratio, _OURS, BLUE, "solid"),
        _line(rows, places, lambda row: row.naive_slowdown_ratio, _NAIVE, ORANGE, "dot"),
    ]
    return figure(
        [
            *(_as_saving(trace) for trace in saving),
            *(_as_time(trace) for trace in time),
        ],
        _layout(costs, places),
    )


def _layout(costs: TransitionCosts, places: Sequence[float]) -> dict[str, object]:
    ticks = list(range(0, len(places), max(1, math.ceil(len(places) / _MOST_TICKS))))
    return {
        "height": 620,
        "margin": {"l": 72, "r": 24, "t": 44, "b": 60},
        "hovermode": "closest",
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "xaxis": axis(
            "what one change of clocks takes",
            {
                "anchor": "y2",
                "tickmode": "array",
                "tickvals": [places[index] for index in ticks],
                "ticktext": [latency_text(costs.rows[index].latency_s) for index in ticks],
                "range": [places[0] - 0.2, places[-1] + 0.2],
            },
        ),
        "yaxis": axis(
            "energy saved",
            {
                "domain": [_DIVIDE + 0.04, 1.0],
                "range": _saving_range(costs.rows),
                "ticksuffix": " %",
                "tickformat": "~g",
            },
        ),
        "yaxis2": axis(
            "time against baseline",
            {
                "domain": [0.0, _DIVIDE - 0.04],
                "tickmode": "array",
                "tickvals": [_height(tick) for tick in _TIME_TICKS],
                "ticktext": [f"{tick:+g} %" if tick else "0 %" for tick in _TIME_TICKS],
            },
        ),
        "shapes": [_limit_line(_height(costs.max_slowdown_ratio * 100))],
        "annotations": [_limit_label(_height(costs.max_slowdown_ratio * 100))],
    }


def _places(latencies_s: Sequence[float]) -> list[float]:
    """Powers of ten; 0 stands a step to the left of the least latency above it."""
    powers = [math.log10(latency_s) for latency_s in latencies_s if latency_s > 0.0]
    zero = min(powers) - 1.0 if powers else 0.0
    return [math.log10(latency_s) if latency_s > 0.0 else zero for latency_s in latencies_s]


def _line(
    rows: Sequence[TransitionCostRow],
    places: Sequence[float],
    pick: Pick,
    name: str,
    colour: str,
    dash: str,
) -> dict[str, object]:
    found = [(place, pick(row), row) for place, row in zip(places, rows, strict=True)]
    known = [(place, value, row) for place, value, row in found if value is not None]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": [place for place, _, _ in known],
        "y": [value for _, value, _ in known],
        "text": [_hover(row, name) for _, _, row in known],
        "line": {"color": colour, "width": 2.5, "dash": dash},
        "marker": {"size": 8, "color": colour},
        "hovertemplate": "%{text}<extra></extra>",
    }


def _as_saving(trace: dict[str, object]) -> Json:
    values = trace["y"]
    assert isinstance(values, list)  # noqa: S101 - tells the type
    return {**trace, "y": [value * 100 for value in values]}


def _as_time(trace: dict[str, object]) -> Json:
    values = trace["y"]
    assert isinstance(values, list)  # noqa: S101 - tells the type
    heights = [_height((value - 1.0) * 100) for value in values]
    return {**trace, "y": heights, "yaxis": "y2", "showlegend": False}


def _height(percent: float) -> float:
    """Where a change of time stands: a budget of half a percent and a factor of ten both show."""
    return math.copysign(math.log10(1.0 + abs(percent) / _EVEN), percent)


def _hover(row: TransitionCostRow, name: str) -> str:
    saving, slowdown, changes = {
        _OURS: (row.saving_ratio, row.slowdown_ratio, row.change_count),
        _NAIVE: (row.naive_saving_ratio, row.naive_slowdown_ratio, row.naive_change_count),
        _STATIC: (row.static_saving_ratio, row.static_slowdown_ratio, 0),
    }[name]
    text = f"{name}, {latency_text(row.latency_s)} a change"
    if saving is not None and slowdown is not None:
        text += f"<br>energy saved {saving * 100:.2f} %<br>time {(slowdown - 1) * 100:+.2f} %"
    return f"{text}<br>{changes} changes per iteration"


def _saving_range(rows: Sequence[TransitionCostRow]) -> list[float]:
    """Around the plans that keep the budget; the naive plan falls out of it below."""
    shown = [
        value * 100
        for row in rows
        for value in (row.saving_ratio, row.static_saving_ratio)
        if value is not None
    ]
    top, low = max([*shown, 1.0]), min([*shown, 0.0])
    return [low - 0.12 * (top - low), top + 0.12 * (top - low)]


def _limit_label(height: float) -> Json:
    return {
        "x": 1,
        "xref": "paper",
        "xanchor": "right",
        "y": height,
        "yref": "y2",
        "yanchor": "bottom",
        "text": "budget",
        "showarrow": False,
        "font": {"size": 11},
    }


def _limit_line(height: float) -> Json:
    return {
        "type": "line",
        "xref": "paper",
        "yref": "y2",
        "x0": 0,
        "x1": 1,
        "y0": height,
        "y1": height,
        "layer": "below",
        "line": {"color": GREY, "width": 1, "dash": "dash"},
    }
