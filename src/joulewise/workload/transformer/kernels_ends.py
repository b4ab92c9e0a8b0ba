"""Launches before the first layer and behind the last: embeddings, head and loss."""

from __future__ import annotations

from collections.abc import Iterator

from joulewise.workload.transformer.collectives import all_reduce
from joulewise.workload.transformer.efficiency import Family
from joulewise.workload.transformer.feedforward import (
    activation_gradient_operation_count,
    activation_operation_count,
)
from joulewise.workload.transformer.kernels import (
    gathered,
    gathered_again,
    norm,
    norm_gradient,
    scattered,
)
from joulewise.workload.transformer.model import Head
from joulewise.workload.transformer.parallel import Share
from joulewise.workload.transformer.shapes import KernelShape, Linear, in_backward, stream

_LOSS_OPERATIONS = 6  # as in `gpt3-xl`
_TANH_OPERATIONS = 8  # assumed
# Largest logit, sum of exponentials and logit of the label (Megatron-LM's parallel loss).
_LOSS_REDUCTION_COUNT = 3


def embedding_forward(share: Share) -> Iterator[KernelShape]:
    """Rows of the table are read and written; positions and token types stay in the cache.

    Tensor parallelism splits the vocabulary: each GPU writes all rows, zero where the entry is
    another's, and the sums are scattered.
    """
    elements = float(share.token_count) * share.model.hidden_count
    yield stream(
        "embedding", share.formats, elements, moved=2, operations=1, family=Family.EMBEDDING
    )
    yield from scattered(share)
    if share.model.has_embedding_norm:
        yield norm(share, "embedding_norm")


def embedding_backward(share: Share) -> Iterator[KernelShape]:
    """Gradients of what is trained: positions and types are summed, entries read and written."""
    if not share.is_fully_trained:
        return
    if share.model.has_embedding_norm:
        yield norm_gradient(share, "embedding_norm_gradient")
    yield from gathered(share)
    elements = float(share.token_count) * share.model.hidden_count
    moved = {
        "position_embedding_gradient": 1 if share.model.position_count else 0,
        "token_type_embedding_gradient": 1 if share.model.token_type_count else 0,
        "token_embedding_gradient": 3,
    }
    for kernel, count in moved.items():
        if count:
            yield in_backward(
                stream(
                    kernel,
                    share.formats,
                    elements,
                    moved=count,
                    operations=1,
                    family=Family.EMBEDDING_GRADIENT,
                )
            )


def head_forward(share: Share) -> Iterator[KernelShape]:
    """From the last layer's (normalised) output to the loss."""
    if share.model.has_pooler:
        yield from _pooler_linear(share).forward()
        yield _pooler_activation(share, "pooler_activation", moved=2)
    if share.model.head is Head.NONE:
        return
    if share.model.head is Head.MASKED_LANGUAGE_MODEL:
        yield from _dense_linear(share).forward()
        yield _dense_activation(share)
        yield norm(share, "head_norm")
    yield from gathered(share)
    yield from _logits_linear(share).forward()
    yield from _loss_reductions(share)
    yield _loss(share)


def head_backward(share: Share) -> Iterator[KernelShape]:
    """From the loss, whose kernel leaves the gradient of the logits, to the last layer."""
    if share.model.head is not Head.NONE:
        yield from gathered_again(share)
        yield from _logits_linear(share).backward()
        yield from scattered(share)
    if share.model.head is Head.MASKED_LANGUAGE_MODEL:
        yield norm_gradient(share, "head_norm_gradient")
        yield in_backward(_dense_activation_gradient(share))
        yield from _dense_linear(share).backward()
    if share.model.has_pooler:
        shape = _pooler_activation(share, "pooler_activation_gradient", moved=3)
        yield in_backward(shape)
        yield from _pooler_linear(share).backward()
    if share.model.has_final_norm:
        yield norm_gradient(share)


def _logits_linear(share: Share) -> Linear:
    return Linear(
        name="logits",
        row_count=share.token_count,
        input_count=share.model.hidden_count,
        output_count=share.vocabulary_count,
        formats=share.formats,
        bias_row_count=share.token_count if share.model.has_head_bias else 0,
        is_trained=share.is_fully_trained,
        is_accumulating=share.is_accumulating,
    )


def _dense_linear(share: Share) -> Linear:
    """BERT's dense layer before the logits, held whole by each GPU, on its rows."""
    return Linear(
        name="head_dense",
        row_count=share.row_count,
        input_count=share.model.hidden_count,
        output_count=share.model.hidden_count,
        formats=share.formats,
        bias_row_count=share.row_count,
        is_trained=share.is_fully_trained,
        is_accumulating=share.is_accumulating,
    )


def _pooler_linear(share: Share) -> Linear:
    """The pooler sees the first token of each sequence, on the GPU that holds its row."""
    rows = share.setup.batch_count / share.setup.tensor_parallel_count
    return Linear(
        name="pooler",
        row_count=rows,
        input_count=share.model.hidden_count,
        output_count=share.model.hidden_count,
        formats=share.formats,
        bias_row_count=rows,
        is_trained=share.is_fully_trained,
        is_accumulating=share.is_accumulating,
    )


def _dense_activation(share: Share) -> KernelShape:
    return stream(
        "head_activation",
        share.formats,
        share.hidden_element_count,
        moved=2,
        operations=activation_operation_count(share.model.activation),
        family=Family.ACTIVATION,
    )


def _dense_activation_gradient(share: Share) -> KernelShape:
    return stream(
        "head_activation_gradient",
        share.formats,
        share.hidden_element_count,
        moved=3,
        operations=activation_gradient_operation_count(share.model.activation),
        family=Family.ACTIVATION_GRADIENT,
    )


def _pooler_activation(share: Share, kernel: str, *, moved: int) -> KernelShape:
    rows = share.setup.batch_count / share.setup.tensor_parallel_count
    return stream(
        kernel,
        share.formats,
        rows * share.model.hidden_count,
        moved=moved,
        operations=_TANH_OPERATIONS,
        family=Family.ACTIVATION,
    )


def _loss_reductions(share: Share) -> tuple[KernelShape, ...]:
    """Numbers of each token that GPUs with a part of the vocabulary must share."""
    degree = share.setup.tensor_parallel_count
    if degree == 1:
        return ()
    return (all_reduce("all_reduce_loss", share, share.token_count, degree),) * (
        _LOSS_REDUCTION_COUNT
    )


def _loss(share: Share) -> KernelShape:
    """Logits are read and, for backward, replaced by their gradients, as in llm.c."""
    return stream(
        "cross_entropy",
        share.formats,
        float(share.token_count) * share.vocabulary_count,
        moved=2 if share.setup.has_backward else 1,
        operations=_LOSS_OPERATIONS,
        family=Family.LOSS,
    )
