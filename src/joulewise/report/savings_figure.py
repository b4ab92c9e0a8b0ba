"""Figure 3: where the saving comes from."""

from __future__ import annotations

from collections.abc import Sequence

from joulewise.report.compare import KernelSaving
from joulewise.report.figures import BLUE, ORANGE, Figure, axis, figure
from joulewise.report.wording import change, counted, energy, figure_text

MOST_BARS = 20
_LABEL_LENGTH = 34
_MOST_POINTS = 2


def savings_figure(savings: Sequence[KernelSaving]) -> Figure | None:
    """Bars, in percent of the iteration's baseline energy; `None` where nothing changes.

    `savings` come largest first; what is beyond the first `MOST_BARS` is one bar.
    """
    if not any(saving.saved_energy_j for saving in savings):
        return None
    base_energy_j = sum(saving.baseline_energy_j for saving in savings)
    bars = [
        (
            figure_text(saving.kernel, _LABEL_LENGTH),
            saving.saved_energy_j / base_energy_j * 100,
            clocks_label(saving),
            _hover(saving),
        )
        for saving in savings[:MOST_BARS]
    ]
    rest = savings[MOST_BARS:]
    if rest:
        saved_energy_j = sum(saving.saved_energy_j for saving in rest)
        name = counted(len(rest), "other kernel")
        hover = f"{name}<br>{energy(saved_energy_j)} saved per iteration"
        bars.append((name, saved_energy_j / base_energy_j * 100, "", hover))
    return figure(
        [
            {
                "type": "bar",
                "orientation": "h",
                "y": list(range(len(bars))),
                "x": [width for _, width, _, _ in bars],
                "text": [clocks for _, _, clocks, _ in bars],
                "textposition": "outside",
                "textfont": {"size": 11},
                "cliponaxis": False,
                "customdata": [hover for _, _, _, hover in bars],
                "hovertemplate": "%{customdata}<extra></extra>",
                "marker": {"color": [BLUE if width >= 0 else ORANGE for _, width, _, _ in bars]},
            }
        ],
        {
            "height": 96 + 25 * len(bars),
            "margin": {"l": 40, "r": 90, "t": 10, "b": 56},
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
                    "ticktext": [f"{name}  " for name, *_ in bars],
                    "showgrid": False,
                    "fixedrange": True,
                },
            ),
        },
    )


def clocks_label(saving: KernelSaving) -> str:
    """The operating points of a kernel, SM / memory in MHz."""
    if len(saving.points) > _MOST_POINTS:
        return counted(len(saving.points), "operating point")
    return ", ".join(point.label for point in saving.points)


def _hover(saving: KernelSaving) -> str:
    time = change(saving.time_s / saving.baseline_time_s)
    spent = change(saving.energy_j / saving.baseline_energy_j)
    return (
        f"{figure_text(saving.kernel)}<br>{counted(saving.launch_count, 'launch')} at "
        f"{clocks_label(saving)} MHz<br>{energy(saving.saved_energy_j)} saved per iteration<br>"
        f"its own energy {spent}, its own time {time}"
    )
