"""Which call launched each kernel, and what the ranges around that call say."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

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
    Ranges,
    Thread,
    ThreadRanges,
    process_of,
    swept,
)
from joulewise.store.importers.traces.step_marks import (
    NO_STEP,
    BoolColumn,
    IntColumn,
    containing,
    outermost,
    settled,
    step_names,
)

_GRAPH_LAUNCHES = ("cudaGraphLaunch", "cuGraphLaunch")
# A launch whose own thread says nothing of its pass takes what the process's other threads say;
# where more threads than these mark passes, none speaks for the process.
_MOST_THREADS_COUNT = 32
_ANY = (-(2**63), 2**63 - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """The call that launched each of N kernels; `thread` points into `threads`.

    Where `is_known` is false, the others mean nothing. Times are in nanoseconds.
    """

    is_known: BoolColumn
    time: IntColumn
    thread: IntColumn
    threads: tuple[Thread, ...]
    is_graph_launch: BoolColumn

    def of_thread(self, number: int) -> IntColumn:
        """The launches of a thread."""
        return np.flatnonzero(self.is_known & (self.thread == number))


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
# Key: process and correlation number; value: time, thread and the number of the name.
_Found = dict[tuple[int, int], tuple[int, int, Value]]


def read_calls(database: NsysDatabase, launches: KernelColumns) -> Calls:
    """The call behind each launch, as far as the export has it.

    Correlation numbers repeat in other processes. Where the kernel's process made no call at
    all, its number is not what the export says, and a call whose number is there once is taken.

    Raises:
        InputError: a call of a kernel has no whole number as its time or thread.
    """
    found = _calls_of(database, set(launches.correlation)) if database.columns(CALLS) else {}
    name_ids = {name for _, _, name in found.values() if isinstance(name, int)}
    texts = database.texts(name_ids)
    graphs = {number for number, text in texts.items() if text.startswith(_GRAPH_LAUNCHES)}
    processes = {process for process, _ in found}
    alone = {} if processes.issuperset(launches.process) else _alone(found)
    threads: dict[Thread, int] = {}
    count = len(launches.start)
    is_known, is_graph = bytearray(count), bytearray(count)
    time, thread = array("q", bytes(8 * count)), array("q", bytes(8 * count))
    keys = zip(launches.process, launches.correlation, strict=True)
    for launch, key in enumerate(keys):
        if key[0] not in processes:
            key = alone.get(key[1], key)  # noqa: PLW2901
        call = found.get(key)
        if call is not None:
            is_known[launch], time[launch] = 1, call[0]
            thread[launch] = threads.setdefault((key[0], call[1]), len(threads))
            is_graph[launch] = call[2] in graphs
    return Calls(
        is_known=np.frombuffer(is_known, dtype=np.bool_),
        time=np.frombuffer(time, dtype=np.int64),
        thread=np.frombuffer(thread, dtype=np.int64),
        threads=tuple(threads),
        is_graph_launch=np.frombuffer(is_graph, dtype=np.bool_),
    )


def _alone(found: _Found) -> dict[int, tuple[int, int]]:
    """Calls whose correlation number no other process has."""
    uses = Counter(correlation for _, correlation in found)
    return {key[1]: key for key in found if uses[key[1]] == 1}


def _calls_of(database: NsysDatabase, wanted: set[int]) -> _Found:
    """The first call by process and correlation number."""
    found: _Found = {}
    rows = database.rows(CALLS, ("correlationId", "start", "globalTid", "nameId"))
    for row, (correlation, start, tid, name) in enumerate(rows, start=1):
        if not isinstance(correlation, int) or correlation not in wanted:
            continue
        time_ns, thread = _time_and_thread(start, tid, database.file, row)
        key = process_of(thread), correlation
        if key not in found:
            found[key] = time_ns, thread, name
    return found


def _time_and_thread(start: Value, tid: Value, file: str, row: int) -> tuple[int, int]:
    earliest, latest = TIMES_NS
    # The usual values first: there may be millions.
    if isinstance(start, int) and isinstance(tid, int) and earliest <= start <= latest:
        return start, tid
    place = Place(file=file, table=CALLS, row=row)
    global_tid = 0 if tid is None else place.whole(tid, "globalTid", _ANY)
    return place.whole(start, "start", TIMES_NS), global_tid


def moments_of(calls: Calls, launches: KernelColumns) -> dict[int, IntColumn]:
    """By process, ascending, when it launched kernels; when they began where that is unknown."""
    processes = np.array([process for process, _ in calls.threads] or [0], dtype=np.int64)
    process = np.where(
        calls.is_known, processes[calls.thread], np.array(launches.process, dtype=np.int64)
    )
    time = np.where(calls.is_known, calls.time, np.array(launches.start, dtype=np.int64))
    return {one: np.sort(time[process == one]) for one in np.unique(process).tolist()}


@dataclass(slots=True)
class Around:
    """What the ranges around each launch say: `index` points into `kinds`, shape (N,)."""

    index: list[int]
    kinds: list[Surroundings]


class _States:
    """Surroundings by number; equal ones have one number."""

    def __init__(self, marks: Sequence[Mark]) -> None:
        self.kinds: list[Surroundings] = [NOTHING]
        self._numbers: dict[Surroundings, int] = {NOTHING: 0}
        self._inner: dict[tuple[int, int, bool], int] = {}
        self._marks = marks

    def number(self, kind: Surroundings) -> int:
        """The number of these surroundings."""
        number = self._numbers.setdefault(kind, len(self.kinds))
        if number == len(self.kinds):
            self.kinds.append(kind)
        return number

    def swept(self, ranges: ThreadRanges, times: IntColumn, forward: set[int]) -> list[int]:
        """What the ranges of a thread say at each of the times."""
        marks, sequences, inner = ranges.mark, ranges.sequence, self._inner

        def opened(around: int, index: int) -> int:
            key = around, marks[index], sequences[index] in forward
            number = inner.get(key)
            if number is None:
                kind = _within(self.kinds[around], self._marks[key[1]], is_forward=key[2])
                number = inner[key] = self.number(kind)
            return number

        return swept(ranges, times, opened, 0)

    def any_pass(self, marks: Iterable[int]) -> bool:
        """Whether one of the marks tells a pass."""
        return any(self._marks[mark].pass_ for mark in marks)

    def agreed(self, states: Sequence[int]) -> int:
        """The first state, in the pass on which all others that name one agree."""
        passes = {self.kinds[state].pass_ for state in states[1:]} - {None}
        if len(passes) != 1:
            return states[0]
        return self.number(replace(self.kinds[states[0]], pass_=passes.pop()))


def surroundings(ranges: Ranges, calls: Calls) -> Around:
    """What the ranges around each call say; nothing where the call is not known.

    An operation is one of forward where its sequence number comes again in backward, as
    the ranges say. A thread without a word on the pass, such as autograd's own,
    follows the process's other threads.
    """
    states, threads = _States(ranges.marks), ranges.threads
    found = [0] * len(calls.time)
    for number, thread in enumerate(calls.threads):
        if thread in threads:
            launches = calls.of_thread(number)
            forward = ranges.gradients.get(thread[0], set())
            words = states.swept(threads[thread], calls.time[launches], forward)
            for launch, state in zip(launches.tolist(), words, strict=True):
                found[launch] = state
    _ask_other_threads(threads, states, calls, found)
    return Around(index=found, kinds=states.kinds)


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
    threads: Mapping[Thread, ThreadRanges], states: _States, calls: Calls, found: list[int]
) -> None:
    """Fill in the passes on which all other threads of the process agree."""
    silent: dict[int, list[int]] = defaultdict(list)
    is_silent = [kind.pass_ is None for kind in states.kinds]
    processes = [process for process, _ in calls.threads]
    callers = zip(calls.is_known.tolist(), calls.thread.tolist(), found, strict=True)
    for launch, (is_known, thread, state) in enumerate(callers):
        if is_known and is_silent[state]:
            silent[processes[thread]].append(launch)
    for process, launches in silent.items():
        speakers = [
            ranges
            for thread, ranges in threads.items()
            if thread[0] == process and states.any_pass(set(ranges.mark))
        ]
        if not speakers or len(speakers) > _MOST_THREADS_COUNT:
            continue
        times = calls.time[launches]
        words = [states.swept(ranges, times, set()) for ranges in speakers]
        agreed: dict[tuple[int, ...], int] = {}
        for launch, *said in zip(launches, *words, strict=True):
            key = found[launch], *said
            if key not in agreed:
                agreed[key] = states.agreed(key)
            found[launch] = agreed[key]


def step_ranges(ranges: Ranges) -> tuple[StepRange, ...]:
    """Marks around iterations that were closed, by start; see `step_marks` for which count."""
    marks = ranges.marks
    used = [number for number, mark in enumerate(marks) if mark.is_step]
    wanted = step_names([mark.name for mark in marks], used)
    steps: list[StepRange] = []
    for thread, own in ranges.threads.items():
        mark, start, end = (
            np.array(column, dtype=np.int64) for column in (own.mark, own.start, own.end)
        )
        rows = np.flatnonzero(np.isin(mark, wanted) & (end != STILL_OPEN_NS))
        rows = rows[outermost(start[rows], end[rows])]
        steps += [
            StepRange(name=marks[number].name, thread=thread, bounds=(first, last))
            for number, first, last in zip(
                mark[rows].tolist(), start[rows].tolist(), end[rows].tolist(), strict=True
            )
        ]
    return tuple(sorted(steps, key=lambda step: (step.start, step.thread)))


def steps_of(steps: Sequence[StepRange], calls: Calls, launches: KernelColumns) -> IntColumn:
    """The step in which each kernel was launched, `NO_STEP` for none.

    Steps of the launching thread go before those of its process. A kernel whose call is not
    known belongs to the step in which it started, unless its stream tells that it was launched
    earlier.
    """
    start = np.array(launches.start, dtype=np.int64)
    found = np.full(len(start), NO_STEP, dtype=np.int64)
    if not steps:
        return found
    of_process: dict[int, list[int]] = defaultdict(list)
    of_thread: dict[Thread, list[int]] = defaultdict(list)
    for index, step in enumerate(steps):
        of_process[step.thread[0]].append(index)
        of_thread[step.thread].append(index)
    process = np.array(launches.process, dtype=np.int64)
    for number, thread in enumerate(calls.threads):
        rows = calls.of_thread(number)
        own = _held(calls.time[rows], steps, of_thread.get(thread, []))
        others = _held(calls.time[rows], steps, of_process.get(thread[0], []))
        found[rows] = np.where(own == NO_STEP, others, own)
    for one, indices in of_process.items():
        rows = np.flatnonzero(~calls.is_known & (process == one))
        found[rows] = _held(start[rows], steps, indices)
    streams = np.stack((process, np.array(launches.device), np.array(launches.stream)), axis=1)
    _, stream = np.unique(streams, axis=0, return_inverse=True)
    return settled(found, calls.is_known, start, stream.reshape(-1))


def _held(time: IntColumn, steps: Sequence[StepRange], indices: Sequence[int]) -> IntColumn:
    """Which of these steps holds each time; the one that began last of those that overlap."""
    starts = np.array([steps[index].start for index in indices], dtype=np.int64)
    ends = np.array([steps[index].end for index in indices], dtype=np.int64)
    place = containing(time, starts, ends)
    numbers = np.array([*indices, NO_STEP], dtype=np.int64)
    held: IntColumn = numbers[place]
    return held
