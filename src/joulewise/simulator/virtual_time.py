"""Virtual time: integers, so that a second lasts the same bits whenever it begins.

One unit is 2**-30 s (0.93 ns) rather than a nanosecond: any count of units below 2**53 is a
float exactly, so differences of `time_s` do not depend on how late it is. That holds for
97 days of virtual time.
"""

from __future__ import annotations

import math
from typing import TypeAlias

from joulewise.domain.errors import InputError

UNITS_PER_S = 2**30
Units: TypeAlias = int
"""A moment or a duration in virtual time."""

NEVER: Units = 2**80
"""A moment that does not come."""


def units(duration_s: float) -> Units:
    """The nearest whole number of units."""
    return round(duration_s * UNITS_PER_S)


def seconds(duration_units: Units) -> float:
    """The same duration in seconds, exactly (below 97 days)."""
    return duration_units / UNITS_PER_S


def duration_units(duration_s: float) -> Units:
    """A span of this length. Raises InputError for one that is negative or endless."""
    if not (math.isfinite(duration_s) and duration_s >= 0):
        raise InputError(
            f"a duration must be zero or more seconds, got {duration_s}", field="duration_s"
        )
    return units(duration_s)
