"""How often a plan launches each kernel at each operating point."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from joulewise.domain.plan import PlannedLaunch
from joulewise.domain.points import OperatingPoint


def launch_counts(launches: Sequence[PlannedLaunch]) -> dict[tuple[str, OperatingPoint], int]:
    """Launches by kernel and point, in order of first launch.

    A plan may hold millions of launches but few points, most of them the same object, so that
    points are first told apart by identity, which is much faster than by value.
    """
    points = {id(launch.point): launch.point for launch in launches}
    found: dict[tuple[str, OperatingPoint], int] = {}
    counts = Counter((launch.kernel, id(launch.point)) for launch in launches)
    for (kernel, identity), count in counts.items():
        key = (kernel, points[identity])
        found[key] = found.get(key, 0) + count
    return found


def points_in_use(launches: Sequence[PlannedLaunch]) -> tuple[OperatingPoint, ...]:
    """Different points of these launches, in order of first launch."""
    points = {id(launch.point): launch.point for launch in launches}
    return tuple(dict.fromkeys(points.values()))
