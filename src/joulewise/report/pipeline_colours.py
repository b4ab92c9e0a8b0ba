"""Which colour an operation has: its clock, or its power where it runs a kernel-level plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from joulewise.domain.pipeline import PlannedOperation
from joulewise.report.clocks_figure import KNOBS
from joulewise.report.figures import Json

_SCALE = ((0.0, "#27457c"), (0.5, "#1c7f84"), (1.0, "#c8691c"))
_AUTO_ROOM_RATIO = 0.12  # of the scale, between the highest clock and auto
_MOST_TICKS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ColourScale:
    """A number for every operation, what the numbers mean, and the labelled ones."""

    title: str
    value: Callable[[PlannedOperation], float]
    ticks: tuple[tuple[float, str], ...]

    def colour(self, one: PlannedOperation) -> str:
        """The operation's colour, `#rrggbb`."""
        low, high = self._ends
        share = (self.value(one) - low) / (high - low)
        (start, first), (end, second) = next(
            pair for pair in pairwise(_SCALE) if share <= pair[1][0] or pair[1] == _SCALE[-1]
        )
        weight = (share - start) / (end - start)
        channels = zip(_channels(first), _channels(second), strict=True)
        return "#" + "".join(f"{round(a + weight * (b - a)):02x}" for a, b in channels)

    @property
    def _ends(self) -> tuple[float, float]:
        places = [place for place, _ in self.ticks]
        low, high = min(places), max(places)
        return low, high if high > low else low + 1.0

    @property
    def axis(self) -> Json:
        """The colour axis for a figure's layout."""
        places = [place for place, _ in self.ticks]
        return {
            "colorscale": [list(stop) for stop in _SCALE],
            "cmin": self._ends[0],
            "cmax": self._ends[1],
            "colorbar": {
                "title": {"text": self.title, "side": "right"},
                "tickmode": "array",
                "tickvals": places,
                "ticktext": [text for _, text in self.ticks],
                "thickness": 12,
                "outlinewidth": 0,
                "x": 1.01,
            },
        }


def colour_scale(operations: Sequence[PlannedOperation]) -> ColourScale:
    """The first knob that the operations differ in; mean power where a kernel plan runs."""
    points = [one.point for one in operations if one.point is not None]
    if len(points) < len(operations):
        return _by_power(operations)
    knob = next((k for k in KNOBS if len({k.value(point) for point in points}) > 1), KNOBS[0])
    values = {knob.value(point) for point in points}
    known = sorted(value for value in values if value is not None)
    room = _AUTO_ROOM_RATIO * (known[-1] - known[0]) or 1.0 if known else 1.0
    auto = known[-1] + room if known else 0.0
    ticks = [(float(value), f"{value:g}") for value in _thinned(known)]
    if None in values:
        ticks.append((auto, "auto"))

    def value_of(one: PlannedOperation) -> float:
        setting = None if one.point is None else knob.value(one.point)
        return auto if setting is None else float(setting)

    return ColourScale(title=f"{knob.name} ({knob.unit})", value=value_of, ticks=tuple(ticks))


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def _by_power(operations: Sequence[PlannedOperation]) -> ColourScale:
    powers_w = sorted({one.energy_j / one.time_s for one in operations})
    ticks = [(power_w, f"{power_w:.0f}") for power_w in (powers_w[0], powers_w[-1])]
    return ColourScale(
        title="mean power (W)", value=lambda one: one.energy_j / one.time_s, ticks=tuple(ticks)
    )


def _thinned(values: Sequence[float]) -> list[float]:
    """At most so many, both ends among them."""
    last = len(values) - 1
    count = min(len(values), _MOST_TICKS)
    return [values[i] for i in sorted({round(n * last / max(count - 1, 1)) for n in range(count)})]
