"""Whole captures: launches, regions, gaps, works, size and doubts."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from inline_snapshot import snapshot
from tests.profiler_traces import Ran, in_a_row, profiler_trace, tensor

from joulewise.domain.caveats import CaveatKind
from joulewise.domain.errors import InputError
from joulewise.domain.gaps import is_gap
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
            "backward: region of 2: mm[4096x4096x4096] + ncclDevKernel_AllR…6_RING_LL",
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
    assert 5 * 10_000_000 * 2 * 7 / 8 == region.traffic_bytes - product.traffic_bytes
    assert (KernelKind.GEMM, Dtype.BF16) == (region.kind, region.dtype)
    assert 0.9 * 200e-6 < region.wait_s <= 200e-6
    assert (
        "2 launches that overlapped became 1 region, 31.0 % of the busy time. "
        "For 64.5 % of its time more than one kernel ran."
    ) in {caveat.seen for caveat in workload.caveats}


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

    assert ["region of 2: a + b"] == [
        work.kernel for work in workload.works if work.kind is not KernelKind.GAP
    ]


def test_gaps_below_a_microsecond_are_gathered() -> None:
    workload = captured(in_a_row(["k"] * 11, gap_us=0.3))

    gaps = [launch.kernel for launch in workload.launches if launch.kernel != "k"]
    assert ["gap 1.02-2.05 us"] * 2 == gaps
    assert workload.trace is not None
    assert 3e-6 == pytest.approx(workload.trace.gap_s)


def test_kernels_of_the_trace_have_their_own_work_also_in_regions() -> None:
    trace = captured(training()).trace

    assert trace is not None
    by_name = {one.kernel: one for one in trace.kernels}
    reduction = by_name["ncclDevKernel_AllReduce_Sum_bf16_RING_LL"]
    assert 7 / 8 * 10_000_000 == reduction.flop_count
    assert 5 * 7 / 8 * 20_000_000 == reduction.traffic_bytes
    assert not reduction.is_work_estimated
    assert by_name["gelu"].is_work_estimated
    assert 2 * 4096.0**3 == trace.kernels[0].flop_count


def test_links_that_follow_each_other_wait_together() -> None:
    """FSDP gathers weights one behind the other, beside the kernels of its backward pass."""
    links = in_a_row([ALL_REDUCE] * 10, duration_us=20)
    between = in_a_row(["k"] * 9, duration_us=10, gap_us=10, start_us=15)
    ran = [*between, *(dataclasses.replace(one, stream=20) for one in links)]

    (region,) = captured(ran).works

    assert region.kernel.startswith("region of 19")
    assert 0.97 * 200e-6 < region.wait_s <= 200e-6


def test_kernels_that_are_called_like_gaps_are_told_apart() -> None:
    names = ["gap", "host_gap", "gap 2.05-4.1 us", "gap_fill"]
    workload = captured(in_a_row(names, gap_us=3))

    gaps = {work.kernel for work in workload.works if work.kind is KernelKind.GAP}
    assert {"gap 2.05-4.1 us"} == gaps
    assert gaps == {kernel for kernel in workload.kernels if is_gap(kernel)}
    assert {"kernel gap", "kernel host_gap", "kernel gap 2.05-4.1 us", "gap_fill"} == (
        set(workload.kernels) - gaps
    )


def test_a_gpu_without_known_peaks_makes_a_doubt() -> None:
    trace = profiler_trace(in_a_row([MATMUL]), device_name="Some GPU")

    doubts = captured_workload(trace, CaptureChoice()).caveats
    guessed = captured_workload(
        profiler_trace(in_a_row(["k"]), device_name=None), CaptureChoice()
    ).caveats
    said = captured_workload(trace, CaptureChoice(device_name="NVIDIA H100 80GB HBM3")).caveats

    assert (
        "The peak rates of 'Some GPU' are not known, so what kernels reach of them is assumed."
        == doubts[-1].seen
    )
    assert CaveatKind.EFFICIENCY_ASSUMED is doubts[-1].kind
    assert CaveatKind.WORK_ESTIMATED not in {caveat.kind for caveat in doubts}
    assert [
        (
            "The work of the only kernel was estimated from how long it ran, as if on an "
            "NVIDIA A100-SXM4-40GB."
        ),
        "The peak rates of the traced GPU are not known, so what kernels reach of them is assumed.",
    ] == [caveat.seen for caveat in guessed[-2:]]
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

    workload = captured_workload(trace, CaptureChoice())

    (work,) = workload.works
    (doubt,) = [one for one in workload.caveats if one.kind is CaveatKind.EFFICIENCY_ASSUMED]
    assert "Nsight Compute holds the clocks at base" in doubt.seen
    assert "--clock-control none" in doubt.helps
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
    with pytest.raises(InputError, match="has 12 launches, more than 9"):
        captured(in_a_row(["k"] * 12))


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


def test_a_file_without_the_work_of_traced_kernels_is_read_and_an_absurd_one_is_not(
    tmp_path: Path,
) -> None:
    path = tmp_path / "workload.json"
    write_workload(captured(training()), path)
    document = json.loads(path.read_text(encoding="utf-8"))
    first, *others = document["trace"]["kernels"]
    for name in ("flop_count", "traffic_bytes", "is_work_estimated"):
        for kernel in others:
            del kernel[name]

    path.write_text(json.dumps(document), encoding="utf-8")
    trace = read_workload(path).trace
    first["flop_count"] = 1e300
    path.write_text(json.dumps(document), encoding="utf-8")

    assert trace is not None
    assert [2 * 4096.0**3, None] == [one.flop_count for one in trace.kernels[:2]]
    with pytest.raises(InputError, match="at most") as error:
        read_workload(path)
    assert "trace.kernels[0].flop_count" == error.value.field
