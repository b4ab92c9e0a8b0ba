"""Stand-ins as launches of PyTorch operations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING

from joulewise.domain.ports import Timer
from joulewise.domain.workload import Dtype
from joulewise.integrations.stand_ins import (
    MatrixStandIn,
    NoStandIn,
    StandIn,
    StreamPart,
    StreamStandIn,
)

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
    if not one.traffic_bytes:
        return 1
    copies = math.ceil(_CACHES_COUNT * cache_bytes / one.traffic_bytes)
    return min(max(1, copies), _MOST_COPIES_COUNT)


def launch_of(one: StandIn, device: torch.device, copy_count: int = 1) -> Callable[[], None]:
    """Launches a stand-in, on one of so many sets of tensors after the other.

    They hold normal random numbers: power hangs on what the bits do, and zeros draw little.
    Results go to tensors that are there already, so that nothing is allocated meanwhile.
    """
    if isinstance(one, NoStandIn):
        return _touch(device)
    if isinstance(one, MatrixStandIn):
        return _product(one, device, copy_count)
    steps = [_stream_part(part, one, device, copy_count) for part in one.parts]
    if len(steps) == 1:
        return steps[0]
    return partial(_in_turn, steps)


def paced(launch: Callable[[], None], period_s: float, timer: Timer) -> Callable[[], None]:
    """Launches, and has the host wait until so long after the last launch was due.

    The GPU does its work meanwhile, if it has any, and then waits with its clocks up, as it does
    for a link to other GPUs or for a host that has not launched the next kernel yet. One
    launch takes what work or wait takes longer. Moments are due one period apart, so that a
    host that wakes up late once makes up for it. Nothing waits where the period is zero.

    No graph holds a wait: launches that wait are queued one by one, or batch by batch.
    """
    if period_s <= 0:
        return launch
    due_s: float | None = None

    def launch_and_wait() -> None:
        nonlocal due_s
        now_s = timer.now_s()
        # After a pause, or where work takes longer than the wait, there is nothing to catch up.
        is_behind = due_s is None or now_s > due_s + period_s
        due_s = (now_s if is_behind or due_s is None else due_s) + period_s
        launch()
        timer.sleep(due_s - timer.now_s())

    return launch_and_wait


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


def _touch(device: torch.device) -> Callable[[], None]:
    """One element is changed: next to nothing, but a GPU that never works lets its clocks fall."""
    import torch  # noqa: PLC0415

    element = torch.zeros(1, device=device)

    def touch() -> None:
        element.add_(1.0)

    return touch


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
    # Shared factors are there once and seen many times, which takes no copy.
    factor_count = 1 if one.is_shared else count
    left = torch.randn(copy_count, factor_count, rows, depth, dtype=dtype, device=device)
    right = torch.randn(copy_count, factor_count, depth, columns, dtype=dtype, device=device)
    left = left.expand(copy_count, count, rows, depth)
    right = right.expand(copy_count, count, depth, columns)
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
