"""Which call launched each kernel, and what the ranges around that call say."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from joulewise.domain.passes import Pass
from joulewise.domain.trace import Collective, OpInput
from joulewise.store.importers.traces.nsys_database import (
    TIMES_NS,
    NsysDatabase,
    Place,
    Value,
)
from joulewise.store.importers.traces.nsys_kernels import CALLS, KernelColumns
from joulewise.store.importers.traces.nsys_marks import Mark
from joulewise.store.importers.traces.nsys_ranges import (
    STILL_OPEN_NS,
    Thread,
    ThreadRanges,
    process_of,
    swept,
)

_GRAPH_LAUNCHES = ("cudaGraphLaunch", "cuGraphLaunch")
# A launch whose own thread says nothing of its pass takes what the process's other threads say;
# where more threads than these mark passes, none speaks for the process.
_MOST_THREADS_COUNT = 32


class Call(NamedTuple):
    """A call that launched kernels; `thread` is process and globalTid."""

    time_ns: int
    thread: Thread
    is_graph_launch: bool


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the ranges around a launch say, the innermost first."""

    op: str | None = None
    inputs: tuple[OpInput, ...] = ()
    collective: Collective | None = None
    pass_: Pass | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRange:
    """A mark around one iteration: its start and its end, in whole nanoseconds."""

    name: str
    thread: Thread
    bounds: tuple[int, int]

    @property
    def start(self) -> int:
        """When it began."""
        return self.bounds[0]

    @property
    def end(self) -> int:
        """When it was over."""
        return self.bounds[1]


NOTHING = Surroundings()


def read_calls(database: NsysDatabase, launches: KernelColumns) -> list[Call | None]:
    """The call behind each launch, `None` where the export has none.

    Correlation numbers repeat in other processes. Where the kernel's process made no call at
    all, its number is not what the export says, and a call whose number is there once is taken.

    Raises:
        InputError: a call of a kernel has no whole number as its time or thread.
    """
    found = _calls_of(database, set(launches.correlation)) if database.columns(CALLS) else {}
    names = database.texts({name for _, _, name in found.values() if isinstance(name, int)})
    calls: dict[tuple[int, int], Call] = {}
    for key, (time_ns, tid, name) in found.items():
        text = names.get(name, "") if isinstance(name, int) else ""
        is_graph_launch = text.startswith(_GRAPH_LAUNCHES)
        calls[key] = Call(time_ns, (key[0], tid), is_graph_launch)
    processes = {process for process, _ in calls}
    alone = {} if processes.issuperset(launches.process) else _alone(calls)
    return [
        calls.get((process, number)) if process in processes else alone.get(number)
        for process, number in zip(launches.process, launches.correlation, strict=True)
    ]


def _alone(calls: Mapping[tuple[int, int], Call]) -> dict[int, Call]:
    """Calls whose correlation number no other process has."""
    uses = Counter(correlation for _, correlation in calls)
    return {key[1]: call for key, call in calls.items() if uses[key[1]] == 1}


def _calls_of(
    database: NsysDatabase, wanted: set[int]
) -> dict[tuple[int, int], tuple[int, int, Value]]:
    """Time, thread and name of the first call by process and correlation number."""
    found: dict[tuple[int, int], tuple[int, int, Value]] = {}
    rows = database.rows(CALLS, ("correlationId", "start", "globalTid", "nameId"))
    for row, (correlation, start, tid, name) in enumerate(rows, start=1):
        if not isinstance(correlation, int) or correlation not in wanted:
            continue
        place = Place(file=database.file, table=CALLS, row=row)
        time_ns = place.whole(start, "start", TIMES_NS)
        global_tid = 0 if tid is None else place.whole(tid, "globalTid", (-(2**63), 2**63 - 1))
        found.setdefault((process_of(global_tid), correlation), (time_ns, global_tid, name))
    return found


def surroundings(
    threads: Mapping[Thread, ThreadRanges],
    marks: Sequence[Mark],
    calls: Sequence[Call | None],
) -> list[Surroundings]:
    """What the ranges around each call say; nothing where the call is not known.

    An operation is one of forward where its sequence number comes again in backward. A thread
    without a word on the pass, such as autograd's own, follows the process's other threads.
    """
    forward = _sequences_of_gradients(threads, marks)
    found = [NOTHING] * len(calls)
    for thread, launches in _by_thread(calls).items():
        if thread in threads:
            times = [calls[launch].time_ns for launch in launches]  # type: ignore[union-attr]
            states = _states(threads[thread], marks, times, forward.get(thread[0], set()))
            for launch, state in zip(launches, states, strict=True):
                found[launch] = state
    _ask_other_threads(threads, marks, calls, found)
    return found


def _by_thread(calls: Iterable[Call | None]) -> dict[Thread, list[int]]:
    by_thread: dict[Thread, list[int]] = defaultdict(list)
    for launch, call in enumerate(calls):
        if call is not None:
            by_thread[call.thread].append(launch)
    return by_thread


def _sequences_of_gradients(
    threads: Mapping[Thread, ThreadRanges], marks: Sequence[Mark]
) -> dict[int, set[int]]:
    by_process: dict[int, set[int]] = defaultdict(set)
    for (process, _), ranges in threads.items():
        by_process[process].update(
            sequence
            for sequence, mark in zip(ranges.sequence, ranges.mark, strict=True)
            if sequence >= 0 and marks[mark].is_backward_op
        )
    return by_process


def _states(
    ranges: ThreadRanges, marks: Sequence[Mark], times: Sequence[int], forward: set[int]
) -> list[Surroundings]:
    known: dict[tuple[Surroundings, int, bool], Surroundings] = {}

    def opened(around: Surroundings, index: int) -> Surroundings:
        mark = ranges.mark[index]
        is_forward = ranges.sequence[index] in forward
        key = around, mark, is_forward
        if key not in known:
            known[key] = _within(around, marks[mark], is_forward=is_forward)
        return known[key]

    return swept(ranges, times, opened, NOTHING)


def _within(around: Surroundings, mark: Mark, *, is_forward: bool) -> Surroundings:
    pass_ = mark.pass_ or around.pass_
    if pass_ is None and is_forward:
        pass_ = Pass.FORWARD
    return Surroundings(
        op=mark.op or around.op,
        inputs=mark.inputs if mark.op else around.inputs,
        collective=_fuller(mark.collective, around.collective),
        pass_=pass_,
    )


def _fuller(inner: Collective | None, outer: Collective | None) -> Collective | None:
    """The inner one, unless only the outer one says how much is exchanged."""
    if inner is None or outer is None:
        return inner or outer
    is_sized = inner.input_element_count is not None or inner.output_element_count is not None
    if is_sized or outer.input_element_count is None:
        return inner
    return replace(inner, input_element_count=outer.input_element_count)


def _ask_other_threads(
    threads: Mapping[Thread, ThreadRanges],
    marks: Sequence[Mark],
    calls: Sequence[Call | None],
    found: list[Surroundings],
) -> None:
    """Fill in the passes on which all other threads of the process agree."""
    silent: dict[int, list[int]] = defaultdict(list)
    for launch, call in enumerate(calls):
        if call is not None and found[launch].pass_ is None:
            silent[call.thread[0]].append(launch)
    for process, launches in silent.items():
        speakers = [
            ranges
            for thread, ranges in threads.items()
            if thread[0] == process and any(marks[mark].pass_ for mark in set(ranges.mark))
        ]
        if not speakers or len(speakers) > _MOST_THREADS_COUNT:
            continue
        times = [calls[launch].time_ns for launch in launches]  # type: ignore[union-attr]
        words = [_states(ranges, marks, times, set()) for ranges in speakers]
        for launch, said in zip(launches, zip(*words, strict=True), strict=True):
            passes = {state.pass_ for state in said} - {None}
            if len(passes) == 1:
                found[launch] = replace(found[launch], pass_=passes.pop())


def step_ranges(
    threads: Mapping[Thread, ThreadRanges], marks: Sequence[Mark]
) -> tuple[StepRange, ...]:
    """Marks around iterations that were closed, by start; of nested ones the outermost."""
    steps: list[StepRange] = []
    for thread, ranges in threads.items():
        if not any(marks[mark].is_step for mark in set(ranges.mark)):
            continue
        covered_until = -STILL_OPEN_NS
        for index in ranges.outer_first():
            mark, end = marks[ranges.mark[index]], ranges.end[index]
            if not mark.is_step or end == STILL_OPEN_NS or ranges.start[index] < covered_until:
                continue
            covered_until = end
            steps.append(
                StepRange(name=mark.name, thread=thread, bounds=(ranges.start[index], end))
            )
    return tuple(sorted(steps, key=lambda step: (step.start, step.thread)))


def steps_of(
    steps: Sequence[StepRange],
    calls: Sequence[Call | None],
    launches: KernelColumns,
) -> list[int | None]:
    """The step in which each kernel was launched, by index.

    Steps of the launching thread go before those of its process. A kernel whose call is not
    known belongs to the step in which it started.
    """
    starts: dict[Thread | int, list[int]] = defaultdict(list)
    indices: dict[Thread | int, list[int]] = defaultdict(list)
    for index, step in enumerate(steps):
        for key in (step.thread, step.thread[0]):
            starts[key].append(step.start)
            indices[key].append(index)

    def step_at(key: Thread | int, time_ns: int) -> int | None:
        place = bisect_right(starts[key], time_ns) - 1 if key in starts else -1
        if place < 0 or time_ns >= steps[indices[key][place]].end:
            return None
        return indices[key][place]

    found: list[int | None] = []
    for launch, call in enumerate(calls):
        if call is None:
            found.append(step_at(launches.process[launch], launches.start[launch]))
            continue
        own = step_at(call.thread, call.time_ns)
        found.append(step_at(call.thread[0], call.time_ns) if own is None else own)
    return found
