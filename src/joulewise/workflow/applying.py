"""Holding an operating point while a command runs, and giving it back whatever comes."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from joulewise.control.holder import this_process
from joulewise.control.lease import GpuLease
from joulewise.device.jetson_string import is_jetson
from joulewise.device.nvml_string import VISIBLE_VARIABLE, is_nvml, visible_selectors
from joulewise.domain.caveats import Caveat
from joulewise.domain.clock_judgement import is_other_limit
from joulewise.domain.errors import InputError, JoulewiseError
from joulewise.domain.plan import Plan
from joulewise.domain.points import AUTO, CLOCK_KNOBS, ClockGrid, OperatingPoint
from joulewise.domain.ports import Gpu, Lease
from joulewise.measure.readings import held_under_load_mhz, is_idle_throughout
from joulewise.report.regions import change_indices
from joulewise.store.documents import read_plan
from joulewise.workflow.command import Command
from joulewise.workflow.daemon_lease import DaemonLease
from joulewise.workflow.devices import AskedPowerLimit, chosen_clocks, chosen_power_limits_w
from joulewise.workflow.hardware import open_hardware, open_visible, usual_device
from joulewise.workflow.leasing import lease_on
from joulewise.workflow.point_watch import Notice, PointWatch
from joulewise.workflow.preparing import leaves_memory_clock
from joulewise.workflow.verifying import refuse_impossible_points, refuse_other_device


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedPoint:
    """What to apply, as people ask for it: a plan, or knobs; `None`: left to the driver."""

    plan: Path | None = None
    sm_clock_mhz: int | None = None
    mem_clock_mhz: int | None = None
    power_limit: AskedPowerLimit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What became of a point while a command ran.

    `sm_clock_held_mhz` is the median while the GPU worked, `None` where it did not, or does not
    tell. `trouble` is what went wrong once the command had started: it ran to its end all the
    same. `is_given_back` is `None` where nothing tells: joulewised went away with the lease.
    `held_s` is how long the point was held where that is not the whole time. `left_alone` names
    knobs (as in OperatingPoint) that somebody else has set since, and `left_limit_w` is the power
    limit that is left so.
    """

    code: int
    time_s: float
    device: str
    device_name: str
    is_simulated: bool
    point: OperatingPoint
    sm_clock_held_mhz: float | None
    is_idle: bool
    """Whether the GPU did nothing all the while, as far as readings tell."""
    is_given_back: bool | None
    held_s: float | None = None
    left_alone: tuple[str, ...] = ()
    left_limit_w: float | None = None
    caveats: tuple[Caveat, ...] = ()
    trouble: JoulewiseError | None = None


def open_for(
    asked: AskedPoint, device: str | None, environment: Mapping[str, str] | None = None
) -> Gpu:
    """The GPU named, or the one that the plan was made on where that is here, or the only one.

    The only one is that which CUDA programs see here, for the command is to run on it.

    Raises:
        InputError: no such GPU, or one that CUDA_VISIBLE_DEVICES hides from the command; or a
            plan for another model or with several points.
        NotSupported: there is no GPU here.
        DeviceError: the GPU does not answer.
    """
    environment = os.environ if environment is None else environment
    if asked.plan is None:
        gpu = open_hardware(device or _only_device(environment))
    else:
        plan = _read(asked.plan)
        point = only_point(plan, asked.plan)
        gpu = open_hardware(device) if device else _gpu_of_plan(plan, point, environment)
        refuse_other_device(plan, gpu.identity, asked.plan)
    _refuse_hidden(gpu, environment)
    return gpu


def point_on(asked: AskedPoint, gpu: Gpu) -> OperatingPoint:
    """The point to hold; nothing is set.

    Which limits a GPU takes, and what a percentage is of, shows under a lease, once a limit that
    a dead holder left is put back. Raises InputError for a clock or limit that it does not take.
    """
    if asked.plan is None:
        return _point_of_knobs(asked, gpu)
    plan = _read(asked.plan)
    refuse_impossible_points(plan, gpu, asked.plan)
    return only_point(plan, asked.plan)


def only_point(plan: Plan, file: Path) -> OperatingPoint:
    """The one point of a plan. Raises InputError for a plan of several."""
    points = tuple(dict.fromkeys(launch.point for launch in plan.launches))
    if len(points) == 1:
        return points[0]
    request = plan.request
    options = [f"--workload {plan.workload}", "--granularity iteration"]
    options.append(f"--objective {request.objective}")
    if request.max_slowdown_ratio is not None:
        options.append(f"--max-slowdown {100 * request.max_slowdown_ratio:g}%")
    raise InputError(
        f"the plan has {len(points)} operating points and changes them "
        f"{len(change_indices(plan))} times per iteration, and nothing tells when a command "
        "begins one",
        file=str(file),
        field="launches",
        hint="Make a plan of a single point from the same table and apply that: "
        f"joulewise plan SWEEP {' '.join(options)} --out {file.stem}-single.json.",
    )


def apply_while(gpu: Gpu, asked: AskedPoint, command: Command, notice: Notice) -> Applied:
    """Hold a point while the command runs; look at the GPU meanwhile, and give it back.

    What somebody else sets meanwhile is told by `notice` and left alone.

    Raises:
        BusyError, NotPermitted, DeviceError, InputError: before the command has started; nothing
            is left set.
    """
    watch = PointWatch(gpu, notice)
    point, code, trouble, time_s = AUTO, 0, None, 0.0
    grid: ClockGrid | None = None
    held: Lease | None = None
    holder = replace(this_process(), command=command.name)
    try:
        with command.signals(), lease_on(gpu, holder) as held:
            point = point_on(asked, gpu)
            grid = _grid_as_found(gpu)
            held.apply(point)
            with watch.watching(held, point, grid):
                start_s = time.monotonic()
                code = command.run()
                time_s = time.monotonic() - start_s
    except JoulewiseError as error:
        if not command.has_run:
            raise
        trouble = error
    identity, samples = gpu.identity, watch.samples
    left_limit_w = _left_limit_w(gpu, point, grid) if trouble is None else None
    limit = () if left_limit_w is None else ("power_limit_w",)
    left_alone = (*sorted(watch.taken_over.intersection(CLOCK_KNOBS)), *limit)
    return Applied(
        code=code,
        time_s=time_s,
        device=identity.spec,
        device_name=identity.name,
        is_simulated=identity.is_simulated,
        point=point,
        sm_clock_held_mhz=held_under_load_mhz(samples),
        is_idle=bool(samples) and is_idle_throughout(samples),
        is_given_back=trouble is None or _is_given_back(held),
        held_s=watch.lost_after_s,
        left_alone=left_alone,
        left_limit_w=left_limit_w,
        caveats=(*watch.caveats(), *identity.caveats),
        trouble=trouble or watch.trouble,
    )


def _is_given_back(lease: Lease | None) -> bool | None:
    """Whether a lease that ended in trouble left nothing set; `None`: joulewised knows."""
    if isinstance(lease, GpuLease):
        return lease.still_set() is None
    ended = lease.ended() if isinstance(lease, DaemonLease) else None
    return None if ended is None else ended.is_given_back


def _left_limit_w(gpu: Gpu, point: OperatingPoint, grid: ClockGrid | None) -> float | None:
    """The power limit where it is another than the one found, though ours is given back."""
    if point.power_limit_w is None or grid is None or grid.power_limits is None:
        return None
    try:
        now_w = gpu.knob_state().power_limit_w
    except JoulewiseError:
        return None
    found_w = grid.power_limits.found_w
    return now_w if now_w is not None and is_other_limit(now_w, found_w) else None


def _grid_as_found(gpu: Gpu) -> ClockGrid:
    """With the power limits of right now, before the point is asked for.

    Once joulewised has set one, this handle would take it for the limit found.
    """
    grid, found_w = gpu.clock_grid(), gpu.knob_state().power_limit_w
    if grid.power_limits is None or found_w is None:
        return grid
    limits = replace(grid.power_limits, found_w=found_w, enforced_w=gpu.sample().power_limit_w)
    return replace(grid, power_limits=limits)


def _read(file: Path) -> Plan:
    """A plan. Raises InputError for a pipe, which would be waited for, and tells it only once."""
    if file.exists() and not file.is_file():
        raise InputError("a plan has to be a file", file=str(file), hint="Save it to one first.")
    return read_plan(file)


def _gpu_of_plan(plan: Plan, point: OperatingPoint, environment: Mapping[str, str]) -> Gpu:
    """The GPU that a plan was made on, where it is here; else the only one."""
    if is_nvml(plan.device) or is_jetson(plan.device):
        try:
            return open_hardware(plan.device)
        except InputError:
            # It was another machine's.
            pass
    lock = "" if point.mem_clock_mhz is None else ",memory_lock=on"
    return open_hardware(f"{_only_device(environment)}{lock}")


def _only_device(environment: Mapping[str, str]) -> str:
    """The only GPU that CUDA programs see here, and the only one of all where that says nothing."""
    usual = usual_device(environment)
    if VISIBLE_VARIABLE not in environment or is_jetson(usual):
        return usual
    visible = open_visible((), environment)
    return f"nvml:{visible[0].identity.uuid}" if len(visible) == 1 else usual


def _refuse_hidden(gpu: Gpu, environment: Mapping[str, str]) -> None:
    """Raise InputError for a GPU on which the command cannot compute."""
    text = environment.get(VISIBLE_VARIABLE)
    if text is None:
        return
    try:
        visible = open_visible((), environment) if visible_selectors(text) else ()
    except JoulewiseError:
        # Which GPUs that means is told nowhere.
        return
    if gpu.identity.uuid not in {one.identity.uuid for one in visible}:
        raise InputError(
            f"{VISIBLE_VARIABLE}={text} hides {gpu.identity.name} ({gpu.identity.uuid}) from the "
            "command",
            field="device",
            hint=f"Name a GPU that it shows, or start with another {VISIBLE_VARIABLE}.",
        )


def _point_of_knobs(asked: AskedPoint, gpu: Gpu) -> OperatingPoint:
    """Raises InputError for a clock or limit that the GPU does not take."""
    grid = gpu.clock_grid()
    if asked.mem_clock_mhz is not None and leaves_memory_clock(gpu.identity.spec):
        raise InputError(
            f"the memory clock of {gpu.identity.name} is left to the driver",
            field="mem-clock",
            hint=f"Say --device {gpu.identity.spec},memory_lock=on to let it be locked: on some "
            "GPUs any lock costs speed, which joulewise measure checks.",
        )
    chosen_clocks((asked.sm_clock_mhz,), grid.sm_clocks_mhz, "sm-clock")
    chosen_clocks((asked.mem_clock_mhz,), grid.mem_clocks_mhz, "mem-clock")
    return OperatingPoint(
        sm_clock_mhz=asked.sm_clock_mhz,
        mem_clock_mhz=asked.mem_clock_mhz,
        power_limit_w=_limit_w(asked.power_limit, grid),
    )


def _limit_w(asked: AskedPowerLimit | None, grid: ClockGrid) -> float | None:
    try:
        return chosen_power_limits_w((asked,), grid.power_limits)[0]
    except InputError as error:
        hint = error.hint if grid.power_limits is not None else "Leave --power-limit out."
        raise InputError(error.message, field="power-limit", hint=hint) from None
