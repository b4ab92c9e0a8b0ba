"""What a formula answers, and how it reads inputs."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from joulewise.domain.trace import OpInput
from joulewise.domain.workload import Dtype
from joulewise.workload.capture.number_types import number_bytes, number_format

Shape = tuple[int, ...]

DEFAULT_ELEMENT_BYTES = 4
"""Of a type that the profile does not name; assumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpWork:
    """Work of one call of an operation, over all kernels that it launches.

    `is_product` says whether its FLOPs are those of matrix products, `is_one_kernel` that a call
    never launches more than one. `flop_count_by_part` splits
    them where parts run in kernels of their own: the gradients of a convolution.
    """

    flop_count: float
    traffic_bytes: float
    is_product: bool = False
    is_one_kernel: bool = False
    dtype: Dtype | None = None
    flop_count_by_part: tuple[tuple[str, float], ...] = ()


class ShapesDisagree(ValueError):
    """Shapes that do not belong together; the sentence says which. Never leaves this package."""


def element_bytes(one: OpInput, default_bytes: int = DEFAULT_ELEMENT_BYTES) -> int:
    """Bytes of one element of an input."""
    known = None if one.dtype is None else number_bytes(one.dtype)
    return default_bytes if known is None else known


def arithmetic(one: OpInput) -> Dtype | None:
    """The number format of an input; `None` for integers and what the profile does not name."""
    return None if one.dtype is None else number_format(one.dtype)


def count(shape: Shape) -> int:
    """Elements of a tensor."""
    return math.prod(shape)


def data_bytes(one: OpInput) -> float:
    """Bytes of a tensor; a scalar has none that count."""
    return float(count(one.shape) * element_bytes(one)) if one.shape else 0.0


def shape_of(inputs: Sequence[OpInput], index: int, rank: int | None = None) -> Shape:
    """The shape of an input. Raises ShapesDisagree where it is missing or of another rank."""
    if index >= len(inputs) or not inputs[index].shape:
        raise ShapesDisagree(f"input {index} has no shape")
    shape = inputs[index].shape
    if rank is not None and len(shape) != rank:
        raise ShapesDisagree(f"input {index} has {len(shape)} dimensions, not {rank}")
    return shape


def flag_of(inputs: Sequence[OpInput], index: int) -> bool | None:
    """A flag among the inputs; `None` where the profile does not keep its value."""
    if index >= len(inputs):
        return None
    return {"True": True, "true": True, "1": True, "False": False, "false": False, "0": False}.get(
        inputs[index].value or ""
    )


def numbers_of(inputs: Sequence[OpInput], index: int) -> tuple[int, ...] | None:
    """A list of whole numbers among the inputs; `None` where its value is not kept."""
    value = inputs[index].value if index < len(inputs) else None
    if not value or not re.fullmatch(r"[\[(]?[\s\d,-]*[\])]?", value):
        return None
    found = re.findall(r"-?\d{1,12}", value)
    return tuple(int(number) for number in found) or None
