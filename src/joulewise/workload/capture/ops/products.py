"""Matrix products: 2 m n k FLOPs; each operand is read once and the result written once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from joulewise.domain.trace import OpInput
from joulewise.workload.capture.ops.answer import (
    OpWork,
    Shape,
    ShapesDisagree,
    arithmetic,
    count,
    element_bytes,
    shape_of,
)

Formula = Callable[[Sequence[OpInput]], OpWork | None]


def _product(
    inputs: Sequence[OpInput],
    left: int,
    right: int,
    sizes: tuple[Shape, int, int, int],
) -> OpWork:
    """Batch shape, m, n and k; the result has the type of the operands, FP8's has two bytes."""
    batch, m, n, k = sizes
    size = element_bytes(inputs[left])
    batches = count(batch)
    result_bytes = batches * m * n * max(size, 2)
    operand_bytes = count(inputs[left].shape) * size
    operand_bytes += count(inputs[right].shape) * element_bytes(inputs[right])
    return OpWork(
        flop_count=2.0 * batches * m * n * k,
        traffic_bytes=float(operand_bytes + result_bytes),
        is_product=True,
        dtype=arithmetic(inputs[left]),
    )


def _check(left: Shape, right: Shape, left_k: int, right_k: int) -> None:
    if left_k != right_k:
        raise ShapesDisagree(f"{list(left)} and {list(right)} do not multiply")


def _mm(inputs: Sequence[OpInput], left: int) -> OpWork:
    (m, k), (other, n) = shape_of(inputs, left, 2), shape_of(inputs, left + 1, 2)
    _check(inputs[left].shape, inputs[left + 1].shape, k, other)
    return _product(inputs, left, left + 1, ((), m, n, k))


def _bmm(inputs: Sequence[OpInput], left: int) -> OpWork:
    (b, m, k), (c, other, n) = shape_of(inputs, left, 3), shape_of(inputs, left + 1, 3)
    _check(inputs[left].shape, inputs[left + 1].shape, k, other)
    _check(inputs[left].shape, inputs[left + 1].shape, b, c)
    return _product(inputs, left, left + 1, ((b,), m, n, k))


def _mv(inputs: Sequence[OpInput], left: int) -> OpWork:
    (m, k), (other,) = shape_of(inputs, left, 2), shape_of(inputs, left + 1, 1)
    _check(inputs[left].shape, inputs[left + 1].shape, k, other)
    return _product(inputs, left, left + 1, ((), m, 1, k))


def _linear(inputs: Sequence[OpInput]) -> OpWork:
    x, weight = shape_of(inputs, 0), shape_of(inputs, 1, 2)
    _check(x, weight, x[-1], weight[1])
    return _product(inputs, 0, 1, ((), count(x[:-1]), weight[0], x[-1]))


def _matmul(inputs: Sequence[OpInput]) -> OpWork:
    """As `torch.matmul`: vectors are rows or columns, leading dimensions broadcast."""
    left, right = shape_of(inputs, 0), shape_of(inputs, 1)
    rows = left if len(left) > 1 else (1, *left)
    columns = right if len(right) > 1 else (*right, 1)
    _check(left, right, rows[-1], columns[-2])
    batch = broadcast((rows[:-2], columns[:-2]))
    return _product(inputs, 0, 1, (batch, rows[-2], columns[-1], rows[-1]))


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """The shape that shapes have together. Raises ShapesDisagree where they have none."""
    rank = max((len(shape) for shape in shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    made: list[int] = []
    for extents in zip(*padded, strict=True):
        wanted = {extent for extent in extents if extent != 1}
        if len(wanted) > 1:
            raise ShapesDisagree(
                f"{' and '.join(str(list(shape)) for shape in shapes)} do not broadcast"
            )
        made.append(wanted.pop() if wanted else 1)
    return tuple(made)


LEFT_PLACES: Mapping[str, int] = MappingProxyType(
    {
        "mm": 0,
        "_scaled_mm": 0,
        "_int_mm": 0,
        "addmm": 1,
        "addmm_": 1,
        "_addmm_activation": 1,
        "bmm": 0,
        "baddbmm": 1,
        "baddbmm_": 1,
        "mv": 0,
        "addmv": 1,
        "addmv_": 1,
    }
)
"""Where products take their left operand; the right one follows. Source: PyTorch's schemas."""


def _formula(name: str, left: int) -> Formula:
    if "mv" in name:
        return lambda inputs: _mv(inputs, left)
    if "bmm" in name:
        return lambda inputs: _bmm(inputs, left)
    return lambda inputs: _mm(inputs, left)


PRODUCTS: Mapping[str, Formula] = MappingProxyType(
    {
        **{name: _formula(name, left) for name, left in LEFT_PLACES.items()},
        "linear": _linear,
        "matmul": _matmul,
    }
)
"""Formulas by operation. Source of the FLOPs: torch.utils.flop_counter."""
