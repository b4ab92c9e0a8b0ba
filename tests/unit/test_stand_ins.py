"""What runs in place of kernels computes and moves what they do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from joulewise.domain.errors import InputError, NotSupported
from joulewise.domain.workload import Dtype, KernelKind, KernelWork
from joulewise.integrations.stand_ins import (
    AGREEMENT_RATIO,
    MatrixStandIn,
    NoStandIn,
    StandIn,
    StreamStandIn,
    disagreement_ratio,
    stand_in,
)
from joulewise.workload.builtin import builtin_workload

WORK = KernelWork(
    kernel="k",
    kind=KernelKind.GEMM,
    dtype=Dtype.BF16,
    flop_count=1e12,
    traffic_bytes=7e8,
    compute_efficiency_ratio=0.9,
    memory_efficiency_ratio=0.8,
    core_activity_ratio=1.0,
    memory_activity_ratio=1.0,
)


def counted(one: StandIn) -> tuple[float, float]:
    """Operations and bytes, by another way than the stand-in's own."""
    if isinstance(one, StreamStandIn):
        elements = [part.element_count for part in one.parts]
        flops = [part.flop_per_element_count for part in one.parts]
        size = 8 if one.is_double else 4
        return sum(n * f for n, f in zip(elements, flops, strict=True)), 2 * size * sum(elements)
    assert isinstance(one, MatrixStandIn)
    a, b, c = one.row_count, one.depth_count, one.column_count
    size = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2}[one.dtype.value]
    factor_count = 1 if one.is_shared else one.product_count
    element_count = factor_count * (a * b + b * c) + one.product_count * a * c
    return one.product_count * a * c * 2 * b, size * element_count


def assert_alike(one: StandIn, work: KernelWork) -> None:
    flop_count, traffic_bytes = counted(one)
    assert (flop_count, traffic_bytes) == (one.flop_count, one.traffic_bytes)
    assert abs(flop_count / work.flop_count - 1.0) <= AGREEMENT_RATIO
    assert abs(traffic_bytes / work.traffic_bytes - 1.0) <= AGREEMENT_RATIO


@pytest.mark.parametrize("name", ["gpt3-xl", "gpt3-xl,batch=1,tp=8", "gpt3-xl,batch=7"])
def test_every_kernel_of_the_built_in_workloads_has_one(name: str) -> None:
    works = builtin_workload(name).works

    for work in works:
        assert_alike(stand_in(work), work)

    is_product = [isinstance(stand_in(work), MatrixStandIn) for work in works]
    assert [work.kind is KernelKind.GEMM for work in works] == is_product


@settings(deadline=None, max_examples=40)
@given(
    sides=st.tuples(*(st.integers(1, 8192) for _ in range(3))),
    product_count=st.integers(1, 64),
    dtype=st.sampled_from([Dtype.BF16, Dtype.FP16, Dtype.FP32, Dtype.TF32, Dtype.FP64]),
)
def test_any_product_of_matrices_has_one(
    sides: tuple[int, int, int], product_count: int, dtype: Dtype
) -> None:
    """Down to matrices by vectors. Tiny ones have no room for another shape, and no interest."""
    own = MatrixStandIn(
        dtype=dtype,
        product_count=product_count,
        row_count=sides[0],
        column_count=sides[1],
        depth_count=sides[2],
    )
    assume(own.flop_count >= 1e7)
    work = replace(WORK, dtype=dtype, flop_count=own.flop_count, traffic_bytes=own.traffic_bytes)

    assert_alike(stand_in(work), work)


@given(
    traffic_bytes=st.floats(1e4, 1e10),
    intensity=st.floats(0.01, 20.0),
    dtype=st.sampled_from(list(Dtype)),
)
def test_any_pass_over_vectors_has_one(
    traffic_bytes: float, intensity: float, dtype: Dtype
) -> None:
    """In single precision, whatever the workload keeps its vectors in; double where it says so."""
    work = replace(
        WORK,
        kind=KernelKind.OTHER,
        dtype=dtype,
        flop_count=intensity * traffic_bytes,
        traffic_bytes=traffic_bytes,
    )
    assume(intensity * (16 if dtype is Dtype.FP64 else 8) <= 189)

    one = stand_in(work)

    assert isinstance(one, StreamStandIn)
    assert (dtype is Dtype.FP64) == one.is_double
    assert_alike(one, work)


@pytest.mark.parametrize("flop_count", [0.0, 10.0])
def test_a_kernel_that_only_moves_is_a_copy(flop_count: float) -> None:
    work = replace(WORK, kind=KernelKind.OTHER, flop_count=flop_count, traffic_bytes=8e6)

    one = stand_in(work)

    assert isinstance(one, StreamStandIn)
    assert [(1_000_000, 0)] == [
        (part.element_count, part.flop_per_element_count) for part in one.parts
    ]


def test_a_fused_kernel_with_much_arithmetic_is_a_product() -> None:
    """Attention in one kernel, for example."""
    work = replace(WORK, kind=KernelKind.OTHER)

    assert isinstance(stand_in(work), MatrixStandIn)


@pytest.mark.parametrize(
    "impossible",
    [
        replace(WORK, traffic_bytes=1e6),
        replace(WORK, flop_count=0.0),
        replace(WORK, kind=KernelKind.OTHER, traffic_bytes=0.0),
        replace(WORK, kind=KernelKind.OTHER, flop_count=0.0, traffic_bytes=1.0),
    ],
    ids=["more than a product can do", "no arithmetic", "no traffic", "not an element"],
)
def test_what_nothing_can_stand_in_for_is_refused_by_name(impossible: KernelWork) -> None:
    with pytest.raises(InputError, match="'k'") as caught:
        stand_in(impossible)
    assert caught.value.hint


@pytest.mark.parametrize("token_count", [2048, 8192, 65536])
def test_attention_in_one_kernel_is_products_of_shared_factors(token_count: int) -> None:
    """Forward, of 32 heads of 128 each: more arithmetic than a product of as many bytes has."""
    width = 32 * 128
    work = replace(
        WORK, flop_count=4.0 * token_count**2 * width, traffic_bytes=8.0 * token_count * width
    )

    one = stand_in(work)

    assert isinstance(one, MatrixStandIn)
    assert one.is_shared == (token_count > 2048)
    assert_alike(one, work)


def test_arithmetic_without_a_stand_in_is_refused() -> None:
    with pytest.raises(NotSupported, match="fp8"):
        stand_in(replace(WORK, dtype=Dtype.FP8))


@pytest.mark.parametrize("kind", list(KernelKind))
@pytest.mark.parametrize(
    ("flop_count", "traffic_bytes"), [(1e300, 1e300), (1e300, 1.0), (1.0, 1e300), (1.7e308, 1e9)]
)
def test_a_work_beyond_any_gpu_is_an_input_error(
    kind: KernelKind, flop_count: float, traffic_bytes: float
) -> None:
    work = replace(WORK, kind=kind, flop_count=flop_count, traffic_bytes=traffic_bytes)

    with pytest.raises(InputError):
        stand_in(work)


def test_arithmetic_that_drowns_in_the_traffic_is_left_out() -> None:
    work = replace(WORK, kind=KernelKind.OTHER, flop_count=1.0, traffic_bytes=1e15)

    one = stand_in(work)

    assert 0.0 == one.flop_count
    assert pytest.approx(1e15) == one.traffic_bytes


def test_nothing_stands_in_for_a_gap() -> None:
    gap = replace(WORK, kind=KernelKind.GAP, flop_count=0.0, traffic_bytes=0.0, wait_s=1e-5)

    one = stand_in(gap)

    assert isinstance(one, NoStandIn)
    assert 0.0 == one.flop_count == one.traffic_bytes == disagreement_ratio(one, gap)


@pytest.mark.parametrize("wait_s", [0.0, 1e-3])
def test_the_local_work_of_a_collective_is_a_pass_over_vectors(wait_s: float) -> None:
    work = replace(
        WORK, kind=KernelKind.COLLECTIVE, flop_count=1e7, traffic_bytes=6e7, wait_s=wait_s
    )

    one = stand_in(work)

    assert isinstance(one, StreamStandIn)
    assert_alike(one, work)


def test_what_ran_beside_a_link_keeps_its_arithmetic() -> None:
    region = replace(WORK, wait_s=2e-3)

    assert stand_in(replace(region, wait_s=0.0)) == stand_in(region)


@given(traffic_bytes=st.integers(8, 4000), flop_count=st.integers(0, 4000))
def test_kernels_of_a_few_elements_have_one_too(traffic_bytes: int, flop_count: int) -> None:
    """Counts differ by no more than an element has."""
    assume(8 * flop_count <= 180 * traffic_bytes)
    work = replace(
        WORK,
        kind=KernelKind.OTHER,
        dtype=Dtype.FP32,
        flop_count=float(flop_count),
        traffic_bytes=float(traffic_bytes),
    )

    one = stand_in(work)

    assert isinstance(one, StreamStandIn)
    assert abs(one.traffic_bytes - traffic_bytes) <= 8
