"""The built-in workload: what the paper says of it, and what its scaling must keep."""

from __future__ import annotations

import pytest

from joulewise.domain.errors import InputError
from joulewise.domain.workload import KernelKind, Pass
from joulewise.workflow.workloads import load_workload
from joulewise.workload.builtin import builtin_workload
from joulewise.workload.gpt3_xl import (
    HIDDEN_COUNT,
    LAYER_COUNT,
    SEQUENCE_COUNT,
    VOCABULARY_COUNT,
    gpt3_xl,
    kernel_shapes,
)


def test_an_iteration_has_46_kernels_and_897_launches() -> None:
    workload = gpt3_xl()

    assert (46, 897) == (len(workload.kernels), len(workload.launches))


def test_layer_kernels_are_launched_24_times_and_the_rest_once() -> None:
    counts = list(gpt3_xl().launch_counts().values())

    assert [1] * 2 + [24] * 12 + [1] * 5 + [24] * 25 + [1] * 2 == counts


def test_21_of_the_kernels_are_matrix_products() -> None:
    kinds = [work.kind for work in gpt3_xl().works]

    assert 21 == kinds.count(KernelKind.GEMM)


def test_the_forward_pass_is_the_first_14_kernels() -> None:
    launches = gpt3_xl().launches
    forward = {launch.kernel for launch in launches if launch.pass_ is Pass.FORWARD}

    assert {work.kernel for work in gpt3_xl().works[:14]} == forward


def test_matrix_work_is_three_times_the_forward_formula() -> None:
    # Forward: 24 h^2 + 4 s h FLOPs a token and layer, 2 h v for the logits; backward twice that.
    tokens = 40 * SEQUENCE_COUNT
    layer = 24 * HIDDEN_COUNT**2 + 4 * SEQUENCE_COUNT * HIDDEN_COUNT
    logits = 2 * HIDDEN_COUNT * VOCABULARY_COUNT
    expected = 3 * tokens * (LAYER_COUNT * layer + logits)

    counts = gpt3_xl().launch_counts()
    gemms = [work for work in gpt3_xl().works if work.kind is KernelKind.GEMM]

    assert pytest.approx(expected) == sum(w.flop_count * counts[w.kernel] for w in gemms)


@pytest.mark.parametrize("degree", [2, 4, 8, 16])
def test_tensor_parallelism_splits_all_work_but_the_bias_reduction(degree: int) -> None:
    whole = {shape.kernel: shape for shape in kernel_shapes(8)}
    split = {shape.kernel: shape for shape in kernel_shapes(8, degree)}

    uneven = {
        name
        for name, shape in split.items()
        if shape.flop_count != pytest.approx(whole[name].flop_count / degree)
    }

    assert {"21_bias_reduce", "30_bias_reduce"} == uneven


def test_work_grows_with_the_batch_but_weights_do_not() -> None:
    one, two = kernel_shapes(4)[2], kernel_shapes(8)[2]

    assert pytest.approx(2) == two.flop_count / one.flop_count
    assert two.traffic_bytes < 2 * one.traffic_bytes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpt4", "field 'workload': 'gpt4' is neither a built-in workload nor a file"),
        ("gpt3-xl,tp=3", "field 'tp': 3 does not divide the 16 attention heads"),
        ("gpt3-xl,batch=0", "field 'batch': a batch holds at least one sequence, got 0"),
        ("gpt3-xl,batch=many", "field 'workload': batch must be a whole number, got 'many'"),
        ("gpt3-xl,layers=2", "field 'workload': 'layers=2' is not an option of gpt3-xl"),
        ("gpt3-xl,", "field 'workload': '' is not an option of gpt3-xl"),
    ],
)
def test_what_is_not_known_is_named(text: str, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        builtin_workload(text)

    assert expected == str(caught.value)


def test_options_are_part_of_the_name() -> None:
    assert "gpt3-xl,batch=8,tp=2" == builtin_workload("gpt3-xl,batch=8,tp=2").name
    assert "gpt3-xl" == builtin_workload("gpt3-xl,batch=40,tp=1").name


@pytest.mark.parametrize(
    ("text", "meant"),
    [("lama3-8b", "llama3-8b?"), ("gpt3_xl,batch=2", "gpt3-xl,batch=2?"), ("Bert-Base", "bert-b")],
)
def test_a_name_that_is_nearly_one_is_asked_about(text: str, meant: str) -> None:
    with pytest.raises(InputError) as caught:
        load_workload(text)

    assert caught.value.hint is not None
    assert f"Did you mean {meant}" in caught.value.hint
