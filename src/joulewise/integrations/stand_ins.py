"""Stand-ins for kernels: matrix products and streams with a work's arithmetic and traffic.

A workload says how much a kernel computes and moves, not how it is written. What runs in its
place is a batch of matrix products of its arithmetic (of the same factors each time where they
are too few bytes for it), or a pass over a long vector that reads each element, computes on it
and writes it. Counts of operations and of bytes both agree with
the work's, within `AGREEMENT_RATIO` or one element; less than one operation on a thousand bytes
moved is as good as none, for the traffic takes hundreds of times as long, and nothing is computed
then. What waits, for a link or for the host, waits here too, beside the work that it has: see
`torch_launches.paced`. Where all is waiting, nothing stands in.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from joulewise.domain.errors import InputError, NotSupported
from joulewise.domain.workload import Dtype, KernelKind, KernelWork

AGREEMENT_RATIO = 0.02
# Shapes this near are as good as any; of those the most even one is taken.
_NEAR_RATIO = 0.005
_PRODUCT_DTYPES = (Dtype.FP64, Dtype.FP32, Dtype.TF32, Dtype.FP16, Dtype.BF16)
# Tensor cores want sides in eights; products of few rows cannot have them.
_EVEN_SIDES = (*range(8, 129, 8), *range(160, 513, 32), *(2**n for n in range(10, 15)))
_FEW_ROWS = tuple(range(1, 8))
_CUBE_RATIO = 0.1
_LONGEST_SIDE_COUNT = 2**20
_MOST_PRODUCTS_COUNT = 2**20
# An element is scaled (one operation), or put through the Hermite polynomial of a degree: the
# recurrence `x q - k p` takes three operations for each degree beyond the first.
_FLOPS_PER_DEGREE_COUNT = 3
_HIGHEST_DEGREE_COUNT = 64
_NEGLIGIBLE_PART_RATIO = 0.001
# Operations or bytes that no wait for a link or a host is too short for.
_LEAST_BESIDE_WAIT_COUNT = 1024
# No GPU does as much within a day; sides and counts beyond it are no integers of a tensor.
_MOST_COUNT = 1e24


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixStandIn:
    """So many products of a matrix of rows x depth with one of depth x columns.

    Where `is_shared`, all have the same factors, and each writes a result of its own.
    """

    dtype: Dtype
    product_count: int
    row_count: int
    column_count: int
    depth_count: int
    is_shared: bool = False

    @property
    def flop_count(self) -> float:
        """Multiplications and additions."""
        return 2.0 * self.product_count * self.row_count * self.column_count * self.depth_count

    @property
    def traffic_bytes(self) -> float:
        """Factors read once, every product written once."""
        rows, columns, depth = self.row_count, self.column_count, self.depth_count
        factors = (rows + columns) * depth * (1 if self.is_shared else self.product_count)
        results = rows * columns * self.product_count
        return float(self.dtype.element_bytes * (factors + results))

    @property
    def unevenness_ratio(self) -> float:
        """The longest side over the shortest."""
        sides = (self.row_count, self.column_count, self.depth_count)
        return max(sides) / min(sides)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPart:
    """Elements on which so many operations are done: none (a copy), one, or a multiple of 3."""

    element_count: int
    flop_per_element_count: int

    @property
    def degree_count(self) -> int | None:
        """Degree of the polynomial that takes as many; `None` for a copy or a scaling."""
        if self.flop_per_element_count <= 1:
            return None
        return 1 + self.flop_per_element_count // _FLOPS_PER_DEGREE_COUNT


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStandIn:
    """One pass over vectors, in single or double precision."""

    is_double: bool
    parts: tuple[StreamPart, ...]

    @property
    def element_bytes(self) -> int:
        """Size of one element."""
        return 8 if self.is_double else 4

    @property
    def flop_count(self) -> float:
        """Operations as written; hardware may do two in one."""
        return float(sum(part.element_count * part.flop_per_element_count for part in self.parts))

    @property
    def traffic_bytes(self) -> float:
        """Each element read once and written once."""
        return 2.0 * self.element_bytes * sum(part.element_count for part in self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoStandIn:
    """Nothing: the GPU waits."""

    @property
    def flop_count(self) -> float:
        """None."""
        return 0.0

    @property
    def traffic_bytes(self) -> float:
        """None."""
        return 0.0


StandIn = MatrixStandIn | StreamStandIn | NoStandIn


def stand_in(work: KernelWork) -> StandIn:
    """What runs in place of this kernel.

    Raises:
        NotSupported: arithmetic that cannot be run here.
        InputError: no stand-in has the work's operations and bytes.
    """
    element_bytes = 8 if work.dtype is Dtype.FP64 else 4
    flops_per_element = 2.0 * element_bytes * work.flop_count / max(work.traffic_bytes, 1.0)
    if max(work.flop_count, work.traffic_bytes) > _MOST_COUNT:
        return _agreeing(None, work)
    if work.wait_s > 0 and max(work.flop_count, work.traffic_bytes) < _LEAST_BESIDE_WAIT_COUNT:
        return NoStandIn()
    highest = _FLOPS_PER_DEGREE_COUNT * (_HIGHEST_DEGREE_COUNT - 1)
    if work.kind is not KernelKind.GEMM and flops_per_element <= highest:
        return _agreeing(_stream(work, flops_per_element), work)
    if work.dtype not in _PRODUCT_DTYPES:
        raise NotSupported(
            f"kernel {work.kernel!r} multiplies matrices in {work.dtype}, which has no stand-in",
            hint="Measure a workload whose products are in bf16, fp16, tf32, fp32 or fp64.",
        )
    product = min(_products(work), key=lambda one: _rank(one, work), default=None)
    if product is None or not _agrees(product, work):
        # Attention in one kernel computes more on its bytes than any one product can.
        shared = _shared_products(work)
        product = min(shared, key=lambda one: _rank(one, work), default=product)
    return _agreeing(product, work)


def disagreement_ratio(one: StandIn, work: KernelWork) -> float:
    """By how much operations or bytes differ from the work's, whichever differs more.

    Less than one operation on a thousand bytes is as good as none.
    """
    bytes_ratio = _apart_ratio(one.traffic_bytes, work.traffic_bytes)
    if max(one.flop_count, work.flop_count) < _NEGLIGIBLE_PART_RATIO * work.traffic_bytes:
        return bytes_ratio
    return max(bytes_ratio, _apart_ratio(one.flop_count, work.flop_count))


def _apart_ratio(value: float, wanted: float) -> float:
    if wanted <= 0:
        return 0.0 if value == wanted else math.inf
    return abs(value / wanted - 1.0)


def _is_within_an_element(one: StreamStandIn, work: KernelWork) -> bool:
    """Whether bytes and operations are those of the work but for one element of the pass."""
    flops = max((part.flop_per_element_count for part in one.parts), default=0)
    flops_apart = abs(one.flop_count - work.flop_count)
    bytes_apart = abs(one.traffic_bytes - work.traffic_bytes)
    most_flops_apart = flops + _FLOPS_PER_DEGREE_COUNT
    return bytes_apart <= 2.0 * one.element_bytes and flops_apart <= most_flops_apart


def _agrees(one: StandIn, work: KernelWork) -> bool:
    if disagreement_ratio(one, work) <= AGREEMENT_RATIO:
        return True
    return isinstance(one, StreamStandIn) and _is_within_an_element(one, work)


def _agreeing(one: StandIn | None, work: KernelWork) -> StandIn:
    if one is None or not _agrees(one, work):
        raise InputError(
            f"nothing that can run in place of kernel {work.kernel!r} takes "
            f"{work.flop_count:.3g} operations and moves {work.traffic_bytes:.3g} bytes",
            field="workload",
            hint='Check "flop_count" and "traffic_bytes" of the kernel in the workload file.',
        )
    return one


def _rank(one: MatrixStandIn, work: KernelWork) -> tuple[float, float]:
    return max(disagreement_ratio(one, work), _NEAR_RATIO), one.unevenness_ratio


def _products(work: KernelWork) -> Iterator[MatrixStandIn]:
    """Candidates: for a number of products and of rows, the other sides follow."""
    element_bytes = work.dtype.element_bytes
    for step, sides in ((8, _EVEN_SIDES), (1, _FEW_ROWS)):
        product_count = 1
        while product_count <= _MOST_PRODUCTS_COUNT:
            side = math.floor((work.flop_count / (2.0 * product_count)) ** (1 / 3) / step) * step
            for row_count in (*sides, max(step, side), side + step):
                area = work.flop_count / (2.0 * product_count * row_count)
                sum_count = (
                    work.traffic_bytes / (element_bytes * product_count) - area
                ) / row_count
                yield from _with_sides(work.dtype, product_count, row_count, area, sum_count, step)
            product_count += max(1, product_count // 8)


def _with_sides(
    dtype: Dtype, product_count: int, row_count: int, area: float, sum_count: float, step: int
) -> Iterator[MatrixStandIn]:
    """Columns and depth, of which product and sum are given, to the next multiples of `step`."""
    root = sum_count**2 / 4.0 - area
    # Nearly as good as a cube is what is left where nothing but a cube would do.
    if sum_count <= 0 or root < -_CUBE_RATIO * area:
        return
    shorter = sum_count / 2.0 - math.sqrt(max(root, 0.0))
    for side in (math.floor(shorter / step) * step, math.ceil(shorter / step) * step):
        if side < 1:
            continue
        other = max(step, round(area / side / step) * step)
        if max(side, other) > _LONGEST_SIDE_COUNT:
            continue
        for column_count, depth_count in ((side, other), (other, side)):
            yield MatrixStandIn(
                dtype=dtype,
                product_count=product_count,
                row_count=row_count,
                column_count=column_count,
                depth_count=depth_count,
            )


def _shared_products(work: KernelWork) -> Iterator[MatrixStandIn]:
    """Candidates of the same square factors each time, of which the smaller results are taken.

    With sides s, depth d and r products: `r s s d` is half of the operations, and `2 s d + r s s`
    are the elements that are moved.
    """
    half_flops = work.flop_count / 2.0
    elements = work.traffic_bytes / work.dtype.element_bytes
    for side in _EVEN_SIDES:
        root = elements**2 - 8.0 * side * half_flops
        if root < 0:
            return
        results = (elements - math.sqrt(root)) / 2.0
        product_count = max(1, round(results / side**2))
        depth_count = max(8, round(half_flops / (product_count * side**2) / 8) * 8)
        if max(product_count, depth_count) <= _LONGEST_SIDE_COUNT:
            yield MatrixStandIn(
                dtype=work.dtype,
                product_count=product_count,
                row_count=side,
                column_count=side,
                depth_count=depth_count,
                is_shared=True,
            )


def _stream(work: KernelWork, flops_per_element: float) -> StreamStandIn | None:
    """Elements with the next fewer and the next more operations, in shares that fit."""
    is_double = work.dtype is Dtype.FP64
    element_count = round(work.traffic_bytes / (16.0 if is_double else 8.0))
    if element_count < 1:
        return None
    fewer = _fewer_flops(flops_per_element)
    more = 1 if fewer == 0 else 3 if fewer == 1 else fewer + _FLOPS_PER_DEGREE_COUNT
    share_ratio = (flops_per_element - fewer) / (more - fewer)
    if share_ratio < _NEGLIGIBLE_PART_RATIO:
        share_ratio = 0.0
    more_count = min(element_count, round(share_ratio * element_count))
    parts = ((element_count - more_count, fewer), (more_count, more))
    return StreamStandIn(
        is_double=is_double,
        parts=tuple(
            StreamPart(element_count=count, flop_per_element_count=flops)
            for count, flops in parts
            if count
        ),
    )


def _fewer_flops(flops_per_element: float) -> int:
    """The most operations that an element can get without getting more than these."""
    if flops_per_element < _FLOPS_PER_DEGREE_COUNT:
        return 0 if flops_per_element < 1 else 1
    return math.floor(flops_per_element / _FLOPS_PER_DEGREE_COUNT) * _FLOPS_PER_DEGREE_COUNT
