"""The feed-forward part of a layer, dense or of experts: forward and backward launches.

A gated part has gate and up in one product. Experts run as grouped products, between a router
and kernels that sort tokens by expert and back; tokens spread evenly over experts (assumed).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from joulewise.workload.transformer.efficiency import Family
from joulewise.workload.transformer.model import Activation, TransformerModel
from joulewise.workload.transformer.parallel import Share
from joulewise.workload.transformer.shapes import KernelShape, Linear, in_backward, stream

# Arithmetic per element of the inner width: those of GELU are those of `gpt3-xl`; the others
# are assumed, with an exponential as four.
_OPERATIONS = {Activation.GELU: 12, Activation.SILU: 7, Activation.RELU: 1}
_GRADIENT_OPERATIONS = {Activation.GELU: 16, Activation.SILU: 10, Activation.RELU: 1}
_GATE_OPERATIONS = 1
_GATE_GRADIENT_OPERATIONS = 3
_ROUTER_OPERATIONS = 6  # softmax and choice, assumed


def activation_operation_count(activation: Activation) -> int:
    """Arithmetic per element, forward."""
    return _OPERATIONS[activation]


def activation_gradient_operation_count(activation: Activation) -> int:
    """Arithmetic per element, backward."""
    return _GRADIENT_OPERATIONS[activation]


def has_experts(model: TransformerModel) -> bool:
    """Whether tokens are sent to some of several experts."""
    return model.expert_count > 1


def routed_row_count(share: Share) -> float:
    """Rows that the products of all experts see: each token once for each of its experts."""
    return float(share.token_count * share.model.active_expert_count)


def router_linear(share: Share) -> Linear:
    """The product that scores experts, on the rows of one GPU."""
    return Linear(
        name="router",
        row_count=share.row_count,
        input_count=share.model.hidden_count,
        output_count=share.model.expert_count,
        formats=share.formats,
        is_trained=share.is_fully_trained,
        is_accumulating=share.is_accumulating,
    )


def up_linear(share: Share) -> Linear:
    """From hidden to inner width, gate and up together; columns split."""
    rows = routed_row_count(share)
    return Linear(
        name="feedforward_gate_up" if share.model.is_gated else "feedforward_up",
        row_count=rows,
        input_count=share.model.hidden_count,
        output_count=share.ffn_count * (2 if share.model.is_gated else 1),
        formats=share.formats,
        matrix_count=_used_expert_count(share),
        bias_row_count=rows if share.model.has_ffn_bias else 0,
        is_trained=share.is_fully_trained,
        is_accumulating=share.is_accumulating,
    )


def down_linear(share: Share) -> Linear:
    """From inner to hidden width; rows split."""
    rows = routed_row_count(share)
    bias_rows = rows / share.setup.tensor_parallel_count
    return Linear(
        name="feedforward_down",
        row_count=rows,
        input_count=share.ffn_count,
        output_count=share.model.hidden_count,
        formats=share.formats,
        matrix_count=_used_expert_count(share),
        bias_row_count=bias_rows if share.model.has_ffn_bias else 0,
        is_trained=share.is_fully_trained,
        is_accumulating=share.is_accumulating,
    )


def _used_expert_count(share: Share) -> int:
    """Experts that any row is sent to, and whose weights are read."""
    return min(share.model.expert_count, math.ceil(routed_row_count(share)))


def feedforward_forward(share: Share) -> Iterator[KernelShape]:
    """Launches from normalised hidden states to what is added to the residual stream."""
    if has_experts(share.model):
        yield from router_linear(share).forward()
        yield _router_choice(share, "router_choice")
        yield _sorted(share, "sort_tokens")
    yield from up_linear(share).forward()
    yield _activation(share)
    yield from down_linear(share).forward()
    if has_experts(share.model):
        yield _sorted(share, "unsort_tokens")


def feedforward_backward(share: Share) -> Iterator[KernelShape]:
    """Launches in the order of backward, weight gradients behind their input gradients."""
    if has_experts(share.model):
        yield in_backward(_sorted(share, "unsort_tokens_gradient"))
    yield from down_linear(share).backward()
    yield in_backward(_activation_gradient(share))
    yield from up_linear(share).backward()
    if has_experts(share.model):
        yield in_backward(_sorted(share, "sort_tokens_gradient"))
        yield in_backward(_router_choice(share, "router_choice_gradient"))
        yield from router_linear(share).backward()


def _activation(share: Share) -> KernelShape:
    """Reads the inner width (twice it where gated), writes it once."""
    is_gated = share.model.is_gated
    return stream(
        "activation_gate" if is_gated else "activation",
        share.formats,
        routed_row_count(share) * share.ffn_count,
        moved=3 if is_gated else 2,
        operations=_OPERATIONS[share.model.activation] + (_GATE_OPERATIONS if is_gated else 0),
        family=Family.ACTIVATION,
    )


def _activation_gradient(share: Share) -> KernelShape:
    """Reads the gradient and the inputs, writes gradients of the inputs: two each where gated."""
    is_gated = share.model.is_gated
    return stream(
        "activation_gate_gradient" if is_gated else "activation_gradient",
        share.formats,
        routed_row_count(share) * share.ffn_count,
        moved=5 if is_gated else 3,
        operations=_GRADIENT_OPERATIONS[share.model.activation]
        + (_GATE_GRADIENT_OPERATIONS if is_gated else 0),
        family=Family.ACTIVATION_GRADIENT,
    )


def _router_choice(share: Share, kernel: str) -> KernelShape:
    return stream(
        kernel,
        share.formats,
        share.row_count * share.model.expert_count,
        moved=2,
        operations=_ROUTER_OPERATIONS,
        family=Family.SOFTMAX,
    )


def _sorted(share: Share, kernel: str) -> KernelShape:
    """One side has each token once, the other once for each of its experts."""
    rows = share.token_count + routed_row_count(share)
    return stream(
        kernel,
        share.formats,
        rows * share.model.hidden_count,
        moved=1,
        operations=0.5,  # as embeddings: one for each element read and written
        family=Family.EMBEDDING,
    )
