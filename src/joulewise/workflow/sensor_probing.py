"""`probe sensors`: what the meters of a device are like, found on the device itself."""

from __future__ import annotations

from dataclasses import dataclass

from joulewise.device.jetson_string import is_jetson
from joulewise.device.nvml_gpu import open_nvml
from joulewise.device.nvml_string import is_nvml
from joulewise.domain.errors import InputError, NotSupported
from joulewise.domain.ports import Gpu, HardwareRunners, KernelRunner, Progress
from joulewise.domain.sensor_probe import SensorProbe
from joulewise.domain.workload import Workload
from joulewise.measure.sensors import probe_sensors
from joulewise.simulator.device_string import is_recorded
from joulewise.workflow.devices import open_session
from joulewise.workflow.jetson_boards import open_board
from joulewise.workflow.jetson_time import passes_time
from joulewise.workflow.workloads import load_workload


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorsJob:
    """What `probe sensors` was asked for.

    Without a kernel the one that computes the most is taken: it loads the GPU the most evenly.
    `is_idle` leaves the GPU alone, and what shows only under load open.
    """

    device: str
    workload: str
    kernel: str | None = None
    is_idle: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorsResult:
    """What was found, and why nothing was run, where nothing was."""

    probe: SensorProbe
    no_load_reason: str | None = None
    hint: str | None = None


def probe_sensors_of(
    job: SensorsJob, progress: Progress, *, hardware: HardwareRunners | None = None
) -> SensorsResult:
    """Find update periods, averaging windows and idle power of a device; sets nothing.

    Kernels run at whatever clocks are in force, so no right and no lease is needed. Where
    nothing can run them on hardware, what shows without load is found.

    Raises:
        NotSupported: the device is a recording.
        InputError: an unknown device, workload or kernel.
        MeasurementError: no meter answered.
        DeviceError: the GPU was lost.
    """
    if is_recorded(job.device):
        raise NotSupported(
            f"{job.device} is a recording: it has no meters of its own to look at",
            hint="Probe the device that was recorded.",
        )
    workload = load_workload(job.workload)
    gpu, runner, lacking = _open(job, workload, hardware)
    kernel = None if runner is None else _kernel(job.kernel, runner, workload)
    probe = probe_sensors(gpu, runner, kernel, progress=progress)
    if lacking is None:
        return SensorsResult(probe=probe)
    return SensorsResult(probe=probe, no_load_reason=lacking.message, hint=lacking.hint)


def _open(
    job: SensorsJob, workload: Workload, hardware: HardwareRunners | None
) -> tuple[Gpu, KernelRunner | None, NotSupported | None]:
    """The GPU, what runs kernels on it, and else why nothing does."""
    try:
        session = open_session(job.device, workload, hardware=hardware)
    except NotSupported as lacking:
        if is_jetson(job.device) and passes_time(job.device):
            return open_board(job.device), None, lacking
        if not is_nvml(job.device):
            raise
        return open_nvml(job.device), None, lacking
    if job.is_idle:
        return session.gpu, None, NotSupported("nothing was run, as was asked for")
    return session.gpu, session.runner, None


def _kernel(asked: str | None, runner: KernelRunner, workload: Workload) -> str:
    known = runner.kernels
    if asked is None:
        flops = {work.kernel: work.flop_count for work in workload.works}
        return max(known, key=lambda kernel: flops.get(kernel, 0.0))
    if asked not in known:
        raise InputError(
            f"the workload {workload.name!r} has no kernel {asked!r}",
            field="kernel",
            hint=f"Its kernels begin with {', '.join(known[:3])}.",
        )
    return asked
