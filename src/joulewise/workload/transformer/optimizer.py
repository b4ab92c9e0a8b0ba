"""The optimizer's launches: one fused kernel over many tensors at a time.

Mixed precision keeps an FP32 master copy of each 16-bit weight (Micikevicius et al.,
arXiv 1710.03740). Bytes per trained parameter, each read or written once, with gradients in the
size of the weights (e bytes):

| optimizer | master | moments | gradient | weight | bytes |
| --- | --- | --- | --- | --- | --- |
| AdamW, 16-bit weights | 4 + 4 | 8 + 8 | 2 | 2 | 28 |
| AdamW, FP32 weights (their own master) | 4 + 4 | 8 + 8 | 4 | | 28 |
| SGD, 16-bit weights | 4 + 4 | | 2 | 2 | 12 |
| SGD, FP32 weights | 4 + 4 | | 4 | | 12 |

FP64 weights have FP64 moments: twice the FP32 rows. AdamW: Loshchilov and Hutter,
arXiv 1711.05101. SGD is without momentum. Norms of gradients are not clipped.
"""

from __future__ import annotations

import math

from joulewise.domain.passes import Pass
from joulewise.domain.workload import KernelKind
from joulewise.workload.transformer.efficiency import Family
from joulewise.workload.transformer.parallel import Share
from joulewise.workload.transformer.parallel_weights import weights_of
from joulewise.workload.transformer.setup import Optimizer
from joulewise.workload.transformer.shapes import FP32_BYTES, KernelShape

# PyTorch's multi-tensor kernels take 320 chunks of 65,536 elements at a time
# (aten/src/ATen/native/cuda/MultiTensorApply.cuh).
ELEMENTS_PER_LAUNCH_COUNT = 320 * 65_536

# Moments, square root, quotient, decay and step; assumed.
_OPERATIONS_PER_PARAMETER = {Optimizer.ADAMW: 15, Optimizer.SGD: 2}
_MOMENT_COUNT = {Optimizer.ADAMW: 2, Optimizer.SGD: 0}


def own_parameter_count(share: Share) -> float:
    """Parameters that this GPU updates: with ZeRO, its part of those that its rank trains.

    That is one at least, as parts are padded to one size.
    """
    trained = weights_of(share).trained_count
    if not share.setup.zero_stage:
        return trained
    return max(1.0, trained / share.setup.data_parallel_count)


def optimizer_bytes_per_parameter(share: Share) -> int:
    """Bytes read and written for each parameter that is updated; the module has the table."""
    element_bytes = share.formats.element_bytes
    # A weight that has a master elsewhere is written alone.
    weight_bytes = element_bytes if _master_bytes(share) else 2 * element_bytes
    return 2 * state_bytes_per_parameter(share) + element_bytes + weight_bytes


def state_bytes_per_parameter(share: Share) -> int:
    """Bytes of moments and of an FP32 master, if the weight is not its own; 0 without updates."""
    optimizer = share.setup.optimizer
    if optimizer is Optimizer.NONE:
        return 0
    moment_bytes = max(share.formats.element_bytes, FP32_BYTES)
    return _MOMENT_COUNT[optimizer] * moment_bytes + _master_bytes(share)


def _master_bytes(share: Share) -> int:
    return FP32_BYTES if share.formats.element_bytes < FP32_BYTES else 0


def optimizer_launch_count(share: Share) -> int:
    """How many launches the update takes."""
    if share.setup.optimizer is Optimizer.NONE or not share.setup.has_backward:
        return 0
    return math.ceil(own_parameter_count(share) / ELEMENTS_PER_LAUNCH_COUNT)


def optimizer_launches(share: Share) -> tuple[KernelShape, ...]:
    """Launches of the update, all alike; none for `Optimizer.NONE`."""
    optimizer = share.setup.optimizer
    launches = optimizer_launch_count(share)
    if not launches:
        return ()
    parameters = own_parameter_count(share)
    bytes_each = optimizer_bytes_per_parameter(share)
    operations = _OPERATIONS_PER_PARAMETER[optimizer]
    shape = KernelShape(
        kernel=optimizer.value,
        family=Family.ACTIVATION,
        kind=KernelKind.OTHER,
        dtype=share.formats.vector,
        pass_=Pass.OPTIMIZER,
        flop_count=operations * parameters / launches,
        traffic_bytes=bytes_each * parameters / launches,
        operation_count_per_element=operations * FP32_BYTES / bytes_each,
    )
    return (shape,) * launches
