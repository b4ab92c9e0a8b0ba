"""Virtual time: integers, so that a second lasts the same bits whenever it begins.

One unit is 2**-30 s (0.93 ns) rather than a nanosecond: any count of units below 2**53 is a
float exactly, so differences of `time_s` do not depend on how late it is. That holds for
97 days of virtual time.
"""

from __future__ import annotations

from typing import TypeAlias

UNITS_PER_S = 2**30
Units: TypeAlias = int
"""A moment or a duration in virtual time."""


def units(duration_s: float) -> Units:
    """The nearest whole number of units."""
    return round(duration_s * UNITS_PER_S)


def seconds(duration_units: Units) -> float:
    """The same duration in seconds, exactly (below 97 days)."""
    return duration_units / UNITS_PER_S
