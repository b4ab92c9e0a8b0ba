"""`probe transitions`: what changes of clocks cost on a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from joulewise.domain.caveats import Caveat
from joulewise.domain.errors import InputError, NotSupported
from joulewise.domain.points import ClockGrid, OperatingPoint
from joulewise.domain.ports import HardwareRunners, KernelRunner, Progress
from joulewise.domain.transition import TransitionModel
from joulewise.domain.workload import Workload
from joulewise.measure.change_accounts import MeasuredChange
from joulewise.measure.settings import MeasureSettings
from joulewise.measure.transitions import measure_transitions
from joulewise.simulator.device_string import is_recorded
from joulewise.store.atomic import require_place
from joulewise.store.transition_files import write_transition
from joulewise.workflow.baseline_state import baseline_doubts, with_baseline_doubts
from joulewise.workflow.devices import (
    AskedPowerLimit,
    chosen_clocks,
    chosen_power_limits_w,
    memory_clocks_of_device,
    open_session,
)
from joulewise.workflow.leasing import lease_on
from joulewise.workflow.preparing import refuse_without_rights
from joulewise.workflow.workloads import load_workload, source_files

# The shorter the kernel, the finer stalls are seen; one much shorter than this waits for its
# host rather than for the GPU.
SHORTEST_KERNEL_S = 5e-5
_TRIAL_S = 0.2
# Scatter between repeats needs a few of them.
SETTINGS = MeasureSettings(window_count=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransitionsJob:
    """What `probe transitions` was asked for.

    Without a kernel the shortest that keeps a GPU busy is taken, without clocks auto and two SM
    clocks in the middle of the device's list, and auto and the memory clock in the middle (where
    the device string lets it be locked); the power limit is left alone unless some are named.
    """

    device: str
    workload: str
    kernel: str | None = None
    sm_clocks_mhz: Sequence[int | None] | None = None
    mem_clocks_mhz: Sequence[int | None] | None = None
    power_limits: Sequence[AskedPowerLimit | None] | None = None
    out: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransitionsResult:
    """The model and the changes that it stands on."""

    model: TransitionModel
    changes: tuple[MeasuredChange, ...]
    kernel: str
    points: tuple[OperatingPoint, ...]
    device: str
    device_name: str
    caveats: tuple[Caveat, ...]


def measure_transitions_to_file(
    job: TransitionsJob, progress: Progress, *, hardware: HardwareRunners | None = None
) -> TransitionsResult:
    """Measure what changes of clocks cost, and write the model where `out` says so.

    Raises:
        NotSupported: the device is a recording.
        InputError: an unknown device, workload, kernel or clock, or a place that cannot be
            written to.
        MeasurementError: no change could be seen.
        DeviceError: the device refused a clock, or was lost.
    """
    if is_recorded(job.device):
        raise NotSupported(
            f"{job.device} is a recording: it tells what kernels took at each point, and nothing "
            "of changes between points",
            hint="Probe the device that was recorded; on a recording, --transition or lag=5ms and "
            "stall=1ms say what changes cost.",
        )
    if job.out is not None:
        require_place(job.out, sources=source_files(workload=job.workload))
    workload = load_workload(job.workload)
    session = open_session(job.device, workload, hardware=hardware)
    if job.kernel is not None and job.kernel not in session.runner.kernels:
        raise InputError(
            f"the workload {workload.name!r} has no kernel {job.kernel!r}",
            field="kernel",
            hint=f"Its kernels begin with {', '.join(session.runner.kernels[:3])}.",
        )
    # Held first: what limits there are shows once a dead holder's limit is put back.
    with lease_on(session.gpu) as lease:
        points = points_to_change(
            session.gpu.clock_grid(),
            job.sm_clocks_mhz,
            memory_clocks_of_device(session.gpu.identity, job.mem_clocks_mhz),
            job.power_limits,
        )
        refuse_without_rights(session, lease, points)
        doubts = baseline_doubts(session.gpu)
        kernel = job.kernel or _short_kernel(session.runner, workload)
        model, changes = measure_transitions(
            session, lease, kernel, points, settings=SETTINGS, progress=progress
        )
    identity = session.gpu.identity
    if job.out is not None:
        write_transition(model, job.out)
    return TransitionsResult(
        model=model,
        changes=changes,
        kernel=kernel,
        points=points,
        device=identity.spec,
        device_name=identity.name,
        caveats=with_baseline_doubts(identity.caveats, doubts),
    )


def points_to_change(
    grid: ClockGrid,
    sm_clocks_mhz: Sequence[int | None] | None = None,
    mem_clocks_mhz: Sequence[int | None] | None = None,
    power_limits: Sequence[AskedPowerLimit | None] | None = None,
) -> tuple[OperatingPoint, ...]:
    """Every pair of the given clocks; by default auto and few others, which regulators hold.

    Raises InputError for a clock that the device does not list, a power limit that it does not
    take, and for a single point.
    """
    sm = chosen_clocks(sm_clocks_mhz, grid.sm_clocks_mhz, "sm-clocks")
    mem = chosen_clocks(mem_clocks_mhz, grid.mem_clocks_mhz, "mem-clocks")
    if sm is None:
        listed = grid.sm_clocks_mhz
        sm = tuple(dict.fromkeys((None, listed[len(listed) // 3], listed[len(listed) // 2])))
    if mem is None:
        listed = grid.mem_clocks_mhz
        # Of a single clock auto and the clock read alike.
        mem = (None, listed[(len(listed) - 1) // 2]) if len(listed) > 1 else (None,)
    points = grid.points(sm, mem, chosen_power_limits_w(power_limits, grid.power_limits))
    if len(set(points)) == 1:
        raise InputError(
            f"{points[0].label} is the only point, and changes need two to change between",
            field="sm-clocks",
            hint="Name another clock with --sm-clocks or --mem-clocks, or 'auto'.",
        )
    return points


def _short_kernel(runner: KernelRunner, workload: Workload) -> str:
    """The shortest kernel that keeps a GPU busy; the longest where all are too short.

    What waits for a host or a link takes as long at every clock, and shows no change of it.
    """
    waiting = {work.kernel for work in workload.works if work.wait_s > 0}
    kernels = [kernel for kernel in runner.kernels if kernel not in waiting]
    times_s = {kernel: _time_s(runner, kernel) for kernel in kernels or runner.kernels}
    busy = {kernel: time_s for kernel, time_s in times_s.items() if time_s >= SHORTEST_KERNEL_S}
    if busy:
        return min(busy, key=busy.__getitem__)
    return max(times_s, key=times_s.__getitem__)


def _time_s(runner: KernelRunner, kernel: str) -> float:
    with runner.loop(kernel, run="trial") as loop:
        loop.begin_window(0)
        loop.run_for(_TRIAL_S)
        timing = loop.end_window()
    return timing.elapsed_s / timing.launch_count
