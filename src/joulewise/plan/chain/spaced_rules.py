"""Since when a region must have run for a change to be allowed at a node."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from joulewise.domain.sweep import FloatTable, IntTable
from joulewise.plan.chain.spaced_frame import Frame

ROUNDING_RATIO = 1e-12
"""Sums of times this close, relative to the iteration, count as equal."""
LARGEST_TABLE_COUNT = 2**26
"""Entries (nodes x levels x points) of a table of starts; 256 MiB."""


class SpacingRules:
    """The spacing between changes as the last node at which a region may have begun.

    The L distinct spacings are *levels*. Starts are numbered: 0 is a start before the cut, s + 1
    a start at node s, N + 1 none. For a change at node k away from point p that takes a spacing
    of some level, `places` (N, L * P) holds the last start of the region that will do, as
    start * P + p, the row of a flat table of starts x points.

    Lenient rules allow what rounding leaves open, strict ones forbid it: no plan that keeps the
    spacing breaks the lenient, none that keeps the strict breaks the spacing. The same holds
    where levels are so many that neighbouring ones are joined.
    """

    def __init__(
        self, frame: Frame, *, is_strict: bool, largest_table_count: int = LARGEST_TABLE_COUNT
    ) -> None:
        """Look up all starts; prices have no part in it."""
        self.frame = frame
        spacing_s = frame.chain.changes.spacing_s
        distinct_s = np.unique(spacing_s[np.isfinite(spacing_s)])
        cell_count = (frame.node_count + 1) * frame.point_count
        most_count = max(1, largest_table_count // cell_count)
        edge = -1 if is_strict else 0
        groups = np.array_split(distinct_s, max(1, min(distinct_s.size, most_count)))
        self.levels_s = np.array([group[edge] for group in groups if group.size] or [0.0])
        if is_strict:
            found = np.searchsorted(self.levels_s, spacing_s, side="left")
        else:
            found = np.searchsorted(self.levels_s, spacing_s, side="right") - 1
        self.level_of: IntTable = np.where(np.isfinite(spacing_s), found, 0)
        slack_s = ROUNDING_RATIO * float(frame.time_sums_s[-1].max())
        self.needed_s = self.levels_s + (slack_s if is_strict else -slack_s)
        self.places = self._places()

    def first_changes(self, columns: IntTable, ages_s: FloatTable) -> IntTable:
        """(L, B) first node at which a region that began before the cut may end.

        `columns` (B,) are the regions' points, `ages_s` (B,) how long they have run at the cut.
        """
        sums_s = self.frame.time_sums_s
        found = [
            np.searchsorted(sums_s[:, column], self.needed_s - age_s, side="left")
            for column, age_s in zip(columns.tolist(), ages_s.tolist(), strict=True)
        ]
        return np.stack(found, axis=1)

    def is_old(self, ages_s: FloatTable) -> NDArray[np.bool_]:
        """Whether regions this old may end in any change at once."""
        return np.asarray(ages_s >= self.needed_s[-1])

    def _places(self) -> NDArray[np.int64 | np.int32]:
        frame = self.frame
        node_count, point_count = frame.node_count, frame.point_count
        is_small = (node_count + 2) * point_count < np.iinfo(np.int32).max
        kind = np.int32 if is_small else np.int64
        starts = np.empty((node_count, self.levels_s.size, point_count), dtype=kind)
        for column in range(point_count):
            sums_s = frame.time_sums_s[:node_count, column]
            for level, needed_s in enumerate(self.needed_s):
                starts[:, level, column] = np.searchsorted(sums_s, sums_s - needed_s, side="right")
        # A region has at least one node.
        np.minimum(starts, np.arange(node_count)[:, None, None], out=starts)
        first = frame.first_present[:node_count, None, :]
        is_broken = (first > 0) & (starts <= first)
        starts[is_broken] = node_count + 1
        starts *= point_count
        starts += np.arange(point_count, dtype=kind)
        return starts.reshape(node_count, -1)
