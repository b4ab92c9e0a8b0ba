"""The attention part of a layer, without the norms around it: forward and backward launches.

Queries, keys and values come from one product. Flash attention is one kernel that keeps scores
on the chip and reads queries, keys and values where the product wrote them (Dao,
arXiv 2307.08691); eager attention permutes heads and writes scores to memory, as llm.c does.
LoRA has adapters on queries and values (Hu et al., arXiv 2106.09685, section 7.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from joulewise.workload.transformer.collectives import all_gather, reduce_scatter
from joulewise.workload.transformer.efficiency import Family
from joulewise.workload.transformer.parallel import Share
from joulewise.workload.transformer.setup import Attention
from joulewise.workload.transformer.shapes import (
    FP32_BYTES,
    FlopCounts,
    KernelShape,
    Linear,
    in_backward,
    product,
    stream,
)

# FlashAttention's backward has five products of scores x head width where forward has two, and
# the model's arithmetic four: it computes the scores again (Dao, arXiv 2307.08691, section 4.1).
_FORWARD_PRODUCT_COUNT = 2
_BACKWARD_PRODUCT_COUNT = 4
_FLASH_BACKWARD_PRODUCT_COUNT = 5

# Arithmetic per element, assumed but for those of softmax, which are those of `gpt3-xl`.
_ROTARY_OPERATIONS = 3  # two products and a sum
_QK_NORM_OPERATIONS = 4  # square, sum, scale, weight
_QK_NORM_GRADIENT_OPERATIONS = 10
_SOFTMAX_OPERATIONS = 4
_SOFTMAX_GRADIENT_OPERATIONS = 6


def qkv_linear(share: Share) -> Linear:
    """The product for queries, keys and values, its columns split by tensor parallelism."""
    return Linear(
        name="qkv",
        row_count=share.token_count,
        input_count=share.model.hidden_count,
        output_count=share.query_count + 2 * share.key_count,
        formats=share.formats,
        bias_row_count=share.token_count if share.model.has_qkv_bias else 0,
        is_trained=share.is_fully_trained,
        is_accumulating=share.is_accumulating,
    )


def output_linear(share: Share) -> Linear:
    """The product behind the heads, its rows split by tensor parallelism."""
    return Linear(
        name="attention_output",
        row_count=share.token_count,
        input_count=share.query_count,
        output_count=share.model.hidden_count,
        formats=share.formats,
        bias_row_count=share.row_count if share.model.has_attention_output_bias else 0,
        is_trained=share.is_fully_trained,
        is_accumulating=share.is_accumulating,
    )


def adapters(share: Share) -> tuple[tuple[Linear, Linear], ...]:
    """The two narrow products of each adapter, on queries and on values; none without LoRA.

    With tensor parallelism the first is held whole by every GPU and sees its rows, the second
    is split like what it adds to.
    """
    rank_count = share.setup.lora_rank_count
    if not rank_count:
        return ()
    down = Linear(
        name="adapter_query_down",
        row_count=share.row_count,
        input_count=share.model.hidden_count,
        output_count=rank_count,
        formats=share.formats,
        is_accumulating=share.is_accumulating,
    )
    up = replace(
        down,
        name="adapter_query_up",
        row_count=share.token_count,
        input_count=rank_count,
        output_count=share.query_count,
    )
    return (
        (down, up),
        (
            replace(down, name="adapter_value_down"),
            replace(up, name="adapter_value_up", output_count=share.key_count),
        ),
    )


def attention_forward(share: Share) -> Iterator[KernelShape]:
    """Launches from normalised hidden states to what is added to the residual stream."""
    yield from qkv_linear(share).forward()
    for down, up in adapters(share):
        yield from down.forward()
        yield from _narrow_rows(share, all_gather, "all_gather_adapter")
        yield from up.forward()
    yield from _positions(share)
    yield from core_forward(share)
    yield from output_linear(share).forward()


def attention_backward(share: Share) -> Iterator[KernelShape]:
    """Launches in the order of backward, weight gradients behind their input gradients."""
    yield from output_linear(share).backward()
    yield from core_backward(share)
    yield from _position_gradients(share)
    for down, up in reversed(adapters(share)):
        yield from up.backward()
        yield from _narrow_rows(share, reduce_scatter, "reduce_scatter_adapter")
        yield from down.backward()
    yield from qkv_linear(share).backward()


def core_forward(share: Share) -> Iterator[KernelShape]:
    """Scores, softmax and weighted values: what selective recomputation runs again."""
    if share.setup.attention is Attention.FLASH:
        yield _flash_forward(share)
        return
    yield _permute(share, "permute_qkv", share.query_count + 2 * share.key_count)
    yield _eager_product(share, "gemm_scores", Family.SCORES)
    yield stream(
        "softmax",
        share.formats,
        score_count(share),
        # What is masked is neither read nor written, as in llm.c.
        moved=2 * _visible_ratio(share),
        operations=_SOFTMAX_OPERATIONS,
        family=Family.SOFTMAX,
    )
    yield _eager_product(share, "gemm_values", Family.VALUES)
    yield _permute(share, "permute_heads", share.query_count)


def core_backward(share: Share) -> Iterator[KernelShape]:
    """Gradients of the core."""
    if share.setup.attention is Attention.FLASH:
        yield from _flash_backward(share)
        return
    shapes = (
        _permute(share, "permute_heads_gradient", share.query_count),
        _eager_product(share, "gemm_scores_gradient", Family.SCORES),
        _eager_product(share, "gemm_value_gradient", Family.VALUES),
        stream(
            "softmax_gradient",
            share.formats,
            score_count(share),
            # Probabilities and their gradients are read where nothing is masked; gradients of
            # scores are written everywhere, with zeros for what is masked, as in llm.c.
            moved=2 * _visible_ratio(share) + 1,
            operations=_SOFTMAX_GRADIENT_OPERATIONS,
            family=Family.SOFTMAX_GRADIENT,
        ),
        _eager_product(share, "gemm_query_gradient", Family.VALUES),
        _eager_product(share, "gemm_key_gradient", Family.VALUES),
        _permute(share, "permute_qkv_gradient", share.query_count + 2 * share.key_count),
    )
    for shape in shapes:
        yield in_backward(shape)


def _narrow_rows(
    share: Share, exchange: Callable[[str, Share, float, int], KernelShape], kernel: str
) -> Iterator[KernelShape]:
    """What passes between the two products of an adapter, where several GPUs share its rows."""
    degree = share.setup.tensor_parallel_count
    if degree > 1:
        yield exchange(kernel, share, share.token_count * share.setup.lora_rank_count, degree)


def score_count(share: Share) -> float:
    """Attention scores of one GPU and micro-batch, masked ones too."""
    return float(share.token_count) * share.setup.sequence_count * share.head_count


def visible_pair_count(share: Share) -> float:
    """Pairs of tokens of one sequence of which one attends to the other."""
    length = share.setup.sequence_count
    window = length if share.model.window_count is None else share.model.window_count
    if share.model.is_causal:
        seen = min(length, window)
        # Token i sees i + 1 tokens, itself among them, but no more than the window holds.
        return seen * (seen + 1) / 2 + (length - seen) * float(seen)
    return float(length) * min(length, window)


def _visible_ratio(share: Share) -> float:
    return visible_pair_count(share) / float(share.setup.sequence_count) ** 2


def _model_count(share: Share) -> float:
    """FLOPs of one product of scores x head width by convention: whole windows, no mask."""
    length = share.setup.sequence_count
    window = length if share.model.window_count is None else share.model.window_count
    return 2.0 * share.token_count * min(length, window) * share.query_count


def _eager_product(share: Share, kernel: str, family: Family) -> KernelShape:
    """One batched product of scores, queries (or outputs) and keys (or values): one is written."""
    count = 2.0 * score_count(share) * share.model.head_width_count
    flops = FlopCounts(executed_count=count, model_count=_model_count(share))
    elements = score_count(share) + share.token_count * (share.query_count + share.key_count)
    traffic_bytes = share.formats.element_bytes * elements
    return product(kernel, family, share.formats.attention, flops, traffic_bytes)


def _flash_product(share: Share, kernel: str, family: Family, traffic_bytes: float) -> KernelShape:
    is_backward = family is Family.FLASH_GRADIENT
    run = _FLASH_BACKWARD_PRODUCT_COUNT if is_backward else _FORWARD_PRODUCT_COUNT
    needed = _BACKWARD_PRODUCT_COUNT if is_backward else _FORWARD_PRODUCT_COUNT
    pairs = visible_pair_count(share) * share.setup.batch_count
    return product(
        kernel,
        family,
        share.formats.attention,
        FlopCounts(
            executed_count=run * 2.0 * pairs * share.query_count,
            model_count=needed * _model_count(share),
        ),
        traffic_bytes,
    )


def _flash_forward(share: Share) -> KernelShape:
    """Reads queries, keys and values; writes outputs, and per row the logarithm of its sum."""
    tensors = share.token_count * (2 * share.query_count + 2 * share.key_count)
    traffic_bytes = share.formats.element_bytes * tensors + _row_sum_bytes(share)
    return _flash_product(share, "flash_attention", Family.FLASH, traffic_bytes)


def _flash_backward(share: Share) -> Iterator[KernelShape]:
    """First each row's product of output and its gradient, then all gradients in one kernel.

    That reads queries, keys, values, the output's gradient and two numbers per row, and writes
    three gradients; sums on the way stay on the chip (arXiv 2307.08691, algorithm 2).
    """
    delta = stream(
        "flash_attention_row_products",
        share.formats,
        share.token_count * share.query_count,
        moved=2,
        operations=2,
        family=Family.ACTIVATION,
    )
    yield in_backward(delta)
    tensors = share.token_count * (3 * share.query_count + 4 * share.key_count)
    traffic_bytes = share.formats.element_bytes * tensors + 2 * _row_sum_bytes(share)
    yield in_backward(
        _flash_product(share, "flash_attention_gradient", Family.FLASH_GRADIENT, traffic_bytes)
    )


def _row_sum_bytes(share: Share) -> float:
    return float(FP32_BYTES * share.token_count * share.head_count)


def _permute(share: Share, kernel: str, width: float) -> KernelShape:
    return stream(
        kernel,
        share.formats,
        share.token_count * width,
        moved=2,
        operations=1,
        family=Family.PERMUTE,
    )


def _positions(share: Share) -> Iterator[KernelShape]:
    """Norms of queries and keys (Qwen3), and rotary positions; tables of angles stay cached."""
    elements = float(share.token_count) * (share.query_count + share.key_count)
    if share.model.has_qk_norm:
        yield stream(
            "qk_norm",
            share.formats,
            elements,
            moved=2,
            operations=_QK_NORM_OPERATIONS,
            family=Family.NORM,
        )
    if share.model.rotary_ratio > 0:
        yield _rotary(share, "rotary", elements)


def _position_gradients(share: Share) -> Iterator[KernelShape]:
    elements = float(share.token_count) * (share.query_count + share.key_count)
    if share.model.rotary_ratio > 0:
        yield in_backward(_rotary(share, "rotary_gradient", elements))
    if share.model.has_qk_norm:
        # Two inputs, one output: heads are short rows, read once.
        yield in_backward(
            stream(
                "qk_norm_gradient",
                share.formats,
                elements,
                moved=3,
                operations=_QK_NORM_GRADIENT_OPERATIONS,
                family=Family.NORM_GRADIENT,
            )
        )


def _rotary(share: Share, kernel: str, elements: float) -> KernelShape:
    return stream(
        kernel,
        share.formats,
        elements * share.model.rotary_ratio,
        moved=2,
        operations=_ROTARY_OPERATIONS,
        family=Family.ACTIVATION,
    )
