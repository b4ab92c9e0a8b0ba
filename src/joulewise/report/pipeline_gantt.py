"""Figure 1 of a pipeline: stages over time, the plan below the baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from joulewise.domain.pipeline import Instruction, PipelinePlan, PlannedOperation
from joulewise.report.figures import GREY, Figure, Json, axis, figure
from joulewise.report.pipeline_colours import ColourScale, colour_scale
from joulewise.report.pipeline_rows import point_label
from joulewise.report.wording import duration, energy

MOST_OPERATIONS = 12_000  # of both panels; beyond this a browser is slow
_ROW_PX, _LEAST_PANEL_PX, _MOST_PANEL_PX, _ROOM_PX = 26, 90, 900, 130
_WIDTHS = {Instruction.FORWARD: 0.5, Instruction.BACKWARD: 0.86}
_LEAST_WAIT_RATIO = 1e-6  # of the iteration; shorter waits are rounding
_TIME_SCALES = ((10.0, 1.0, "s"), (0.01, 1e3, "ms"), (0.0, 1e6, "µs"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Panel:
    """One time line of all stages."""

    name: str
    operations: tuple[PlannedOperation, ...]
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wait:
    """A stretch in which a stage has nothing to do."""

    stage: int
    start_s: float
    end_s: float


def gantt_figure(plan: PipelinePlan) -> Figure | None:
    """Bars of every operation in the colour of its clock, waits in grey between them.

    Forward bars are narrow, backward bars wide. `None` where there are too many to draw.
    """
    panels = _panels(plan)
    shown = [one for panel in panels for one in panel.operations]
    if len(shown) > MOST_OPERATIONS:
        return None
    colours = colour_scale(shown)
    longest_s = max(panel.end_s for panel in panels)
    factor, unit = next((f, u) for least_s, f, u in _TIME_SCALES if longest_s >= least_s)
    stage_count = plan.request.shape.stage_count
    layout = _layout(len(panels), stage_count, colours)
    layout["xaxis"] = axis(
        f"time ({unit})",
        {
            "range": [0.0, 1.005 * longest_s * factor],
            "anchor": _axis_name(len(panels), "y"),
            "showgrid": False,
        },
    )
    traces: list[Json] = [_scale_trace(colours)]
    shapes: list[Json] = []
    notes: list[Json] = []
    height = 1.0 / len(panels)
    for number, panel in enumerate(panels, start=1):
        top = 1.0 - (number - 1) * height
        domain = [top - height + (0.09 if number < len(panels) else 0.0), top]
        layout[_axis_name(number, "yaxis")] = _stage_axis(stage_count, domain)
        name = _axis_name(number, "y")
        traces += [{**trace, "yaxis": name} for trace in _traces(plan, panel, colours, factor)]
        shapes.append(_end_line(panel.end_s * factor, domain))
        notes.append(_end_label(panel, factor, top))
    return figure(traces, {**layout, "shapes": shapes, "annotations": notes})


def _panels(plan: PipelinePlan) -> tuple[_Panel, ...]:
    chosen = _Panel(name="plan", operations=plan.operations, end_s=plan.time_s)
    if not plan.baseline_operations:
        return (chosen,)
    today = _Panel(name="baseline", operations=plan.baseline_operations, end_s=plan.baseline_time_s)
    return today, chosen


def _layout(panel_count: int, stage_count: int, colours: ColourScale) -> dict[str, object]:
    panel_px = min(max(stage_count * _ROW_PX, _LEAST_PANEL_PX), _MOST_PANEL_PX)
    return {
        "height": _ROOM_PX + panel_px * panel_count,
        "margin": {"l": 64, "r": 96, "t": 30, "b": 56},
        "barmode": "overlay",
        "hovermode": "closest",
        "showlegend": False,
        "coloraxis": colours.axis,
        "uniformtext": {"minsize": 8, "mode": "hide"},
    }


def _scale_trace(colours: ColourScale) -> Json:
    """Shows the scale and nothing else.

    Bars have their own colours, for plotly cannot tell how dark those of a colour axis are.
    """
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "scale",
        "x": [None],
        "y": [None],
        "marker": {"color": [colours.ticks[0][0]], "coloraxis": "coloraxis"},
    }


def _stage_axis(stage_count: int, domain: Sequence[float]) -> dict[str, object]:
    step = max(1, -(-stage_count // 32))
    return axis(
        "stage",
        {
            "domain": list(domain),
            "range": [stage_count - 0.5, -0.5],
            "tickmode": "array",
            "tickvals": list(range(0, stage_count, step)),
            "fixedrange": True,
            "showgrid": False,
        },
    )


def _traces(
    plan: PipelinePlan, panel: _Panel, colours: ColourScale, factor: float
) -> list[dict[str, object]]:
    waits = _waits(panel, plan.request.shape.stage_count)
    power_w = plan.request.blocking_power_w
    traces: list[dict[str, object]] = [
        {
            "type": "bar",
            "orientation": "h",
            "name": f"{panel.name}: waiting",
            "y": [wait.stage for wait in waits],
            "base": [wait.start_s * factor for wait in waits],
            "x": [(wait.end_s - wait.start_s) * factor for wait in waits],
            "width": 0.86,
            "marker": {"color": GREY, "opacity": 0.22},
            "text": [_wait_text(wait, power_w) for wait in waits],
            "textposition": "none",
            "hovertemplate": "%{text}<extra></extra>",
        }
    ]
    for instruction in Instruction:
        own = [one for one in panel.operations if one.instruction is instruction]
        letter = instruction.value[0].upper()
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": f"{panel.name}: {instruction}",
                "y": [one.stage for one in own],
                "base": [one.start_s * factor for one in own],
                "x": [one.time_s * factor for one in own],
                "width": _WIDTHS[instruction],
                "marker": {
                    "color": [colours.colour(one) for one in own],
                    "line": {"width": 0.5, "color": "rgba(255,255,255,0.6)"},
                },
                "text": [f"{letter}{one.micro_batch}" for one in own],
                "textposition": "inside",
                "insidetextanchor": "middle",
                "insidetextfont": {"color": "#ffffff"},
                "textangle": 0,
                "constraintext": "both",
                "customdata": [_operation_text(plan, one) for one in own],
                "hovertemplate": "%{customdata}<extra></extra>",
            }
        )
    return traces


def _waits(panel: _Panel, stage_count: int) -> list[_Wait]:
    """Where a stage stands still, from the start of the iteration to its end."""
    waits: list[_Wait] = []
    for stage in range(stage_count):
        free_s = 0.0
        own = sorted((o for o in panel.operations if o.stage == stage), key=lambda o: o.start_s)
        for start_s, end_s in (
            *((one.start_s, one.start_s + one.time_s) for one in own),
            (panel.end_s, panel.end_s),
        ):
            if start_s - free_s > _LEAST_WAIT_RATIO * panel.end_s:
                waits.append(_Wait(stage=stage, start_s=free_s, end_s=start_s))
            free_s = max(free_s, end_s)
    return waits


def _wait_text(wait: _Wait, power_w: float) -> str:
    time_s = wait.end_s - wait.start_s
    return f"stage {wait.stage} waits {duration(time_s)}<br>{energy(time_s * power_w)}"


def _operation_text(plan: PipelinePlan, one: PlannedOperation) -> str:
    chunk = f", chunk {one.chunk}" if plan.request.shape.chunk_count > 1 else ""
    return (
        f"stage {one.stage}{chunk}: {one.instruction} of micro-batch {one.micro_batch}<br>"
        f"{_setting(plan, one)}<br>{duration(one.time_s)} from {duration(one.start_s)}<br>"
        f"{energy(one.energy_j)}, {one.energy_j / one.time_s:.0f} W"
    )


def _setting(plan: PipelinePlan, one: PlannedOperation) -> str:
    if one.launches_index is None:
        return "" if one.point is None else point_label(one.point)
    points = {launch.point for launch in plan.kernel_plans[one.launches_index].launches}
    return f"kernel-level plan {one.launches_index} with {len(points)} operating points"


def _end_line(end: float, domain: Sequence[float]) -> Json:
    return {
        "type": "line",
        "xref": "x",
        "yref": "paper",
        "x0": end,
        "x1": end,
        "y0": domain[0],
        "y1": domain[1],
        "line": {"color": GREY, "width": 1, "dash": "dash"},
    }


def _end_label(panel: _Panel, factor: float, top: float) -> Json:
    return {
        "x": panel.end_s * factor,
        "xref": "x",
        "y": top,
        "yref": "paper",
        "xanchor": "right",
        "yanchor": "bottom",
        "text": f"{panel.name}: {duration(panel.end_s)}",
        "showarrow": False,
        "font": {"size": 12},
    }


def _axis_name(number: int, stem: str) -> str:
    return stem if number == 1 else f"{stem}{number}"
