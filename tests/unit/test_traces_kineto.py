"""What a Kineto trace says of each kernel: its time, operation, pass, step and launch shape."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from tests.traces import AUTOGRAD_THREAD, COMMUNICATION_STREAM, KinetoTrace, training_trace

from joulewise.domain.caveats import CaveatKind
from joulewise.domain.passes import Pass
from joulewise.domain.trace import Collective, OpInput, ProfilerTrace, TracedGpu
from joulewise.store.importers.traces.kineto import read_kineto


def read(trace: KinetoTrace, folder: Path) -> ProfilerTrace:
    return read_kineto(trace.write(folder / "trace.json"))


def only_signature(trace: KinetoTrace, folder: Path) -> tuple[str | None, tuple[OpInput, ...]]:
    (signature,) = read(trace, folder).signatures
    return signature.op, signature.inputs


def test_a_training_trace_has_steps_passes_streams_and_shapes(tmp_path: Path) -> None:
    trace = read(training_trace(step_count=2, rank_count=8), tmp_path)

    assert (8, 0, 8) == (trace.kernel_count, trace.rank, trace.rank_count)
    assert trace.kernel_time_s == pytest.approx(2 * 1100e-6, abs=1e-12)
    once = (Pass.FORWARD, Pass.BACKWARD, Pass.COMMUNICATION, Pass.OPTIMIZER)
    assert trace.passes == once * 2
    assert trace.start_s.tolist() == [0.0, 2e-4, 4e-4, 7e-4, 1e-3, 1.2e-3, 1.4e-3, 1.7e-3]
    assert trace.stream.tolist() == [7, 7, COMMUNICATION_STREAM, 7] * 2
    assert [step.name for step in trace.steps] == ["ProfilerStep#0", "ProfilerStep#1"]
    assert trace.step_index.tolist() == [0] * 4 + [1] * 4
    assert all(trace.is_in_step)
    assert trace.gpus == (TracedGpu(gpu=0, name="NVIDIA A100-SXM4-80GB"),)
    forward, _, reduce, _ = trace.signatures
    assert "aten::mm" == forward.op
    assert forward.inputs == (
        OpInput(shape=(1024, 512), dtype="c10::BFloat16"),
        OpInput(shape=(512, 2048), dtype="c10::BFloat16"),
    )
    assert ((108, 1, 1), (128, 1, 1), 0, 32) == (
        forward.grid,
        forward.block,
        forward.shared_memory_bytes,
        forward.register_count,
    )
    assert reduce.collective == Collective(
        name="allreduce",
        dtype="BFloat16",
        input_element_count=1_048_576,
        output_element_count=1_048_576,
        group_gpu_count=8,
    )
    assert () == trace.caveats


def test_kernels_of_no_operation_cast_doubt(tmp_path: Path) -> None:
    trace = training_trace(step_count=1)
    trace.launch("from before the profile", 5_000, 1, runtime=None)
    (caveat,) = read(trace, tmp_path).caveats

    assert CaveatKind.TRACE_INCOMPLETE is caveat.kind
    assert "1 of 4 GPU kernels belong to no operation that was profiled" == caveat.seen


def test_gzip_is_known_by_its_bytes_and_not_by_its_name(tmp_path: Path) -> None:
    plain = training_trace().write(tmp_path / "plain.json")
    packed = tmp_path / "packed.json"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    misnamed = tmp_path / "plain.json.gz"
    misnamed.write_bytes(plain.read_bytes())

    counts = {read_kineto(path).totals for path in (plain, packed, misnamed)}
    assert 1 == len(counts)


def test_kernels_of_any_case_count_and_copies_do_not(tmp_path: Path) -> None:
    trace = KinetoTrace()
    trace.launch("a", 10, 1.001)
    trace.launch("a", 20, 2.002)
    trace.launch("b", 30, 10)
    trace.copy(40, 1000)
    for event, cat in zip(
        (e for e in trace.events if e["cat"] == "kernel"),
        ("Kernel", "KERNEL", "kernel"),
        strict=True,
    ):
        event["cat"] = cat
    read_back = read(trace, tmp_path)

    assert [("b", 1, 10e-6), ("a", 2, 3.003e-6)] == [
        (total.name, total.launch_count, total.time_s) for total in read_back.totals
    ]
    assert (3, 13.003e-6) == (read_back.kernel_count, read_back.kernel_time_s)


@pytest.mark.parametrize(
    "dur", [None, -1, -0.5, "long", float("nan"), float("inf"), 4e15, 1e300, [], True, 10**400]
)
def test_a_kernel_of_senseless_duration_counts_in_the_totals_only_and_casts_doubt(
    tmp_path: Path, dur: object
) -> None:
    trace = KinetoTrace()
    trace.launch("a", 10, 1)
    trace.launch("a", 20, 5)
    trace.events[-1]["dur"] = dur
    if dur is None:
        del trace.events[-1]["dur"]
    read_back = read(trace, tmp_path)

    assert (2, 1e-6) == (read_back.kernel_count, read_back.kernel_time_s)
    assert [1e-6] == read_back.duration_s.tolist()
    assert "1 GPU kernels do not say how long they ran" in read_back.caveats[0].seen


def test_starts_since_1970_are_exact_to_a_nanosecond(tmp_path: Path) -> None:
    trace = KinetoTrace()
    trace.launch("a", 0, 0.5)
    trace.launch("a", 0, 0.5)
    path = trace.write(tmp_path / "trace.json")
    first, second = (e for e in trace.events if e["cat"] == "kernel")
    first["ts"], second["ts"] = "FIRST", "SECOND"
    text = trace.write(path).read_text()
    text = text.replace('"FIRST"', "1712195495519689.047").replace(
        '"SECOND"', "1712195495519689.548"
    )
    path.write_text(text)

    assert [0.0, 501e-9] == read_kineto(path).start_s.tolist()


def test_equal_starts_keep_the_order_of_the_file(tmp_path: Path) -> None:
    trace = KinetoTrace()
    for name in ("late", "x", "y", "z"):
        trace.launch(name, 99 if name == "late" else 10, 1)
    read_back = read(trace, tmp_path)

    names = [read_back.signatures[index].name for index in read_back.signature_index]
    assert ["x", "y", "z", "late"] == names


def test_a_launch_without_external_id_belongs_to_the_innermost_operation(tmp_path: Path) -> None:
    trace = KinetoTrace()
    trace.op("outer", 100, 50)
    trace.op("inner", 110, 20, dims=[[2, 3]])
    trace.op("elsewhere", 110, 20, thread=AUTOGRAD_THREAD)
    trace.op("after", 131, 10)
    trace.launch("kernel", 200, 5, at=120, runtime="cuLaunchKernelEx")

    assert ("inner", (OpInput(shape=(2, 3), dtype="float"),)) == only_signature(trace, tmp_path)


def test_an_external_id_that_is_a_correlation_links_no_foreign_operation(tmp_path: Path) -> None:
    trace = KinetoTrace()
    foreign = trace.op("foreign", 10, 5)
    trace.op("own", 100, 50)
    trace.launch("kernel", 200, 5, at=120, op=foreign)

    assert "own" == only_signature(trace, tmp_path)[0]


def test_inputs_hold_values_and_lists_of_tensors_one_by_one(tmp_path: Path) -> None:
    trace = KinetoTrace()
    op = trace.op(
        "aten::cat",
        100,
        50,
        dims=[[[2, 3], [4, 3]], [], [7]],
        types=["TensorList", "Scalar", ""],
        concrete=["", "1", ""],
    )
    trace.launch("kernel", 200, 5, at=120, op=op)

    assert only_signature(trace, tmp_path)[1] == (
        OpInput(shape=(2, 3), dtype="TensorList"),
        OpInput(shape=(4, 3), dtype="TensorList"),
        OpInput(dtype="Scalar", value="1"),
        OpInput(shape=(7,)),
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [("Input Dims", [[2], [3, "x"]]), ("Input Dims", {"a": 1}), ("Input type", ["float"])],
)
def test_inputs_that_do_not_fit_together_are_left_out(
    tmp_path: Path, field: str, value: object
) -> None:
    trace = KinetoTrace()
    op = trace.op("op", 100, 50, dims=[[2], [3]])
    args = trace.events[-1]["args"]
    assert isinstance(args, dict)
    args[field] = value
    trace.launch("kernel", 200, 5, at=120, op=op)

    shapes = [(each.shape, each.dtype) for each in only_signature(trace, tmp_path)[1]]
    assert shapes in ([((2,), "float"), ((), "float")], [], [((2,), None), ((3,), None)])


def test_kernels_of_a_replayed_graph_have_no_operation(tmp_path: Path) -> None:
    trace = KinetoTrace()
    trace.op("around the replay", 100, 50, dims=[[2]])
    trace.launch("first", 200, 5, at=120, runtime="cudaGraphLaunch")
    trace.launch("second", 210, 5, at=125, args={"graph node id": 7, "graph id": 3})
    trace.launch("third", 220, 5, at=130)
    read_back = read(trace, tmp_path)

    assert [True, True, False] == read_back.is_graph_launch.tolist()
    assert [None, None, "around the replay"] == [each.op for each in read_back.signatures]


def test_the_innermost_mark_names_the_pass(tmp_path: Path) -> None:
    trace = KinetoTrace()
    trace.mark("## forward ##", 100, 100)
    trace.mark("Optimizer.step#SGD.step", 140, 20)
    for at in (110, 150, 170, 250):
        trace.launch("kernel", 1000 + at, 1, at=at)

    passes = (Pass.FORWARD, Pass.OPTIMIZER, Pass.FORWARD, None)
    assert passes == read(trace, tmp_path).passes


def test_an_operation_that_comes_back_in_the_backward_pass_is_forward(tmp_path: Path) -> None:
    trace = KinetoTrace()
    trace.op("aten::mm", 100, 10, sequence=5)
    trace.op("aten::item", 120, 10, sequence=6)
    trace.op("MmBackward0", 200, 10, sequence=5, forward_thread=1, thread=AUTOGRAD_THREAD)
    trace.op("aten::mm", 203, 4, thread=AUTOGRAD_THREAD)
    trace.launch("kernel", 300, 1, at=105)
    trace.launch("kernel", 310, 1, at=125)
    trace.launch("kernel", 320, 1, at=205, thread=AUTOGRAD_THREAD)

    assert (Pass.FORWARD, None, Pass.BACKWARD) == read(trace, tmp_path).passes


def test_what_is_computed_again_in_the_backward_pass_is_backward(tmp_path: Path) -> None:
    trace = KinetoTrace()
    trace.op("CheckpointFunctionBackward", 100, 100, sequence=5, forward_thread=1)
    trace.op("flash::_attention_forward", 110, 10, sequence=9)
    trace.op("MmBackward0", 150, 10, sequence=9, forward_thread=1)
    trace.launch("kernel", 300, 1, at=115)

    assert (Pass.BACKWARD,) == read(trace, tmp_path).passes


def test_old_amd_traces_say_gpu_and_stream_as_process_and_thread(tmp_path: Path) -> None:
    trace = KinetoTrace(device_names=())
    trace.launch("kernel", 100, 1, gpu=3, stream=0)
    args = trace.events[-1]["args"]
    assert isinstance(args, dict)
    args.clear()
    read_back = read(trace, tmp_path)

    assert ([3], [0]) == (read_back.gpu.tolist(), read_back.stream.tolist())
    assert read_back.gpus == (TracedGpu(gpu=3),)
    (signature,) = read_back.signatures
    assert (None, None, None) == (signature.grid, signature.block, signature.register_count)


def test_names_of_old_profilers_are_known(tmp_path: Path) -> None:
    trace = KinetoTrace()
    op = trace.op("aten::mm", 100, 10, dims=[[4, 4]])
    trace.launch("kernel", 200, 1, at=105, op=op)
    renamed = {"cpu_op": "Operator", "cuda_runtime": "Runtime", "kernel": "Kernel"}
    for event in trace.events:
        event["cat"] = renamed[str(event["cat"])]
        args = event["args"]
        assert isinstance(args, dict)
        for old, new in (("External id", "external id"), ("Input Dims", "Input dims")):
            if old in args:
                args[new] = args.pop(old)

    assert ("aten::mm", (OpInput(shape=(4, 4), dtype="float"),)) == only_signature(trace, tmp_path)


def test_a_kernel_that_does_not_say_when_counts_in_the_totals_only(tmp_path: Path) -> None:
    trace = KinetoTrace()
    trace.launch("a", 10, 1)
    trace.launch("b", 20, 5)
    del trace.events[-1]["ts"]
    read_back = read(trace, tmp_path)

    assert (2, 1) == (read_back.kernel_count, len(read_back.start_s))
    assert "1 GPU kernels do not say when they began" in read_back.caveats[0].seen


def test_progress_ends_with_the_file(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    path = training_trace().write(tmp_path / "trace.json.gz")
    read_kineto(path, progress=lambda _what, done, whole: told.append((done, whole)))

    assert told[-1] == (path.stat().st_size, path.stat().st_size)


def test_names_stay_as_they_are_in_totals_and_can_be_shown_in_signatures(tmp_path: Path) -> None:
    trace = KinetoTrace()
    for number, name in enumerate(("", "a\x1b[2Jb", "a\x07[2Jb", "c")):
        trace.launch(name, 10.0 * number, 1)
    read_back = read(trace, tmp_path)

    assert {"", "a\x1b[2Jb", "a\x07[2Jb", "c"} == {total.name for total in read_back.totals}
    assert ["(no name)", "a\ufffd[2Jb", "c"] == [each.name for each in read_back.signatures]
    assert [0, 1, 1, 2] == read_back.signature_index.tolist()


def test_half_a_nanosecond_is_rounded_up_as_jq_does(tmp_path: Path) -> None:
    trace = KinetoTrace()
    for dur in (0.0005, 0.0025, 0.0034):
        trace.launch("a", 10, dur)

    assert [1e-9, 3e-9, 3e-9] == read(trace, tmp_path).duration_s.tolist()
