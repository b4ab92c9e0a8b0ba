"""Small profiler traces that tests make up."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from joulewise.domain.passes import Pass
from joulewise.domain.trace import (
    KernelSignature,
    KernelTotal,
    MeasuredWork,
    OpInput,
    ProfilerTrace,
    TracedGpu,
    TracedStep,
)

US = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One launch, in microseconds; `step` is the index of its step."""

    kernel: str | KernelSignature
    start_us: float
    duration_us: float
    gpu: int = 0
    stream: int = 7
    pass_: Pass | None = None
    step: int | None = None

    @property
    def signature(self) -> KernelSignature:
        """The kernel's signature: a name alone is one."""
        known = self.kernel
        return known if isinstance(known, KernelSignature) else KernelSignature(name=known)


def in_a_row(
    kernels: Sequence[str | KernelSignature],
    *,
    duration_us: float = 10.0,
    gap_us: float = 0.0,
    start_us: float = 0.0,
) -> list[Ran]:
    """Launches one behind the other on one stream."""
    return [
        Ran(
            kernel=kernel,
            start_us=start_us + index * (duration_us + gap_us),
            duration_us=duration_us,
        )
        for index, kernel in enumerate(kernels)
    ]


def tensor(*shape: int, dtype: str | None = "float") -> OpInput:
    """An input that is a tensor."""
    return OpInput(shape=shape, dtype=dtype)


def scalar(value: object) -> OpInput:
    """An input that is a scalar, a list or a flag, as PyTorch writes it."""
    return OpInput(dtype="Scalar", value=str(value))


def profiler_trace(  # noqa: PLR0913 - a trace has many sides, and tests name what they need
    ran: Sequence[Ran],
    *,
    steps: Sequence[tuple[str, float, float]] = (),
    device_name: str | None = "NVIDIA H100 80GB HBM3",
    is_timeline: bool = True,
    measured: dict[KernelSignature, MeasuredWork] | None = None,
    rank: int | None = None,
    rank_count: int | None = None,
    file: str = "profile.json",
) -> ProfilerTrace:
    """A trace of these launches; steps are name, start and duration in microseconds."""
    in_order = sorted(ran, key=lambda one: one.start_us) if is_timeline else list(ran)
    signatures = tuple(dict.fromkeys(one.signature for one in in_order))
    index = {signature: number for number, signature in enumerate(signatures)}
    counts = Counter(one.signature.name for one in in_order)
    times = {
        name: math.fsum(one.duration_us * US for one in in_order if one.signature.name == name)
        for name in counts
    }
    return ProfilerTrace(
        tool="made up",
        file=file,
        signatures=signatures,
        signature_index=np.array([index[one.signature] for one in in_order], dtype=np.int64),
        start_s=np.array([one.start_us * US for one in in_order]),
        duration_s=np.array([one.duration_us * US for one in in_order]),
        gpu=np.array([one.gpu for one in in_order], dtype=np.int64),
        stream=np.array([one.stream for one in in_order], dtype=np.int64),
        is_graph_launch=np.zeros(len(in_order), dtype=np.bool_),
        passes=tuple(one.pass_ for one in in_order),
        steps=tuple(
            TracedStep(name=name, start_s=start_us * US, duration_s=duration_us * US)
            for name, start_us, duration_us in steps
        ),
        step_index=np.array([one.step or 0 for one in in_order], dtype=np.int64),
        is_in_step=np.array([one.step is not None for one in in_order], dtype=np.bool_),
        gpus=tuple(
            TracedGpu(gpu=gpu, name=device_name) for gpu in sorted({one.gpu for one in in_order})
        ),
        kernel_count=len(in_order),
        kernel_time_s=math.fsum(times.values()),
        totals=tuple(
            KernelTotal(name=name, launch_count=counts[name], time_s=times[name])
            for name in sorted(counts, key=lambda name: -times[name])
        ),
        is_timeline=is_timeline,
        measured=tuple((measured or {}).get(one, MeasuredWork()) for one in signatures)
        if measured
        else (),
        rank=rank,
        rank_count=rank_count,
    )
