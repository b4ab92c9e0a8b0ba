"""Stand-ins as launches of PyTorch operations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING

from joulewise.domain.workload import Dtype
from joulewise.integrations.stand_ins import MatrixStandIn, StandIn, StreamPart, StreamStandIn

if TYPE_CHECKING:
    import torch

_SCALE_RATIO = 0.999
# What was touched this many cache sizes ago is not in the cache any more.
_CACHES_COUNT = 3
_MOST_COPIES_COUNT = 2000


def copies_of(one: StandIn, cache_bytes: int) -> int:
    """So many sets of tensors, used in turn, go through the cache thrice before one comes back.

    A work's bytes are those that reach memory; on one set alone, what fits into the cache would
    stay there. Kernels that move less than a two-thousandth of that stay there all the same.
    """
    copies = math.ceil(_CACHES_COUNT * cache_bytes / one.traffic_bytes)
    return min(max(1, copies), _MOST_COPIES_COUNT)


def launch_of(one: StandIn, device: torch.device, copy_count: int = 1) -> Callable[[], None]:
    """Launches a stand-in, on one of so many sets of tensors after the other.

    They hold normal random numbers: power hangs on what the bits do, and zeros draw little.
    Results go to tensors that are there already, so that nothing is allocated meanwhile.
    """
    if isinstance(one, MatrixStandIn):
        return _product(one, device, copy_count)
    steps = [_stream_part(part, one, device, copy_count) for part in one.parts]
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


def _product(one: MatrixStandIn, device: torch.device, copy_count: int) -> Callable[[], None]:
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
    left = torch.randn(copy_count, count, rows, depth, dtype=dtype, device=device)
    right = torch.randn(copy_count, count, depth, columns, dtype=dtype, device=device)
    out = torch.empty(copy_count, count, rows, columns, dtype=dtype, device=device)
    sets = cycle(list(zip(left, right, out, strict=True)))

    def launch() -> None:
        one_left, one_right, one_out = next(sets)
        torch.bmm(one_left, one_right, out=one_out)

    return launch


def _stream_part(
    part: StreamPart, one: StreamStandIn, device: torch.device, copy_count: int
) -> Callable[[], None]:
    import torch  # noqa: PLC0415

    dtype = torch.float64 if one.is_double else torch.float32
    elements = torch.randn(copy_count, part.element_count, dtype=dtype, device=device)
    out = torch.empty_like(elements)
    sets = cycle(list(zip(elements, out, strict=True)))
    degree = part.degree_count

    def copy() -> None:
        one_elements, one_out = next(sets)
        one_out.copy_(one_elements)

    def scale() -> None:
        one_elements, one_out = next(sets)
        torch.mul(one_elements, _SCALE_RATIO, out=one_out)

    def polynomial() -> None:
        one_elements, one_out = next(sets)
        torch.special.hermite_polynomial_he(one_elements, degree, out=one_out)

    if degree is not None:
        return polynomial
    return scale if part.flop_per_element_count else copy


def _in_turn(steps: list[Callable[[], None]]) -> None:
    for step in steps:
        step()
