"""Which launches of a trace are one iteration: by marks, by repetition, or all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest

import numpy as np
from numpy.typing import NDArray

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.errors import InputError
from joulewise.domain.trace import ProfilerTrace
from joulewise.workload.capture.choice import CaptureChoice
from joulewise.workload.capture.intervals import (
    NS_PER_S,
    IntColumn,
    Nanoseconds,
    nanoseconds,
)
from joulewise.workload.capture.repeated import repeated_spans

# Where the profiler pauses for longer than this part of a step between two, the pause is no part
# of the step; assumed.
_LONGEST_PAUSE_RATIO = 0.5
# A wait so many times as long as all kernels together is no part of an iteration but what comes
# once: loading, compiling, choosing algorithms; assumed.
_LONGEST_WAIT_RATIO = 10.0
# No training iteration has as many launches; more of them, with nothing that tells iterations
# apart, are a whole run, of which so many stand for the rest; assumed.
_MOST_UNMARKED_COUNT = 200_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Iteration:
    """One iteration on one GPU.

    `launches` are indices into the trace's columns, by start. `end_ns` is where it ends, on the
    trace's clock: at the first launch of the next iteration, or at its own end where none
    follows directly. `iteration_count` is how many iterations the trace was found to hold.
    """

    gpu: int
    launches: IntColumn
    end_ns: Nanoseconds
    step: str | None
    iteration_count: int
    caveats: tuple[Caveat, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timeline:
    """The launches of one GPU by start: columns of the shape (M,).

    `launches` are indices into the trace's columns, `symbols` what is equal for launches of one
    kernel.
    """

    gpu: int
    launches: IntColumn
    symbols: IntColumn
    start_ns: IntColumn
    end_ns: IntColumn


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Span:
    """A candidate: positions on the timeline, and where the iteration ends."""

    positions: IntColumn
    end_ns: Nanoseconds
    name: str | None

    def kernels(self, timeline: Timeline) -> tuple[tuple[int, int], ...]:
        """Which kernels run how often: the same for iterations that do the same."""
        symbols, counts = np.unique(timeline.symbols[self.positions], return_counts=True)
        return tuple(zip(symbols.tolist(), counts.tolist(), strict=True))

    def duration_ns(self, timeline: Timeline) -> int:
        return self.end_ns - int(timeline.start_ns[self.positions[0]])


def iteration_of(trace: ProfilerTrace, kernels: IntColumn, choice: CaptureChoice) -> Iteration:
    """One iteration of a trace on one GPU.

    Marks of steps come first; without them iterations are sought by repetition of kernels; a
    trace without either is one iteration as a whole, with a caveat, but for waits that are far
    longer than all of its kernels together: between those, the busiest part is taken, and of very
    many launches the first. Among the
    iterations found, those that do what most of them do are complete; without two that do the
    same, the first and the last may be cut by the profiler, and are left out where others
    remain. Of the rest, the one of median duration is taken (the earlier of the middle two),
    unless `choice.step` says.

    Args:
        trace: What a reader made.
        kernels: The kernel of every signature, see `kernel_of_signatures`.
        choice: What the user decides.

    Raises:
        InputError: the trace holds no kernel, not the GPU or not the step asked for.
    """
    timeline = _timeline(trace, kernels, choice.gpu)
    if not trace.is_timeline:
        every = np.arange(len(timeline.launches))
        return _whole(timeline, every, "the file has no timeline")
    spans = _marked(trace, timeline)
    caveat: Caveat | None = None
    if not spans:
        found = repeated_spans(trace, timeline.launches, timeline.symbols)
        if found is None:
            return _without_waits(timeline)
        spans, caveat = _repeated(timeline, found.boundaries), found.caveat
    chosen = _chosen(trace, timeline, spans, choice.step)
    return Iteration(
        gpu=timeline.gpu,
        launches=timeline.launches[chosen.positions],
        end_ns=chosen.end_ns,
        step=chosen.name,
        iteration_count=len(spans),
        caveats=() if caveat is None else (caveat,),
    )


def _timeline(trace: ProfilerTrace, kernels: IntColumn, wanted: int | None) -> Timeline:
    if not len(trace.gpu):
        raise InputError("no GPU kernels were traced", file=trace.file)
    gpus, which = np.unique(trace.gpu, return_inverse=True)
    if wanted is None:
        gpu = int(gpus[int(np.argmax(np.bincount(which, weights=trace.duration_s)))])
    elif wanted in gpus.tolist():
        gpu = wanted
    else:
        raise InputError(
            f"GPU {wanted} ran no kernels in this trace",
            file=trace.file,
            field="gpu",
            hint=f"Traced: {', '.join(str(gpu) for gpu in gpus.tolist())}.",
        )
    own = np.flatnonzero(trace.gpu == gpu).astype(np.int64)
    start_ns = nanoseconds(trace.start_s[own])
    order = np.argsort(start_ns, kind="stable") if trace.is_timeline else np.arange(len(own))
    launches = own[order]
    return Timeline(
        gpu=gpu,
        launches=launches,
        symbols=kernels[trace.signature_index[launches]],
        start_ns=start_ns[order],
        end_ns=start_ns[order] + nanoseconds(trace.duration_s[launches]),
    )


def _without_waits(timeline: Timeline) -> Iteration:
    """All launches, or the busiest part of them between waits that no iteration has."""
    reach = np.maximum.accumulate(timeline.end_ns)
    waits_ns = timeline.start_ns[1:] - reach[:-1]
    before = np.concatenate((timeline.start_ns[:1], reach[:-1]))
    busy_ns = np.maximum(0, timeline.end_ns - np.maximum(timeline.start_ns, before))
    cuts = np.flatnonzero(waits_ns > _LONGEST_WAIT_RATIO * float(busy_ns.sum())) + 1
    part = int(np.argmax(np.add.reduceat(busy_ns, np.concatenate(([0], cuts)))))
    busiest = np.split(np.arange(len(timeline.launches)), cuts)[part]
    why = "there are neither marks of steps nor repeating iterations"
    busiest, rest = busiest[:_MOST_UNMARKED_COUNT], len(busiest) - _MOST_UNMARKED_COUNT
    most = f"; more than {_MOST_UNMARKED_COUNT} launches are no iteration" if rest > 0 else ""
    if not len(cuts):
        return _whole(timeline, busiest, why, most)
    cut = most + (
        f"; {'a wait' if len(cuts) == 1 else f'{len(cuts)} waits'} of "
        f"{float(waits_ns[cuts - 1].sum()) / NS_PER_S:.3g} s, more than {_LONGEST_WAIT_RATIO:g} "
        "times as long as all kernels together, cannot be part of it, and the busiest part of the "
        "rest was taken"
    )
    return _whole(timeline, busiest, why, cut)


def _whole(timeline: Timeline, positions: IntColumn, why: str, cut: str = "") -> Iteration:
    """The launches of these positions, as one iteration that nothing marks."""
    count, whole_count = len(positions), len(timeline.launches)
    taken = (
        f"All {count} launches" if count == whole_count else f"{count} of {whole_count} launches"
    )
    if whole_count == 1:
        taken = "The only launch"
    were = "was" if count == 1 else "were"
    seen = f"{taken} of the trace {were} taken for one iteration: {why}{cut}."
    return Iteration(
        gpu=timeline.gpu,
        launches=timeline.launches[positions],
        end_ns=int(timeline.end_ns[positions].max()),
        step=None,
        iteration_count=1,
        caveats=(Caveat(kind=CaveatKind.ITERATION_ASSUMED, seen=seen),),
    )


def _marked(trace: ProfilerTrace, timeline: Timeline) -> list[_Span]:
    """Steps that launched kernels on this GPU, in order of their marks."""
    inside = trace.is_in_step[timeline.launches]
    positions = np.flatnonzero(inside)
    steps = trace.step_index[timeline.launches][positions]
    order = np.argsort(steps, kind="stable")
    present, first = np.unique(steps[order], return_index=True)
    groups = dict(zip(present.tolist(), np.split(positions[order], first[1:]), strict=False))
    spans: list[_Span] = []
    in_time = sorted(groups, key=lambda step: trace.steps[step].start_s)
    for step, following in zip_longest(in_time, in_time[1:]):
        own = groups[step]
        end_ns = int(timeline.end_ns[own].max())
        if following is not None and _is_next(trace, step, following):
            end_ns = _end_ns(timeline, own, groups[following], inside)
        spans.append(_Span(positions=own, end_ns=end_ns, name=trace.steps[step].name))
    return spans


def _is_next(trace: ProfilerTrace, step: int, following: int) -> bool:
    """Whether a mark follows another directly, and not after a pause of the profiler."""
    one = trace.steps[step]
    pause_s = trace.steps[following].start_s - (one.start_s + one.duration_s)
    return pause_s <= _LONGEST_PAUSE_RATIO * one.duration_s


def _end_ns(
    timeline: Timeline, own: IntColumn, following: IntColumn, inside: NDArray[np.bool_]
) -> int:
    """Where a step ends that another follows: there, unless unmarked launches lie between."""
    end_ns = int(timeline.end_ns[own].max())
    is_bare = not bool(np.all(inside[own[-1] : following[0]]))
    return end_ns if is_bare else max(end_ns, int(timeline.start_ns[following[0]]))


def _repeated(timeline: Timeline, boundaries: Sequence[int]) -> list[_Span]:
    """Spans between boundaries, which are positions on the timeline."""
    spans: list[_Span] = []
    for first, last in pairwise(boundaries):
        positions = np.arange(first, last, dtype=np.int64)
        end_ns = int(timeline.end_ns[positions].max())
        if last < len(timeline.start_ns):
            end_ns = max(end_ns, int(timeline.start_ns[last]))
        spans.append(_Span(positions=positions, end_ns=end_ns, name=None))
    return spans


def _chosen(
    trace: ProfilerTrace, timeline: Timeline, spans: Sequence[_Span], step: int | None
) -> _Span:
    if step is not None:
        return _of_number(trace, spans, step)
    kernels = [span.kernels(timeline) for span in spans]
    (commonest, count), *_ = Counter(kernels).most_common(1)
    complete = [span for span, own in zip(spans, kernels, strict=True) if own == commonest]
    if count == 1:
        complete = list(spans[1:-1] or spans)
    by_time = sorted(complete, key=lambda span: span.duration_ns(timeline))
    return by_time[(len(by_time) - 1) // 2]


def _of_number(trace: ProfilerTrace, spans: Sequence[_Span], step: int) -> _Span:
    numbers = [_number(span.name or "") for span in spans]
    if step in numbers:
        return spans[numbers.index(step)]
    is_numbered = any(number is not None for number in numbers)
    if not is_numbered and 0 <= step < len(spans):
        return spans[step]
    known = [number for number in numbers if number is not None] if is_numbered else []
    listed = ", ".join(str(number) for number in known[:20])
    raise InputError(
        f"there is no step {step} with kernels in this trace",
        file=trace.file,
        field="step",
        hint=f"Steps: {listed}." if known else f"Steps are 0 to {len(spans) - 1}.",
    )


def _number(name: str) -> int | None:
    """The number at the end of a mark, such as of `ProfilerStep#12` and of `[iteration 7]`."""
    digits = name.rstrip(" \t])")
    digits = digits[len(digits.rstrip("0123456789")) :]
    return int(digits) if 0 < len(digits) < 19 and digits.isascii() else None  # noqa: PLR2004
