"""What a profiler saw: kernels as they ran on the GPUs of one process, and one iteration of them.

`ProfilerTrace` is what every reader of a profiler's file makes, and `IterationTrace` the part of
it that is kept with a workload.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from joulewise.domain.caveats import Caveat
from joulewise.domain.passes import Pass

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    FloatColumn = NDArray[np.float64]
    IntColumn = NDArray[np.int64]
    BoolColumn = NDArray[np.bool_]

Extent = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpInput:
    """One input of the operation that launched a kernel, as the profiler wrote it.

    `shape` is empty for a scalar and for what is no tensor; `value` is what a scalar, list or
    flag held, where the profiler kept it.
    """

    shape: tuple[int, ...] = ()
    dtype: str | None = None
    value: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """What a communication kernel exchanges; `None` where the profiler does not say.

    Elements are those of one GPU. Source: NCCL metadata of PyTorch's profiler.
    """

    name: str | None = None
    dtype: str | None = None
    input_element_count: int | None = None
    output_element_count: int | None = None
    group_gpu_count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSignature:
    """What makes two launches launches of one kernel; `None` where the profiler does not say.

    `name` is demangled; `grid` and `block` are x, y, z; `register_count` is per thread;
    `shared_memory_bytes` is per block, static and dynamic. `op` and `inputs` are of the
    operation that launched it.
    """

    name: str
    grid: Extent | None = None
    block: Extent | None = None
    shared_memory_bytes: int | None = None
    register_count: int | None = None
    op: str | None = None
    inputs: tuple[OpInput, ...] = ()
    collective: Collective | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredWork:
    """What a profiler counted of one launch of a kernel, as Nsight Compute does."""

    flop_count: float | None = None
    traffic_bytes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTotal:
    """All launches of one kernel name in a file, on every GPU."""

    name: str
    launch_count: int
    time_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedGpu:
    """A GPU as the profiler names it."""

    gpu: int
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedStep:
    """A mark around one iteration: a `ProfilerStep`, an NVTX range."""

    name: str
    start_s: float
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProfilerTrace:
    """N kernel launches of one file, by start; times count from the first of them.

    Columns have the shape (N,): `signature_index` points into `signatures`, `step_index` into
    `steps` (it holds 0 and means nothing where `is_in_step` is false). `passes` has N entries,
    `None` where neither annotations nor sequence numbers tell. `measured` belongs to
    `signatures`, one by one, and is empty where the profiler counted nothing.

    A file that only sums launches up (a CSV summary) has `is_timeline` false: its launches are
    listed kernel by kernel, each with the mean duration, and starts mean nothing.

    `kernel_count`, `kernel_time_s` and `totals` (longest first, all names) are of the whole
    file, memory copies and sets left out; the times are sums of whole nanoseconds.
    """

    tool: str
    file: str
    signatures: tuple[KernelSignature, ...]
    signature_index: IntColumn
    start_s: FloatColumn
    duration_s: FloatColumn
    gpu: IntColumn
    stream: IntColumn
    is_graph_launch: BoolColumn
    passes: tuple[Pass | None, ...]
    steps: tuple[TracedStep, ...]
    step_index: IntColumn
    is_in_step: BoolColumn
    gpus: tuple[TracedGpu, ...]
    kernel_count: int
    kernel_time_s: float
    totals: tuple[KernelTotal, ...]
    is_timeline: bool = True
    measured: tuple[MeasuredWork, ...] = ()
    rank: int | None = None
    rank_count: int | None = None
    caveats: tuple[Caveat, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedKernel:
    """A kernel of a traced iteration: its name in the workload, and its key.

    `time_s` is the sum over its launches in the iteration; `flop_count` and `traffic_bytes` are
    of one launch, also where it only ran beside others, and `None` where unknown.
    `is_work_estimated` says that they were guessed from the time.
    """

    kernel: str
    signature: KernelSignature
    launch_count: int
    time_s: float
    flop_count: float | None = None
    traffic_bytes: float | None = None
    is_work_estimated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedLaunch:
    """One launch as it ran; `start_s` counts from the iteration's first launch."""

    kernel: str
    pass_: Pass
    stream: int
    start_s: float
    duration_s: float
    is_graph_launch: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationTrace:
    """One iteration on one GPU, as a profiler saw it.

    `duration_s` reaches from its first launch to the first of the next iteration, or to its own
    end where none follows; in `busy_s` of it at least one kernel ran, in `overlap_s` more than
    one, and in `gap_s` none. `step` is the mark it was found by, `None` where by repetition.
    """

    tool: str
    file: str
    gpu: int
    device_name: str | None
    rank: int | None
    rank_count: int | None
    step: str | None
    iteration_count: int
    duration_s: float
    busy_s: float
    overlap_s: float
    gap_s: float
    kernels: tuple[TracedKernel, ...]
    launches: tuple[TracedLaunch, ...]
    trace_kernel_count: int
    trace_kernel_time_s: float
