"""Whole captures: launches, regions, gaps, works, size and doubts."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from inline_snapshot import snapshot
from tests.profiler_traces import Ran, in_a_row, profiler_trace, tensor

from joulewise.domain.caveats import CaveatKind
from joulewise.domain.errors import InputError
from joulewise.domain.passes import Pass
from joulewise.domain.trace import Collective, KernelSignature, MeasuredWork
from joulewise.domain.workload import Dtype, KernelKind, Workload
from joulewise.store.workload_files import read_workload, write_workload
from joulewise.workload.capture import capture
from joulewise.workload.capture.capture import captured_workload
from joulewise.workload.capture.choice import CaptureChoice

MATMUL = KernelSignature(
    name="sm90_xmma_gemm_bf16bf16",
    op="aten::mm",
    inputs=(tensor(4096, 4096, dtype="c10::BFloat16"), tensor(4096, 4096, dtype="c10::BFloat16")),
)
ALL_REDUCE = KernelSignature(
    name="ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
    collective=Collective(
        name="allreduce",
        dtype="BFloat16",
        input_element_count=10_000_000,
        output_element_count=10_000_000,
        group_gpu_count=8,
    ),
)


def described(workload: Workload) -> list[str]:
    return [f"{launch.pass_}: {launch.kernel}" for launch in workload.launches]


def kinds(workload: Workload) -> list[CaveatKind]:
    return [caveat.kind for caveat in workload.caveats]


def training() -> list[Ran]:
    """Two products, communication beside the second one's gradient, an update, idle times."""
    return [
        Ran(kernel=MATMUL, start_us=0, duration_us=300),
        Ran(kernel="gelu", start_us=303, duration_us=20),
        Ran(kernel="gelu_backward", start_us=325.5, duration_us=20),
        Ran(kernel=MATMUL, start_us=350, duration_us=310, pass_=Pass.BACKWARD),
        Ran(kernel=ALL_REDUCE, start_us=400, duration_us=200, stream=20),
        Ran(kernel="multi_tensor_apply_adam", start_us=660, duration_us=50),
        Ran(kernel=MATMUL, start_us=800, duration_us=300),
    ]


def captured(ran: list[Ran], choice: CaptureChoice | None = None) -> Workload:
    marked = [dataclasses.replace(one, step=0) for one in ran]
    trace = profiler_trace(marked, steps=[("ProfilerStep#3", 0, 2000)])
    return captured_workload(trace, choice or CaptureChoice())


def test_an_iteration_becomes_kernels_regions_and_gaps() -> None:
    workload = captured(training())

    assert described(workload) == snapshot(
        [
            "forward: mm[4096x4096x4096] sm90_xmma_gemm_bf16bf16",
            "forward: gap 2.05-4.1 us",
            "forward: gelu",
            "forward: gap 2.05-4.1 us",
            "backward: gelu_backward",
            "backward: gap 4.1-8.19 us",
            "backward: region of 2: mm[4096x4096x4096] sm90_x... + ncclDevKernel_AllReduce_S...",
            "optimizer: multi_tensor_apply_adam",
            "optimizer: gap 65.5-131 us",
            "forward: mm[4096x4096x4096] sm90_xmma_gemm_bf16bf16",
        ]
    )
    waits = {work.kernel: work.wait_s for work in workload.works}
    assert 2.75e-6 == pytest.approx(waits["gap 2.05-4.1 us"])  # the mean of 3 and 2.5


def test_facts_of_the_iteration_are_exact() -> None:
    trace = captured(training()).trace

    assert trace is not None
    assert (1100e-6, 1000e-6, 200e-6, 100e-6) == pytest.approx(
        (trace.duration_s, trace.busy_s, trace.overlap_s, trace.gap_s), rel=1e-12
    )
    assert [0.0, 303e-6, 325.5e-6, 350e-6, 400e-6, 660e-6, 800e-6] == pytest.approx(
        [launch.start_s for launch in trace.launches]
    )
    assert ("ProfilerStep#3", 1, 0) == (trace.step, trace.iteration_count, trace.gpu)
    product = trace.kernels[0]
    assert 3 == product.launch_count
    assert 910e-6 == pytest.approx(product.time_s)


def test_a_region_has_the_work_of_its_members_and_the_time_of_the_link() -> None:
    workload = captured(training())

    works = {work.kernel: work for work in workload.works}
    region = next(work for label, work in works.items() if label.startswith("region"))
    product = works["mm[4096x4096x4096] sm90_xmma_gemm_bf16bf16"]
    assert 7 / 8 * 10_000_000 == region.flop_count - product.flop_count
    assert 2 * 2 * 10_000_000 * 2 * 7 / 8 == region.traffic_bytes - product.traffic_bytes
    assert (KernelKind.GEMM, Dtype.BF16) == (region.kind, region.dtype)
    assert 0.9 * 200e-6 < region.wait_s <= 200e-6
    assert "2 launches that overlapped became 1 region, 31.0% of the busy time." in {
        caveat.seen for caveat in workload.caveats
    }


def test_tails_that_overlap_are_no_regions() -> None:
    ran = [
        Ran(kernel="a", start_us=0, duration_us=100),
        Ran(kernel="b", start_us=99.5, duration_us=100, stream=8),  # half a microsecond
        Ran(kernel="c", start_us=190, duration_us=30, stream=8),  # begins early, on one stream
    ]
    workload = captured(ran)

    assert ["a", "b", "c"] == [launch.kernel for launch in workload.launches]
    assert CaveatKind.STREAMS_MERGED not in kinds(workload)
    assert workload.trace is not None
    assert 220e-6 == pytest.approx(workload.trace.busy_s)


def test_regions_of_the_same_kernels_are_one_kernel() -> None:
    ran = [
        Ran(kernel=kernel, start_us=start + shift, duration_us=50, stream=stream)
        for start in (0, 100)
        for kernel, stream, shift in (("a", 1, 0 if start else 5), ("b", 2, 5 if start else 0))
    ]
    workload = captured(ran)

    assert ["region of 2: a"] == [
        work.kernel for work in workload.works if work.kind is not KernelKind.GAP
    ]


def test_gaps_below_a_microsecond_are_gathered() -> None:
    workload = captured(in_a_row(["k"] * 11, gap_us=0.3))

    gaps = [launch.kernel for launch in workload.launches if launch.kernel != "k"]
    assert ["gap 1.02-2.05 us"] * 2 == gaps
    assert workload.trace is not None
    assert 3e-6 == pytest.approx(workload.trace.gap_s)


def test_known_flops_are_given_for_all_gpus() -> None:
    size = captured(
        [Ran(kernel=MATMUL, start_us=0, duration_us=300)], CaptureChoice(gpu_count=4)
    ).size

    assert size is not None
    assert 4 * 2 * 4096.0**3 == size.kernel_flop_count
    assert (4, Dtype.BF16) == (size.gpu_count, size.dtype)


def test_flops_are_left_out_where_much_of_the_time_is_unknown() -> None:
    ran = [
        Ran(kernel=MATMUL, start_us=0, duration_us=300),
        Ran(kernel="mystery", start_us=300, duration_us=100),
    ]
    workload = captured(ran, CaptureChoice(token_count=4096, node_gpu_count=8))

    assert workload.size is not None
    assert workload.size.kernel_flop_count is None
    assert (4096, 8) == (workload.size.token_count, workload.size.node_gpu_count)
    assert (
        "The work of 1 of 2 kernels (25.0% of the kernels' time) was estimated from how long "
        "they ran."
    ) == next(one.seen for one in workload.caveats if one.kind is CaveatKind.WORK_ESTIMATED)


def test_ranks_tell_how_many_gpus_there_are() -> None:
    trace = profiler_trace(in_a_row([MATMUL], duration_us=300), rank=3, rank_count=16)
    workload = captured_workload(trace, CaptureChoice())

    assert workload.size is not None
    assert 16 == workload.size.gpu_count
    assert "The trace is of rank 3 of 16." in {caveat.seen for caveat in workload.caveats}


def test_a_gpu_without_known_peaks_makes_a_doubt() -> None:
    trace = profiler_trace(in_a_row([MATMUL]), device_name="Some GPU")

    doubts = captured_workload(trace, CaptureChoice()).caveats
    said = captured_workload(trace, CaptureChoice(device_name="NVIDIA H100 80GB HBM3")).caveats

    assert (
        "The peak rates of 'Some GPU' are not known, so what kernels reach of them is assumed."
        in {caveat.seen for caveat in doubts}
    )
    assert all("peak rates" not in caveat.seen for caveat in said)


def test_shapes_that_do_not_multiply_make_a_doubt_and_no_error() -> None:
    wrong = dataclasses.replace(MATMUL, inputs=(tensor(4, 8), tensor(9, 16)))
    workload = captured([Ran(kernel=wrong, start_us=0, duration_us=300)])

    assert (
        "Shapes of an operation make no sense (aten::mm: [4, 8] and [9, 16] do not multiply)."
    ) == next(one.seen for one in workload.caveats if one.kind is CaveatKind.TRACE_INCOMPLETE)


def test_counts_of_nsight_compute_are_the_work() -> None:
    signature = KernelSignature(name="gemm")
    trace = profiler_trace(
        in_a_row([signature], duration_us=300),
        is_timeline=False,
        measured={signature: MeasuredWork(flop_count=1e11, traffic_bytes=1e8)},
    )

    (work,) = captured_workload(trace, CaptureChoice()).works

    assert (1e11, 1e8) == (work.flop_count, work.traffic_bytes)


def test_scalars_that_change_do_not_make_kernels() -> None:
    def dropout(seed: int) -> KernelSignature:
        shape = tensor(64, 64)
        return KernelSignature(
            name="dropout",
            op="aten::native_dropout",
            inputs=(shape, dataclasses.replace(tensor(), value=str(seed))),
        )

    workload = captured(in_a_row([dropout(1), dropout(2), dropout(3)]))

    assert 1 == len(workload.kernels)


def test_an_iteration_longer_than_a_workload_file_holds_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(capture, "MOST_LAUNCHES", 9)

    with pytest.raises(InputError, match="has 10 launches and gaps, more than 9") as error:
        captured(training())
    assert "profile.json" == error.value.file


@pytest.mark.parametrize(
    ("file", "name"),
    [("/tmp/a/run.pt.trace.json.gz", "run"), ("summary.csv", "summary"), (".gz", ".gz")],  # noqa: S108
)
def test_a_workload_is_named_after_its_file(file: str, name: str) -> None:
    trace = profiler_trace(in_a_row(["k"]), file=file)

    assert name == captured_workload(trace, CaptureChoice()).name
    assert "mine" == captured_workload(trace, CaptureChoice(name="mine")).name


def test_a_capture_is_written_to_a_file_and_read_back(tmp_path: Path) -> None:
    workload = captured(training())

    write_workload(workload, tmp_path / "workload.json")

    assert workload == read_workload(tmp_path / "workload.json")
