"""Whether a traced workload is looked at on the kind of GPU that it was traced on."""

from __future__ import annotations

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.gpu_peaks import gpu_peaks
from joulewise.domain.sweep import Sweep
from joulewise.domain.trace import IterationTrace
from joulewise.domain.workload import Workload
from joulewise.simulator.presets import preset, preset_names

SAME_TIME_RATIO = 0.1
"""Times of an iteration that differ by no more than this count as the same; assumed."""

# Boards of the same chip and clock whose names in `gpu_peaks` differ by their memory alone.
_PRESET_BY_BOARD = {"A100 SXM 80 GB": "a100-sxm"}


def virtual_device_of(device_name: str | None) -> str | None:
    """The virtual device of the kind that a driver or profiler names, as `--device` takes it.

    `NVIDIA A100-SXM4-80GB` is `virtual:a100-sxm`; `None` where there is none, or no name. The
    virtual A100 is the board of 40 GB, with the lower bandwidth.
    """
    peaks = None if device_name is None else gpu_peaks(device_name)
    if peaks is None:
        return None
    name = _PRESET_BY_BOARD.get(peaks.name)
    for known in preset_names():
        board = gpu_peaks(preset(known).name)
        if board is not None and board.name == peaks.name:
            name = known
    return None if name is None else f"virtual:{name}"


def traced_elsewhere(
    workload: Workload, device_name: str, baseline_time_s: float
) -> tuple[Caveat, ...]:
    """TracedElsewhere where a traced iteration takes another time on a device, or is foreign to it.

    Args:
        workload: The iteration; without a trace there is nothing to doubt.
        device_name: What the driver or the virtual device calls itself.
        baseline_time_s: Time of the iteration there, as the driver runs it by itself.
    """
    trace = workload.trace
    if trace is None or trace.duration_s <= 0.0:
        return ()
    ratio = baseline_time_s / trace.duration_s
    is_alike = _is_same_kind(trace, device_name)
    if is_alike and abs(ratio - 1.0) <= SAME_TIME_RATIO:
        return ()
    traced_name = trace.device_name or "a GPU that the profile does not name"
    return (
        Caveat(
            kind=CaveatKind.TRACED_ELSEWHERE,
            seen=f"traced {_milliseconds(trace.duration_s)} on {traced_name}; here "
            f"{_milliseconds(baseline_time_s)} on {device_name} ({ratio - 1.0:+.0%})",
            advice=_advice(trace, is_alike=is_alike),
        ),
    )


def traced_elsewhere_than(workload: Workload, sweep: Sweep) -> tuple[Caveat, ...]:
    """As `traced_elsewhere`, with the iteration at the baseline of a sweep of all its kernels."""
    times = sweep.time_s[:, sweep.baseline_index].tolist()
    time_by_kernel = dict(zip(sweep.kernels, times, strict=True))
    baseline_time_s = sum(
        time_by_kernel[kernel] * count for kernel, count in workload.launch_counts().items()
    )
    return traced_elsewhere(workload, sweep.source.device_name, baseline_time_s)


def _is_same_kind(trace: IterationTrace, device_name: str) -> bool:
    """Whether both names stand for one kind of board; where a profile names none, nobody knows."""
    traced = trace.device_name
    if traced is None or traced == device_name:
        return True
    device = virtual_device_of(traced)
    if device is not None:
        return device == virtual_device_of(device_name)
    boards = gpu_peaks(traced), gpu_peaks(device_name)
    return boards[0] is not None and boards[0] == boards[1]


def _advice(trace: IterationTrace, *, is_alike: bool) -> str | None:
    """What helps here; `None`: what helps against most of the kind."""
    if is_alike:
        return "Compare kernel by kernel: joulewise workload show, with and without --device."
    device = virtual_device_of(trace.device_name)
    if device is None:
        return None
    return f"Choose --device {device}, which is of the kind that was traced."


def _milliseconds(time_s: float) -> str:
    return f"{time_s * 1e3:.4g} ms"
