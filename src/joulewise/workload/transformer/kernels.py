"""Launches of whole layers: attention, feed-forward part, what joins them, and its collectives.

A residual sum and the norm behind it are one kernel, as fused training stacks have it. With
tensor parallelism, normalised rows are gathered before a split product and its sums scattered
behind it; backward does the same the other way round and gathers the product's input once more
for its weight gradient, unless the weights are frozen (Korthikanti et al., arXiv 2205.05198,
section 4.2.2).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from joulewise.workload.transformer.attention import (
    attention_backward,
    attention_forward,
    core_forward,
)
from joulewise.workload.transformer.collectives import all_gather, reduce_scatter
from joulewise.workload.transformer.efficiency import Family
from joulewise.workload.transformer.feedforward import feedforward_backward, feedforward_forward
from joulewise.workload.transformer.model import Norm
from joulewise.workload.transformer.parallel import Share
from joulewise.workload.transformer.setup import Attention, Recompute
from joulewise.workload.transformer.shapes import KernelShape, in_backward, recomputed, stream

# Arithmetic per element: layer norms as in `gpt3-xl`; RMS norms have no mean to take (assumed).
_NORM_OPERATIONS = {Norm.LAYER: 8, Norm.RMS: 4}
_NORM_GRADIENT_OPERATIONS = {Norm.LAYER: 14, Norm.RMS: 10}


def norm(share: Share, kernel: str = "norm") -> KernelShape:
    """Reads a row, writes it normalised."""
    return _joined(share, kernel, moved=2, norms=1, sums=0)


def norm_gradient(share: Share, kernel: str = "norm_gradient") -> KernelShape:
    """Six elements moved for each one: input and gradient twice, the residual's gradient, the sum.

    A row's sums come first and its gradient after them, in two passes, as in llm.c. The
    gradient of the residual stream is added on the way.
    """
    shape = stream(
        kernel,
        share.formats,
        share.hidden_element_count,
        moved=6,
        operations=_NORM_GRADIENT_OPERATIONS[share.model.norm],
        family=Family.NORM_GRADIENT,
    )
    return in_backward(shape)


def first_norms(share: Share) -> tuple[KernelShape, ...]:
    """What stands before the first layer of a stage; later norms are fused with the sums."""
    if share.model.is_post_norm:
        return ()
    if share.model.is_parallel_block:
        return (_joined(share, "norms", moved=3, norms=2, sums=0),)
    return (norm(share),)


def layer_forward(share: Share, *, is_last: bool) -> tuple[KernelShape, ...]:
    """One layer, from its normalised input to that of the next (`is_last`: of what follows)."""
    if share.model.is_parallel_block:
        parts = (
            *gathered(share),
            *attention_forward(share),
            *gathered(share),
            *feedforward_forward(share),
            *scattered(share),
        )
    else:
        parts = (
            *gathered(share),
            *attention_forward(share),
            *scattered(share),
            _joined(share, "residual_norm", moved=4, norms=1, sums=1),
            *gathered(share),
            *feedforward_forward(share),
            *scattered(share),
        )
    return (*parts, _tail(share, is_last=is_last))


def layer_backward(share: Share, *, is_last: bool) -> tuple[KernelShape, ...]:
    """One layer backward, and what it computes again first (`is_last` as in `layer_forward`)."""
    if share.setup.recompute is Recompute.FULL:
        forward = layer_forward(share, is_last=is_last)
        return (*map(recomputed, forward), *_gradients(share, ()))
    is_eager = share.setup.attention is Attention.EAGER
    if share.setup.recompute is Recompute.SELECTIVE and is_eager:
        # Flash attention keeps no scores in the first place.
        return tuple(_gradients(share, map(recomputed, core_forward(share))))
    return tuple(_gradients(share, ()))


def gathered(share: Share) -> tuple[KernelShape, ...]:
    """Normalised rows of all GPUs of the tensor-parallel group, where there are several."""
    degree = share.setup.tensor_parallel_count
    if degree == 1:
        return ()
    elements = float(share.token_count) * share.model.hidden_count
    return (all_gather("all_gather_hidden", share, elements, degree),)


def scattered(share: Share) -> tuple[KernelShape, ...]:
    """Sums of the parts of a product, to each GPU its rows, where there are several."""
    degree = share.setup.tensor_parallel_count
    if degree == 1:
        return ()
    elements = float(share.token_count) * share.model.hidden_count
    return (reduce_scatter("reduce_scatter_hidden", share, elements, degree),)


def _gradients(share: Share, again: Iterable[KernelShape]) -> Iterator[KernelShape]:
    """Backward of one layer; `again` is what attention's backward needs computed anew."""
    if share.model.is_parallel_block:
        yield from gathered(share)
        yield from _feedforward_gradients(share)
        yield from _attention_gradients(share, again)
        yield norm_gradient(share)
        yield norm_gradient(share)
        return
    if share.model.is_post_norm:
        yield norm_gradient(share)
    yield from gathered(share)
    yield from _feedforward_gradients(share)
    yield norm_gradient(share)
    yield from gathered(share)
    yield from _attention_gradients(share, again)
    if not share.model.is_post_norm:
        yield norm_gradient(share)


def gathered_again(share: Share) -> tuple[KernelShape, ...]:
    """The input of a split product, for its weight gradient; frozen weights have none.

    Adapters see the rows of their own GPU, which need no gathering.
    """
    return gathered(share) if share.is_fully_trained else ()


def _feedforward_gradients(share: Share) -> Iterator[KernelShape]:
    yield from gathered_again(share)
    yield from feedforward_backward(share)
    yield from scattered(share)


def _attention_gradients(share: Share, again: Iterable[KernelShape]) -> Iterator[KernelShape]:
    yield from again
    yield from gathered_again(share)
    yield from attention_backward(share)
    yield from scattered(share)


def _tail(share: Share, *, is_last: bool) -> KernelShape:
    """The residual sum at a layer's end, with the norm that follows it, if one does."""
    addends = 2 if share.model.is_parallel_block else 1
    norms = addends
    if is_last and not share.model.is_post_norm:
        norms = 1 if share.is_last_stage and share.model.has_final_norm else 0
    kernel = {
        (1, 0): "residual",
        (1, 1): "residual_norm",
        (2, 0): "residuals",
        (2, 1): "residuals_norm",
        (2, 2): "residuals_norms",
    }[addends, norms]
    # The residual stream and what is added are read; their sum and its norms are written.
    return _joined(share, kernel, moved=1 + addends + 1 + norms, norms=norms, sums=addends)


def _joined(share: Share, kernel: str, *, moved: int, norms: int, sums: int) -> KernelShape:
    """Sums and norms of rows in one kernel."""
    return stream(
        kernel,
        share.formats,
        share.hidden_element_count,
        moved=moved,
        operations=norms * _NORM_OPERATIONS[share.model.norm] + sums,
        family=Family.NORM,
    )
