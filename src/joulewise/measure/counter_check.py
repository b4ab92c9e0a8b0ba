"""Two meters of one GPU against each other: its energy counter and its power sensor.

Counters have been seen that count part of what is drawn, or at another scale than they say.
"""

from __future__ import annotations

from collections.abc import Sequence

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.measurement import GpuSample
from joulewise.measure.sensor_estimates import counter_against_power


def power_excess_ratio(samples: Sequence[GpuSample]) -> float | None:
    """Energy integrated from power over energy counted, less one.

    Args:
        samples: Of a steady load, in order of time, the first and the last right after the
            counter moved.

    Returns:
        `None` where one of the two was not told.
    """
    known = [
        (one.time_s, one.energy_j, one.power_w)
        for one in samples
        if one.energy_j is not None and one.power_w is not None
    ]
    if len(known) < len(samples):
        return None
    times_s, energies_j, powers_w = zip(*known, strict=True)
    return counter_against_power(times_s, energies_j, powers_w)


def disagreement(samples: Sequence[GpuSample], within_ratio: float) -> tuple[Caveat, ...]:
    """CounterDisagrees where integrated power lies further than that off what was counted."""
    excess_ratio = power_excess_ratio(samples)
    if excess_ratio is None or abs(excess_ratio) <= within_ratio:
        return ()
    more_or_less = "more" if excess_ratio > 0 else "less"
    duration_s = samples[-1].time_s - samples[0].time_s
    return (
        Caveat(
            kind=CaveatKind.COUNTER_DISAGREES,
            seen=f"integrated power is {abs(excess_ratio):.1%} {more_or_less} than the energy "
            f"counter counted over {duration_s:.0f} s of steady load",
        ),
    )
