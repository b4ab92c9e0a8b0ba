"""Names of gaps, in which no kernel runs although the iteration does.

Sweeps and plans name what they measured and chose for, and nothing tells there what a name is.
So what makes gaps and what reports them agree here on how gaps are called.
"""

from __future__ import annotations

import re

HOST_GAP = "host_gap"
"""The gap of a workload that was built: the GPU waits once an iteration for its host."""

_SCALES = ((1.0, 1.0, "s"), (1e-3, 1e3, "ms"), (0.0, 1e6, "us"))
_NUMBER = r"\d+(?:\.\d+)?(?:e[+-]\d+)?"
_GAP = re.compile(rf"gap|{HOST_GAP}|gap {_NUMBER}-{_NUMBER} (?:s|ms|us)")


def gap_name(low_s: float, high_s: float) -> str:
    """The name of gaps of this length: `gap 2.05-4.1 us`."""
    factor, unit = next((f, u) for least_s, f, u in _SCALES if low_s >= least_s)
    return f"gap {low_s * factor:.3g}-{high_s * factor:.3g} {unit}"


def is_gap(name: str) -> bool:
    """Whether this is the name of a gap: `gap`, `host_gap`, or one that `gap_name` makes."""
    return _GAP.fullmatch(name) is not None
