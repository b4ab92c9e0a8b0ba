"""Gaps between kernels, as reports know them: by their names."""

from __future__ import annotations

import re

# Sweeps and plans name what they measured and chose for, and nothing tells there what a name is.
# Workloads call their gaps `gap`, `host_gap`, `gap of 4 to 8 µs`.
_GAP = re.compile(r"(host[ _])?gaps?(?![a-z])", re.IGNORECASE)


def is_gap(kernel: str) -> bool:
    """Whether this is the name of a gap: the GPU waits for its host, and no kernel runs."""
    return _GAP.match(kernel) is not None
