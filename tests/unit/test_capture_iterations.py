"""Which launches of a trace are one iteration."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tests.profiler_traces import Ran, in_a_row, profiler_trace

from joulewise.domain.caveats import CaveatKind
from joulewise.domain.errors import InputError
from joulewise.domain.trace import IterationTrace, ProfilerTrace
from joulewise.domain.workload import Workload
from joulewise.workload.capture.capture import captured_workload
from joulewise.workload.capture.choice import CaptureChoice
from joulewise.workload.capture.iteration import iteration_of


def captured(trace: ProfilerTrace, *, gpu: int | None = None, step: int | None = None) -> Workload:
    return captured_workload(trace, CaptureChoice(gpu=gpu, step=step))


def iteration(
    trace: ProfilerTrace, *, gpu: int | None = None, step: int | None = None
) -> IterationTrace:
    found = captured(trace, gpu=gpu, step=step).trace
    assert found is not None
    return found


def kernels(trace: ProfilerTrace, *, gpu: int | None = None) -> list[str]:
    return [launch.kernel for launch in iteration(trace, gpu=gpu).launches]


def steps(durations_us: list[float], *, numbers: list[int] | None = None) -> ProfilerTrace:
    """Steps of two launches each, the second as long as said, 10 us apart, marked back to back."""
    ran: list[Ran] = []
    marks: list[tuple[str, float, float]] = []
    at = 0.0
    for index, duration_us in enumerate(durations_us):
        ran.append(Ran(kernel="a", start_us=at, duration_us=5, step=index))
        ran.append(Ran(kernel="b", start_us=at + 5, duration_us=duration_us, step=index))
        name = f"ProfilerStep#{(numbers or range(len(durations_us)))[index]}"
        marks.append((name, at, duration_us + 15))
        at += duration_us + 15
    return profiler_trace(ran, steps=marks)


def test_the_step_of_median_duration_is_taken() -> None:
    found = iteration(steps([90, 30, 10, 50, 70]))

    assert "ProfilerStep#3" == found.step
    assert 5 == found.iteration_count
    assert 65e-6 == pytest.approx(found.duration_s, rel=1e-12)  # to where the next one begins
    assert 10e-6 == pytest.approx(found.gap_s, rel=1e-12)


def test_a_step_that_the_profiler_cut_is_not_taken() -> None:
    whole = steps([10, 20, 30, 40])
    cut = [
        Ran(
            kernel=whole.signatures[int(whole.signature_index[row])],
            start_us=float(whole.start_s[row]) * 1e6,
            duration_us=float(whole.duration_s[row]) * 1e6,
            step=int(whole.step_index[row]),
        )
        for row in range(1, len(whole.start_s))
    ]
    marks = [(one.name, one.start_s * 1e6, one.duration_s * 1e6) for one in whole.steps]

    assert "ProfilerStep#2" == iteration(profiler_trace(cut, steps=marks)).step
    assert "ProfilerStep#0" == iteration(profiler_trace(cut, steps=marks), step=0).step


def test_steps_that_all_differ_are_taken_from_the_middle() -> None:
    ran = [
        one
        for index, count in enumerate((1, 2, 3, 9))
        for one in (
            dataclasses.replace(one, step=index)
            for one in in_a_row(["k"] * count, start_us=1000.0 * index)
        )
    ]
    marks = [(f"step {index}", 1000.0 * index, 900.0) for index in range(4)]

    assert "step 1" == iteration(profiler_trace(ran, steps=marks)).step


def test_a_step_is_chosen_by_the_number_in_its_mark() -> None:
    trace = steps([10, 20, 30], numbers=[11, 12, 13])

    assert "ProfilerStep#13" == iteration(trace, step=13).step
    with pytest.raises(InputError, match="no step 2 with kernels") as error:
        iteration(trace, step=2)
    assert "Steps: 11, 12, 13." == error.value.hint


def test_after_a_pause_of_the_profiler_a_step_ends_with_its_own_launches() -> None:
    ran = [
        Ran(kernel="a", start_us=0, duration_us=5, step=0),
        Ran(kernel="a", start_us=90_000, duration_us=5, step=1),
    ]
    trace = profiler_trace(ran, steps=[("ProfilerStep#5", 0, 10), ("ProfilerStep#50", 90_000, 10)])

    assert 5e-6 == pytest.approx(iteration(trace, step=5).duration_s, rel=1e-12)


def test_launches_outside_of_marks_end_a_step() -> None:
    ran = [
        Ran(kernel="a", start_us=0, duration_us=5, step=0),
        Ran(kernel="between", start_us=6, duration_us=1),
        Ran(kernel="a", start_us=10, duration_us=5, step=1),
    ]
    trace = profiler_trace(ran, steps=[("step 0", 0, 10), ("step 1", 10, 10)])

    assert 5e-6 == pytest.approx(iteration(trace, step=0).duration_s, rel=1e-12)


def test_iterations_of_training_are_found_by_repetition_and_end_with_the_optimizer() -> None:
    layer = ["norm", "matmul", "gelu"]
    one = ["embed", *layer * 12, "loss", *["layer_backward", "wgrad"] * 12, "adam"]
    trace = profiler_trace(in_a_row(["warm", *one[30:], *one * 4, *one[:9]], gap_us=1))

    assert one == kernels(trace)
    assert CaveatKind.ITERATION_ASSUMED not in {one.kind for one in captured(trace).caveats}
    assert 4 <= iteration(trace).iteration_count


def test_equal_layers_of_one_training_iteration_are_not_iterations() -> None:
    one = ["embed", *["norm", "matmul"] * 24, "loss", *["norm_backward", "dgrad"] * 24, "adam"]
    workload = captured(profiler_trace(in_a_row(one)))

    assert len(one) == len(workload.launches)
    alone = captured(profiler_trace(in_a_row(["k"]))).caveats[0]
    assert alone.seen.startswith("The only launch of the trace was taken for one iteration: ")
    assert "All 99 launches of the trace were taken for one iteration" in workload.caveats[0].seen


def test_iterations_of_inference_are_found_with_a_doubt() -> None:
    one = ["embed", *["norm", "matmul", "attention"] * 8, "head", "sample"]
    workload = captured(profiler_trace(in_a_row(one * 5)))

    assert workload.trace is not None
    assert len(one) == len(workload.trace.launches)
    assert CaveatKind.ITERATION_ASSUMED is workload.caveats[0].kind
    assert "A sequence of 27 launches comes 5 times" in workload.caveats[0].seen


def test_an_iteration_of_inference_begins_behind_the_longest_gap() -> None:
    one = ["head", "sample", "embed", *["norm", "matmul"] * 6]
    ran: list[Ran] = []
    at = 0.0
    for kernel in one * 6:
        at += 500.0 if kernel == "embed" else 0.0
        ran.append(Ran(kernel=kernel, start_us=at, duration_us=10))
        at += 10

    found = kernels(profiler_trace(ran))

    assert ["embed", "norm", "matmul"] == found[:3]
    assert ["head", "sample"] == found[-2:]


def test_repetition_is_found_although_a_kernel_comes_in_between_once() -> None:
    one = ["embed", *[f"f{i}" for i in range(20)], *[f"g{i}_backward" for i in range(20)], "adam"]
    sequence = [*one * 3, *one[:25], "log", *one[25:], *one * 3]

    assert one == kernels(profiler_trace(in_a_row(sequence)))


def test_the_gpu_with_most_kernel_time_is_taken_unless_another_is_chosen() -> None:
    ran = [
        Ran(kernel="short", start_us=0, duration_us=10, gpu=0),
        Ran(kernel="long", start_us=0, duration_us=20, gpu=3),
    ]
    trace = profiler_trace(ran)

    assert ["long"] == kernels(trace)
    assert ["short"] == kernels(trace, gpu=0)
    assert "The iteration is that of GPU 3; the trace also has GPU 0." in {
        one.seen for one in captured(trace).caveats
    }
    with pytest.raises(InputError, match="GPU 1 ran no kernels") as error:
        kernels(trace, gpu=1)
    assert "Traced: 0, 3." == error.value.hint


def test_waits_far_longer_than_all_kernels_are_no_part_of_an_iteration() -> None:
    ran = [
        *in_a_row(["setup"], duration_us=5),
        *in_a_row(["a", "b", "c", "d"], start_us=5_000, gap_us=400),
        *in_a_row(["tail"], start_us=90_000),
    ]
    trace = profiler_trace(ran)

    found = iteration(trace)

    assert ["a", "b", "c", "d"] == [launch.kernel for launch in found.launches]
    assert (1_240e-6, 1_200e-6) == pytest.approx((found.duration_s, found.gap_s))
    assert (
        "4 of 6 launches of the trace were taken for one iteration: there are neither marks of "
        "steps nor repeating iterations; 2 waits of 0.0888 s, more than 10 times as long as all "
        "kernels together, cannot be part of it, and the busiest part of the rest was taken."
    ) == captured(trace).caveats[0].seen


def test_of_a_whole_run_without_marks_and_order_the_first_launches_stand_for_the_rest() -> None:
    count = 200_007
    few = profiler_trace(in_a_row(["a", "b", "c"]))
    draw = np.random.default_rng(1).integers(0, 3, count)
    trace = dataclasses.replace(
        few,
        signature_index=draw.astype(np.int64),
        start_s=np.arange(count, dtype=np.float64) * np.float64(1e-5),
        duration_s=np.full(count, 5e-6),
        gpu=np.zeros(count, dtype=np.int64),
        stream=np.zeros(count, dtype=np.int64),
        step_index=np.zeros(count, dtype=np.int64),
        is_in_step=np.zeros(count, dtype=np.bool_),
        is_graph_launch=np.zeros(count, dtype=np.bool_),
        passes=(None,) * count,
    )

    found = iteration_of(trace, np.arange(3, dtype=np.int64), CaptureChoice())

    assert list(range(200_000)) == found.launches.tolist()
    assert (
        "200000 of 200007 launches of the trace were taken for one iteration: there are neither "
        "marks of steps nor repeating iterations; more than 200000 launches are no iteration."
    ) == found.caveats[0].seen


def test_a_list_without_a_timeline_is_one_iteration_without_gaps() -> None:
    ran = [Ran(kernel=name, start_us=0, duration_us=10) for name in ("b", "a", "b")]
    workload = captured(profiler_trace(ran, is_timeline=False))

    assert ["b", "a", "b"] == [launch.kernel for launch in workload.launches]
    assert workload.trace is not None
    assert 30e-6 == pytest.approx(workload.trace.duration_s, rel=1e-12)
    assert 0.0 == workload.trace.gap_s
    assert CaveatKind.ITERATION_ASSUMED is workload.caveats[0].kind


def test_a_trace_without_kernels_is_refused() -> None:
    with pytest.raises(InputError, match="no GPU kernels were traced"):
        captured(profiler_trace([]))
