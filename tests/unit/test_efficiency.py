"""Tokens, FLOPs and shares of the peak: identities, sums over GPUs, what stays unknown."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.plans import bare_plan

from joulewise.domain.efficiency import (
    Efficiency,
    efficiency,
    job_peak_flop_per_s,
    plan_efficiency,
)
from joulewise.domain.plan import Interval, Plan, PlannedLaunch, Verification, VerificationPair
from joulewise.domain.points import AUTO
from joulewise.domain.workload import Dtype, IterationSize, KernelKind, Pass
from joulewise.workload.gpt3_xl import (
    HIDDEN_COUNT,
    LAYER_COUNT,
    PARAMETER_COUNT,
    gpt3_xl,
)

CLOSE = 1e-12

times_s = st.floats(1e-6, 1e4)
energies_j = st.floats(1e-6, 1e7)
peaks = st.floats(1e9, 1e17)


@st.composite
def sizes(draw: st.DrawFn) -> IterationSize:
    gpu_count = draw(st.integers(1, 10_000))
    model_flop_count = draw(st.floats(1e6, 1e25))
    return IterationSize(
        gpu_count=gpu_count,
        node_gpu_count=draw(st.integers(1, min(8, gpu_count))),
        token_count=draw(st.integers(1, 10**9)),
        model_flop_count=model_flop_count,
        kernel_flop_count=model_flop_count * draw(st.floats(1, 2)),
        dtype=Dtype.BF16,
    )


def known(value: float | None) -> float:
    assert value is not None
    return value


@given(size=sizes(), time_s=times_s, energy_j=energies_j, peak=peaks)
def test_metrics_are_the_quotients_of_a_job_added_up_gpu_by_gpu(
    size: IterationSize, time_s: float, energy_j: float, peak: float
) -> None:
    found = efficiency(size, time_s, energy_j, peak)

    job_energy_j = math.fsum([energy_j] * size.gpu_count)
    tokens = known(size.token_count)
    assert known(found.token_count_per_s) == pytest.approx(tokens / time_s, rel=CLOSE)
    assert known(found.energy_j_per_token) == pytest.approx(job_energy_j / tokens, rel=CLOSE)
    node_w = math.fsum([energy_j / time_s] * int(known(size.node_gpu_count)))
    gpu_flop_per_s = known(size.model_flop_count) / time_s / size.gpu_count
    node_flop_per_s = math.fsum([gpu_flop_per_s] * int(known(size.node_gpu_count)))
    assert known(found.gpu_flop_per_s) == pytest.approx(gpu_flop_per_s, rel=CLOSE)
    assert known(found.gpu_by_node_flop_per_j) == pytest.approx(gpu_flop_per_s / node_w, rel=CLOSE)
    assert known(found.node_flop_per_j) == pytest.approx(node_flop_per_s / node_w, rel=CLOSE)


@given(size=sizes(), time_s=times_s, energy_j=energies_j, peak=peaks)
def test_metrics_hang_together(
    size: IterationSize, time_s: float, energy_j: float, peak: float
) -> None:
    found = efficiency(size, time_s, energy_j, peak)

    per_kj = known(found.token_count_per_kj)
    assert per_kj * known(found.energy_j_per_token) == pytest.approx(1000, rel=CLOSE)
    assert known(found.mfu_ratio) * peak == pytest.approx(known(found.gpu_flop_per_s), rel=CLOSE)
    assert known(found.hfu_ratio) * peak == pytest.approx(
        known(found.gpu_kernel_flop_per_s), rel=CLOSE
    )
    assert known(found.mfu_ratio) <= known(found.hfu_ratio) * (1 + CLOSE)
    assert known(found.node_flop_per_j) == pytest.approx(
        known(size.node_gpu_count) * known(found.gpu_by_node_flop_per_j), rel=CLOSE
    )
    assert known(found.node_kernel_flop_per_j) / known(found.node_flop_per_j) == pytest.approx(
        known(found.hfu_ratio) / known(found.mfu_ratio), rel=CLOSE
    )
    # Throughput per watt is work per energy (ML.ENERGY).
    job_w = energy_j * size.gpu_count / time_s
    assert known(found.token_count_per_s) / job_w == pytest.approx(per_kj / 1000, rel=CLOSE)


def test_both_readings_of_tflops_per_kw_are_those_of_the_published_node() -> None:
    """54 TFLOP/s per GPU in a node of eight at 6.99 kW: 7.7 as printed, 61.8 by the node."""
    size = IterationSize(gpu_count=8, node_gpu_count=8, model_flop_count=8 * 54e12)

    found = efficiency(size, 1.0, 6990.0 / 8, None)

    assert known(found.gpu_flop_per_s) == pytest.approx(54e12)
    assert round(known(found.gpu_by_node_flop_per_j) / 1e9, 2) == 7.73
    assert round(known(found.node_flop_per_j) / 1e9, 1) == 61.8


NEEDS = {
    "token_count_per_s": {"token_count"},
    "energy_j_per_token": {"token_count"},
    "token_count_per_kj": {"token_count"},
    "gpu_flop_per_s": {"model_flop_count"},
    "gpu_kernel_flop_per_s": {"kernel_flop_count"},
    "mfu_ratio": {"model_flop_count", "peak"},
    "hfu_ratio": {"kernel_flop_count", "peak"},
    "node_flop_per_j": {"model_flop_count"},
    "gpu_by_node_flop_per_j": {"model_flop_count", "node_gpu_count"},
    "node_kernel_flop_per_j": {"kernel_flop_count"},
}


@given(
    size=sizes(),
    missing=st.sets(
        st.sampled_from(
            ("token_count", "model_flop_count", "kernel_flop_count", "node_gpu_count", "peak")
        )
    ),
)
def test_a_metric_is_unknown_exactly_where_something_that_it_needs_is(
    size: IterationSize, missing: set[str]
) -> None:
    has_own_node = size.gpu_count == 1
    lacking = replace(size, **dict.fromkeys(missing - {"peak"}))  # type: ignore[arg-type] # None

    found = efficiency(lacking, 1.0, 1.0, None if "peak" in missing else 1e15)

    assert NEEDS.keys() == {field.name for field in fields(Efficiency)}
    for name, needed in NEEDS.items():
        lacks = missing - ({"node_gpu_count"} if has_own_node else set())
        assert (getattr(found, name) is None) == bool(needed & lacks), name
    assert found.is_known == (
        not {"token_count", "model_flop_count", "kernel_flop_count"} <= missing
    )


@given(
    gpu_count=st.sampled_from((0, 1, 2**63, 10**400)),
    node_gpu_count=st.sampled_from((None, 0, 8, 10**400)),
    token_count=st.sampled_from((0, 1, 10**400)),
    flops=st.sampled_from((0.0, 5e-324, 1e308)),
    time_s=st.sampled_from((0.0, 5e-324, 1.0, 1e308)),
    energy_j=st.sampled_from((-1.0, 0.0, 5e-324, 1.0, 1e308)),
)
def test_sizes_that_no_job_has_give_no_figure_instead_of_a_wrong_one(
    gpu_count: int,
    node_gpu_count: int | None,
    token_count: int,
    flops: float,
    time_s: float,
    energy_j: float,
) -> None:
    size = IterationSize(
        gpu_count=gpu_count,
        node_gpu_count=node_gpu_count,
        token_count=token_count,
        model_flop_count=flops,
        kernel_flop_count=flops,
    )

    found = efficiency(size, time_s, energy_j, 1e15)

    for field in fields(Efficiency):
        value = getattr(found, field.name)
        assert value is None or (math.isfinite(value) and value > 0), field.name
    assert gpu_count or not found.is_known


def test_the_peak_is_that_of_the_gpu_in_the_format_of_the_matrices() -> None:
    def size(dtype: Dtype | None) -> IterationSize:
        return IterationSize(model_flop_count=1.0, dtype=dtype)

    assert 989.4e12 == job_peak_flop_per_s(size(Dtype.BF16), "NVIDIA H100 80GB HBM3")
    assert 312e12 == job_peak_flop_per_s(size(Dtype.FP16), "NVIDIA A100-SXM4-80GB")
    assert job_peak_flop_per_s(size(None), "NVIDIA H100 80GB HBM3") is None
    assert job_peak_flop_per_s(size(Dtype.BF16), "a GPU that nobody lists") is None
    assert job_peak_flop_per_s(size(Dtype.FP8), "NVIDIA A100-SXM4-80GB") is None


@pytest.mark.parametrize(
    ("model_ratio", "kernel_ratio", "is_impossible"),
    [
        (1.19, 1.19, False),
        (1.21, None, True),
        (0.5, 1.21, True),
        # Causal flash attention of long sequences: half of what the model counts is not run.
        (1.5, 0.8, False),
        (2.41, 1.0, True),
        (None, None, False),
    ],
)
def test_shares_beyond_any_clock_are_told_from_those_that_a_mask_explains(
    model_ratio: float | None, kernel_ratio: float | None, *, is_impossible: bool
) -> None:
    size = IterationSize(model_flop_count=model_ratio, kernel_flop_count=kernel_ratio)

    assert is_impossible == efficiency(size, 1.0, 1.0, 1.0).is_impossible


def planned(size: IterationSize | None) -> Plan:
    """10 s and 1 kJ at the baseline; 10 % more time and half the energy are promised."""
    launch = PlannedLaunch(kernel="k", pass_=Pass.FORWARD, point=AUTO)
    return replace(
        bare_plan([launch]),
        size=size,
        baseline_time_s=10.0,
        baseline_energy_j=1000.0,
        time_s=11.0,
        energy_j=500.0,
        slowdown_ratio=1.1,
        saving_ratio=0.5,
    )


def seen(slowdown_ratio: float, saving_ratio: float) -> Verification:
    """A verification whose pairs ran at another absolute level than the plan's baseline."""
    pair = VerificationPair(
        baseline_time_s=20.0,
        baseline_energy_j=2000.0,
        plan_time_s=20.0 * slowdown_ratio,
        plan_energy_j=2000.0 * (1 - saving_ratio),
    )
    return Verification(
        plan_sha256="0" * 64,
        device="virtual:x",
        device_name="X",
        pairs=(pair,),
        promised_slowdown_ratio=1.1,
        promised_saving_ratio=0.5,
        slowdown_ratio=slowdown_ratio,
        slowdown_interval=Interval(low_ratio=slowdown_ratio, high_ratio=slowdown_ratio),
        saving_ratio=saving_ratio,
        saving_interval=Interval(low_ratio=saving_ratio, high_ratio=saving_ratio),
        max_slowdown_ratio=None,
        is_within_budget=None,
    )


def test_fresh_runs_win_over_the_promise() -> None:
    plan = planned(IterationSize(token_count=100))

    promised, verified = plan_efficiency(plan), plan_efficiency(plan, seen(1.25, 0.2))

    assert promised is not None
    assert verified is not None
    assert 10.0 == promised.baseline.energy_j_per_token == verified.baseline.energy_j_per_token
    assert 5.0 == promised.plan.energy_j_per_token
    assert 8.0 == verified.plan.energy_j_per_token
    assert known(promised.plan.token_count_per_s) == pytest.approx(100 / 11)
    assert 8.0 == verified.plan.token_count_per_s


def test_a_plan_without_a_size_or_without_any_figure_in_it_says_nothing() -> None:
    assert plan_efficiency(planned(None)) is None
    assert plan_efficiency(planned(IterationSize(gpu_count=8, parameter_count=7))) is None


@pytest.mark.parametrize(("batch_count", "degree"), [(40, 1), (8, 2), (3, 16)])
def test_flops_of_gpt3_xl_are_those_of_its_matrix_products(batch_count: int, degree: int) -> None:
    workload = gpt3_xl(batch_count, degree)
    works = {work.kernel: work for work in workload.works}
    flops = [
        works[launch.kernel].flop_count
        for launch in workload.launches
        if works[launch.kernel].kind is KernelKind.GEMM
    ]

    size = workload.size

    assert size is not None
    assert (degree, batch_count * 1024) == (size.gpu_count, size.token_count)
    assert known(size.model_flop_count) == pytest.approx(degree * math.fsum(flops), rel=CLOSE)
    # Scores are all computed, masked or not, and nothing is computed twice.
    assert known(size.kernel_flop_count) == pytest.approx(known(size.model_flop_count), rel=CLOSE)


def test_parameters_of_gpt3_xl_are_its_tensors() -> None:
    def tensors() -> Iterator[int]:
        h = HIDDEN_COUNT
        yield from (50_257 * h, 2048 * h)
        for _ in range(LAYER_COUNT):
            yield from (h, h, 3 * h * h, 3 * h, h * h, h)
            yield from (h, h, 4 * h * h, 4 * h, 4 * h * h, h)
        yield from (h, h)

    assert PARAMETER_COUNT == sum(tensors())
