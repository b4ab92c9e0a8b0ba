"""The figures of U-curves: energy and time of a step against the clock."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from joulewise.domain.finetuning import ClockCost, ModelType
from joulewise.report.figures import BLUE, GREY, ORANGE, TEAL, Figure, Json, axis, figure
from joulewise.report.ucurve import STD_ERROR_COUNT, CurveCharacter
from joulewise.report.ucurve_table import energy_with_error, time_with_error
from joulewise.report.wording import change, decimal, figure_text, percent

_DIVIDE = 0.44  # of the height: times below, energies above
_BAND_FILL = "rgba(18, 147, 122, 0.16)"
_HALF_STEP = 0.5
# Room beside the outermost clocks, where there is but one of them in MHz.
_LONE_MARGIN_MHZ = 50.0
_COLOURS = {ModelType.ENCODER: BLUE, ModelType.DECODER: ORANGE, None: TEAL}
_DASHES = {ModelType.ENCODER: "solid", ModelType.DECODER: "dot", None: "dash"}
_NAMES = {ModelType.ENCODER: "encoders", ModelType.DECODER: "decoders", None: "other jobs"}
_MARK_SIZE = 13
# Of the axis: what a label of four digits takes on a page 500 pixels wide.
_TICK_ROOM_RATIO = 0.09


def ucurve_figure(one: CurveCharacter) -> Figure:
    """Energy per step above and time per step below, against the clock.

    The governor is a dashed line, the highest clock measured and the best one are marked, and the
    clocks near the least energy are shaded. Bars are two standard errors.
    """
    traces = [
        *_costs(one, is_energy=True),
        *_costs(one, is_energy=False),
    ]
    clocks = one.curve.sm_clocks_mhz
    return figure(
        traces,
        {
            "height": 640,
            "margin": {"l": 78, "r": 24, "t": 44, "b": 60},
            "hovermode": "closest",
            "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
            "xaxis": axis(
                "GPU clock, MHz",
                {"anchor": "y2", "range": _range(clocks), "tickvals": _ticks(clocks)},
            ),
            "yaxis": axis("energy per step, J", {"domain": [_DIVIDE + 0.04, 1.0]}),
            "yaxis2": axis("time per step, s", {"domain": [0.0, _DIVIDE - 0.04]}),
            "shapes": [_band(one)],
        },
    )


def overview_figure(characters: Sequence[CurveCharacter]) -> Figure:
    """Energy of every job against its governor's, one line each, the best clocks marked."""
    traces: list[Json] = []
    for kind, colour in _COLOURS.items():
        family = [one for one in characters if _kind(one) is kind]
        for number, one in enumerate(family):
            traces.append(_overview_line(one, kind, is_first=number == 0))
        if family:
            traces.append(_best_marks(family, colour))
    clocks = sorted({clock for one in characters for clock in one.curve.sm_clocks_mhz})
    return figure(
        traces,
        {
            "height": 460,
            "margin": {"l": 78, "r": 24, "t": 44, "b": 60},
            "hovermode": "closest",
            "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
            "xaxis": axis("GPU clock, MHz", {"range": _range(clocks)}),
            "yaxis": axis("energy against the governor", {"ticksuffix": " %", "tickformat": "+~g"}),
            "shapes": [_level(0.0)],
        },
    )


def _costs(one: CurveCharacter, *, is_energy: bool) -> list[Json]:
    """Line, governor and marks of one of the two halves."""
    curve = one.curve
    colour = BLUE if is_energy else ORANGE
    place = {} if is_energy else {"yaxis": "y2"}
    texts = [_hover(one, cost) for cost in curve.costs]
    ends = _range(curve.sm_clocks_mhz)
    base = _value(curve.baseline, is_energy=is_energy)
    line = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": "energy per step" if is_energy else "time per step",
        "x": list(curve.sm_clocks_mhz),
        "y": [_value(cost, is_energy=is_energy) for cost in curve.costs],
        "error_y": _bars(curve.costs, is_energy=is_energy),
        "text": texts,
        "line": {"color": colour, "width": 2.5},
        "marker": {"size": 7, "color": colour},
        "hovertemplate": "%{text}<extra></extra>",
        **place,
    }
    governor = {
        "type": "scatter",
        "mode": "lines",
        "name": "governor",
        "legendgroup": "governor",
        "showlegend": is_energy,
        "x": ends,
        "y": [base, base],
        "text": [_hover(one, curve.baseline)] * 2,
        "line": {"color": GREY, "width": 2, "dash": "dash"},
        "hovertemplate": "%{text}<extra></extra>",
        **place,
    }
    marks = (
        _mark(one, one.best, "least energy", "star"),
        _mark(one, one.highest, "highest measured", "square"),
    )
    shown = [
        {**mark, "y": [_value(cost, is_energy=is_energy)], "showlegend": is_energy, **place}
        for mark, cost in zip(marks, (one.best, one.highest), strict=True)
    ]
    return [governor, line, *shown]


def _mark(one: CurveCharacter, cost: ClockCost, name: str, symbol: str) -> Json:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "legendgroup": name,
        "x": [cost.sm_clock_mhz],
        "text": [_hover(one, cost)],
        "marker": {"size": _MARK_SIZE, "symbol": symbol, "color": TEAL},
        "hovertemplate": "%{text}<extra></extra>",
    }


def _bars(costs: Sequence[ClockCost], *, is_energy: bool) -> Json:
    errors = [cost.energy_error_j if is_energy else cost.time_error_s for cost in costs]
    return {
        "type": "data",
        "array": [STD_ERROR_COUNT * (error or 0.0) for error in errors],
        "visible": any(error is not None for error in errors),
        "thickness": 1.5,
        "width": 4,
    }


def _band(one: CurveCharacter) -> Json:
    """The clocks near the least energy, with a margin that leaves their neighbours out."""
    margin = _margin_mhz(one.curve.sm_clocks_mhz)
    return {
        "type": "rect",
        "xref": "x",
        "yref": "paper",
        "x0": one.band_mhz[0] - margin,
        "x1": one.band_mhz[-1] + margin,
        "y0": 0,
        "y1": 1,
        "layer": "below",
        "fillcolor": _BAND_FILL,
        "line": {"width": 0},
    }


def _margin_mhz(clocks: Sequence[int]) -> float:
    """Half of the smallest step: a wide gap was not measured, and is not shaded."""
    steps = [high - low for low, high in pairwise(clocks)]
    return _HALF_STEP * min(steps) if steps else _LONE_MARGIN_MHZ


def _ticks(clocks: Sequence[int]) -> list[int]:
    """The clocks that have room for their labels, down from the highest; all have their points."""
    room_mhz = _TICK_ROOM_RATIO * (clocks[-1] - clocks[0])
    ticks = [clocks[-1]]
    for clock in reversed(clocks[:-1]):
        if ticks[-1] - clock >= room_mhz:
            ticks.append(clock)
    return ticks[::-1]


def _range(clocks: Sequence[int]) -> list[float]:
    margin = 0.04 * (clocks[-1] - clocks[0]) or _LONE_MARGIN_MHZ
    return [clocks[0] - margin, clocks[-1] + margin]


def _value(cost: ClockCost, *, is_energy: bool) -> float:
    return cost.energy_j if is_energy else cost.time_s


def _hover(one: CurveCharacter, cost: ClockCost) -> str:
    base = one.curve.baseline
    clock = "governor" if cost.sm_clock_mhz is None else f"{cost.sm_clock_mhz} MHz"
    energy_change = change(cost.energy_j / base.energy_j, digit_count=1)
    time_change = change(cost.time_s / base.time_s, digit_count=1)
    lines = [
        f"{figure_text(one.curve.job)}, {clock}",
        f"energy {energy_with_error(cost)} ({energy_change})",
        f"time {time_with_error(cost)} ({time_change})",
        f"power {decimal(cost.energy_j / cost.time_s, 1)} W",
    ]
    if cost.busy_ratio is not None:
        lines.append(f"GPU busy {percent(cost.busy_ratio, digit_count=0)}")
    if cost.mem_clock_mhz is not None:
        lines.append(f"memory {cost.mem_clock_mhz} MHz")
    return "<br>".join(lines)


def _overview_line(one: CurveCharacter, kind: ModelType | None, *, is_first: bool) -> Json:
    costs = one.curve.costs
    return {
        "type": "scatter",
        "mode": "lines",
        "name": _NAMES[kind],
        "legendgroup": _NAMES[kind],
        "showlegend": is_first,
        "x": list(one.curve.sm_clocks_mhz),
        "y": [_against_governor(one, cost) for cost in costs],
        "text": [_hover(one, cost) for cost in costs],
        "line": {"color": _COLOURS[kind], "width": 1.5, "dash": _DASHES[kind]},
        "opacity": 0.75,
        "hovertemplate": "%{text}<extra></extra>",
    }


def _best_marks(family: Sequence[CurveCharacter], colour: str) -> Json:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "least energy",
        "showlegend": False,
        "x": [one.best.sm_clock_mhz for one in family],
        "y": [_against_governor(one, one.best) for one in family],
        "text": [_hover(one, one.best) for one in family],
        "marker": {"size": 10, "symbol": "star", "color": colour},
        "hovertemplate": "%{text}<extra></extra>",
    }


def _against_governor(one: CurveCharacter, cost: ClockCost) -> float:
    return 100.0 * (cost.energy_j / one.curve.baseline.energy_j - 1.0)


def _kind(one: CurveCharacter) -> ModelType | None:
    features = one.curve.features
    return None if features is None else features.model_type


def _level(height: float) -> Json:
    return {
        "type": "line",
        "xref": "paper",
        "yref": "y",
        "x0": 0,
        "x1": 1,
        "y0": height,
        "y1": height,
        "layer": "below",
        "line": {"color": GREY, "width": 2, "dash": "dash"},
    }
