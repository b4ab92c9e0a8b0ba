"""Figures of a workload: launches over time, and kernels on the roofline."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from joulewise.domain.workload import KernelKind, Pass
from joulewise.report.figures import BLUE, GREY, ORANGE, TEAL, Figure, Json, axis, figure
from joulewise.report.wording import counted, duration, figure_text
from joulewise.report.workload_facts import DeviceCosts, TimeSource, WorkloadFacts
from joulewise.report.workload_words import amount

PURPLE = "#8c6bb1"
PASS_COLOURS: Mapping[Pass, str] = {
    Pass.FORWARD: BLUE,
    Pass.BACKWARD: ORANGE,
    Pass.OPTIMIZER: TEAL,
    Pass.COMMUNICATION: PURPLE,
}
# Colour tells passes apart, and so does hatching, for those who do not see the one.
_PATTERNS: Mapping[Pass, str] = {
    Pass.FORWARD: "",
    Pass.BACKWARD: "/",
    Pass.OPTIMIZER: "x",
    Pass.COMMUNICATION: ".",
}
MOST_BARS = 6000  # beyond this a browser is slow
_MOST_ROWS = 12
_GAP_ROW = "no kernel"
_RESOLUTION_RATIO = 1 / 1500  # of the iteration; what is shorter is no wider than a pixel
_TIME_SCALES = ((10.0, 1.0, "s"), (0.01, 1e3, "ms"), (0.0, 1e6, "µs"))
_MOST_DOTS = 400


@dataclass(slots=True)
class Bar:
    """A launch, or several neighbours of one row and pass that are too short to tell apart."""

    row: str
    pass_: Pass | None
    name: str
    start_s: float
    end_s: float
    launch_count: int = 1


def timeline_figure(facts: WorkloadFacts, on_device: DeviceCosts | None = None) -> Figure | None:
    """Launches over time, coloured by pass: a row for each stream of a trace, gaps below.

    `None` where no times are known.
    """
    bars = timeline_bars(facts, on_device)
    if not bars or facts.time_s is None:
        return None
    factor, unit = next((f, u) for least_s, f, u in _TIME_SCALES if facts.time_s >= least_s)
    rows = list(dict.fromkeys(bar.row for bar in bars))
    traces: list[Json] = []
    for pass_ in (*Pass, None):
        own = [bar for bar in bars if bar.pass_ is pass_]
        if own:
            traces.append(_bars_trace(own, pass_, factor))
    return figure(
        traces,
        {
            "height": 150 + 44 * len(rows),
            "margin": {"l": 90, "r": 24, "t": 44, "b": 56},
            "barmode": "overlay",
            "hovermode": "closest",
            "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
            "xaxis": axis(
                f"time along the iteration ({unit})",
                {"range": [0.0, 1.005 * facts.time_s * factor], "showgrid": False},
            ),
            "yaxis": axis(
                "",
                {
                    "type": "category",
                    "categoryorder": "array",
                    "categoryarray": rows[::-1],
                    "fixedrange": True,
                },
            ),
        },
    )


def timeline_bars(facts: WorkloadFacts, on_device: DeviceCosts | None = None) -> list[Bar]:
    """The bars of the timeline; at most some thousands, whatever the number of launches."""
    if facts.time_source is TimeSource.TRACED:
        bars = _traced_bars(facts)
    elif on_device is not None:
        bars = list(_serial_bars(facts, on_device))
    else:
        return []
    return bars if len(bars) <= MOST_BARS else _merged(bars, facts.time_s or 0.0)


def roofline_figure(facts: WorkloadFacts) -> Figure | None:
    """FLOPs per byte against the rate reached, a dot for each kernel; `None` without times."""
    dots = [
        (kernel, kernel.flop_per_byte_ratio, kernel.flop_count / kernel.time_s)
        for kernel in facts.kernels
        if kernel.flop_per_byte_ratio and kernel.flop_count and kernel.time_s
    ][:_MOST_DOTS]
    if not dots:
        return None
    traces: list[Json] = []
    for pass_ in Pass:
        own = [dot for dot in dots if dot[0].passes[0] is pass_]
        if own:
            traces.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": pass_.value,
                    "x": [intensity for _, intensity, _ in own],
                    "y": [rate / 1e12 for _, _, rate in own],
                    "marker": {
                        "color": PASS_COLOURS[pass_],
                        "size": [
                            7 + 40 * (dot.time_share_ratio or 0.0) ** 0.5 for dot, _, _ in own
                        ],
                        "opacity": 0.75,
                        "symbol": _SYMBOLS[pass_],
                    },
                    "text": [
                        f"{figure_text(dot.kernel)}<br>{duration(dot.time_s or 0.0)} in "
                        f"{counted(dot.launch_count, 'launch')}<br>{amount(rate, 'FLOP/s')}"
                        for dot, _, rate in own
                    ],
                    "hovertemplate": "%{text}<extra></extra>",
                }
            )
    return figure(
        traces,
        {
            "height": 420,
            "margin": {"l": 72, "r": 24, "t": 44, "b": 56},
            "hovermode": "closest",
            "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
            "xaxis": axis("FLOPs per byte of memory traffic", {"type": "log"}),
            "yaxis": axis("rate reached (TFLOP/s)", {"type": "log"}),
        },
    )


_SYMBOLS: Mapping[Pass, str] = {
    Pass.FORWARD: "circle",
    Pass.BACKWARD: "square",
    Pass.OPTIMIZER: "diamond",
    Pass.COMMUNICATION: "triangle-up",
}


def _traced_bars(facts: WorkloadFacts) -> list[Bar]:
    trace = facts.workload.trace
    assert trace is not None  # noqa: S101 - its times are traced
    rows = _stream_rows((launch.stream, launch.duration_s) for launch in trace.launches)
    bars = [
        Bar(
            row=rows[launch.stream],
            pass_=launch.pass_,
            name=launch.kernel,
            start_s=launch.start_s,
            end_s=launch.start_s + launch.duration_s,
        )
        for launch in trace.launches
    ]
    order = {row: number for number, row in enumerate(dict.fromkeys(rows.values()))}
    bars.sort(key=lambda bar: (order[bar.row], bar.start_s))
    return [*bars, *_gap_bars(bars, trace.duration_s)]


def _stream_rows(times: Iterable[tuple[int, float]]) -> dict[int, str]:
    """A name for the row of each stream; those that work least share one."""
    sums: dict[int, float] = defaultdict(float)
    for stream, duration_s in times:
        sums[stream] += duration_s
    kept = set(sorted(sums, key=lambda stream: -sums[stream])[:_MOST_ROWS])
    return {
        stream: f"stream {stream}" if stream in kept else "other streams"
        for stream in sorted(sums, key=lambda stream: (stream not in kept, stream))
    }


def _gap_bars(bars: Sequence[Bar], end_s: float) -> list[Bar]:
    """What no bar covers."""
    gaps, covered_s = [], 0.0
    for bar in sorted(bars, key=lambda bar: bar.start_s):
        if bar.start_s > covered_s:
            gaps.append(_gap(covered_s, bar.start_s))
        covered_s = max(covered_s, bar.end_s)
    if end_s > covered_s:
        gaps.append(_gap(covered_s, end_s))
    return gaps


def _gap(start_s: float, end_s: float) -> Bar:
    return Bar(row=_GAP_ROW, pass_=None, name="gap", start_s=start_s, end_s=end_s)


def _serial_bars(facts: WorkloadFacts, on_device: DeviceCosts) -> Iterable[Bar]:
    """Launches one after another, as long as the device takes for each."""
    gaps = {work.kernel for work in facts.workload.works if work.kind is KernelKind.GAP}
    now_s = 0.0
    for launch in facts.workload.launches:
        end_s = now_s + on_device.costs[launch.kernel].time_s
        if launch.kernel in gaps:
            yield _gap(now_s, end_s)
        else:
            yield Bar(
                row="kernels",
                pass_=launch.pass_,
                name=launch.kernel,
                start_s=now_s,
                end_s=end_s,
            )
        now_s = end_s


def _merged(bars: Sequence[Bar], time_s: float) -> list[Bar]:
    """Neighbours of one row and pass become one while they are narrower than a pixel."""
    least_s = time_s * _RESOLUTION_RATIO
    merged: list[Bar] = []
    open_bars: dict[tuple[str, Pass | None], Bar] = {}
    for bar in bars:
        key = (bar.row, bar.pass_)
        last = open_bars.get(key)
        if last is not None and bar.end_s - last.start_s < least_s:
            last.end_s = max(last.end_s, bar.end_s)
            last.launch_count += 1
            last.name = counted(last.launch_count, "gap" if bar.pass_ is None else "launch")
        else:
            open_bars[key] = bar
            merged.append(bar)
    return merged


def _bars_trace(bars: Sequence[Bar], pass_: Pass | None, factor: float) -> Json:
    return {
        "type": "bar",
        "orientation": "h",
        "name": "gap" if pass_ is None else pass_.value,
        "y": [bar.row for bar in bars],
        "base": [bar.start_s * factor for bar in bars],
        "x": [(bar.end_s - bar.start_s) * factor for bar in bars],
        "width": 0.7,
        "marker": {
            "color": GREY if pass_ is None else PASS_COLOURS[pass_],
            "pattern": {
                "shape": "" if pass_ is None else _PATTERNS[pass_],
                "size": 5,
                "fillmode": "overlay",
                "fgcolor": "#ffffff",
                "fgopacity": 0.45,
            },
            "line": {"width": 0},
        },
        "text": [
            f"{figure_text(bar.name)}<br>{duration(bar.end_s - bar.start_s)} from "
            f"{duration(bar.start_s)}"
            for bar in bars
        ],
        "textposition": "none",
        "hovertemplate": "%{text}<extra></extra>",
    }
