"""Repetition in a long sequence of symbols that has a prologue, an epilogue and differences.

Candidates for the period are the distances at which equal windows follow each other, for windows
of 1, 2, 4 ... symbols (prefix doubling, Karp, Miller and Rosenberg 1972), the commonest few of
each length. Every candidate is then held against the sequence. All of it takes O(n log^2 n).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from joulewise.workload.capture.intervals import IntColumn, Position

# A mismatch undoes this many matches when the repeating stretch is sought, so that a stretch
# may differ here and there but not everywhere; assumed.
_MISMATCH_COST_COUNT = 2
# Distances looked at for each length of windows; assumed: equal layers and iterations are fewer.
_CANDIDATES_OF_A_WINDOW = 4
# Periods that divide the best one are as good if they break at most this much more; assumed.
_AS_GOOD_RATIO = 1.25
# What covers less of the sequence than this of the best is a local pattern; assumed.
_WIDE_RATIO = 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """From symbol `start_index` to before `end_index`, each is like the one a period later.

    `break_count` is how often that fails within. The last copy may be cut.
    """

    start_index: Position
    end_index: Position
    period_count: int
    break_count: int

    @property
    def covered_count(self) -> int:
        """Symbols of the repeating stretch, cut copies included."""
        return self.end_index - self.start_index

    @property
    def break_ratio(self) -> float:
        """How often the repetition breaks per symbol compared."""
        return self.break_count / (self.covered_count - self.period_count)


def repetitions(symbols: IntColumn) -> tuple[Repetition, ...]:
    """Every period that at least two whole copies of may stand in the sequence, shortest first.

    Args:
        symbols: Shape (N,); equal numbers are equal symbols.
    """
    found = (_stretch(symbols, period) for period in sorted(_candidates(symbols)))
    return tuple(one for one in found if one is not None)


def best_of(found: tuple[Repetition, ...]) -> Repetition | None:
    """The period that breaks least, and the shortest that is a part of it and as good.

    Those that cover much less of the sequence than the best are local patterns, such as equal
    layers inside an iteration, and left out.
    """
    if not found:
        return None
    most = max(one.covered_count for one in found)
    wide = [one for one in found if one.covered_count > _WIDE_RATIO * most]
    least = min(wide, key=lambda one: (one.break_ratio, one.period_count))
    for one in wide:
        is_part = least.period_count % one.period_count == 0
        if is_part and one.break_ratio <= _AS_GOOD_RATIO * least.break_ratio:
            return one
    return least


def _candidates(symbols: IntColumn) -> set[int]:
    periods: set[int] = set()
    for ranks in _window_ranks(symbols):
        distances = _distances(ranks)
        if not len(distances):
            break  # longer windows do not come again either
        votes = np.bincount(distances)
        few = min(_CANDIDATES_OF_A_WINDOW, len(votes))
        commonest = np.argpartition(votes, len(votes) - few)[-few:]
        periods.update(int(period) for period in commonest if votes[period])
    return periods


def _window_ranks(symbols: IntColumn) -> Iterator[IntColumn]:
    """Equal windows have equal ranks; windows of 1, 2, 4 ... symbols at every start."""
    ranks = np.unique(symbols, return_inverse=True)[1].astype(np.int64)
    width = 1
    while len(ranks) > 1:
        yield ranks
        if len(ranks) <= width:
            return
        pairs = ranks[:-width] * (int(ranks.max()) + 1) + ranks[width:]
        ranks = np.unique(pairs, return_inverse=True)[1].astype(np.int64)
        width *= 2


def _distances(ranks: IntColumn) -> IntColumn:
    """How far each window is from where it next comes again; those that do not are left out."""
    order = np.argsort(ranks, kind="stable").astype(np.int64)
    again = ranks[order[1:]] == ranks[order[:-1]]
    distances: IntColumn = np.diff(order)[again]
    return distances


def _stretch(symbols: IntColumn, period_count: int) -> Repetition | None:
    """The longest stretch that repeats with this period; `None` where two copies do not fit."""
    count = len(symbols) - period_count
    if count < period_count:
        return None
    same = symbols[:count] == symbols[period_count:]
    score = np.concatenate(([0], np.cumsum(np.where(same, 1, -_MISMATCH_COST_COUNT))))
    gains = score - np.minimum.accumulate(score)
    last = int(np.argmax(gains))
    first = int(np.flatnonzero(score[: last + 1] == score[: last + 1].min())[-1])
    if last - first < period_count:
        return None
    inside = same[first:last]
    breaks = int(np.count_nonzero(~inside[1:] & inside[:-1])) + int(not inside[0])
    return Repetition(
        start_index=first,
        end_index=last + period_count,
        period_count=period_count,
        break_count=breaks,
    )
