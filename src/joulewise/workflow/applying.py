"""Holding an operating point while a command runs, and giving it back whatever comes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event, Thread

from joulewise.control.drift import DriftWatch
from joulewise.control.holder import this_process
from joulewise.control.lease import GpuLease
from joulewise.device.nvml_string import is_nvml
from joulewise.domain.caveats import Caveat, first_of_each_kind
from joulewise.domain.clock_judgement import CAUSES
from joulewise.domain.errors import DeviceError, InputError, JoulewiseError
from joulewise.domain.measurement import GpuSample
from joulewise.domain.plan import Plan
from joulewise.domain.points import AUTO, ClockGrid, OperatingPoint
from joulewise.domain.ports import Gpu, Lease
from joulewise.measure.held_down import held_down
from joulewise.measure.readings import Readings, held_under_load_mhz, is_idle_throughout
from joulewise.report.regions import change_indices
from joulewise.store.documents import read_plan
from joulewise.workflow.command import Command
from joulewise.workflow.devices import AskedPowerLimit, chosen_clocks, chosen_power_limits_w
from joulewise.workflow.hardware import open_hardware
from joulewise.workflow.leasing import lease_on
from joulewise.workflow.preparing import leaves_memory_clock
from joulewise.workflow.verifying import refuse_impossible_points, refuse_other_device

Notice = Callable[[Caveat], None]
"""Called once with each doubt, from the thread that watches."""

# A short command is looked at more often, so that it is seen under load at all.
_SAMPLE_S = 1.0
_EARLY_SAMPLE_S = 0.25
_EARLY_S = 5.0
_PATIENCE_S = 3.0
_CLOCKS = frozenset({"sm_clock_mhz", "mem_clock_mhz"})


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
    caveats: tuple[Caveat, ...] = ()
    trouble: JoulewiseError | None = None


def open_for(asked: AskedPoint, device: str | None) -> Gpu:
    """The GPU named, or the one that the plan was made on where that is here, or the only one.

    Raises:
        InputError: no such GPU, or a plan for another model or with several points.
        NotSupported: there is no GPU here.
        DeviceError: the GPU does not answer.
    """
    if asked.plan is None:
        return open_hardware("nvml" if device is None else device)
    plan = read_plan(asked.plan)
    point = only_point(plan, asked.plan)
    gpu = _gpu_of_plan(plan, point) if device is None else open_hardware(device)
    refuse_other_device(plan, gpu.identity, asked.plan)
    return gpu


def point_on(asked: AskedPoint, gpu: Gpu) -> OperatingPoint:
    """The point to hold; nothing is set.

    Which limits a GPU takes, and what a percentage is of, shows under a lease, once a limit that
    a dead holder left is put back. Raises InputError for a clock or limit that it does not take.
    """
    if asked.plan is None:
        return _point_of_knobs(asked, gpu)
    plan = read_plan(asked.plan)
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
    watcher = _Watcher(gpu, notice)
    point, code, trouble, time_s = AUTO, 0, None, 0.0
    held: Lease | None = None
    holder = replace(this_process(), command=command.name)
    try:
        with command.signals(), lease_on(gpu, holder) as held:
            point = point_on(asked, gpu)
            grid = _grid_as_found(gpu)
            held.apply(point)
            with watcher.watching(held, point, grid):
                start_s = time.monotonic()
                code = command.run()
                time_s = time.monotonic() - start_s
    except JoulewiseError as error:
        if not command.has_run:
            raise
        trouble = error
    identity, samples = gpu.identity, watcher.samples
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
        caveats=(*watcher.caveats(), *identity.caveats),
        trouble=trouble or watcher.trouble,
    )


def _is_given_back(lease: Lease | None) -> bool | None:
    """Whether a lease that ended in trouble left nothing set; `None`: joulewised knows."""
    return lease.still_set() is None if isinstance(lease, GpuLease) else None


def _grid_as_found(gpu: Gpu) -> ClockGrid:
    """With the power limits of right now, before the point is asked for.

    Once joulewised has set one, this handle would take it for the limit found.
    """
    grid, found_w = gpu.clock_grid(), gpu.knob_state().power_limit_w
    if grid.power_limits is None or found_w is None:
        return grid
    limits = replace(grid.power_limits, found_w=found_w, enforced_w=gpu.sample().power_limit_w)
    return replace(grid, power_limits=limits)


class _Watcher:
    """Looks at a GPU now and then on a thread of its own."""

    def __init__(self, gpu: Gpu, notice: Notice) -> None:
        self._gpu = gpu
        self._notice = notice
        self._readings = Readings()
        self._drifts: list[Caveat] = []
        self.trouble: JoulewiseError | None = None

    @property
    def samples(self) -> Sequence[GpuSample]:
        """What was read, in order."""
        return self._readings.all

    def caveats(self) -> tuple[Caveat, ...]:
        """Of the whole time: what held the clock down for how much of it, and what drifted."""
        samples = self.samples
        lowered = held_down(samples, *CAUSES) if samples else ()
        return first_of_each_kind(*lowered, *self._drifts)

    @contextmanager
    def watching(self, lease: Lease, point: OperatingPoint, grid: ClockGrid) -> Iterator[None]:
        """Look at it inside the block, and once more at its end."""
        over = Event()
        drift = DriftWatch(point, grid, asked_s=self._gpu.now_s())
        # A daemon thread that is not waited for long: a driver that never answers must not keep
        # the clocks from being given back.
        thread = Thread(target=self._watch, args=(over, drift, lease), daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(_PATIENCE_S)
            if thread.is_alive():
                self.trouble = DeviceError(
                    f"{self._gpu.identity.name} stopped answering meanwhile: its driver hangs",
                    hint="Look for Xid errors in the kernel log: dmesg | grep -i xid.",
                )

    def _watch(self, over: Event, drift: DriftWatch, lease: Lease) -> None:
        begin_s = time.monotonic()
        try:
            is_over = False
            while not is_over:
                is_early = time.monotonic() - begin_s < _EARLY_S
                is_over = over.wait(_EARLY_SAMPLE_S if is_early else _SAMPLE_S)
                self._look(drift, lease)
        except JoulewiseError as error:
            self.trouble = error

    def _look(self, drift: DriftWatch, lease: Lease) -> None:
        sample = self._gpu.sample()
        self._readings.add(sample)
        seen = drift.feed(sample)
        for caveat in seen.new:
            self._drifts.append(caveat)
            self._notice(caveat)
        if isinstance(lease, GpuLease):
            # Where joulewised holds the lease it sees this by itself.
            for knob in seen.taken_over & _CLOCKS:
                lease.yield_knob(knob)


def _gpu_of_plan(plan: Plan, point: OperatingPoint) -> Gpu:
    """The GPU that a plan was made on, where it is here; else the only one."""
    if is_nvml(plan.device):
        try:
            return open_hardware(plan.device)
        except InputError:
            # It was another machine's.
            pass
    lock = "" if point.mem_clock_mhz is None else ",memory_lock=on"
    return open_hardware(f"nvml{lock}")


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
