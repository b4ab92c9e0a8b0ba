"""Operations that stream through memory: element by element, row by row, copies, updates.

Every input is read once and the result written once. An element costs one FLOP, a row-wise one
as many as the built-in `gpt3-xl` counts for its like (layer norm 8, softmax 4, ...): what such
kernels compute hardly matters beside what they move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from joulewise.domain.trace import OpInput
from joulewise.workload.capture.ops.answer import (
    OpWork,
    ShapesDisagree,
    count,
    data_bytes,
    element_bytes,
    shape_of,
)
from joulewise.workload.capture.ops.products import Formula, broadcast


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_COMPARISONS = _names(
    "eq ne lt le gt ge logical_and logical_or logical_not logical_xor isnan isinf isfinite"
)
# Unary and binary operations, with scalars or without, whose result has the shape that their
# inputs broadcast to. Names that end in _ work in place and are meant too.
_ELEMENTWISE = (
    _names("""
    abs acos add addcdiv addcmul asin atan atan2 bernoulli bitwise_and bitwise_not bitwise_or
    bitwise_xor ceil celu clamp clamp_max clamp_min constant_pad_nd contiguous copysign cos cosh
    cumprod cumsum div dropout elu erf erfc erfinv exp exp2 expm1 floor floor_divide fmod
    frac gelu glu_jvp hardsigmoid hardswish hardtanh leaky_relu lerp log log10 log1p log2
    log_sigmoid logit masked_fill maximum minimum mish mul nan_to_num native_dropout neg normal
    pow prelu
    reciprocal relu relu6 remainder round rsqrt rsub selu sigmoid sign silu sin sinh softplus sqrt
    square sub tan tanh threshold tril triu trunc where xlogy""")
    | _COMPARISONS
)
# Of those, the ones that launch several kernels a call: scans of long rows.
_IN_PARTS = _names("cumprod cumsum")
# Gradients of those: read what forward read and the gradient, and write as much.
_ELEMENTWISE_GRADIENTS = _names("""
    elu_backward gelu_backward hardsigmoid_backward hardswish_backward hardtanh_backward
    leaky_relu_backward log_sigmoid_backward mish_backward native_dropout_backward
    sigmoid_backward silu_backward softplus_backward tanh_backward threshold_backward""")
_COPIES = _names("clone _to_copy contiguous to flip roll repeat repeat_interleave")
_WRITES = _names("zero_ fill_ zeros_like ones_like full_like uniform_ normal_ random_")
_REDUCTIONS = _names("""
    sum mean max min amax amin prod norm linalg_vector_norm any all argmax argmin std var
    std_mean var_mean logsumexp nansum count_nonzero nll_loss_forward mse_loss""")
# Reads per element of the input, writes per element, FLOPs per element.
_ROW_WISE: Mapping[str, tuple[float, float, float]] = MappingProxyType(
    {
        "native_layer_norm": (1, 1, 8),
        "layer_norm": (1, 1, 8),
        "native_layer_norm_backward": (2, 1, 14),
        "_fused_rms_norm": (1, 1, 8),
        "_fused_rms_norm_backward": (2, 1, 14),
        "rms_norm": (1, 1, 8),
        "fused_add_rms_norm": (2, 2, 9),
        "native_group_norm": (1, 1, 8),
        "native_group_norm_backward": (2, 1, 14),
        "native_batch_norm": (1, 1, 8),
        "cudnn_batch_norm": (1, 1, 8),
        "miopen_batch_norm": (1, 1, 8),
        "_native_batch_norm_legit": (1, 1, 8),
        "_batch_norm_with_update": (1, 1, 8),
        "native_batch_norm_backward": (2, 1, 14),
        "cudnn_batch_norm_backward": (2, 1, 14),
        "miopen_batch_norm_backward": (2, 1, 14),
        "batch_norm_backward": (2, 1, 14),
        "_softmax": (1, 1, 4),
        "_log_softmax": (1, 1, 4),
        "_softmax_backward_data": (2, 1, 6),
        "_log_softmax_backward_data": (2, 1, 6),
        "nll_loss_backward": (0, 1, 1),
        "silu_and_mul": (0.5, 1, 1),
    }
)


def _tensors(inputs: Sequence[OpInput]) -> tuple[OpInput, ...]:
    found = tuple(one for one in inputs if one.shape)
    if not found:
        raise ShapesDisagree("no input has a shape")
    return found


def _largest(inputs: Sequence[OpInput]) -> OpInput:
    return max(_tensors(inputs), key=lambda one: count(one.shape))


def _elementwise(
    inputs: Sequence[OpInput], *, is_comparison: bool = False, has_parts: bool = False
) -> OpWork:
    tensors = _tensors(inputs)
    elements = count(broadcast([one.shape for one in tensors]))
    widest = 1 if is_comparison else max(element_bytes(one) for one in tensors)
    read = sum(data_bytes(one) for one in tensors)
    moved = read + elements * widest
    return OpWork(flop_count=elements, traffic_bytes=moved, is_one_kernel=not has_parts)


def _in_place(inputs: Sequence[OpInput]) -> OpWork:
    """The result overwrites the first input."""
    tensors = _tensors(inputs)
    broadcast([one.shape for one in tensors])
    read = sum(data_bytes(one) for one in tensors)
    moved = read + data_bytes(tensors[0])
    return OpWork(flop_count=count(tensors[0].shape), traffic_bytes=moved, is_one_kernel=True)


def _copy(inputs: Sequence[OpInput]) -> OpWork:
    one = _largest(inputs)
    return OpWork(flop_count=0.0, traffic_bytes=2 * data_bytes(one), is_one_kernel=True)


def _copy_over(inputs: Sequence[OpInput]) -> OpWork:
    """`copy_`: the first input is written, the second read."""
    target, source = _tensors(inputs)[0], _tensors(inputs)[-1]
    moved = data_bytes(target) + data_bytes(source)
    return OpWork(flop_count=0.0, traffic_bytes=moved, is_one_kernel=True)


def _rewritten(inputs: Sequence[OpInput], which: slice, passes: float) -> OpWork:
    """Operations of vLLM: these inputs are read or written, or (two passes) both."""
    moved = inputs[which]
    return OpWork(
        flop_count=max((count(one.shape) for one in moved), default=0),
        traffic_bytes=passes * sum(data_bytes(one) for one in moved),
    )


def _write(inputs: Sequence[OpInput]) -> OpWork:
    moved = data_bytes(_tensors(inputs)[0])
    return OpWork(flop_count=0.0, traffic_bytes=moved, is_one_kernel=True)


def _reduction(inputs: Sequence[OpInput]) -> OpWork:
    one = _tensors(inputs)[0]
    return OpWork(flop_count=count(one.shape), traffic_bytes=data_bytes(one))


def _row_wise(inputs: Sequence[OpInput], sizes: tuple[float, float, float]) -> OpWork:
    one = _largest(inputs)
    reads, writes, flop_per_element = sizes
    return OpWork(
        flop_count=count(one.shape) * flop_per_element,
        traffic_bytes=data_bytes(one) * (reads + writes),
    )


def _cat(inputs: Sequence[OpInput]) -> OpWork:
    return OpWork(flop_count=0.0, traffic_bytes=2 * sum(data_bytes(one) for one in inputs))


def _gather_rows(inputs: Sequence[OpInput], indices_at: int) -> OpWork:
    """`embedding`, `index_select` on the first dimension: rows are read and written."""
    table, indices = shape_of(inputs, 0), shape_of(inputs, indices_at)
    row_bytes = count(table[1:]) * element_bytes(inputs[0])
    return OpWork(
        flop_count=0.0,
        traffic_bytes=2.0 * count(indices) * row_bytes + data_bytes(inputs[indices_at]),
    )


def _gather_elements(inputs: Sequence[OpInput]) -> OpWork:
    indices = shape_of(inputs, 2)
    moved = 2 * count(indices) * element_bytes(inputs[0])
    return OpWork(flop_count=0.0, traffic_bytes=float(moved) + data_bytes(inputs[2]))


def _embedding_gradient(inputs: Sequence[OpInput]) -> OpWork:
    """Rows of the gradient are read, and added to rows that are read and written."""
    one = _tensors(inputs)[0]
    return OpWork(flop_count=count(one.shape), traffic_bytes=3 * data_bytes(one))


def _update(inputs: Sequence[OpInput]) -> OpWork:
    """Fused optimizers: lists of weights, gradients and states; all but gradients are written.

    Profiles list all of them one after another. Assumed: gradients are a quarter, as for Adam.
    """
    read = sum(data_bytes(one) for one in inputs)
    elements = sum(count(one.shape) for one in inputs if one.shape)
    return OpWork(flop_count=elements, traffic_bytes=1.75 * read)


def _foreach(inputs: Sequence[OpInput]) -> OpWork:
    """Operations on lists: all read; assumed: half of them, the first list of two, is written."""
    read = sum(data_bytes(one) for one in inputs)
    elements = sum(count(one.shape) for one in inputs if one.shape)
    return OpWork(flop_count=elements, traffic_bytes=1.5 * read)


def stream_formula(op: str) -> Formula | None:
    """The formula of an operation without namespace; `None` where there is none."""
    if op in _FORMULAS:
        return _FORMULAS[op]
    if op in _ROW_WISE:
        return lambda inputs: _row_wise(inputs, _ROW_WISE[op])
    if op.startswith("_foreach_"):
        return _foreach
    if op.startswith("_fused_") and "norm" not in op:
        return _update
    if op in _ELEMENTWISE or op in _ELEMENTWISE_GRADIENTS:
        return lambda inputs: _elementwise(
            inputs, is_comparison=op in _COMPARISONS, has_parts=op in _IN_PARTS
        )
    return _in_place if op.removesuffix("_") in _ELEMENTWISE else None


_FORMULAS: Mapping[str, Formula] = MappingProxyType(
    {
        **dict.fromkeys(_COPIES, _copy),
        **dict.fromkeys(_WRITES, _write),
        **dict.fromkeys(_REDUCTIONS, _reduction),
        "copy_": _copy_over,
        "static_scaled_fp8_quant": lambda inputs: _rewritten(inputs, slice(0, 2), 1.0),
        "dynamic_scaled_fp8_quant": lambda inputs: _rewritten(inputs, slice(0, 2), 1.0),
        "rotary_embedding": lambda inputs: _rewritten(inputs, slice(1, 3), 2.0),
        "reshape_and_cache_flash": lambda inputs: _rewritten(inputs, slice(0, 2), 2.0),
        "cat": _cat,
        "stack": _cat,
        "embedding": lambda inputs: _gather_rows(inputs, 1),
        "index_select": lambda inputs: _gather_rows(inputs, 2),
        "gather": _gather_elements,
        "embedding_dense_backward": _embedding_gradient,
    }
)
