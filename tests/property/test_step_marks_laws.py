"""Steps of kernels are those that a plain search finds."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from joulewise.store.importers.traces.step_marks import (
    NO_STEP,
    containing,
    outermost,
    settled,
    step_names,
)

TIMES = st.integers(min_value=0, max_value=30)
SPANS = st.lists(st.tuples(TIMES, TIMES).map(lambda ends: tuple(sorted(ends))), max_size=8)
LAUNCHES = st.lists(
    st.tuples(TIMES, st.integers(-1, 3), st.booleans(), st.integers(0, 1)),
    max_size=12,
    unique_by=lambda launch: launch[0],
)


def column(values: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


@given(spans=SPANS)
@settings(max_examples=40, deadline=None)
def test_no_outermost_mark_begins_within_another_by_half(spans: list[tuple[int, int]]) -> None:
    start, end = column([first for first, _ in spans]), column([last for _, last in spans])
    rows = outermost(start, end)

    kept = [(int(start[row]), int(end[row])) for row in rows]
    assert kept == sorted(kept, key=lambda span: span[0])
    for (_, first_end), (start_next, end_next) in pairwise(kept):
        assert (start_next + end_next) // 2 >= first_end
    assert bool(kept) == bool(spans)


@given(spans=SPANS, times=st.lists(TIMES, max_size=8))
@settings(max_examples=40, deadline=None)
def test_a_mark_holds_its_start_and_not_its_end(
    spans: list[tuple[int, int]], times: list[int]
) -> None:
    bounds = sorted({time for span in spans for time in span})
    start, end = column(bounds[:-1:2]), column(bounds[1::2])
    found = containing(column(times), start[: len(end)], end)

    for time, mark in zip(times, found.tolist(), strict=True):
        around = [n for n in range(len(end)) if start[n] <= time < end[n]]
        assert [mark] == (around or [NO_STEP])


@given(launches=LAUNCHES)
@settings(max_examples=60, deadline=None)
def test_only_kernels_of_unknown_launch_move_and_only_to_the_known_step_before_them(
    launches: list[tuple[int, int, bool, int]],
) -> None:
    start, step, known, stream = zip(*launches, strict=True) if launches else ((), (), (), ())
    found = settled(
        column(list(step)),
        np.array(known, dtype=np.bool_),
        column(list(start)),
        column(list(stream)),
    )

    for row, launch in enumerate(launches):
        own_start, own_step, is_known, own_stream = launch
        others = [one for one in launches if one[2] and one[3] == own_stream and one[1] >= 0]
        of_own_step = [one[0] for one in others if one[1] == own_step]
        if is_known or own_step < 0 or not of_own_step or own_start > min(of_own_step):
            assert found[row] == own_step
            continue
        before = [one for one in others if one[0] < own_start]
        assert found[row] == (max(before)[1] if before else NO_STEP)


def test_marks_of_the_profiler_go_before_those_of_programs() -> None:
    names = ["step 1", "ProfilerStep#1", "ProfilerStep#2", "forward"]

    assert [1, 2] == step_names(names, [0, 1, 2, 3])
    assert [0] == step_names(names, [0, 3])
