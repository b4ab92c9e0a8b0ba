"""What a captured iteration does altogether: FLOPs of its matrices, GPUs, tokens."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from joulewise.domain.trace import OpInput, ProfilerTrace
from joulewise.domain.workload import Dtype, IterationSize
from joulewise.workload.capture.choice import CaptureChoice
from joulewise.workload.capture.fitting import RawWork
from joulewise.workload.capture.kernel_traits import is_helper_name, is_product_name
from joulewise.workload.capture.ops.formulas import is_product_op
from joulewise.workload.capture.passes import is_communication
from joulewise.workload.capture.uses import KernelUse

# FLOPs of an iteration are given where those of this much of its matrix kernels' time are known;
# assumed: what is missing then is less than what such figures are good for.
_KNOWN_TIME_RATIO = 0.9

_Family = tuple[str | None, tuple[OpInput, ...]]


def iteration_size(
    trace: ProfilerTrace,
    choice: CaptureChoice,
    uses: Mapping[int, KernelUse],
    works: Mapping[int, RawWork],
) -> IterationSize:
    """The size of the iteration of the whole job, all of whose GPUs are taken to do alike.

    `kernel_flop_count` is the FLOPs that matrix kernels execute: products, convolutions,
    attention, of which causal one does half. It is `None` where there are none, or where those
    of more than a tenth of these kernels' time are unknown. Without the user's word there are
    as many GPUs as ranks, or as GPUs that ran kernels in this trace, whichever are more.
    """
    gpu_count = choice.gpu_count or max(trace.rank_count or 1, len(np.unique(trace.gpu)))
    products = {kernel: work for kernel, work in works.items() if work.is_product}
    flop_count = gpu_count * sum(
        uses[kernel].launch_count * work.flop_count for kernel, work in products.items()
    )
    is_known = flop_count >= 1.0 and known_matrix_time_ratio(uses, works) >= _KNOWN_TIME_RATIO
    return IterationSize(
        gpu_count=gpu_count,
        node_gpu_count=choice.node_gpu_count,
        token_count=choice.token_count,
        kernel_flop_count=flop_count if is_known else None,
        dtype=_matrix_format(uses, products),
    )


def known_matrix_time_ratio(uses: Mapping[int, KernelUse], works: Mapping[int, RawWork]) -> float:
    """The share of matrix kernels' time whose FLOPs are known; 0 where there are none."""
    families = {_family(uses[kernel]) for kernel, work in works.items() if work.is_product}
    whole_s = known_s = 0.0
    for kernel, work in works.items():
        use = uses[kernel]
        if work.is_product or _looks_like_product(use, families):
            whole_s += use.time_s
            known_s += use.time_s if work.is_product and not work.is_estimated else 0.0
    return known_s / whole_s if whole_s else 0.0


def _looks_like_product(use: KernelUse, families: set[_Family]) -> bool:
    """By its name; or by its operation, if no other kernel of it multiplies."""
    signature = use.signature
    if is_communication(signature):
        return False
    if is_product_name(signature.name):
        return True
    is_other = _family(use) in families or is_helper_name(signature.name)
    return not is_other and signature.op is not None and is_product_op(signature.op)


def _family(use: KernelUse) -> _Family:
    return use.signature.op, use.signature.inputs


def _matrix_format(uses: Mapping[int, KernelUse], products: Mapping[int, RawWork]) -> Dtype | None:
    """The number format of most FLOPs of matrix products; `None` where there are none."""
    by_format: dict[Dtype, float] = defaultdict(float)
    for kernel, work in products.items():
        by_format[work.dtype] += uses[kernel].launch_count * work.flop_count
    return max(by_format, key=lambda one: by_format[one], default=None)
