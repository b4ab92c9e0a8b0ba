"""Two programs that mark steps into one file are not taken for one that pauses at each step."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from joulewise.finetune.step_marks import StepTail, step_spans

NOW_S = 1000.0
NEVER_A_PROCESS = 2**31 - 1


def write(file: Path, *marks: tuple[int, float, int | None]) -> None:
    """Lines of a step, its time and its writer."""
    with file.open("a", encoding="utf-8") as opened:
        for step, time_s, pid in marks:
            signed = {} if pid is None else {"pid": pid}
            opened.write(json.dumps({"step": step, "time_s": time_s, **signed}) + "\n")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "steps.jsonl"


def test_of_two_programs_that_sign_their_marks_the_first_ones_count(file: Path) -> None:
    ours, other = os.getpid(), os.getppid()
    for step in range(10):
        write(file, (step, float(step), ours), (step, step + 0.4, other))
    tail = StepTail(file)
    spans = step_spans(tail.read(NOW_S))

    assert sum(span.duration_s for span in spans) == pytest.approx(9.0)
    assert tail.doubt is not None
    assert f"processes {ours} and {other}" in tail.doubt
    assert not tail.is_ambiguous


def test_a_program_that_follows_one_that_has_ended_is_no_second_writer(file: Path) -> None:
    for step in range(4):
        write(file, (step, float(step), NEVER_A_PROCESS))
    for step in range(4):
        write(file, (step, 10.0 + step, os.getpid()))
    tail = StepTail(file)

    assert sum(span.step_count for span in step_spans(tail.read(NOW_S))) == 6
    assert tail.doubt is None


def test_two_programs_that_sign_nothing_are_a_doubt(file: Path) -> None:
    for step in range(10):
        write(file, (step, float(step), None), (step, step + 0.4, None))
    tail = StepTail(file)
    tail.read(NOW_S)

    assert tail.is_ambiguous
    assert tail.doubt is not None
    assert "several programs may write" in tail.doubt


def test_a_pause_now_and_then_is_no_doubt(file: Path) -> None:
    for step in range(30):
        write(file, (step, 2.0 * step, None))
        if step % 3 == 0:
            write(file, (step, 2.0 * step + 1, None))
    tail = StepTail(file)
    tail.read(NOW_S)

    assert tail.doubt is None


def test_numbers_that_run_backwards_are_told_as_that(file: Path) -> None:
    write(file, *((60 - one, float(one), None) for one in range(60)))
    tail = StepTail(file)

    assert step_spans(tail.read(NOW_S)) == ()
    assert tail.doubt is not None
    assert "do not rise" in tail.doubt


def test_marks_a_little_ahead_of_the_clock_are_told_as_that(file: Path) -> None:
    write(file, (0, NOW_S + 0.3, None), (1, NOW_S + 0.4, None))
    tail = StepTail(file)

    assert tail.read(NOW_S) == ()
    assert tail.doubt is not None
    assert "is marked at 1000.300 s" in tail.doubt
