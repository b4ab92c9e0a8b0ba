"""Formulas of a capture against those of PyTorch's flop counter."""

from __future__ import annotations

import pytest
from tests.profiler_traces import scalar, tensor

from joulewise.domain.trace import OpInput
from joulewise.workload.capture.ops.attention import CAUSAL_PLACES, QUANTIZED_PLACES
from joulewise.workload.capture.ops.convolutions import (
    CONVOLUTION_PLACES,
    GRADIENT_PLACES,
)
from joulewise.workload.capture.ops.formulas import op_work
from joulewise.workload.capture.ops.products import LEFT_PLACES

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.integration

Shape = tuple[int, ...]


def ours(op: str, inputs: tuple[OpInput, ...]) -> float:
    work = op_work(f"aten::{op}", inputs).work
    assert work is not None
    return work.flop_count


def theirs(op: str, *arguments: object) -> int:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        getattr(torch.ops.aten, op)(*arguments)
    return int(counter.get_total_flops())


def meta(*shape: int) -> object:
    return torch.empty(shape, device="meta", dtype=torch.bfloat16)


@pytest.mark.parametrize(
    ("op", "shapes"),
    [
        ("mm", ((4, 8), (8, 16))),
        ("addmm", ((16,), (4, 8), (8, 16))),
        ("bmm", ((3, 4, 8), (3, 8, 16))),
        ("baddbmm", ((3, 4, 16), (3, 4, 8), (3, 8, 16))),
    ],
)
def test_products_count_as_pytorch_counts_them(op: str, shapes: tuple[Shape, ...]) -> None:
    expected = theirs(op, *(meta(*shape) for shape in shapes))

    assert expected == ours(op, tuple(tensor(*shape) for shape in shapes))
    assert expected > 0


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("groups", [1, 4])
def test_convolutions_count_as_pytorch_counts_them(
    stride: int,
    is_transposed: bool,  # noqa: FBT001
    groups: int,
) -> None:
    x = (2, 8, 15, 17)
    weight = (8, 12 // groups, 3, 3) if is_transposed else (12, 8 // groups, 3, 3)
    rest = ([stride] * 2, [1, 1], [1, 1], is_transposed, [0, 0], groups)

    expected = theirs("convolution", meta(*x), meta(*weight), None, *rest)
    inputs = (tensor(*x), tensor(*weight), scalar(""), *(scalar(value) for value in rest))

    assert expected == ours("convolution", inputs)


@pytest.mark.parametrize("mask", [[True, True, False], [False, True, True], [True, False, False]])
def test_gradients_of_convolutions_count_as_pytorch_counts_them(mask: list[bool]) -> None:
    gradient, x, weight = (2, 12, 8, 9), (2, 8, 15, 17), (12, 8, 3, 3)
    rest = ([12], [2, 2], [1, 1], [1, 1], False, [0, 0], 1, mask)

    expected = theirs("convolution_backward", meta(*gradient), meta(*x), meta(*weight), *rest)
    inputs = (
        *(tensor(*shape) for shape in (gradient, x, weight)),
        *(scalar(value) for value in rest),
    )

    assert expected == ours("convolution_backward", inputs)


@pytest.mark.parametrize(
    ("q", "k"), [((2, 4, 10, 8), (2, 4, 10, 8)), ((2, 8, 6, 8), (2, 2, 20, 8))]
)
def test_attention_counts_as_pytorch_counts_it(q: Shape, k: Shape) -> None:
    from torch.utils.flop_counter import sdpa_backward_flop_count, sdpa_flop_count

    forward = tuple(tensor(*shape) for shape in (q, k, k))
    backward = (tensor(*q), *forward)

    assert sdpa_flop_count(q, k, k) == ours("_scaled_dot_product_flash_attention", forward)
    assert sdpa_backward_flop_count(q, q, k, k) == ours(
        "_scaled_dot_product_flash_attention_backward", backward
    )


def places(op: str, overload: str = "default") -> dict[int, str]:
    """What an operation takes where, by its schema."""
    arguments = getattr(getattr(torch.ops.aten, op), overload)._schema.arguments  # noqa: SLF001 - the only way to it
    return {index: one.name for index, one in enumerate(arguments)}


@pytest.mark.parametrize("op", [op for op in CAUSAL_PLACES if "attn" not in op])
def test_attention_is_read_where_pytorch_has_it(op: str) -> None:
    taken = places(op)

    assert taken[CAUSAL_PLACES[op]] in {"is_causal", "custom_mask_type"}
    first = 1 if op.endswith("_backward") else 0
    assert ["query", "key", "value"] == [taken[first + offset] for offset in range(3)]
    assert first == 0 or taken[0] in {"grad_out", "grad_out_"}
    if op in QUANTIZED_PLACES and "quantized" in getattr(torch.ops.aten, op).overloads():
        count, causal_at = QUANTIZED_PLACES[op]
        quantized = places(op, "quantized")
        assert (count, "is_causal") == (len(quantized), quantized[causal_at])


@pytest.mark.parametrize("op", list(LEFT_PLACES))
def test_products_are_read_where_pytorch_has_them(op: str) -> None:
    taken = places(op)
    left = LEFT_PLACES[op]

    assert taken[left] in {"self", "mat1", "batch1", "mat"}
    assert taken[left + 1] in {"mat2", "batch2", "vec"}


@pytest.mark.parametrize("op", list(CONVOLUTION_PLACES))
def test_convolutions_are_read_where_pytorch_has_them(op: str) -> None:
    taken = places(op)
    named = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")

    assert "weight" == taken[1]
    for place, name in zip(CONVOLUTION_PLACES[op], named, strict=True):
        assert place is None or name == taken[place]


def test_gradients_of_convolutions_are_read_where_pytorch_has_them() -> None:
    for op, (transposed_at, mask_at) in GRADIENT_PLACES.items():
        taken = places(op)
        assert ("input", "weight") == (taken[1], taken[2])
        assert ("transposed", "output_mask") == (taken[transposed_at], taken[mask_at])


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("linear", {0: "input", 1: "weight"}),
        ("matmul", {0: "self", 1: "other"}),
        ("embedding", {0: "weight", 1: "indices"}),
        ("index_select", {0: "self", 2: "index"}),
        ("gather", {0: "self", 2: "index"}),
        ("embedding_dense_backward", {0: "grad_output"}),
        ("copy_", {0: "self", 1: "src"}),
    ],
)
def test_other_operations_are_read_where_pytorch_has_them(
    op: str, expected: dict[int, str]
) -> None:
    taken = places(op)

    assert expected == {place: taken[place] for place in expected}
