"""Small traces as PyTorch's profiler writes them, built event by event. Times are microseconds."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

HOST = 4242
MAIN_THREAD = 4242
AUTOGRAD_THREAD = 4300
DEFAULT_STREAM = 7
COMMUNICATION_STREAM = 20

Event = dict[str, object]


@dataclass(slots=True, kw_only=True)
class KinetoTrace:
    """Collects events; each call appends some and says what links to them."""

    device_names: tuple[str, ...] = ("NVIDIA A100-SXM4-80GB",)
    rank: int | None = None
    rank_count: int | None = None
    events: list[Event] = field(default_factory=list)
    _external: int = 0
    _correlation: int = 100_000

    def mark(self, name: str, start: float, dur: float, *, thread: int = MAIN_THREAD) -> None:
        """A range of a program on the host, such as `## forward ##`."""
        self._add("user_annotation", name, start, dur, HOST, thread, {})

    def gpu_mark(
        self, name: str, start: float, dur: float, *, gpu: int = 0, stream: int = DEFAULT_STREAM
    ) -> None:
        """The same range as the profiler draws it on a GPU."""
        args: Event = {"device": gpu, "stream": stream}
        self._add("gpu_user_annotation", name, start, dur, gpu, stream, args)

    def op(  # noqa: PLR0913 - what the profiler says of an operation
        self,
        name: str,
        start: float,
        dur: float,
        *,
        dims: Sequence[object] | None = None,
        types: Sequence[str] | None = None,
        concrete: Sequence[str] | None = None,
        sequence: int | None = None,
        forward_thread: int | None = None,
        thread: int = MAIN_THREAD,
    ) -> int:
        """An operation on the host; gives its external id."""
        self._external += 1
        args: Event = {"External id": self._external}
        if dims is not None:
            args["Input Dims"] = list(dims)
            args["Input type"] = list(types) if types is not None else ["float"] * len(dims)
            args["Concrete Inputs"] = list(concrete) if concrete is not None else [""] * len(dims)
        if sequence is not None:
            args["Sequence number"] = sequence
            args["Fwd thread id"] = forward_thread or 0
        self._add("cpu_op", name, start, dur, HOST, thread, args)
        return self._external

    def launch(  # noqa: PLR0913 - what the profiler says of a launch
        self,
        name: str,
        start: float,
        dur: float,
        *,
        at: float | None = None,
        op: int | None = None,
        gpu: int = 0,
        stream: int = DEFAULT_STREAM,
        thread: int = MAIN_THREAD,
        grid: tuple[int, int, int] = (108, 1, 1),
        runtime: str | None = "cudaLaunchKernel",
        args: Event | None = None,
    ) -> int:
        """A kernel that runs at `start`, launched on the host `at`; gives its correlation."""
        self._correlation += 1
        own: Event = {
            "device": gpu,
            "context": 1,
            "stream": stream,
            "correlation": self._correlation,
            "registers per thread": 32,
            "shared memory": 0,
            "grid": list(grid),
            "block": [128, 1, 1],
        }
        if op is not None:
            own["External id"] = op
        if runtime is not None:
            at = start - 10.0 if at is None else at
            linked: Event = {"correlation": self._correlation}
            self._add("cuda_runtime", runtime, at, 4.0, HOST, thread, linked)
        self._add("kernel", name, start, dur, gpu, stream, own | (args or {}))
        return self._correlation

    def copy(self, start: float, dur: float) -> None:
        """A memory copy, which is no kernel."""
        self._add("gpu_memcpy", "Memcpy HtoD", start, dur, 0, DEFAULT_STREAM, {"stream": 7})

    def document(self) -> dict[str, object]:
        """The whole trace, as the profiler writes it."""
        job: Event = {"backend": "nccl", "rank": self.rank, "world_size": self.rank_count}
        return {
            "schemaVersion": 1,
            "deviceProperties": [
                {"id": number, "name": name} for number, name in enumerate(self.device_names)
            ],
            **({"distributedInfo": job} if self.rank is not None else {}),
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": 1_751_410_836_000_000_000,
            "traceEvents": self.events,
            "traceName": "trace.json",
        }

    def write(self, path: Path) -> Path:
        """Write it; packed where the name ends in .gz."""
        text = json.dumps(self.document()).encode()
        path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)
        return path

    def _add(  # noqa: PLR0913, PLR0917 - the fields of an event
        self, cat: str, name: str, ts: float, dur: float, pid: int, tid: int, args: Event
    ) -> None:
        self.events.append({
            "ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur,
            "args": args,
        })  # fmt: skip


def training_trace(*, step_count: int = 3, rank_count: int | None = None) -> KinetoTrace:
    """Steps of 1 ms: a matrix product forward and backward, an optimizer, and a gap.

    With several ranks, an all-reduce overlaps the second half of the backward product and more.
    In each step: forward 0-200 µs, backward 200-600, all-reduce 400-700, optimizer 700-900; without
    ranks the optimizer runs from 600 to 800.
    """
    trace = KinetoTrace(rank=0 if rank_count else None, rank_count=rank_count)
    for step in range(step_count):
        _training_step(trace, step, 10_000.0 + 1_000.0 * step, rank_count)
    return trace


def _training_step(trace: KinetoTrace, step: int, start: float, rank_count: int | None) -> None:
    host = start - 50.0
    trace.mark(f"ProfilerStep#{step}", host, 999.0)
    forward = trace.op(
        "aten::mm", host + 5, 20, dims=[[1024, 512], [512, 2048]],
        types=["c10::BFloat16", "c10::BFloat16"], sequence=step + 1,
    )  # fmt: skip
    trace.launch("ampere_bf16_gemm_forward", start, 200.0, at=host + 10, op=forward)
    trace.op(
        "autograd::engine::evaluate_function: MmBackward0", host + 40, 40,
        sequence=step + 1, forward_thread=1, thread=AUTOGRAD_THREAD,
    )  # fmt: skip
    backward = trace.op(
        "aten::mm", host + 45, 20, dims=[[1024, 2048], [2048, 512]],
        types=["c10::BFloat16", "c10::BFloat16"], thread=AUTOGRAD_THREAD,
    )  # fmt: skip
    trace.launch(
        "ampere_bf16_gemm_backward", start + 200, 400.0, at=host + 50, op=backward,
        thread=AUTOGRAD_THREAD,
    )  # fmt: skip
    if rank_count:
        reduction = trace.op("c10d::allreduce_", host + 68, 8, thread=AUTOGRAD_THREAD)
        trace.launch(
            "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", start + 400, 300.0, at=host + 70, op=reduction,
            stream=COMMUNICATION_STREAM, thread=AUTOGRAD_THREAD,
            args={
                "Collective name": "allreduce", "dtype": "BFloat16",
                "In msg nelems": 1_048_576, "Out msg nelems": 1_048_576,
                "Group size": rank_count,
            },
        )  # fmt: skip
    trace.mark("Optimizer.step#AdamW.step", host + 100, 100)
    update = trace.op("aten::_fused_adamw_", host + 110, 20, dims=[[512, 2048]])
    optimizer_start = start + (700.0 if rank_count else 600.0)
    trace.launch("multi_tensor_apply_adamw", optimizer_start, 200.0, at=host + 120, op=update)
