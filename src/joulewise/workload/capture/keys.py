"""Which launches of a trace are launches of one kernel."""

from __future__ import annotations

import dataclasses

import numpy as np

from joulewise.domain.trace import KernelSignature, MeasuredWork, ProfilerTrace
from joulewise.workload.capture.intervals import IntColumn
from joulewise.workload.capture.ops.formulas import values_matter


def kernel_of_signatures(trace: ProfilerTrace) -> IntColumn:
    """The kernel of every signature, shape (signatures,), as the index of its first signature.

    Signatures that differ only in values of scalars (seeds, step counts, learning rates) are one
    kernel; the values of convolutions and attention are part of the work and so of the kernel.
    """
    first: dict[tuple[KernelSignature, MeasuredWork | None], int] = {}
    measured: tuple[MeasuredWork | None, ...] = trace.measured or (None,) * len(trace.signatures)
    kernels = [
        first.setdefault((plain_signature(signature), counted), index)
        for index, (signature, counted) in enumerate(zip(trace.signatures, measured, strict=True))
    ]
    return np.array(kernels, dtype=np.int64)


def plain_signature(signature: KernelSignature) -> KernelSignature:
    """A signature without values that do not change the work."""
    if signature.op is not None and values_matter(signature.op):
        return signature
    inputs = tuple(
        one if one.value is None else dataclasses.replace(one, value=None)
        for one in signature.inputs
    )
    return dataclasses.replace(signature, inputs=inputs)
