"""How large a captured iteration is: FLOPs of its matrices, GPUs."""

from __future__ import annotations

import dataclasses

import pytest
from tests.profiler_traces import Ran, in_a_row, profiler_trace, scalar, tensor

from joulewise.domain.caveats import CaveatKind
from joulewise.domain.trace import KernelSignature
from joulewise.domain.workload import Dtype, Workload
from joulewise.workload.capture.capture import captured_workload
from joulewise.workload.capture.choice import CaptureChoice
from joulewise.workload.capture.ops.attention import CAUSAL_PLACES

MATMUL = KernelSignature(
    name="sm90_xmma_gemm_bf16bf16",
    op="aten::mm",
    inputs=(tensor(4096, 4096, dtype="c10::BFloat16"), tensor(4096, 4096, dtype="c10::BFloat16")),
)


def kinds(workload: Workload) -> list[CaveatKind]:
    return [caveat.kind for caveat in workload.caveats]


def captured(ran: list[Ran], choice: CaptureChoice | None = None) -> Workload:
    marked = [dataclasses.replace(one, step=0) for one in ran]
    trace = profiler_trace(marked, steps=[("ProfilerStep#3", 0, 2000)])
    return captured_workload(trace, choice or CaptureChoice())


def test_known_flops_are_given_for_all_gpus() -> None:
    size = captured(
        [Ran(kernel=MATMUL, start_us=0, duration_us=300)], CaptureChoice(gpu_count=4)
    ).size

    assert size is not None
    assert 4 * 2 * 4096.0**3 == size.kernel_flop_count
    assert (4, Dtype.BF16) == (size.gpu_count, size.dtype)


def test_flops_are_left_out_where_those_of_much_matrix_time_are_unknown() -> None:
    ran = [
        Ran(kernel=MATMUL, start_us=0, duration_us=300),
        Ran(kernel="gemm_without_shapes", start_us=300, duration_us=100),
    ]
    workload = captured(ran, CaptureChoice(token_count=4096, node_gpu_count=8))

    assert workload.size is not None
    assert workload.size.kernel_flop_count is None
    assert (4096, 8) == (workload.size.token_count, workload.size.node_gpu_count)
    assert (
        "The work of 1 of 2 kernels (25.0 % of the kernels' time) was estimated from how long it "
        "ran."
    ) == next(one.seen for one in workload.caveats if one.kind is CaveatKind.WORK_ESTIMATED)


def test_flops_are_those_of_matrix_kernels_alone() -> None:
    gelu = KernelSignature(name="gelu", op="aten::gelu", inputs=(tensor(4096, 4096),))
    ran = in_a_row([MATMUL, gelu, "unknown_update", "unknown_update"], duration_us=300)
    wrong = dataclasses.replace(MATMUL, name="mute", inputs=(tensor(4, 8), tensor(9, 16)))

    size, doubtful = captured(ran).size, captured([*ran, *in_a_row([wrong], start_us=2000)]).size

    assert size is not None
    assert doubtful is not None
    assert 2 * 4096.0**3 == size.kernel_flop_count
    assert 2 * 4096.0**3 == doubtful.kernel_flop_count  # 10 of 310 us
    assert captured(in_a_row([wrong, MATMUL], duration_us=300)).size == dataclasses.replace(
        size, kernel_flop_count=None
    )
    no_matrix = captured([*in_a_row([gelu])]).size
    assert no_matrix is not None
    assert no_matrix.kernel_flop_count is None


@pytest.mark.parametrize("op", list(CAUSAL_PLACES))
def test_causal_attention_counts_half(op: str) -> None:
    def flop_count(flag: str) -> float:
        heads = (tensor(2, 64, 64, 128, dtype="c10::BFloat16"),) * (3 + op.endswith("backward"))
        rest = [scalar("False")] * (CAUSAL_PLACES[op] - len(heads))
        inputs = (*heads, *rest, scalar(flag), scalar("0.125"))
        namespace = "flash_attn" if "attn" in op else "aten"
        kernel = KernelSignature(name="flash_kernel", op=f"{namespace}::{op}", inputs=inputs)
        size = captured(in_a_row([kernel], duration_us=300)).size
        assert size is not None
        assert size.kernel_flop_count is not None
        return size.kernel_flop_count

    assert 2 * flop_count("True") == flop_count("False") > 0
    if "_efficient_attention_" in op and "dot" not in op:
        assert 2 * flop_count("2") == flop_count("0")


def test_strides_of_convolutions_tell_kernels_apart() -> None:
    def kernel(stride: int) -> KernelSignature:
        inputs = (tensor(8, 64, 56, 56), tensor(64, 64, 3, 3), scalar(""), scalar(f"[{stride}]"))
        return KernelSignature(name="conv", op="aten::convolution", inputs=inputs)

    assert 2 == len(captured(in_a_row([kernel(1), kernel(2)], duration_us=300)).kernels)


def test_kernels_that_lost_their_operation_do_what_their_like_does() -> None:
    def kernel(k: int) -> KernelSignature:
        inputs = (tensor(4096, k, dtype="c10::BFloat16"), tensor(k, 4096, dtype="c10::BFloat16"))
        return dataclasses.replace(MATMUL, inputs=inputs, grid=(132, 1, 1), block=(384, 1, 1))

    lost = dataclasses.replace(kernel(4096), op=None, inputs=())
    other = dataclasses.replace(lost, grid=(66, 1, 1))
    ran = [
        *in_a_row([kernel(4096), lost, lost, lost], duration_us=300),
        *in_a_row([kernel(2048), lost], duration_us=160, start_us=2000),
    ]
    known, unlike, late = (
        captured([*ran, *in_a_row(rest, duration_us=time_us, start_us=5000)])
        for rest, time_us in (([], 1), ([other], 300), ([lost], 900))
    )

    assert known.size is not None
    assert 4 * 2 * 4096.0**3 + 2 * 4096.0**3 == known.size.kernel_flop_count
    assert CaveatKind.WORK_ESTIMATED not in kinds(known)
    assert CaveatKind.WORK_ESTIMATED in kinds(unlike)  # of another grid
    assert CaveatKind.WORK_ESTIMATED in kinds(late)  # three times as long


def test_gpus_of_the_process_count_where_ranks_do_not_tell() -> None:
    ran = [Ran(kernel=MATMUL, start_us=0, duration_us=300, gpu=gpu) for gpu in (0, 1)]

    size = captured(ran).size
    chosen = captured(ran, CaptureChoice(gpu_count=1)).size

    assert size is not None
    assert chosen is not None
    assert (2, 2 * 2 * 4096.0**3) == (size.gpu_count, size.kernel_flop_count)
    assert CaveatKind.OTHER_GPUS_LEFT_OUT in kinds(captured(ran))
    assert 1 == chosen.gpu_count


def test_ranks_tell_how_many_gpus_there_are() -> None:
    trace = profiler_trace(in_a_row([MATMUL], duration_us=300), rank=3, rank_count=16)
    workload = captured_workload(trace, CaptureChoice())

    assert workload.size is not None
    assert 16 == workload.size.gpu_count
    assert "The trace is of rank 3 of 16." in {caveat.seen for caveat in workload.caveats}
