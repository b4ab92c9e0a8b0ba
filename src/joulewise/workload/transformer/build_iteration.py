"""One iteration on one GPU as launches: micro-batches, gradient exchange, optimizer, gap."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from joulewise.domain.errors import InputError
from joulewise.domain.passes import Pass
from joulewise.domain.workload import KernelKind
from joulewise.workload.transformer.bounds import largest_part
from joulewise.workload.transformer.collectives import (
    DDP_BUCKET_BYTES,
    ZERO_BUCKET_COUNT,
    all_gather,
    all_reduce,
    point_to_point,
    reduce_scatter,
)
from joulewise.workload.transformer.efficiency import Family
from joulewise.workload.transformer.kernels import first_norms, layer_backward, layer_forward
from joulewise.workload.transformer.kernels_ends import (
    embedding_backward,
    embedding_forward,
    head_backward,
    head_forward,
)
from joulewise.workload.transformer.optimizer import (
    optimizer_launch_count,
    optimizer_launches,
)
from joulewise.workload.transformer.parallel import Share
from joulewise.workload.transformer.parallel_weights import shared_embedding_count, weights_of
from joulewise.workload.transformer.shapes import KernelShape

MOST_LAUNCHES = 1_000_000  # of an iteration, as workload files have it

_REDUCED, _GRADIENTS_SPLIT, _WEIGHTS_SPLIT = 1, 2, 3  # stages of ZeRO


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """Launches of one micro-batch forward and backward, and of the iteration's end."""

    forward: tuple[KernelShape, ...]
    backward: tuple[KernelShape, ...]
    end: tuple[KernelShape, ...]
    micro_batch_count: int
    forward_first_count: int

    @property
    def launch_count(self) -> int:
        """Launches of the whole iteration."""
        each = len(self.forward) + len(self.backward)
        return self.micro_batch_count * each + len(self.end)

    @property
    def distinct(self) -> tuple[KernelShape, ...]:
        """One launch of each kernel, in order of first launch of a micro-batch."""
        each = (*self.forward, *self.backward, *self.end)
        return tuple({shape.kernel: shape for shape in each}.values())

    def launches(self) -> Iterator[KernelShape]:
        """All launches in order: some micro-batches forward first, then one each way by turns.

        Source: the 1F1B schedule of Narayanan et al., arXiv 2104.04473, section 2.2.1. Waiting
        for other stages is not among the launches.
        """
        first = self.forward_first_count
        yield from itertools.chain.from_iterable(itertools.repeat(self.forward, first))
        for _ in range(self.micro_batch_count - first):
            yield from self.forward
            yield from self.backward
        yield from itertools.chain.from_iterable(itertools.repeat(self.backward, first))
        yield from self.end


def iteration_of(share: Share) -> Iteration:
    """The iteration on one GPU of the share's stage.

    Raises InputError where it has more launches than a workload may have.
    """
    setup = share.setup
    _refuse_too_many_passes(share, _layer_launch_count(share))
    forward = tuple(_forward(share))
    backward = tuple(_backward(share)) if setup.has_backward else ()
    end = tuple(_training_end(share)) if setup.has_backward else ()
    if setup.gap_s > 0:
        before = (end or backward or forward)[-1]
        end = (*end, _gap(share, before.pass_))
    later_stages = setup.pipeline_parallel_count - 1 - setup.stage
    iteration = Iteration(
        forward=forward,
        backward=backward,
        end=end,
        micro_batch_count=setup.micro_batch_count,
        forward_first_count=min(setup.micro_batch_count, later_stages),
    )
    _refuse_too_many_of_weights(share, len(end))
    _refuse_too_many_passes(share, len(forward) + len(backward), len(end))
    return iteration


def _layer_launch_count(share: Share) -> int:
    """Launches of all layers of a micro-batch, without building them."""
    forward = len(layer_forward(share, is_last=False))
    backward = len(layer_backward(share, is_last=False)) if share.setup.has_backward else 0
    return share.layer_count * (forward + backward)


def _refuse_too_many_passes(share: Share, each_count: int, end_count: int = 0) -> None:
    """Refuse more launches of micro-batches than an iteration may have."""
    launch_count = share.setup.micro_batch_count * each_count + end_count
    if launch_count > MOST_LAUNCHES:
        raise InputError(
            f"the iteration has {launch_count} launches or more, and may have {MOST_LAUNCHES}",
            field="layers" if each_count > MOST_LAUNCHES else "micro",
            hint="Build fewer micro-batches or layers: their launches repeat anyway.",
        )


def _refuse_too_many_of_weights(share: Share, launch_count: int) -> None:
    """Refuse more launches that exchange or update weights than an iteration may have."""
    if launch_count > MOST_LAUNCHES:
        raise InputError(
            f"{weights_of(share).trained_count} parameters on one GPU take {launch_count} launches "
            f"to exchange or update, and an iteration may have {MOST_LAUNCHES}",
            field=largest_part(share.model),
            hint="Build a smaller model, or split it: tp, pp.",
        )


def _forward(share: Share) -> Iterator[KernelShape]:
    if share.is_first_stage:
        yield from _weights_gathered(share, "embedding", weights_of(share).embedding_count)
        yield from embedding_forward(share)
    else:
        yield _stage_link(share, "receive_activations")
    yield from first_norms(share)
    gathered = _layer_gathered(share)
    inner = (*gathered, *layer_forward(share, is_last=False))
    yield from inner * (share.layer_count - 1)
    yield from (*gathered, *layer_forward(share, is_last=True))
    if share.is_last_stage:
        yield from _weights_gathered(share, "head", weights_of(share).head_count)
        yield from head_forward(share)
    else:
        yield _stage_link(share, "send_activations")


def _backward(share: Share) -> Iterator[KernelShape]:
    if share.is_last_stage:
        yield from head_backward(share)
        yield from _gradients_scattered(share, "head", weights_of(share).head_count)
    else:
        yield _stage_link(share, "receive_gradients")
    gathered = _layer_gathered(share)
    scattered = tuple(_layer_scattered(share))
    yield from (*gathered, *layer_backward(share, is_last=True), *scattered)
    inner = (*gathered, *layer_backward(share, is_last=False), *scattered)
    yield from inner * (share.layer_count - 1)
    if share.is_first_stage:
        yield from embedding_backward(share)
        yield from _gradients_scattered(share, "embedding", weights_of(share).embedding_count)
    else:
        yield _stage_link(share, "send_gradients")
    if share.setup.zero_stage == _GRADIENTS_SPLIT:
        yield from _gradient_buckets(share)


def _training_end(share: Share) -> Iterator[KernelShape]:
    """Gradients and the optimizer, once per iteration."""
    if share.setup.zero_stage <= _REDUCED:
        yield from _gradient_buckets(share)
    shared = shared_embedding_count(share)
    if shared and share.is_fully_trained:
        yield all_reduce("all_reduce_shared_embedding", share, shared, 2)
    _refuse_too_many_of_weights(share, optimizer_launch_count(share))
    update = optimizer_launches(share)
    yield from update
    if update and share.setup.zero_stage in (_REDUCED, _GRADIENTS_SPLIT):
        yield from _weight_buckets(share)


def _layer_gathered(share: Share) -> tuple[KernelShape, ...]:
    weights = weights_of(share)
    count = weights.one_layer_count + weights.adapter_count
    return tuple(_weights_gathered(share, "layer", count))


def _layer_scattered(share: Share) -> Iterator[KernelShape]:
    weights = weights_of(share)
    if _is_split(share):
        count = weights.trained_layer_count
        yield reduce_scatter("reduce_scatter_layer_gradients", share, count, _degree(share))


def _weights_gathered(share: Share, part: str, count: float) -> Iterator[KernelShape]:
    """ZeRO 3 keeps a part of each weight on each rank, and gathers a layer before it runs.

    Source: Rajbhandari et al., arXiv 1910.02054, section 5.3; Zhao et al. (FSDP),
    arXiv 2304.11277.
    """
    if _is_split(share) and count:
        yield all_gather(f"all_gather_{part}_weights", share, count, _degree(share))


def _gradients_scattered(share: Share, part: str, count: float) -> Iterator[KernelShape]:
    if _is_split(share) and count and share.is_fully_trained:
        yield reduce_scatter(f"reduce_scatter_{part}_gradients", share, count, _degree(share))


def _gradient_buckets(share: Share) -> Iterator[KernelShape]:
    """All gradients of the rank, in buckets of one size."""
    count = weights_of(share).trained_count
    if _degree(share) == 1:
        return
    if share.setup.zero_stage == 0:
        bucket = DDP_BUCKET_BYTES / share.formats.element_bytes
        number = math.ceil(count / bucket)
        shape = all_reduce("all_reduce_gradients", share, count / number, _degree(share))
    else:
        number = math.ceil(count / ZERO_BUCKET_COUNT)
        shape = reduce_scatter("reduce_scatter_gradients", share, count / number, _degree(share))
    _refuse_too_many_of_weights(share, number)
    yield from itertools.repeat(shape, number)


def _weight_buckets(share: Share) -> Iterator[KernelShape]:
    """Weights that other ranks updated."""
    count = weights_of(share).trained_count
    if _degree(share) > 1:
        number = math.ceil(count / ZERO_BUCKET_COUNT)
        shape = all_gather("all_gather_weights", share, count / number, _degree(share))
        _refuse_too_many_of_weights(share, number)
        yield from itertools.repeat(shape, number)


def _stage_link(share: Share, kernel: str) -> KernelShape:
    """Hidden states of the rows of one GPU, between neighbouring stages."""
    return point_to_point(kernel, share, share.hidden_element_count)


def _is_split(share: Share) -> bool:
    return share.setup.zero_stage == _WEIGHTS_SPLIT and _degree(share) > 1


def _degree(share: Share) -> int:
    return share.setup.data_parallel_count


def _gap(share: Share, pass_: Pass) -> KernelShape:
    """The host's time; it counts to the pass of the launch before it."""
    return KernelShape(
        kernel="host_gap",
        family=Family.GAP,
        kind=KernelKind.GAP,
        dtype=share.formats.vector,
        pass_=pass_,
        flop_count=0.0,
        traffic_bytes=0.0,
        wait_s=share.setup.gap_s,
    )
