"""FLOPs and bytes of one call of an operation, from its name and inputs."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from joulewise.domain.trace import OpInput
from joulewise.workload.capture.ops.answer import OpWork, ShapesDisagree
from joulewise.workload.capture.ops.attention import ATTENTION
from joulewise.workload.capture.ops.convolutions import CONVOLUTIONS
from joulewise.workload.capture.ops.products import PRODUCTS, Formula
from joulewise.workload.capture.ops.streams import stream_formula

MOST_FLOP_COUNT = 1e20
"""Of one launch: beyond it no operation on any GPU is; shapes that say so are no shapes."""
MOST_BYTES = 1e16
"""As `MOST_FLOP_COUNT`."""
_NAMESPACES = re.compile(r"\A(?:aten|_C|vllm|flash_attn(?:_\d)?|torch|c10)::")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpAnswer:
    """The work of a call, or what is wrong with its shapes; both `None` where nothing is known."""

    work: OpWork | None = None
    complaint: str | None = None


def op_work(op: str | None, inputs: Sequence[OpInput]) -> OpAnswer:
    """What one call of an operation computes and moves, over all kernels it launches.

    Args:
        op: As the profiler writes it, such as `aten::mm`; `None` where unknown.
        inputs: Its inputs in order, scalars included; tensors of lists one after another.

    Returns:
        No work where the operation or its shapes are unknown. Shapes that do not belong
        together, or are impossibly large, give a complaint and no work.
    """
    if op is None or not any(one.shape for one in inputs):
        return OpAnswer()
    name = _plain(op)
    products = _product_formula(name)
    is_product, formula = products is not None, products or stream_formula(name)
    if formula is None:
        return OpAnswer()
    if any(extent < 0 for one in inputs for extent in one.shape):
        return OpAnswer(complaint=f"{op}: an extent is negative")
    try:
        work: OpWork | None = formula(inputs)
        is_possible = work is None or _is_possible(work)
    except ShapesDisagree as error:
        # What streams may take inputs whose part in it is not known here.
        return OpAnswer(complaint=f"{op}: {error}" if is_product else None)
    except OverflowError:
        is_possible = False
        work = None
    return (
        OpAnswer(work=work)
        if is_possible
        else OpAnswer(complaint=f"{op}: its shapes are impossibly large")
    )


def values_matter(op: str) -> bool:
    """Whether values of scalars decide how much work an operation is.

    They are strides, padding and groups of convolutions, causal flags of attention.
    """
    name = _plain(op)
    return name in CONVOLUTIONS or name in ATTENTION


def is_product_op(op: str) -> bool:
    """Whether an operation multiplies matrices: products, convolutions, attention."""
    return _product_formula(_plain(op)) is not None


def _plain(op: str) -> str:
    """An operation without its namespace and overload."""
    return _NAMESPACES.sub("", op).partition(".")[0]


def _product_formula(name: str) -> Formula | None:
    for table in (PRODUCTS, CONVOLUTIONS, ATTENTION):
        if name in table:
            return table[name]
    return None


def _is_possible(work: OpWork) -> bool:
    return (
        math.isfinite(work.flop_count)
        and work.flop_count <= MOST_FLOP_COUNT
        and work.traffic_bytes <= MOST_BYTES
    )
