"""Attention in one kernel: the products of queries, keys and values, and of their gradients.

Causal attention computes half of the scores and is counted so (torch.utils.flop_counter counts
all of them); backward computes the scores again (Dao, arXiv 2307.08691).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from joulewise.domain.trace import OpInput
from joulewise.workload.capture.ops.answer import (
    OpWork,
    Shape,
    ShapesDisagree,
    arithmetic,
    data_bytes,
    flag_of,
    numbers_of,
    shape_of,
)
from joulewise.workload.capture.ops.products import Formula

_CAUSAL_RATIO = 0.5
_RANK = 4
# Types of xFormers' masks: none, causal from the top left, causal from the bottom right.
_CAUSAL_MASKS = ((1,), (2,))


def _forward(
    inputs: Sequence[OpInput], causal_at: int, *, is_sequence_first: bool = False
) -> OpWork | None:
    if not _is_regular(inputs, 0):
        return None
    pairs, q_width, v_width = _sizes(inputs, 0, is_sequence_first=is_sequence_first)
    ratio = _CAUSAL_RATIO if _is_causal(inputs, causal_at) else 1.0
    q, k, v = (data_bytes(inputs[index]) for index in range(3))
    return OpWork(
        flop_count=2.0 * pairs * (q_width + v_width) * ratio,
        traffic_bytes=q + k + v + q * v_width / q_width,
        is_product=True,
        dtype=arithmetic(inputs[0]),
    )


def _backward(
    inputs: Sequence[OpInput], causal_at: int, *, is_sequence_first: bool = False
) -> OpWork | None:
    """Inputs begin with the gradient of the output, then queries, keys and values."""
    if not _is_regular(inputs, 1):
        return None
    pairs, q_width, v_width = _sizes(inputs, 1, is_sequence_first=is_sequence_first)
    ratio = _CAUSAL_RATIO if _is_causal(inputs, causal_at) else 1.0
    gradient, q, k, v = (data_bytes(inputs[index]) for index in range(4))
    return OpWork(
        flop_count=2.0 * pairs * (3 * q_width + 2 * v_width) * ratio,
        traffic_bytes=2 * gradient + 2 * (q + k + v),
        is_product=True,
        dtype=arithmetic(inputs[1]),
    )


def _is_causal(inputs: Sequence[OpInput], place: int) -> bool:
    """By a flag, or by the type of a mask."""
    return bool(flag_of(inputs, place)) or numbers_of(inputs, place) in _CAUSAL_MASKS


def _is_regular(inputs: Sequence[OpInput], first: int) -> bool:
    """Packed sequences of several lengths have three dimensions, and lengths that nobody knows."""
    return all(len(shape_of(inputs, first + offset)) == _RANK for offset in range(3))


def _sizes(
    inputs: Sequence[OpInput], first: int, *, is_sequence_first: bool
) -> tuple[int, int, int]:
    """Scores, width of a query head, width of a value head."""
    q, k, v = (
        _heads_first(shape_of(inputs, first + offset, _RANK), is_sequence_first=is_sequence_first)
        for offset in range(3)
    )
    fits = q[0] == k[0] == v[0] and q[3] == k[3] and k[:3] == v[:3]
    if not fits or min(q[1], k[1], q[3]) < 1 or q[1] % k[1]:
        shapes = " and ".join(str(list(shape)) for shape in (q, k, v))
        raise ShapesDisagree(f"queries, keys and values {shapes} do not fit")
    return q[0] * q[1] * q[2] * k[2], q[3], v[3]


def _heads_first(shape: Shape, *, is_sequence_first: bool) -> Shape:
    batch, second, third, width = shape
    return (batch, third, second, width) if is_sequence_first else shape


CAUSAL_PLACES: Mapping[str, int] = MappingProxyType(
    {
        "_scaled_dot_product_flash_attention": 4,
        "_scaled_dot_product_efficient_attention": 6,
        "_scaled_dot_product_cudnn_attention": 6,
        "scaled_dot_product_attention": 5,
        "_flash_attention_forward": 8,
        "_efficient_attention_forward": 9,
        "_flash_attn_forward": 5,
        "_scaled_dot_product_flash_attention_backward": 11,
        "_scaled_dot_product_efficient_attention_backward": 11,
        "_scaled_dot_product_cudnn_attention_backward": 14,
        "_flash_attention_backward": 11,
        "_efficient_attention_backward": 14,
        "_flash_attn_backward": 11,
    }
)
"""Where operations take their causal flag, or the type of their mask.

Sources: PyTorch's schemas; `_flash_attn_forward` and `_flash_attn_backward` are those of the
flash-attn package.
"""
# Batch, sequence, heads, width: as flash-attn and xFormers have them; the others have heads first.
_SEQUENCE_FIRST = frozenset(
    {
        "_flash_attention_forward",
        "_efficient_attention_forward",
        "_flash_attn_forward",
        "_flash_attention_backward",
        "_efficient_attention_backward",
        "_flash_attn_backward",
    }
)


QUANTIZED_PLACES: Mapping[str, tuple[int, int]] = MappingProxyType(
    {"_scaled_dot_product_flash_attention": (10, 7)}
)
"""How many inputs the overload for FP8 has, and where it takes its causal flag."""


def _formula(name: str, causal_at: int) -> Formula:
    quantized = QUANTIZED_PLACES.get(name)
    if quantized is not None:
        return lambda inputs: _forward(
            inputs, quantized[1] if len(inputs) == quantized[0] else causal_at
        )
    attention = _backward if name.endswith("_backward") else _forward
    is_sequence_first = name in _SEQUENCE_FIRST
    return lambda inputs: attention(inputs, causal_at, is_sequence_first=is_sequence_first)


ATTENTION: Mapping[str, Formula] = MappingProxyType(
    {name: _formula(name, causal_at) for name, causal_at in CAUSAL_PLACES.items()}
)
"""Formulas by operation. FLOPs as torch.utils.flop_counter, but for causal ones."""
