"""Convolutions, forward and backward: FLOPs of the sums of products, as cuDNN's direct ones do.

Algorithms that need fewer multiplications (Winograd, FFT) are counted as if they did not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from joulewise.domain.trace import OpInput
from joulewise.workload.capture.ops.answer import (
    OpWork,
    Shape,
    ShapesDisagree,
    arithmetic,
    count,
    element_bytes,
    flag_of,
    numbers_of,
    shape_of,
)
from joulewise.workload.capture.ops.products import Formula

_LEAST_RANK = 3

_Places = tuple[int, int, int, int | None, int | None, int]
_CONVOLUTION: _Places = (3, 4, 5, 6, 7, 8)
_CUDNN: _Places = (3, 2, 4, None, None, 5)
_MIOPEN: _Places = (4, 3, 5, None, None, 6)
_NAMED: _Places = (3, 4, 5, None, None, 6)
CONVOLUTION_PLACES: Mapping[str, _Places] = MappingProxyType(
    {
        "convolution": _CONVOLUTION,
        "_convolution": _CONVOLUTION,
        "convolution_overrideable": _CONVOLUTION,
        "cudnn_convolution": _CUDNN,
        "miopen_convolution": _MIOPEN,
        **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _NAMED),
    }
)
"""Where operations take stride, padding, dilation, transposed, output padding and groups.

Source: PyTorch's schemas.
"""
GRADIENT_PLACES: Mapping[str, tuple[int, int]] = MappingProxyType(
    {"convolution_backward": (7, 10), "convolution_backward_overrideable": (6, 9)}
)
"""Where gradients take whether the convolution is transposed, and which results are wanted."""


def _forward(inputs: Sequence[OpInput], places: _Places) -> OpWork:
    x, weight = shape_of(inputs, 0), shape_of(inputs, 1)
    _check(x, weight)
    _, _, _, transposed, _, _ = places
    is_transposed = transposed is not None and bool(flag_of(inputs, transposed))
    out = _output(inputs, x, weight, places)
    size = element_bytes(inputs[0])
    moved = count(x) + count(weight) + count(out)
    return OpWork(
        flop_count=_flop_count(x, weight, out, is_transposed=is_transposed),
        traffic_bytes=float(moved * size),
        is_product=True,
        dtype=arithmetic(inputs[0]),
    )


def _backward(inputs: Sequence[OpInput], transposed_at: int, mask_at: int) -> OpWork:
    """Inputs are the gradient of the output, the input and the weight."""
    gradient, x, weight = (shape_of(inputs, index) for index in range(3))
    _check(x, weight)
    if len(gradient) != len(x) or gradient[0] != x[0]:
        raise ShapesDisagree(f"{list(gradient)} is no gradient for {list(x)}")
    is_transposed = bool(flag_of(inputs, transposed_at))
    once = _flop_count(x, weight, gradient, is_transposed=is_transposed)
    wants_input, wants_weight = _mask(inputs, mask_at)
    parts = (("dgrad", once * wants_input), ("wgrad", once * wants_weight))
    size = element_bytes(inputs[1])
    # Each of the two products reads two of the three tensors and writes the third.
    moved = (count(gradient) + count(x) + count(weight)) * (wants_input + wants_weight)
    return OpWork(
        flop_count=once * (wants_input + wants_weight),
        traffic_bytes=float(moved * size),
        is_product=True,
        dtype=arithmetic(inputs[1]),
        flop_count_by_part=parts,
    )


def _mask(inputs: Sequence[OpInput], place: int) -> tuple[bool, bool]:
    """Which gradients are wanted: of the input, of the weight; both where the profile is mute."""
    value = inputs[place].value if len(inputs) > place else None
    words = [word.strip(" []()").lower() for word in (value or "").split(",")]
    if len(words) < 2:  # noqa: PLR2004
        return True, True
    wanted = words[0] in {"true", "1"}, words[1] in {"true", "1"}
    return wanted if any(wanted) else (True, True)


def _check(x: Shape, weight: Shape) -> None:
    if len(x) != len(weight) or len(x) < _LEAST_RANK:
        raise ShapesDisagree(f"{list(weight)} is no filter for {list(x)}")


def _flop_count(x: Shape, weight: Shape, out: Shape, *, is_transposed: bool) -> float:
    """2 x batch x places x filter x channels; the weight's second extent is per group."""
    places = math.prod((x if is_transposed else out)[2:])
    return 2.0 * x[0] * places * math.prod(weight)


def _output(inputs: Sequence[OpInput], x: Shape, weight: Shape, places: _Places) -> Shape:
    """The shape of the result. Raises ShapesDisagree where channels do not fit."""
    stride_at, padding_at, dilation_at, transposed_at, output_at, groups_at = places
    rank = len(x) - 2
    stride = _spread(numbers_of(inputs, stride_at), rank, 1)
    padding = _spread(numbers_of(inputs, padding_at), rank, 0)
    dilation = _spread(numbers_of(inputs, dilation_at), rank, 1)
    is_transposed = transposed_at is not None and bool(flag_of(inputs, transposed_at))
    groups = (numbers_of(inputs, groups_at) or (0,))[0] or max(1, x[1] // max(1, weight[1]))
    if x[1] != (weight[0] if is_transposed else weight[1] * groups):
        raise ShapesDisagree(f"{list(x)} and the filter {list(weight)} differ in channels")
    if is_transposed:
        extra = _spread(None if output_at is None else numbers_of(inputs, output_at), rank, 0)
        spatial = [
            (x[i + 2] - 1) * stride[i]
            - 2 * padding[i]
            + dilation[i] * (weight[i + 2] - 1)
            + extra[i]
            + 1
            for i in range(rank)
        ]
        return (x[0], weight[1] * groups, *(max(0, extent) for extent in spatial))
    spatial = [
        (x[i + 2] + 2 * padding[i] - dilation[i] * (weight[i + 2] - 1) - 1) // max(1, stride[i]) + 1
        for i in range(rank)
    ]
    if min(spatial) < 1:
        raise ShapesDisagree(f"{list(x)} is smaller than the filter {list(weight)}")
    return (x[0], weight[0], *spatial)


def _spread(values: tuple[int, ...] | None, rank: int, default: int) -> tuple[int, ...]:
    """One number per spatial dimension; a single one holds for all of them."""
    if not values:
        return (default,) * rank
    return values if len(values) == rank else (values[0],) * rank


def _formula(places: _Places) -> Formula:
    return lambda inputs: _forward(inputs, places)


def _gradient_formula(transposed_at: int, mask_at: int) -> Formula:
    return lambda inputs: _backward(inputs, transposed_at, mask_at)


CONVOLUTIONS: Mapping[str, Formula] = MappingProxyType(
    {
        **{name: _formula(places) for name, places in CONVOLUTION_PLACES.items()},
        **{name: _gradient_formula(*places) for name, places in GRADIENT_PLACES.items()},
    }
)
"""Formulas by operation. Source: torch.utils.flop_counter, which leaves groups out of the
gradient of the weight; here they count."""
