"""Devices by name: what there is, and opening one."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from joulewise.device.jetson_string import PREFIX as BOARD
from joulewise.device.jetson_string import is_jetson, parse_jetson
from joulewise.device.nvml_facts import driver_facts, gpu_facts
from joulewise.device.nvml_gpu import open_nvml
from joulewise.device.nvml_string import is_nvml, parse_nvml
from joulewise.device.real_time import MonotonicTimer
from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.errors import InputError, JoulewiseError, NotSupported
from joulewise.domain.points import ClockGrid, OperatingPoint, PowerLimitRange
from joulewise.domain.ports import (
    ClockTracer,
    Gpu,
    GpuIdentity,
    HardwareRunners,
    IterationRunner,
    KernelRunner,
)
from joulewise.domain.session import DeviceSession
from joulewise.domain.transition import TransitionModel
from joulewise.domain.workload import Workload
from joulewise.simulator.clock_driver import board_transition
from joulewise.simulator.device_string import is_recorded, parse_device, parse_recorded
from joulewise.simulator.fake_driver import FakeDriver, loaded_driver
from joulewise.simulator.fake_runner import open_fake_session_parts
from joulewise.simulator.presets import preset, preset_names
from joulewise.simulator.recorded import RecordedGpu, open_recorded
from joulewise.simulator.virtual import is_virtual, open_virtual
from joulewise.store.sweeps import read_sweep
from joulewise.workflow.jetson_boards import board_here, is_integrated, refuse_integrated
from joulewise.workflow.jetson_sessions import is_tree_calibrated, open_board_session
from joulewise.workflow.jetson_time import fake_tree
from joulewise.workflow.workloads import refuse_other_size

# The paper sweeps every 14th of 127 SM clocks: ten, spread evenly over the list.
DEFAULT_SM_CLOCK_COUNT = 10
_ALIKE_RATIO = 0.75
# How other tools name an NVIDIA GPU: by number or UUID.
_GPU_ELSEWHERE = re.compile(r"(?:(?:nvidia|cuda|gpu):?)?(\d{1,4})|(GPU-[0-9a-f-]+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLine:
    """One device that `--device` takes.

    `lag_s` and `stall_s` are what a change of point costs on it, unless the string says else;
    `None` on hardware, where that has to be measured. `is_calibrated` says whether a model was
    fitted to measurements of such a board; hardware needs none, so that it is `None` there.
    """

    device: str
    name: str
    is_simulated: bool
    is_calibrated: bool | None
    sm_clock_count: int
    mem_clock_count: int
    lag_s: float | None
    stall_s: float | None
    uuid: str | None = None
    """Opens the same GPU wherever it is plugged in: `nvml:UUID`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedPowerLimit:
    """One power limit as people ask for it: watts, or a share of the limit found."""

    limit_w: float | None = None
    found_ratio: float | None = None

    @property
    def text(self) -> str:
        """As it was written."""
        return f"{self.limit_w:g} W" if self.limit_w is not None else f"{self.found_ratio:.3%}"


def device_lines() -> tuple[DeviceLine, ...]:
    """Every device that is there: the virtual ones, GPUs of the NVIDIA driver, and the board."""
    board = _board_lines()
    # The board's own GPU is listed once, by what tells of it.
    nvml = (one for one in _nvml_lines() if not board or not is_integrated(one.name))
    return (*(_device_line(name) for name in preset_names()), *nvml, *board)


def _board_lines() -> tuple[DeviceLine, ...]:
    """The Jetson that this is, if it is one; none that does not tell its clocks."""
    gpu = board_here()
    if gpu is None:
        return ()
    try:
        grid = gpu.clock_grid()
    except JoulewiseError:
        return ()
    identity = gpu.identity
    return (
        DeviceLine(
            device=identity.spec,
            name=identity.name,
            is_simulated=identity.is_simulated,
            is_calibrated=is_tree_calibrated(identity.spec),
            sm_clock_count=len(grid.sm_clocks_mhz),
            mem_clock_count=len(grid.known_mem_clocks_mhz),
            lag_s=None,
            stall_s=None,
            uuid=identity.uuid,
        ),
    )


def _nvml_lines() -> tuple[DeviceLine, ...]:
    """GPUs that NVML lists; none where there is no driver, which is no error."""
    driver = driver_facts()
    if driver.problem is not None:
        return ()
    fake = loaded_driver()
    return tuple(
        DeviceLine(
            device=f"nvml:{gpu.index}",
            name=gpu.name.value or "unknown",
            is_simulated=driver.is_fake,
            is_calibrated=None if fake is None else preset(fake.profile(gpu.index)).is_calibrated,
            sm_clock_count=len(gpu.sm_clocks_mhz.value or ()),
            mem_clock_count=len(gpu.mem_clocks_mhz.value or ()),
            lag_s=None,
            stall_s=None,
            uuid=gpu.uuid.value,
        )
        for gpu in gpu_facts()
    )


def _device_line(name: str) -> DeviceLine:
    device, spec = f"virtual:{name}", preset(name)
    costs = board_transition(parse_device(device), None).costs
    return DeviceLine(
        device=device,
        name=spec.name,
        is_simulated=True,
        is_calibrated=spec.is_calibrated,
        sm_clock_count=len(spec.grid.sm_clocks_mhz),
        mem_clock_count=len(spec.grid.mem_clocks_mhz),
        lag_s=max(cost.lag_s for cost in costs),
        stall_s=max(cost.stall_s for cost in costs),
    )


def open_session(
    device: str,
    workload: Workload,
    transition: TransitionModel | None = None,
    *,
    hardware: HardwareRunners | None = None,
) -> DeviceSession:
    """Open a device ready to run the kernels of a workload.

    A virtual or recorded device plays `transition` where its string says nothing of changing
    clocks, so that a plan made with that model can be replayed; hardware does what it does.
    `hardware` runs kernels on real GPUs; a GPU of the fake NVIDIA driver runs them by itself.

    Raises:
        InputError: an unknown device, an option it does not have, a recording that cannot be
            read or is of another batch size, or a workload that does not say what its kernels do.
        NotSupported: nothing is there that runs kernels on a real GPU, or the device cannot be
            controlled.
        DeviceError: the driver refused, or the GPU was lost.
    """
    if is_nvml(device):
        return _open_nvml(device, workload, hardware)
    if is_jetson(device):
        if fake_tree(device) is not None:
            refuse_workless(workload)
        return open_board_session(device, workload, hardware)
    if is_recorded(device):
        recording = Path(parse_recorded(device).preset)
        sweep = read_sweep(recording)
        refuse_other_size(sweep.source.workload, workload, recording)
        return open_recorded(sweep, device, transition)
    _refuse_unknown(device)
    refuse_workless(workload)
    return open_virtual(device, workload.works, transition)


def _open_nvml(device: str, workload: Workload, hardware: HardwareRunners | None) -> DeviceSession:
    """A GPU of the loaded NVIDIA driver, real or fake, and what runs kernels on it."""
    runner: KernelRunner
    iterations: IterationRunner | None
    tracer: ClockTracer | None
    driver = loaded_driver()
    timer = MonotonicTimer() if driver is None else driver.timer
    doubts = hardware.caveats if driver is None and hardware is not None else ()
    if driver is not None:
        doubts = doubts_of_fake(driver, open_nvml(device, timer=timer).index)
    gpu = open_nvml(device, timer=timer, caveats=doubts)
    refuse_integrated(gpu.identity.name)
    if driver is not None:
        refuse_workless(workload)
        runner, iterations, tracer = open_fake_session_parts(driver, gpu.index, workload.works)
    elif hardware is not None:
        runner, iterations, tracer = hardware.open(gpu.identity, gpu.index, workload, timer)
    else:
        raise NotSupported(
            f"nothing here runs kernels on {gpu.identity.name}",
            hint="Install joulewise with the extra torch: pip install 'joulewise[torch]'.",
        )
    return DeviceSession(gpu=gpu, runner=runner, iterations=iterations, tracer=tracer)


def doubts_of_fake(driver: FakeDriver, index: int) -> tuple[Caveat, ...]:
    """Uncalibrated where nothing was fitted to measurements of such a board."""
    spec = preset(driver.profile(index))
    if spec.is_calibrated:
        return ()
    seen = f"parameters of the fake {spec.name} are estimates"
    return (Caveat(kind=CaveatKind.UNCALIBRATED, seen=seen),)


def refuse_workless(workload: Workload) -> None:
    """A device that computes times from works needs one of every kernel. Raises InputError."""
    lacking = [k for k in workload.kernels if k not in {work.kernel for work in workload.works}]
    if lacking:
        raise InputError(
            f"the workload {workload.name!r} does not say what kernel {lacking[0]!r} computes "
            "and moves, so a virtual device cannot run it",
            field="workload",
            hint='Add its entry to "works" in the workload file.',
        )


def _refuse_unknown(device: str) -> None:
    """No such device; say which one may have been meant."""
    name = device.partition(":")[2].partition(",")[0].strip()
    if is_virtual(device) and (not name or name in preset_names()):
        return
    known = [f"virtual:{preset_name}" for preset_name in preset_names()]
    asked = name if is_virtual(device) else device.strip().partition(",")[0]
    alike = get_close_matches(asked.lower(), [BOARD], n=1, cutoff=_ALIKE_RATIO)
    alike += get_close_matches(f"virtual:{asked.lower()}", known, n=1, cutoff=_ALIKE_RATIO)
    gpu = _GPU_ELSEWHERE.fullmatch(device.strip())
    guess = f"nvml:{gpu[1] or gpu[2]}" if gpu else alike[0] if alike else None
    meant = "" if guess is None else f"Did you mean {guess}? "
    raise InputError(
        f"no virtual GPU is called {name!r}" if is_virtual(device) else f"{device!r} is no device",
        field="device",
        hint=f"{meant}Known: {', '.join(known)}, nvml:INDEX or nvml:GPU-UUID for NVIDIA GPUs, "
        "jetson for the GPU of a Jetson, and recorded:SWEEP for a recording.",
    )


def points_of_device(
    gpu: Gpu,
    sm_clocks_mhz: Sequence[int | None] | None,
    mem_clocks_mhz: Sequence[int | None] | None,
    power_limits: Sequence[AskedPowerLimit | None] | None,
) -> tuple[OperatingPoint, ...]:
    """`points_to_measure` on this device: memory clocks only where its string allows them.

    A recording has its own points, where none are asked for. Raises InputError as that does,
    and for a memory clock that may not be locked.
    """
    if isinstance(gpu, RecordedGpu) and sm_clocks_mhz is mem_clocks_mhz is power_limits is None:
        return gpu.points
    mem = memory_clocks_of_device(gpu.identity, mem_clocks_mhz)
    return points_to_measure(gpu.clock_grid(), sm_clocks_mhz, mem, power_limits)


def memory_clocks_of_device(
    identity: GpuIdentity, asked: Sequence[int | None] | None
) -> Sequence[int | None] | None:
    """The memory clocks asked for; auto alone on hardware whose string allows no lock.

    A lock on the memory clock slows some GPUs at any clock, so it has to be asked for. Raises
    InputError for a memory clock where it was not.
    """
    if _may_lock_memory(identity.spec):
        return asked
    if any(clock is not None for clock in asked or ()):
        raise InputError(
            f"the memory clock of {identity.name} is left to the driver",
            field="mem-clocks",
            hint=f"Write {identity.spec},memory_lock=on to let it be locked: on some GPUs any "
            "lock costs speed, so joulewise measures that first.",
        )
    return (None,)


def _may_lock_memory(spec: str) -> bool:
    if is_jetson(spec):
        return parse_jetson(spec, os.environ).is_memory_lock_allowed
    return not is_nvml(spec) or parse_nvml(spec).is_memory_lock_allowed


def points_to_measure(
    grid: ClockGrid,
    sm_clocks_mhz: Sequence[int | None] | None = None,
    mem_clocks_mhz: Sequence[int | None] | None = None,
    power_limits: Sequence[AskedPowerLimit | None] | None = None,
) -> tuple[OperatingPoint, ...]:
    """Every combination of the given knobs; by default auto with ten SM and all memory clocks.

    A device with one memory clock offers nothing to choose there, so it stays at auto; a power
    limit is set only where one is asked for. Raises InputError for a clock that the device does
    not list, and for a power limit that it does not take.
    """
    sm = chosen_clocks(sm_clocks_mhz, grid.sm_clocks_mhz, "sm-clocks")
    mem = chosen_clocks(mem_clocks_mhz, grid.mem_clocks_mhz, "mem-clocks")
    limits_w = chosen_power_limits_w(power_limits, grid.power_limits)
    if sm is None:
        sm = (None, *_spread(grid.sm_clocks_mhz, DEFAULT_SM_CLOCK_COUNT))
    if mem is None:
        mem = (None, *(grid.mem_clocks_mhz if len(grid.mem_clocks_mhz) > 1 else ()))
    return grid.points(sm, mem, limits_w)


def chosen_clocks(
    asked: Sequence[int | None] | None, listed: tuple[int, ...], field: str
) -> tuple[int | None, ...] | None:
    """The clocks asked for, if any were. Raises InputError for one that is not listed."""
    if asked is None:
        return None
    for clock in asked:
        if clock is not None and clock not in listed:
            nearest = sorted(listed, key=lambda known, clock=clock: abs(known - clock))[:3]  # type: ignore[misc]
            raise InputError(
                f"the device lists no clock of {clock} MHz",
                field=field,
                hint=f"Nearest: {', '.join(map(str, sorted(nearest)))}.",
            )
    return tuple(asked)


def chosen_power_limits_w(
    asked: Sequence[AskedPowerLimit | None] | None, limits: PowerLimitRange | None
) -> tuple[float | None, ...]:
    """The power limits asked for in W; `None`, auto, alone where none was.

    The limit found is what *auto* leaves in force, so asking for it is asking for auto. Raises
    InputError for a limit above it or below the least, and where the device has none to set.
    """
    if asked is None:
        return (None,)
    return tuple(
        dict.fromkeys(None if one is None else _power_limit_w(one, limits) for one in asked)
    )


def _power_limit_w(asked: AskedPowerLimit, limits: PowerLimitRange | None) -> float | None:
    if limits is None:
        raise InputError(
            "the device has no power limit that can be set",
            field="power-limits",
            hint="Leave --power-limits out.",
        )
    limit_w = asked.limit_w
    if limit_w is None:
        # Drivers count limits in mW.
        limit_w = round((asked.found_ratio or 0.0) * limits.found_w, 3)
    if not limits.least_w <= limit_w <= limits.found_w:
        which = "above the limit found" if limit_w > limits.found_w else "below the least"
        raise InputError(
            f"a power limit of {asked.text} is {which}",
            field="power-limits",
            hint=f"The device takes {limits.least_w:g} to {limits.found_w:g} W; joulewise never "
            "raises a limit.",
        )
    return None if limit_w == limits.found_w else limit_w


def _spread(listed: tuple[int, ...], count: int) -> tuple[int, ...]:
    if len(listed) <= count:
        return listed
    last = len(listed) - 1
    return tuple(listed[round(i * last / (count - 1))] for i in range(count))
