"""FLOPs and bytes of kernels: from shapes, from counts, from times."""

from __future__ import annotations

import pytest
from tests.profiler_traces import scalar, tensor

from joulewise.domain.gpu_peaks import gpu_peaks
from joulewise.domain.trace import Collective, KernelSignature, MeasuredWork, OpInput
from joulewise.domain.workload import Dtype, KernelKind
from joulewise.workload.capture.collectives import link_traffic
from joulewise.workload.capture.fitting import RawWork, fitted_kernel, fitted_region
from joulewise.workload.capture.ops.formulas import op_work
from joulewise.workload.capture.uses import KernelUse
from joulewise.workload.capture.works import RawWorks, raw_works

H100 = gpu_peaks("NVIDIA H100 80GB HBM3")
HALF = "c10::BFloat16"
CONV = (
    tensor(8, 64, 56, 56, dtype=HALF),
    tensor(128, 32, 3, 3, dtype=HALF),
    scalar(""),
)


def half(*shape: int) -> OpInput:
    return tensor(*shape, dtype=HALF)


@pytest.mark.parametrize(
    ("op", "inputs", "flop_count", "traffic_bytes"),
    [
        ("aten::mm", (half(4, 8), half(8, 16)), 2 * 4 * 8 * 16, 2 * (32 + 128 + 64)),
        ("aten::addmm", (half(16), half(4, 8), half(8, 16)), 2 * 4 * 8 * 16, 2 * (32 + 128 + 64)),
        ("aten::bmm", (half(3, 4, 8), half(3, 8, 16)), 3 * 2 * 4 * 8 * 16, 3 * 2 * 224),
        ("aten::linear", (half(2, 5, 8), half(16, 8), half(16)), 2 * 10 * 8 * 16, 2 * 368),
        ("aten::matmul", (half(3, 1, 4, 8), half(5, 8, 16)), 15 * 1024, 2 * (96 + 640 + 960)),
        (
            "aten::_scaled_mm",
            (tensor(4, 8, dtype="c10::Float8_e4m3fn"), tensor(8, 16, dtype="c10::Float8_e4m3fn")),
            2 * 4 * 8 * 16,
            32 + 128 + 2 * 64,
        ),
        (  # stride 2, padding 1, two groups: 28 x 28 places
            "aten::convolution",
            (
                *CONV,
                *(scalar(v) for v in ("[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "2")),
            ),
            2 * 8 * 28 * 28 * 128 * 32 * 9,
            2 * (8 * 64 * 56 * 56 + 128 * 32 * 9 + 8 * 128 * 28 * 28),
        ),
        (
            "aten::_flash_attention_forward",
            (*(half(2, 10, 4, 8),) * 3, *(scalar(""),) * 5, scalar("True")),
            4 * 2 * 4 * 10 * 10 * 8 / 2,
            2 * 4 * 640,
        ),
        ("aten::add", (tensor(8, 16), tensor(16), scalar("1")), 128, 4 * (128 + 16 + 128)),
        ("aten::add_", (tensor(8, 16), tensor(16), scalar("1")), 128, 4 * (128 + 16 + 128)),
        ("aten::eq", (tensor(8, dtype="long int"), scalar("1")), 8, 64 + 8),
        ("aten::copy_", (half(8, 8), tensor(8, 8)), 0, 2 * 64 + 4 * 64),
        ("aten::sum", (tensor(8, 8), scalar("[0]")), 64, 4 * 64),
        ("aten::cat", (half(8, 8), half(4, 8), scalar("0")), 0, 2 * 2 * 96),
        ("aten::embedding", (half(100, 8), tensor(6, dtype="long int")), 0, 2 * 2 * 48 + 48),
        ("aten::native_layer_norm", (half(8, 16), scalar("[16]"), half(16)), 8 * 128, 2 * 256),
        ("aten::_softmax_backward_data", (half(8, 16), half(8, 16)), 6 * 128, 3 * 256),
        ("aten::_fused_adamw_", (tensor(64),) * 4, 256, 1.75 * 4 * 256),
        ("_C::fused_add_rms_norm", (half(8, 16), half(8, 16), half(16)), 9 * 128, 4 * 256),
    ],
)
def test_formulas_agree_with_hand_counts(
    op: str, inputs: tuple[OpInput, ...], flop_count: float, traffic_bytes: float
) -> None:
    answer = op_work(op, inputs)

    assert answer.complaint is None
    assert answer.work is not None
    assert flop_count == answer.work.flop_count
    assert traffic_bytes == answer.work.traffic_bytes


@pytest.mark.parametrize(
    ("op", "inputs", "complaint"),
    [
        ("aten::mm", (half(4, 8), half(9, 16)), "aten::mm: [4, 8] and [9, 16] do not multiply"),
        ("aten::mm", (half(4, 8), scalar("")), "aten::mm: input 1 has no shape"),
        ("aten::bmm", (half(4, 8), half(8, 2)), "aten::bmm: input 0 has 2 dimensions, not 3"),
        ("aten::mm", (half(-4, 8), half(8, 2)), "aten::mm: an extent is negative"),
        ("aten::mm", (half(10**200, 8), half(8, 2)), "aten::mm: its shapes are impossibly large"),
        (
            "aten::matmul",
            (half(2, 4, 8), half(3, 8, 2)),
            "aten::matmul: [2] and [3] do not broadcast",
        ),
        (
            "aten::conv2d",
            (half(1, 3, 8, 8), half(4, 5, 3, 3)),
            "aten::conv2d: [1, 3, 8, 8] and the filter [4, 5, 3, 3] differ in channels",
        ),
        (
            "aten::conv2d",
            (half(1, 3, 2, 2), half(4, 3, 3, 3)),
            "aten::conv2d: [1, 3, 2, 2] is smaller than the filter [4, 3, 3, 3]",
        ),
    ],
)
def test_shapes_that_do_not_fit_are_complained_about(
    op: str, inputs: tuple[OpInput, ...], complaint: str
) -> None:
    answer = op_work(op, inputs)

    assert answer.work is None
    assert complaint == answer.complaint


@pytest.mark.parametrize(
    ("op", "inputs"),
    [
        (None, (half(4, 8),)),
        ("aten::mm", ()),
        ("my::op", (half(4, 8),)),
        ("aten::add", (half(3), half(4))),  # what streams take is not always what it seems
        ("aten::_flash_attention_forward", (half(99, 4, 8),) * 3),  # packed: lengths unknown
    ],
)
def test_operations_that_nobody_knows_have_no_work(
    op: str | None, inputs: tuple[OpInput, ...]
) -> None:
    answer = op_work(op, inputs)

    assert answer.work is None
    assert answer.complaint is None


def use(
    name: str,
    *,
    op: str | None = None,
    inputs: tuple[OpInput, ...] = (),
    count: int = 1,
    mean_us: float = 100.0,
    measured: MeasuredWork | None = None,
) -> KernelUse:
    return KernelUse(
        signature=KernelSignature(name=name, op=op, inputs=inputs),
        measured=measured,
        launch_count=count,
        time_s=count * mean_us * 1e-6,
    )


def works(*uses: KernelUse) -> RawWorks:
    return raw_works(dict(enumerate(uses)), H100)


MM = (half(4096, 1024), half(1024, 2048))
MM_FLOP_COUNT = 2 * 4096 * 1024 * 2048


def test_the_product_has_the_flops_and_its_helpers_are_estimated() -> None:
    found = works(
        use("gemm_splitK", op="aten::mm", inputs=MM),
        use("splitKreduce_kernel", op="aten::mm", inputs=MM, mean_us=400),
    ).works

    assert MM_FLOP_COUNT == found[0].flop_count
    assert (KernelKind.GEMM, Dtype.BF16) == (found[0].kind, found[0].dtype)
    assert found[1].is_estimated
    assert KernelKind.OTHER is found[1].kind


def test_kernels_that_take_turns_for_one_shape_do_the_whole_product_each() -> None:
    found = works(
        use("gemm_128x128_tn", op="aten::mm", inputs=MM),
        use("gemm_256x128_tn", op="aten::mm", inputs=MM, mean_us=90),
    ).works

    assert [MM_FLOP_COUNT] * 2 == [found[index].flop_count for index in range(2)]


def test_the_longest_kernel_multiplies_where_no_name_tells() -> None:
    found = works(
        use("prepare", op="aten::mm", inputs=MM, mean_us=1),
        use("mystery", op="aten::mm", inputs=MM, mean_us=100),
    ).works

    assert MM_FLOP_COUNT == found[1].flop_count
    assert found[0].is_estimated


def test_gradients_of_a_convolution_go_to_the_kernels_that_make_them() -> None:
    gradient = half(8, 128, 56, 56)
    inputs = (gradient, half(8, 64, 56, 56), half(128, 64, 1, 1))
    once = 2 * 8 * 56 * 56 * 128 * 64

    named = works(
        use("cudnn_dgrad_kernel", op="aten::convolution_backward", inputs=inputs),
        use("cudnn_wgrad_kernel", op="aten::convolution_backward", inputs=inputs),
    ).works
    mute = works(
        use("a_gemm", op="aten::convolution_backward", inputs=inputs, mean_us=100),
        use("b_gemm", op="aten::convolution_backward", inputs=inputs, mean_us=300),
    ).works

    assert [once, once] == [named[0].flop_count, named[1].flop_count]
    assert [once / 2, once * 3 / 2] == pytest.approx([mute[0].flop_count, mute[1].flop_count])


def test_kernels_of_a_streaming_operation_share_its_bytes_by_time() -> None:
    inputs = (half(1024, 1024), scalar("[1024]"))
    found = works(
        use("first", op="aten::native_layer_norm", inputs=inputs, mean_us=30),
        use("second", op="aten::native_layer_norm", inputs=inputs, mean_us=10),
    ).works

    whole = 2 * 2 * 1024 * 1024
    assert [whole * 0.75, whole * 0.25] == [found[0].traffic_bytes, found[1].traffic_bytes]
    assert not found[0].is_estimated


def test_kernels_that_take_turns_for_a_streaming_operation_do_the_whole_each() -> None:
    inputs = (half(1024, 1024), half(1024, 1024), scalar("1"))
    found = works(
        use("vectorized", op="aten::add", inputs=inputs, count=5, mean_us=10),
        use("unrolled", op="aten::add", inputs=inputs, count=7, mean_us=30),
    ).works

    assert [3 * 2 * 1024 * 1024] * 2 == [found[0].traffic_bytes, found[1].traffic_bytes]


def test_what_was_counted_wins_over_formulas() -> None:
    found = works(
        use("gemm", op="aten::mm", inputs=MM, measured=MeasuredWork(traffic_bytes=123.0)),
        use("gemm", measured=MeasuredWork(flop_count=1e9, traffic_bytes=1e6)),
        use("gemm", measured=MeasuredWork(traffic_bytes=1e6)),
    ).works

    assert (MM_FLOP_COUNT, 123.0) == (found[0].flop_count, found[0].traffic_bytes)
    assert (1e9, 1e6, False) == (
        found[1].flop_count,
        found[1].traffic_bytes,
        found[1].is_estimated,
    )
    assert found[2].is_estimated  # its FLOPs are


def test_flops_that_no_such_gpu_does_in_the_time_are_estimated_instead() -> None:
    found = works(use("gemm", op="aten::mm", inputs=MM, mean_us=1)).works

    assert found[0].is_estimated
    assert found[0].flop_count < MM_FLOP_COUNT


def test_complaints_name_each_operation_once() -> None:
    wrong = (half(4, 8), half(9, 16))
    found = works(
        use("gemm_a", op="aten::mm", inputs=wrong), use("gemm_b", op="aten::mm", inputs=wrong)
    )

    assert ("aten::mm: [4, 8] and [9, 16] do not multiply",) == found.complaints
    assert found.works[0].is_estimated


@pytest.mark.parametrize(
    ("name", "elements", "link_bytes", "local_bytes", "added_count"),
    [
        ("allreduce", (1000, 1000), 2 * 2000 * 7 / 8, 5 * 2000 * 7 / 8, 875),
        ("_allgather_base", (125, 1000), 2000 * 7 / 8, 2 * 2000 * 7 / 8, 0),
        ("reduce_scatter", (1000, 125), 2000 * 7 / 8, 3 * 2000 * 7 / 8, 875),
        ("all_to_allv", (1000, 1000), 2000 * 7 / 8, 2 * 2000 * 7 / 8, 0),
        ("broadcast", (1000, 1000), 2000, 4000, 0),
        ("reduce", (1000, 1000), 2000, 6000, 1000),
        ("send", (1000, 1000), 2000, 2000, 0),
    ],
)
def test_collectives_move_what_rings_move(
    name: str,
    elements: tuple[int, int],
    link_bytes: float,
    local_bytes: float,
    added_count: float,
) -> None:
    traffic = link_traffic(
        Collective(
            name=name,
            dtype="BFloat16",
            input_element_count=elements[0],
            output_element_count=elements[1],
            group_gpu_count=8,
        )
    )

    assert traffic is not None
    assert (link_bytes, local_bytes, added_count) == (
        traffic.link_bytes,
        traffic.local_bytes,
        traffic.added_count,
    )


def test_a_collective_without_metadata_moves_what_nobody_knows() -> None:
    assert link_traffic(Collective(name="allreduce")) is None


def test_a_collective_of_absurd_size_only_waits() -> None:
    absurd = Collective(
        name="allreduce", dtype="Float", input_element_count=10**400, group_gpu_count=10**400
    )

    assert link_traffic(absurd) is None


def test_counts_that_no_kernel_reaches_are_not_believed() -> None:
    found = works(use("gemm", measured=MeasuredWork(flop_count=1e30, traffic_bytes=1e30))).works

    assert found[0].is_estimated
    assert found[0].flop_count < 1e12


def test_a_kernel_above_the_memory_bandwidth_was_served_by_caches() -> None:
    raw = RawWork(kind=KernelKind.OTHER, dtype=Dtype.FP32, flop_count=0.0, traffic_bytes=1e12)

    work = fitted_kernel("k", raw, 102e-6, H100)

    assert 100e-6 * 3352e9 == pytest.approx(work.traffic_bytes)
    assert 1.0 == work.memory_efficiency_ratio


def test_a_region_waits_for_its_link_while_it_computes() -> None:
    raw = RawWork(
        kind=KernelKind.GEMM,
        dtype=Dtype.BF16,
        flop_count=0.5 * 989.4e12 * 80e-6,
        traffic_bytes=0.0,
        link_s=100e-6,
    )

    work = fitted_region("r", raw, 80e-6, 102e-6, H100)

    compute_s = work.flop_count / (989.4e12 * work.compute_efficiency_ratio)
    assert 100e-6 == pytest.approx((compute_s**5 + work.wait_s**5) ** 0.2)
    assert 0.8 == pytest.approx(compute_s / work.wait_s)
