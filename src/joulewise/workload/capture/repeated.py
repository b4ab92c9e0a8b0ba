"""Iterations of a trace without marks: what repeats, and where each copy begins."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.passes import Pass
from joulewise.domain.trace import ProfilerTrace
from joulewise.workload.capture.intervals import IntColumn
from joulewise.workload.capture.passes import pass_of_signature
from joulewise.workload.capture.repetition import Repetition, best_of, repetitions

# Without backward and optimizer, equal layers look like iterations. What covers a whole trace
# (but for what the profiler cut) is taken for one, and so is what consists of layers itself to a
# half. Both assumed.
_WHOLE_TRACE_RATIO = 0.99
_INNER_RATIO = 0.5
# A boundary is known by the launches behind it; a copy may be a fifth shorter or a quarter
# longer than the period. All assumed.
_PATTERN_COUNT = 16
_SHORTEST_RATIO, _LONGEST_RATIO = 0.8, 1.25
_TRAINING = (Pass.BACKWARD, Pass.OPTIMIZER)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedSpans:
    """Where iterations begin and the last one ends: positions on the GPU's timeline."""

    boundaries: tuple[int, ...]
    caveat: Caveat | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Stream:
    """The launches of the busiest stream: columns of the shape (S,).

    Launches of several streams come now in one order, now in another; those of one do not.
    """

    symbols: IntColumn
    positions: IntColumn
    gap_s: NDArray[np.float64]
    passes: NDArray[np.object_]


def repeated_spans(
    trace: ProfilerTrace, launches: IntColumn, symbols: IntColumn
) -> RepeatedSpans | None:
    """Iterations found by repetition on the stream with the most launches.

    Where the trace has backward or optimizer launches, every iteration must have them too, so
    that equal layers are not taken for iterations; without them what was found is doubtful, and
    the caveat says so. An iteration of training begins behind the optimizer (or else behind
    backward), and among the launches that come into question behind the longest gap.

    Args:
        trace: What a reader made.
        launches: The launches of one GPU by start, indices into the trace's columns.
        symbols: What is equal for launches of one kernel, one per launch.
    """
    stream = _busiest_stream(trace, launches, symbols)
    demanded = {one for one in _TRAINING if one in set(stream.passes.tolist())}
    found = tuple(one for one in repetitions(stream.symbols) if _has(stream, one, demanded))
    best = best_of(found)
    if best is None or not (demanded or _is_convincing(stream, best)):
        return None
    starts = _starts(stream, best)
    if len(starts) < 2:  # noqa: PLR2004 - two boundaries make one iteration
        return None
    boundaries = [int(stream.positions[start]) for start in starts if start < len(stream.symbols)]
    if len(boundaries) < len(starts):  # the last copy ends where the trace does
        boundaries.append(len(launches))
    return RepeatedSpans(
        boundaries=tuple(boundaries),
        caveat=None if demanded else _doubt(best, len(boundaries) - 1),
    )


def _busiest_stream(trace: ProfilerTrace, launches: IntColumn, symbols: IntColumn) -> _Stream:
    _, which = np.unique(trace.stream[launches], return_inverse=True)
    positions = np.flatnonzero(which == int(np.argmax(np.bincount(which)))).astype(np.int64)
    own = launches[positions]
    start, end = trace.start_s[own], trace.start_s[own] + trace.duration_s[own]
    named = [pass_of_signature(signature) for signature in trace.signatures]
    passes = [
        trace.passes[launch] or named[signature]
        for launch, signature in zip(own.tolist(), trace.signature_index[own].tolist(), strict=True)
    ]
    return _Stream(
        symbols=symbols[positions],
        positions=positions,
        gap_s=np.concatenate(([0.0], start[1:] - end[:-1])),
        passes=np.array(passes, dtype=np.object_),
    )


def _has(stream: _Stream, one: Repetition, demanded: set[Pass]) -> bool:
    """Whether a copy holds every pass that a training iteration must have."""
    copy = stream.passes[one.start_index : one.start_index + one.period_count]
    return demanded <= set(copy.tolist())


def _is_convincing(stream: _Stream, best: Repetition) -> bool:
    """Whether a repetition without backward or optimizer is more than equal layers."""
    if best.covered_count >= _WHOLE_TRACE_RATIO * len(stream.symbols):
        return True
    copy = stream.symbols[best.start_index : best.start_index + best.period_count]
    inner = best_of(repetitions(copy))
    return inner is not None and (
        inner.covered_count >= _INNER_RATIO * len(copy)
        and inner.covered_count > 2 * inner.period_count
    )


def _starts(stream: _Stream, best: Repetition) -> list[int]:
    """Positions on the stream at which copies begin, and the one at which the last ends."""
    first = _phase(stream, best)
    width = min(_PATTERN_COUNT, best.period_count)
    alike = _occurrences(stream.symbols, first, width)
    starts = [first]
    while (following := _following(alike, starts[-1], best.period_count)) is not None:
        starts.append(following)
    # No copy begins behind the last whole one.
    end = starts[-1] + best.period_count
    if end <= best.end_index:
        starts.append(end)
    return starts


def _phase(stream: _Stream, best: Repetition) -> int:
    """Which launch of the first copy begins an iteration."""
    copy_count = best.covered_count // best.period_count
    candidates = best.start_index + np.arange(best.period_count)
    gaps = stream.gap_s[best.start_index :][: copy_count * best.period_count]
    mean_gap_s = gaps.reshape(copy_count, best.period_count).mean(axis=0)
    for last_pass in reversed(_TRAINING):
        before = stream.passes[candidates - 1] == last_pass
        behind = before & (stream.passes[candidates] != last_pass) & (candidates > 0)
        if best.start_index == 0:  # what lies before the first launch is the end of a copy
            end = stream.passes[best.period_count - 1]
            behind[0] = end == last_pass and stream.passes[0] != last_pass
        if behind.any():
            return int(candidates[np.where(behind, mean_gap_s, -np.inf).argmax()])
    return int(candidates[mean_gap_s.argmax()])


def _occurrences(symbols: IntColumn, first: int, width: int) -> list[int]:
    """Where the symbols at `first` come again."""
    count = len(symbols) - width + 1
    alike = np.ones(count, dtype=np.bool_)
    for offset in range(width):
        alike &= symbols[offset : offset + count] == symbols[first + offset]
    return [int(one) for one in np.flatnonzero(alike)]


def _following(alike: Sequence[int], start: int, period_count: int) -> int | None:
    """The occurrence that is nearest to one period later."""
    low = bisect.bisect_left(alike, start + int(_SHORTEST_RATIO * period_count))
    high = bisect.bisect_right(alike, start + int(_LONGEST_RATIO * period_count) + 1)
    wanted = start + period_count
    near = [one for one in alike[low:high] if one > start]
    return min(near, key=lambda one: abs(one - wanted), default=None)


def _doubt(best: Repetition, iteration_count: int) -> Caveat:
    return Caveat(
        kind=CaveatKind.ITERATION_ASSUMED,
        seen=(
            f"A sequence of {best.period_count} launches comes {iteration_count} times and was "
            "taken for an iteration, though it may be a layer: neither marks nor a backward pass "
            "tell."
        ),
    )
