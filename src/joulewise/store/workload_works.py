"""What the works of a workload file must stay within."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from joulewise.domain.errors import InputError
from joulewise.domain.workload import IterationSize, KernelKind, KernelWork

# What any kernel on any GPU stays within by far; beyond it physics gives no finite numbers.
WORK_BOUNDS: Mapping[str, tuple[float, float]] = {
    "flop_count": (0.0, 1e21),
    "traffic_bytes": (0.0, 1e18),
    "compute_efficiency_ratio": (1e-6, 1.0),
    "memory_efficiency_ratio": (1e-6, 1.0),
    "core_activity_ratio": (0.0, 1000.0),
    "memory_activity_ratio": (0.0, 1000.0),
    "clock_offset_ratio": (-0.5, 0.5),
    "wait_s": (0.0, 3600.0),
}
# A nanosecond is the finest that any profiler tells; less is no wait.
LEAST_WAIT_S = 1e-9

# A job of all GPUs ever built, for a year, at the highest rate there is, stays below by far.
SIZE_BOUNDS: Mapping[str, tuple[float, float]] = {
    "gpu_count": (1, 10**7),
    "node_gpu_count": (1, 10**4),
    "token_count": (1, 10**15),
    "parameter_count": (1, 10**15),
    "model_flop_count": (1.0, 1e33),
    "kernel_flop_count": (1.0, 1e33),
}


def check_works(works: Sequence[KernelWork], file: str) -> None:
    """Refuse works that no kernel has, and a second one for a kernel. Raises InputError."""
    for index, work in enumerate(works):
        _check_work(work, f"works[{index}]", file)
    for name, count in Counter(work.kernel for work in works).items():
        if count > 1:
            raise InputError(
                f"the work of kernel {name!r} is given {count} times",
                file=file,
                field="works",
                hint="Keep one.",
            )


def is_idle(work: KernelWork) -> bool:
    """Whether a kernel has nothing to do and nothing to wait for."""
    return work.flop_count + work.traffic_bytes < 1 and work.wait_s < LEAST_WAIT_S


def check_size(size: IterationSize, file: str) -> None:
    """Refuse sizes that no job has. Raises InputError naming the field."""
    for name, (lowest, highest) in SIZE_BOUNDS.items():
        value = getattr(size, name)
        if value is not None:
            _check_bounds(value, (lowest, highest), f"size.{name}", file)
    if size.node_gpu_count is not None and size.node_gpu_count > size.gpu_count:
        raise InputError(
            f"{size.node_gpu_count} of the job's GPUs cannot share a node: it has {size.gpu_count}",
            file=file,
            field="size.node_gpu_count",
            hint="Count the GPUs of the job that are in one node.",
        )


def _check_work(work: KernelWork, here: str, file: str) -> None:
    for name, bounds in WORK_BOUNDS.items():
        _check_bounds(getattr(work, name), bounds, f"{here}.{name}", file)
    if work.kind is KernelKind.GAP:
        _check_gap(work, here, file)
    if is_idle(work):
        raise InputError(
            f"the kernel {work.kernel!r} neither computes nor moves anything, nor waits",
            file=file,
            field=f"{here}.flop_count",
            hint="Give its FLOPs, its bytes, or both, per launch; or the seconds that it waits.",
        )


def _check_gap(work: KernelWork, here: str, file: str) -> None:
    """In a gap nothing runs."""
    for name in ("flop_count", "traffic_bytes"):
        if getattr(work, name) > 0:
            raise InputError(
                f"the gap {work.kernel!r} cannot compute or move anything",
                file=file,
                field=f"{here}.{name}",
                hint="A gap has wait_s alone; what works is of another kind.",
            )


def _check_bounds(value: float, bounds: tuple[float, float], field: str, file: str) -> None:
    lowest, highest = bounds
    if not lowest <= value <= highest:
        raise InputError(
            f"this must be between {lowest:g} and {highest:g}, not {_shown(value)}",
            file=file,
            field=field,
            hint="See the page on file formats.",
        )


def _shown(value: float) -> str:
    """The number; whole ones may be too large for any format of fractions."""
    try:
        return f"{value:g}"
    except OverflowError:
        return "a number of hundreds of digits"
