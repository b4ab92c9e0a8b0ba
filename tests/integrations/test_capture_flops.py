"""Formulas of a capture against those of PyTorch's flop counter."""

from __future__ import annotations

import pytest
from tests.profiler_traces import scalar, tensor

from joulewise.domain.trace import OpInput
from joulewise.workload.capture.ops.formulas import op_work

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
