"""Figure 2: SM and memory clock along the iteration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from joulewise.domain.points import OperatingPoint
from joulewise.domain.workload import Pass
from joulewise.report.figures import BLUE, GREY, ORANGE, TEAL, Figure, Json, axis, figure
from joulewise.report.timeline import PassBand, Stretch, pass_bands
from joulewise.report.wording import counted, duration, figure_text

MOST_STRETCHES = 20_000  # beyond this a browser is slow and the eye sees nothing more
_READABLE_STRETCHES = 70  # so many steps are told apart at first sight
_MOST_LEVELS = 12  # more clocks than this stand on a scale, fewer on a ladder
_MOST_BANDS = 24
_KNOB_PX = 190
_PASS_PX = 120
_TIME_SCALES = ((10.0, 1.0, "s"), (0.01, 1e3, "ms"), (0.0, 1e6, "µs"))  # from seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One row of the figure: a knob and how its setting is read off a point."""

    name: str
    unit: str
    colour: str
    value: Callable[[OperatingPoint], float | None]


KNOBS = (
    Knob(name="SM clock", unit="MHz", colour=BLUE, value=lambda point: point.sm_clock_mhz),
    Knob(name="memory clock", unit="MHz", colour=ORANGE, value=lambda point: point.mem_clock_mhz),
    Knob(name="power limit", unit="W", colour=TEAL, value=lambda point: point.power_limit_w),
)


def moved_knobs(parts: Sequence[Stretch]) -> tuple[Knob, ...]:
    """Knobs that the plan sets at least once; the others stay with the driver throughout."""
    return tuple(
        knob for knob in KNOBS if any(knob.value(part.point) is not None for part in parts)
    )


def first_view_s(parts: Sequence[Stretch]) -> float:
    """The end of what is shown at first: a stretch of time in which steps can be told apart."""
    return parts[min(len(parts), _READABLE_STRETCHES) - 1].end_s


def time_scale(parts: Sequence[Stretch]) -> tuple[float, str]:
    """Factor and unit of the time axis, fitting the whole iteration."""
    total_s = parts[-1].end_s
    return next((factor, unit) for least_s, factor, unit in _TIME_SCALES if total_s >= least_s)


def clocks_figure(parts: Sequence[Stretch]) -> Figure | None:
    """One row of steps per moved knob over time; `None` where the plan moves none.

    Passes are shaded where they are few, and have a row of their own where they take turns
    often, as those of work and communication do.
    """
    knobs = moved_knobs(parts)
    if not knobs:
        return None
    shown = parts[:MOST_STRETCHES]
    scale, unit = time_scale(parts)
    bands = pass_bands(shown)
    has_pass_row = len(bands) > _MOST_BANDS
    rows_px = _KNOB_PX * len(knobs) + _PASS_PX * has_pass_row
    layout = _layout(bands, scale, rows_px)
    time_axis = {
        "range": [0.0, first_view_s(shown) * scale],
        "anchor": _axis_name(len(knobs) + has_pass_row, "y"),
        "showgrid": False,
    }
    layout["xaxis"] = axis(f"time along the iteration ({unit})", time_axis)
    height = _KNOB_PX / rows_px
    rows: list[tuple[Json, Json]] = []
    for number, knob in enumerate(knobs, start=1):
        top = 1.0 - (number - 1) * height
        is_last = number == len(knobs) and not has_pass_row
        domain = [max(0.0, top - height) + (0.0 if is_last else 0.06), top]
        levels = Levels.of([knob.value(part.point) for part in shown])
        rows.append((_knob_axis(knob, levels, domain), _steps(shown, knob, levels, scale)))
    if has_pass_row:
        passes = _passes_of(bands)
        axis_of_passes = _pass_axis(passes, _PASS_PX / rows_px)
        rows.append((axis_of_passes, _pass_steps(bands, passes, scale)))
    traces: list[Json] = []
    for number, (row_axis, steps) in enumerate(rows, start=1):
        layout[_axis_name(number, "yaxis")] = row_axis
        traces.append({**steps, "xaxis": "x", "yaxis": _axis_name(number, "y")})
    return figure(traces, layout)


def _layout(bands: Sequence[PassBand], scale: float, rows_px: float) -> dict[str, object]:
    """Everything but the axes."""
    layout: dict[str, object] = {
        "height": 110 + rows_px,
        "margin": {"l": 60, "r": 24, "t": 34, "b": 56},
        "hovermode": "x",
        "showlegend": False,
    }
    if 1 < len(bands) <= _MOST_BANDS:
        layout["shapes"] = [_band_shape(band, scale) for band in bands[1::2]]
        layout["annotations"] = [_band_label(band, scale) for band in bands]
    return layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """Where settings stand on the axis: auto on top, for it is no number."""

    places: Mapping[float | None, float]
    ticks: tuple[tuple[float, str], ...]

    @classmethod
    def of(cls, values: Sequence[float | None]) -> Levels:
        """Few settings stand on a ladder, many on a scale with its ends and middle labelled."""
        used = sorted({value for value in values if value is not None})
        places: dict[float | None, float] = {}
        if len(used) <= _MOST_LEVELS:
            places |= {value: float(step) for step, value in enumerate(used)}
            places[None] = float(len(used))
            labelled = used
        else:
            places |= {value: value for value in used}
            places[None] = used[-1] + 0.12 * (used[-1] - used[0])
            labelled = [used[0], used[len(used) // 2], used[-1]]
        ticks = [(places[value], f"{value:g}") for value in labelled]
        if any(value is None for value in values):
            ticks.append((places[None], "auto"))
        return cls(places=places, ticks=tuple(ticks))

    @property
    def range(self) -> list[float]:
        places = [position for position, _ in self.ticks]
        room = max(0.12 * (max(places) - min(places)), 0.5 if len(places) == 1 else 0.0)
        return [min(places) - room, max(places) + room]


def _knob_axis(knob: Knob, levels: Levels, domain: Sequence[float]) -> Json:
    return axis(
        f"{knob.name} ({knob.unit})",
        {
            "domain": list(domain),
            "tickmode": "array",
            "tickvals": [position for position, _ in levels.ticks],
            "ticktext": [text for _, text in levels.ticks],
            "range": levels.range,
            "fixedrange": True,
        },
    )


def _steps(parts: Sequence[Stretch], knob: Knob, levels: Levels, scale: float) -> Json:
    places = [levels.places[knob.value(part.point)] for part in parts]
    texts = [_hover(part, knob) for part in parts]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": knob.name,
        "x": [part.start_s * scale for part in parts] + [parts[-1].end_s * scale],
        "y": [*places, places[-1]],
        "text": [*texts, texts[-1]],
        "line": {"shape": "hv", "color": knob.colour, "width": 2},
        "hovertemplate": "%{text}<extra></extra>",
    }


def _hover(part: Stretch, knob: Knob) -> str:
    value = knob.value(part.point)
    text = "auto" if value is None else f"{value:g} {knob.unit}"
    wait = f", after a stall of {duration(part.stall_s)}" if part.stall_s else ""
    time = f"for {duration(part.end_s - part.start_s)}{wait}"
    return f"{knob.name} {text}<br>{_what_runs(part)}<br>{time}"


def _what_runs(part: Stretch) -> str:
    """The kernels of a stretch, from the first to the last, and the gaps between them."""
    gaps = counted(part.gap_count, "host gap")
    launch_count = part.launch_count - part.gap_count
    if launch_count == 0:
        return f"{gaps}: the GPU waits"
    kernels = figure_text(part.first_kernel, 60)
    if launch_count > 1:
        last = figure_text(part.last_kernel, 60)
        kernels = f"{launch_count} launches: {kernels} … {last}"
    return f"{kernels}<br>and {gaps} of {duration(part.gap_s)}" if part.gap_count else kernels


def _passes_of(bands: Sequence[PassBand]) -> tuple[Pass, ...]:
    """Passes in use, in the order in which an iteration goes through them."""
    used = {band.pass_ for band in bands}
    return tuple(pass_ for pass_ in Pass if pass_ in used)


def _pass_axis(passes: Sequence[Pass], height: float) -> Json:
    """The first pass on top."""
    return axis(
        "",
        {
            "domain": [0.0, height],
            "tickmode": "array",
            "tickvals": list(range(len(passes))),
            "ticktext": [pass_.value for pass_ in passes],
            "range": [len(passes) - 0.5, -0.5],
            "fixedrange": True,
        },
    )


def _pass_steps(bands: Sequence[PassBand], passes: Sequence[Pass], scale: float) -> Json:
    places = [passes.index(band.pass_) for band in bands]
    texts = [f"{band.pass_.value}<br>for {duration(band.end_s - band.start_s)}" for band in bands]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "pass",
        "x": [band.start_s * scale for band in bands] + [bands[-1].end_s * scale],
        "y": [*places, places[-1]],
        "text": [*texts, texts[-1]],
        "line": {"shape": "hv", "color": GREY, "width": 2},
        "hovertemplate": "%{text}<extra></extra>",
    }


def _band_shape(band: PassBand, scale: float) -> Json:
    return {
        "type": "rect",
        "xref": "x",
        "yref": "paper",
        "x0": band.start_s * scale,
        "x1": band.end_s * scale,
        "y0": 0,
        "y1": 1,
        "layer": "below",
        "line": {"width": 0},
        "fillcolor": GREY,
        "opacity": 0.12,
    }


def _band_label(band: PassBand, scale: float) -> Json:
    return {
        "x": band.start_s * scale,
        "xref": "x",
        "y": 1,
        "yref": "paper",
        "xanchor": "left",
        "yanchor": "bottom",
        "text": band.pass_.value,
        "showarrow": False,
        "font": {"size": 12},
    }


def _axis_name(number: int, stem: str) -> str:
    return stem if number == 1 else f"{stem}{number}"
