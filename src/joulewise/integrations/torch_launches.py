"""Stand-ins as launches of PyTorch operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from joulewise.domain.workload import Dtype
from joulewise.integrations.stand_ins import MatrixStandIn, StandIn, StreamPart, StreamStandIn

if TYPE_CHECKING:
    import torch

_SCALE_RATIO = 0.999


def launch_of(one: StandIn, device: torch.device) -> Callable[[], None]:
    """One launch of a stand-in, on tensors of its own.

    They hold normal random numbers: power hangs on what the bits do, and zeros draw little.
    Results go to tensors that are there already, so that nothing is allocated meanwhile.
    """
    if isinstance(one, MatrixStandIn):
        return _product(one, device)
    steps = [_stream_part(part, one, device) for part in one.parts]
    if len(steps) == 1:
        return steps[0]
    return partial(_in_turn, steps)


@contextmanager
def arithmetic_of(one: StandIn) -> Iterator[None]:
    """Let 32-bit products be taken in TF32 where the stand-in says so, and only there."""
    import torch  # noqa: PLC0415 - optional, and heavy

    before = torch.get_float32_matmul_precision()
    is_tf32 = isinstance(one, MatrixStandIn) and one.dtype is Dtype.TF32
    torch.set_float32_matmul_precision("high" if is_tf32 else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _product(one: MatrixStandIn, device: torch.device) -> Callable[[], None]:
    import torch  # noqa: PLC0415

    dtype = {
        Dtype.FP64: torch.float64,
        Dtype.FP32: torch.float32,
        Dtype.TF32: torch.float32,
        Dtype.FP16: torch.float16,
        Dtype.BF16: torch.bfloat16,
    }[one.dtype]
    count, rows, columns, depth = (
        one.product_count,
        one.row_count,
        one.column_count,
        one.depth_count,
    )
    left = torch.randn(count, rows, depth, dtype=dtype, device=device)
    right = torch.randn(count, depth, columns, dtype=dtype, device=device)
    out = torch.empty(count, rows, columns, dtype=dtype, device=device)

    def launch() -> None:
        torch.bmm(left, right, out=out)

    return launch


def _stream_part(part: StreamPart, one: StreamStandIn, device: torch.device) -> Callable[[], None]:
    import torch  # noqa: PLC0415

    dtype = torch.float64 if one.is_double else torch.float32
    elements = torch.randn(part.element_count, dtype=dtype, device=device)
    out = torch.empty_like(elements)
    degree = part.degree_count

    def copy() -> None:
        out.copy_(elements)

    def scale() -> None:
        torch.mul(elements, _SCALE_RATIO, out=out)

    def polynomial() -> None:
        torch.special.hermite_polynomial_he(elements, degree, out=out)

    if degree is not None:
        return polynomial
    return scale if part.flop_per_element_count else copy


def _in_turn(steps: list[Callable[[], None]]) -> None:
    for step in steps:
        step()
