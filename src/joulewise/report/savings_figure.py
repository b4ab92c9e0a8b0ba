"""Figure 3: where the saving comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from joulewise.report.compare import KernelSaving
from joulewise.report.figures import BLUE, ORANGE, Figure, Json, axis, figure
from joulewise.report.gaps import is_gap
from joulewise.report.wording import change, count, counted, duration, energy, figure_text

MOST_BARS = 20
_LABEL_LENGTH = 34
_LETTER_PX = 6.5
_MOST_POINTS = 2


def savings_figure(savings: Sequence[KernelSaving]) -> Figure | None:
    """Bars, in percent of the iteration's baseline energy; `None` where nothing changes.

    `savings` come largest first; what is beyond the first `MOST_BARS` is one bar, and so are all
    gaps between kernels.
    """
    if not any(saving.saved_energy_j for saving in savings):
        return None
    bars = _bars(savings)
    trace = {
        "type": "bar",
        "orientation": "h",
        "y": list(range(len(bars))),
        "x": [bar.share_ratio * 100 for bar in bars],
        "text": [bar.clocks for bar in bars],
        "textposition": "outside",
        "textfont": {"size": 11},
        "cliponaxis": False,
        "customdata": [bar.hover for bar in bars],
        "hovertemplate": "%{customdata}<extra></extra>",
        "marker": {"color": [BLUE if bar.share_ratio >= 0 else ORANGE for bar in bars]},
    }
    return figure([trace], _layout(bars))


def gaps_as_one(savings: Sequence[KernelSaving]) -> tuple[KernelSaving, ...]:
    """The same, with all gaps as one entry that says how many they are and how long together."""
    gaps = [saving for saving in savings if is_gap(saving.kernel)]
    if not gaps:
        return tuple(savings)
    launch_count = sum(gap.launch_count for gap in gaps)
    baseline_time_s = sum(gap.baseline_time_s for gap in gaps)
    many = "host gap" if launch_count == 1 else f"host gaps: {count(launch_count)}"
    whole = KernelSaving(
        kernel=f"{many} of {duration(baseline_time_s)}",
        launch_count=launch_count,
        points=tuple(dict.fromkeys(point for gap in gaps for point in gap.points)),
        baseline_time_s=baseline_time_s,
        baseline_energy_j=sum(gap.baseline_energy_j for gap in gaps),
        time_s=sum(gap.time_s for gap in gaps),
        energy_j=sum(gap.energy_j for gap in gaps),
    )
    others = [saving for saving in savings if not is_gap(saving.kernel)]
    return tuple(sorted((*others, whole), key=lambda saving: -saving.saved_energy_j))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bar:
    """One bar; `share_ratio` is its saving / the iteration's energy at the baseline."""

    name: str
    share_ratio: float
    clocks: str
    hover: str


def _bars(kernels: Sequence[KernelSaving]) -> list[_Bar]:
    savings = gaps_as_one(kernels)
    base_energy_j = sum(saving.baseline_energy_j for saving in savings)
    bars = [
        _Bar(
            name=figure_text(saving.kernel, _LABEL_LENGTH),
            share_ratio=saving.saved_energy_j / base_energy_j,
            clocks=clocks_label(saving),
            # What is no kernel of its own is all gaps together.
            hover=_hover(saving, is_wait=all(saving is not one for one in kernels)),
        )
        for saving in savings[:MOST_BARS]
    ]
    rest = savings[MOST_BARS:]
    if rest:
        saved_energy_j = sum(saving.saved_energy_j for saving in rest)
        name = counted(len(rest), "other kernel")
        hover = f"{name}<br>{energy(saved_energy_j)} saved per iteration"
        share_ratio = saved_energy_j / base_energy_j
        bars.append(_Bar(name=name, share_ratio=share_ratio, clocks="", hover=hover))
    return bars


def _layout(bars: Sequence[_Bar]) -> Json:
    """Bars stand at 0, 1, 2 …, for equal labels may not fall together."""
    return {
        "height": 96 + 25 * len(bars),
        "margin": {"l": 40, "r": 24 + _label_px(bars), "t": 10, "b": 56},
        "bargap": 0.35,
        "showlegend": False,
        "xaxis": axis(
            "saving, as a share of the iteration's energy at the baseline",
            {"ticksuffix": " %", "tickformat": "~g", "zeroline": True},
        ),
        "yaxis": axis(
            "",
            {
                "range": [len(bars) - 0.4, -0.6],
                "tickmode": "array",
                "tickvals": list(range(len(bars))),
                "ticktext": [f"{bar.name}  " for bar in bars],
                "showgrid": False,
                "fixedrange": True,
            },
        ),
    }


def _label_px(bars: Sequence[_Bar]) -> int:
    """Room for the longest label beside a bar: plotly cuts off what does not fit the margin."""
    return round(_LETTER_PX * max(len(bar.clocks) for bar in bars))


def clocks_label(saving: KernelSaving) -> str:
    """The operating points of a kernel, SM / memory in MHz."""
    if len(saving.points) > _MOST_POINTS:
        return counted(len(saving.points), "operating point")
    return ", ".join(point.label for point in saving.points)


def _hover(saving: KernelSaving, *, is_wait: bool) -> str:
    time = change(saving.time_s / saving.baseline_time_s)
    spent = change(saving.energy_j / saving.baseline_energy_j)
    has_limit = any(point.power_limit_w is not None for point in saving.points)
    unit = "" if has_limit or len(saving.points) > _MOST_POINTS else " MHz"
    at = f"{clocks_label(saving)}{unit}<br>{energy(saving.saved_energy_j)} saved per iteration"
    if is_wait:
        return (
            f"{figure_text(saving.kernel)}: the GPU waits, and no clock shortens that<br>"
            f"at {at}<br>its own energy {spent}"
        )
    return (
        f"{figure_text(saving.kernel)}<br>{counted(saving.launch_count, 'launch')} at {at}<br>"
        f"its own energy {spent}, its own time {time}"
    )
