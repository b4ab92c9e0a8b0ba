"""Step marks come through whatever else a training program writes into their file."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulewise.domain.finetuning import StepMark
from joulewise.finetune.step_marks import StepSpan, StepTail, joined, step_spans
from joulewise.integrations.step_marks import StepMarker

NOW_S = 1000.0


def lines(*marks: object) -> bytes:
    return "".join(json.dumps(mark) + "\n" for mark in marks).encode()


def mark(step: int, time_s: float) -> dict[str, float]:
    return {"step": step, "time_s": time_s}


def steps(marks: Iterable[StepMark]) -> list[int]:
    return [one.step for one in marks]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "steps.jsonl"


def test_marks_are_read_once_and_in_order(file: Path) -> None:
    tail = StepTail(file)
    assert tail.read(NOW_S) == ()
    file.write_bytes(lines(mark(0, 1.0), mark(1, 2.0)))
    first = tail.read(NOW_S)
    with file.open("ab") as opened:
        opened.write(lines(mark(2, 3.5)))

    assert first == (StepMark(step=0, time_s=1.0), StepMark(step=1, time_s=2.0))
    assert tail.read(NOW_S) == (StepMark(step=2, time_s=3.5),)
    assert tail.doubt is None


def test_a_line_that_is_still_being_written_is_read_once_it_is_whole(file: Path) -> None:
    whole = lines(mark(0, 1.0), mark(1, 2.0))
    tail = StepTail(file)
    seen: list[StepMark] = []
    for count in range(1, len(whole) + 1):
        file.write_bytes(whole[:count])
        seen += tail.read(NOW_S)

    assert steps(seen) == [0, 1]
    assert tail.doubt is None


def test_a_line_torn_by_a_kill_costs_that_mark_and_is_told(file: Path) -> None:
    file.write_bytes(lines(mark(0, 1.0)) + b'{"step": 1, "ti' + lines(mark(2, 3.0), mark(3, 4.0)))
    tail = StepTail(file)

    assert steps(tail.read(NOW_S)) == [0, 3]
    assert tail.doubt is not None
    assert "no step mark" in tail.doubt


def test_marks_of_other_ranks_are_passed_over(file: Path) -> None:
    file.write_bytes(lines({**mark(0, 1.0), "rank": 0}, {**mark(1, 2.0), "rank": 1}, mark(1, 2.1)))
    tail = StepTail(file)

    assert tail.read(NOW_S) == (StepMark(step=0, time_s=1.0), StepMark(step=1, time_s=2.1))
    assert tail.doubt is None


@pytest.mark.parametrize(
    "bad",
    [
        b"\x00\xff\xfe\n",
        b"null\n",
        b"[]\n",
        b'{"step": true, "time_s": 2}\n',
        b'{"step": -1, "time_s": 2}\n',
        b'{"step": 1.5, "time_s": 2}\n',
        b'{"step": 1, "time_s": NaN}\n',
        b'{"step": 1, "time_s": Infinity}\n',
        b'{"step": 1, "time_s": 1e400}\n',
        b'{"step": 1, "time_s": "2"}\n',
        b'{"step": ' + b"9" * 3000 + b', "time_s": 2}\n',
        b'{"step": 1, "time_s": ' + b"9" * 3000 + b"}\n",
        b"[" * 4000 + b"\n",
        b'{"a":' * 800 + b"\n",
        b"x" * 100_000 + b"\n",
    ],
)
def test_what_is_no_mark_is_passed_over_and_told_once(file: Path, bad: bytes) -> None:
    file.write_bytes(lines(mark(0, 1.0)) + bad + bad + lines(mark(5, 9.0)))
    tail = StepTail(file)

    assert steps([*tail.read(NOW_S), *tail.read(NOW_S)]) == [0, 5]
    assert tail.doubt is not None
    assert len(tail.doubt) < 300 + len(str(file))


@settings(max_examples=60)
@given(
    chunks=st.lists(
        st.one_of(
            st.binary(max_size=60),
            st.builds(mark, st.integers(-1, 5), st.floats(0, 2000)).map(lines),
        ),
        max_size=12,
    )
)
def test_whatever_is_written_marks_never_run_backwards_in_time(chunks: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "steps"
        seen: list[StepMark] = []
        tail = StepTail(file)
        for chunk in chunks:
            with file.open("ab") as opened:
                opened.write(chunk)
            seen += tail.read(NOW_S)

    assert all(one.time_s <= other.time_s <= NOW_S + 1 for one, other in pairwise(seen))
    assert all(one.step >= 0 for one in seen)


def test_marks_by_another_clock_are_told_with_the_clock_that_is_meant(file: Path) -> None:
    file.write_bytes(lines(mark(0, 1.7e9), mark(1, 1.7e9 + 1)))
    tail = StepTail(file)

    assert tail.read(NOW_S) == ()
    assert tail.doubt is not None
    assert "time.monotonic()" in tail.doubt


def test_a_pipe_is_not_waited_for(file: Path) -> None:
    os.mkfifo(file)
    tail = StepTail(file)

    assert tail.read(NOW_S) == ()
    assert tail.doubt is not None
    assert "plain file" in tail.doubt


def test_a_file_that_begins_anew_is_read_from_its_begin(file: Path) -> None:
    file.write_bytes(lines(*(mark(step, float(step)) for step in range(9))))
    tail = StepTail(file)
    tail.read(NOW_S)
    file.write_bytes(lines(mark(0, 20.0), mark(1, 21.0)))

    assert steps(tail.read(NOW_S)) == [0, 1]
    assert tail.doubt is not None
    assert "cut" in tail.doubt


def test_one_look_reads_a_bounded_amount(file: Path) -> None:
    file.write_bytes(lines(*(mark(step, 1.0 + step * 1e-3) for step in range(20_000))))
    tail = StepTail(file)
    first = tail.read(NOW_S)

    assert 0 < len(first) < 20_000
    rest = [one for _ in range(8) for one in tail.read(NOW_S)]
    assert len(first) + len(rest) == 20_000


def test_steps_lie_between_neighbours_and_breaks_are_none() -> None:
    marks = [
        StepMark(step=step, time_s=time_s)
        for step, time_s in ((0, 1.0), (1, 2.0), (3, 4.0), (3, 9.0), (4, 10.0), (0, 30.0), (1, 31))
    ]
    spans = step_spans(marks)

    assert [(one.start_s, one.end_s, one.step_count) for one in spans] == [
        (1.0, 2.0, 1),
        (2.0, 4.0, 2),
        (9.0, 10.0, 1),
        (30.0, 31.0, 1),
    ]
    assert joined(spans)[0] == StepSpan(start_s=1.0, end_s=4.0, step_count=3)
    assert len(joined(spans)) == 3


def test_what_the_marker_writes_is_what_is_read(file: Path) -> None:
    marker = StepMarker.from_environment({"JOULEWISE_STEPS": str(file)})
    marker.begin(planned_count=40)
    marker.step()
    marker.resume()
    marker.step()
    tail = StepTail(file)

    marks = tail.read(now_s=1e11)
    assert steps(marks) == [0, 1, 1, 2]
    assert sum(one.step_count for one in step_spans(marks)) == 2
    assert tail.planned_count == 40
    assert tail.doubt is None


def test_without_joulewise_nothing_is_written_and_nothing_ends(tmp_path: Path) -> None:
    marker = StepMarker.from_environment({})
    marker.begin()
    marker.step()

    assert not marker.is_over
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("variable", ["RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"])
def test_only_the_first_rank_marks_and_all_of_them_end(file: Path, variable: str) -> None:
    environment = {"JOULEWISE_STEPS": str(file), "JOULEWISE_STEP_LIMIT": "2", variable: "1"}
    marker = StepMarker.from_environment(environment)
    marker.begin()
    marker.step()
    was_over = marker.is_over
    marker.step()

    assert (was_over, marker.is_over) == (False, True)
    assert not file.exists()


def test_training_ends_once_it_is_asked_to(file: Path, tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    marker = StepMarker.from_environment(
        {"JOULEWISE_STEPS": str(file), "JOULEWISE_STOP": str(stop)}
    )
    marker.begin()
    before = marker.is_over
    stop.touch()

    assert (before, marker.is_over) == (False, True)


def test_a_full_disk_never_ends_the_training() -> None:
    marker = StepMarker(Path("/dev/full"))
    marker.begin()
    marker.step()

    assert marker.step_count == 1


@pytest.mark.parametrize("limit", ["", "many", "-3", "1.5"])
def test_a_limit_that_is_none_is_no_limit(limit: str) -> None:
    marker = StepMarker.from_environment({"JOULEWISE_STEP_LIMIT": limit})
    marker.step()

    assert not marker.is_over
