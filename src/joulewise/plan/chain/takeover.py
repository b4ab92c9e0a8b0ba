"""Where one plan may take over from another when changes must lie apart."""

from __future__ import annotations

import numpy as np

from joulewise.domain.sweep import BoolTable, FloatTable, IntTable
from joulewise.plan.chain.problem import Chain


def may_take_over(chain: Chain, before: IntTable, after: IntTable) -> BoolTable:
    """(N + 1,) whether `after` may be followed from each boundary on, `before` until there.

    Looks at the region of `before` that ends there and the one of `after` that begins. Regions
    that both ends of an arc cut short are not seen: `Chain.is_possible` decides.
    """
    elapsed_s, _, _ = _regions(chain, before)
    _, left_s, next_spacing_s = _regions(chain, after)
    own, following = np.roll(before, 1), after
    rows = chain.changes.domains(own, following)
    is_change = rows >= 0
    spacing_s = np.where(is_change, chain.changes.spacing_s[rows, following], 0.0)
    rest_s = np.where(is_change, left_s, left_s + elapsed_s)
    is_open = (elapsed_s >= spacing_s) & (rest_s >= next_spacing_s)
    return np.append(is_open, is_open[0])


def _regions(chain: Chain, choice: IntTable) -> tuple[FloatTable, FloatTable, FloatTable]:
    """At every boundary before a node: time in force, time left, spacing of the next change.

    +inf, +inf and 0 for a plan that never changes its point.
    """
    count = choice.size
    starts = np.flatnonzero(choice != np.roll(choice, 1))
    if not starts.size:
        endless = np.full(count, np.inf)
        return endless, endless, np.zeros(count)
    # Three laps, so that every boundary of the middle one has a change before and after it.
    node_s = np.tile(chain.time_s[np.arange(count), choice], 3)
    ends_s = np.append(0.0, np.cumsum(node_s))
    laps = np.concatenate([starts, starts + count, starts + 2 * count])
    here = np.arange(count, 2 * count)
    last = laps[np.searchsorted(laps, here, side="left") - 1]
    following = laps[np.searchsorted(laps, here, side="right")]
    before, after = choice[(following - 1) % count], choice[following % count]
    spacing_s = chain.changes.spacing_s[chain.changes.domains(before, after), after]
    return ends_s[here] - ends_s[last], ends_s[following] - ends_s[here], spacing_s
