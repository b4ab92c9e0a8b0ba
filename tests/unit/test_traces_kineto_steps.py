"""Steps of a Kineto trace, and kernels of several processes in one."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.traces import KinetoTrace

from joulewise.domain.passes import Pass
from joulewise.domain.trace import ProfilerTrace
from joulewise.store.importers.traces.kineto import read_kineto


def read(trace: KinetoTrace, folder: Path) -> ProfilerTrace:
    return read_kineto(trace.write(folder / "trace.json"))


def test_a_kernel_whose_launch_is_unknown_has_step_and_pass_of_the_marks_on_its_gpu(
    tmp_path: Path,
) -> None:
    trace = KinetoTrace()
    for step, start in enumerate((100, 200)):
        trace.mark(f"ProfilerStep#{step}", start, 100)
        trace.gpu_mark(f"ProfilerStep#{step}", start + 500, 100)
    trace.gpu_mark("## forward ##", 610, 20)
    for start in (615, 715, 190):
        trace.launch("kernel", start, 1, runtime=None)
    trace.launch("kernel", 716, 1, at=150)
    read_back = read(trace, tmp_path)

    # By start: 190, 615, 715, 716. The first began before either step did on the GPU.
    assert [False, True, True, True] == read_back.is_in_step.tolist()
    assert [0, 1, 0] == read_back.step_index[1:].tolist()
    assert (None, Pass.FORWARD, None, None) == read_back.passes


def test_the_outermost_of_several_marks_is_the_step(tmp_path: Path) -> None:
    trace = KinetoTrace()
    for step in range(2):
        trace.mark(f"iteration {step}", 100.0 * step, 99)
        trace.mark("step", 100.0 * step + 10, 50)
        trace.launch("kernel", 1000.0 + step, 1, at=100.0 * step + 70)
    trace.launch("kernel", 2000, 1, at=199.5)
    read_back = read(trace, tmp_path)

    assert ["iteration 0", "iteration 1"] == [step.name for step in read_back.steps]
    assert [True, True, False] == read_back.is_in_step.tolist()
    assert read_back.steps[1].duration_s == pytest.approx(99e-6)


def test_without_marks_on_the_host_those_on_the_gpu_are_the_steps(tmp_path: Path) -> None:
    trace = KinetoTrace()
    for step in range(2):
        trace.gpu_mark(f"ProfilerStep#{step}", 100.0 * step, 90)
        trace.launch("kernel", 100.0 * step + 5, 1)
    read_back = read(trace, tmp_path)

    assert [0, 1] == read_back.step_index.tolist()
    assert 2 == len(read_back.steps)


def test_without_marks_on_the_gpu_what_runs_before_a_steps_first_launch_is_of_an_earlier_one(
    tmp_path: Path,
) -> None:
    trace = KinetoTrace()
    for step, start in enumerate((100, 200)):
        trace.mark(f"ProfilerStep#{step}", start, 100)
    for start in (110, 150, 210, 250):
        trace.launch("of unknown launch", start, 1, runtime=None)
    trace.launch("of unknown launch", 215, 1, runtime=None, stream=9)
    trace.launch("first", 130, 1, at=101)
    trace.launch("second", 230, 1, at=201)
    read_back = read(trace, tmp_path)

    # By start: 110, 130, 150, 210, 215 on another stream, 230, 250.
    assert [False, True, True, True, True, True, True] == read_back.is_in_step.tolist()
    assert [0, 0, 0, 1, 1, 1] == read_back.step_index[1:].tolist()


def test_marks_on_the_gpu_are_looked_up_stream_by_stream(tmp_path: Path) -> None:
    trace = KinetoTrace()
    for step in range(2):
        trace.mark(f"ProfilerStep#{step}", 100.0 * step, 100)
        trace.gpu_mark(f"ProfilerStep#{step}", 500 + 100.0 * step, 100)
        trace.gpu_mark(f"ProfilerStep#{step}", 550 + 100.0 * step, 110, stream=9)
    for start, stream in ((590, 7), (610, 7), (620, 9), (670, 9), (690, 7)):
        trace.launch("kernel", start, 1, runtime=None, stream=stream)

    assert [0, 1, 0, 1, 1] == read(trace, tmp_path).step_index.tolist()


def test_a_step_holds_its_start_and_not_its_end(tmp_path: Path) -> None:
    trace = KinetoTrace()
    trace.mark("ProfilerStep#0", 100, 100)
    for at in (99.999, 100, 199.999, 200):
        trace.launch("kernel", 1000 + at, 1, at=at)

    assert [False, True, True, False] == read(trace, tmp_path).is_in_step.tolist()


def merged_ranks(first_correlations: tuple[int, int]) -> KinetoTrace:
    """Two ranks that number operations alike, each with three kernels on its own GPU."""
    merged = KinetoTrace(device_names=("A", "B"))
    for rank, first in enumerate(first_correlations):
        one = KinetoTrace()
        for number in range(3):
            op = one.op(f"rank {rank}", 100.0 * number, 50)
            one.launch("kernel", 1000 + 100.0 * number, 1, at=100.0 * number + 10, op=op, gpu=rank)
        for event in one.events:
            args = event["args"]
            assert isinstance(args, dict)
            if event["cat"] != "kernel":
                event["pid"] = 1000 + rank
            if "correlation" in args:
                args["correlation"] += first
        merged.events.extend(one.events)
    return merged


def test_of_equal_numbers_in_several_processes_those_of_the_gpus_own_process_count(
    tmp_path: Path,
) -> None:
    trace = read(merged_ranks((0, 1)), tmp_path)

    ops = [trace.signatures[index].op for index in trace.signature_index]
    assert [f"rank {gpu}" for gpu in trace.gpu.tolist()] == ops
    assert () == trace.caveats


def test_launches_that_several_processes_may_have_made_are_unknown(tmp_path: Path) -> None:
    trace = read(merged_ranks((0, 0)), tmp_path)

    assert [None] == [signature.op for signature in trace.signatures]
    assert "6 of 6 GPU kernels may have been launched by several processes" == trace.caveats[0].seen
