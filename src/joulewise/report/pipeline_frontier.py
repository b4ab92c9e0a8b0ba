"""Figure 2 of a pipeline: energy against time, with plan, baseline and bound."""

from __future__ import annotations

from joulewise.domain.pipeline import PipelinePlan
from joulewise.report.figures import BLUE, GREY, ORANGE, TEAL, Figure, Json, axis, figure
from joulewise.report.wording import change, duration, energy, percent

_HOVER = "time %{x:.4~g} s<br>energy %{y:.5~g} J"


def pipeline_frontier_figure(plan: PipelinePlan) -> Figure:
    """The frontier and its bound as lines; plan, baseline and the plan's bound as marks."""
    traces: list[Json] = []
    if plan.frontier[1:]:  # a line needs two ends
        traces.append(_bound_line(plan))
        traces.append(_plans_line(plan))
    baseline = ("baseline", plan.baseline_time_s, plan.baseline_energy_j)
    chosen = ("plan", plan.time_s, plan.energy_j)
    traces += [
        _mark(*baseline, colour=GREY, symbol="square"),
        _mark("bound", plan.max_time_s, plan.bound_j, colour=ORANGE, symbol="line-ew-open"),
        _mark(*chosen, colour=TEAL, symbol="diamond"),
    ]
    return figure(
        traces,
        {
            "height": 440,
            "margin": {"l": 72, "r": 24, "t": 44, "b": 56},
            "hovermode": "closest",
            "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
            "xaxis": axis("time per iteration", {"ticksuffix": " s"}),
            "yaxis": axis("energy per iteration", {"ticksuffix": " J", "tickformat": "~g"}),
            "annotations": [
                _label(f"Baseline: {energy(plan.baseline_energy_j)}", *baseline[1:]),
                _label(f"Plan: {percent(plan.saving_ratio, digit_count=1)} saved", *chosen[1:]),
            ],
        },
    )


def _bound_line(plan: PipelinePlan) -> Json:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "no plan is below",
        "x": [point.max_time_s for point in plan.frontier],
        "y": [point.bound_j for point in plan.frontier],
        "line": {"color": ORANGE, "width": 1.5, "dash": "dot"},
        "hovertemplate": f"bound<br>{_HOVER}<extra></extra>",
    }


def _plans_line(plan: PipelinePlan) -> Json:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": "plans",
        "x": [point.time_s for point in plan.frontier],
        "y": [point.energy_j for point in plan.frontier],
        "text": [
            f"{change(point.slowdown_ratio)} time, {percent(point.saving_ratio)} saved"
            for point in plan.frontier
        ],
        "line": {"color": BLUE, "width": 2, "shape": "hv"},
        "marker": {"color": BLUE, "size": 4},
        "hovertemplate": f"%{{text}}<br>{_HOVER}<extra></extra>",
    }


def _mark(name: str, time_s: float, energy_j: float, *, colour: str, symbol: str) -> Json:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "showlegend": False,
        "x": [time_s],
        "y": [energy_j],
        "marker": {
            "size": 12,
            "symbol": symbol,
            "color": colour,
            "line": {"width": 2, "color": colour},
        },
        "hovertemplate": f"{name} at {duration(time_s)}<br>{_HOVER}<extra></extra>",
    }


def _label(text: str, time_s: float, energy_j: float) -> Json:
    return {
        "x": time_s,
        "y": energy_j,
        "text": text,
        "showarrow": True,
        "arrowhead": 0,
        "arrowwidth": 1,
        "arrowcolor": GREY,
        "standoff": 8,
        "xanchor": "left",
        "ax": 40,
        "ay": -16,
        "font": {"size": 12},
    }
