"""An NVIDIA GPU behind the `Gpu` port."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace

from joulewise.device.nvml import NvmlDevice, is_fake_library
from joulewise.device.nvml_clocks import (
    current_power_limit_w,
    greatest_power_limit_w,
    listed_mem_clocks,
    listed_sm_clocks,
    needed_clocks,
    power_limit_range,
)
from joulewise.device.nvml_discovery import FoundGpu, find_gpu
from joulewise.device.nvml_gpm import ActivityMeter
from joulewise.device.nvml_knobs import NvmlKnobs
from joulewise.device.nvml_memory import MemoryClockSwitch
from joulewise.device.nvml_meters import MODULE_SCOPE, MeterReader
from joulewise.device.nvml_power_limit import no_power_limit
from joulewise.device.nvml_processes import OtherProcesses
from joulewise.device.nvml_readings import (
    enforced_power_limit,
    mem_clock,
    partitioning,
    persistence,
    power_scope,
    reasons,
    sm_clock,
    superchip,
    temperature,
)
from joulewise.device.nvml_string import NvmlOptions, options_here
from joulewise.device.nvml_ticks import EnergyTicks
from joulewise.device.nvml_values import clock_mhz, event_reasons, power_w, temperature_c
from joulewise.device.real_time import MonotonicTimer
from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.errors import InputError, NotSupported
from joulewise.domain.measurement import GpuSample
from joulewise.domain.points import (
    ClockGrid,
    KnobState,
    OperatingPoint,
    PowerLimitRange,
    Touched,
)
from joulewise.domain.ports import GpuIdentity, Timer

_NEAREST_COUNT = 3
_SAME_LIMIT_W = 0.5


def open_nvml(
    device: str, *, timer: Timer | None = None, caveats: Sequence[Caveat] = ()
) -> NvmlGpu:
    """Open an NVIDIA GPU; reads only, and sets nothing.

    Args:
        device: such as `nvml:0`, `nvml:GPU-4ad1,memory_lock=on`; see `nvml_string`. `nvml` alone
            is the GPU that CUDA_VISIBLE_DEVICES names, where it names one; else the only one.
        timer: the time that the GPU lives in; `None` for that of the machine.
        caveats: what is doubtful of all that will be read from it, beside its own doubts.

    Raises:
        InputError: no GPU or more than one fits the device string.
        NotSupported: no usable driver, no GPU, or a MIG instance.
        DeviceLost: the GPU no longer answers.
    """
    options = options_here(device, os.environ)
    timer = MonotonicTimer() if timer is None else timer
    return NvmlGpu(find_gpu(options, timer.sleep), options, timer, caveats)


class NvmlGpu:
    """A `Gpu` through NVML. Threads may share it: a sampler reads while another waits."""

    def __init__(
        self,
        found: FoundGpu,
        options: NvmlOptions,
        timer: Timer,
        caveats: Sequence[Caveat] = (),
    ) -> None:
        """Read what stays the same."""
        device = found.device
        device.title = f"{found.name} (nvml:{device.index})"
        self._device = device
        # What is only read besides costs no waiting: a moment later it is read again.
        self._hasty = device.hasty()
        self._options = options
        self._timer = timer
        self._uuid = found.uuid
        is_superchip = bool(superchip(device).known(device.title))
        scope = power_scope(device, is_superchip=is_superchip)
        self._meters = MeterReader(
            device, timer, scope=scope, greatest_limit_w=greatest_power_limit_w(device)
        )
        self._ticks = EnergyTicks(self._meters.read_energy_j, timer, gpu=device.title)
        self._activity = ActivityMeter(self._hasty, timer)
        self._others = OtherProcesses(self._hasty, timer)
        self._memory_switch = MemoryClockSwitch(device, timer)
        self._knobs = NvmlKnobs(device, self._memory_switch)
        self._clocks: ClockGrid | None = None
        self._enforced_w: float | None = None
        self._is_asked = False
        self._kept_w: float | None = None
        """The power limit found, where another process sets this GPU for us."""
        self._is_kept = False
        is_fake = is_fake_library()
        self._identity = GpuIdentity(
            spec=options.spec(found.uuid),
            name=found.name,
            uuid=found.uuid,
            is_simulated=is_fake,
            caveats=(
                *_caveats(device, is_fake=is_fake, is_superchip=is_superchip, scope=scope),
                *caveats,
            ),
        )

    @property
    def identity(self) -> GpuIdentity:
        """Which GPU this is, with the doubts that everything read from it carries."""
        return self._identity

    @property
    def index(self) -> int:
        """Its NVML index, by PCI address; CUDA's may differ."""
        return self._device.index

    @property
    def uuid(self) -> str:
        """Its UUID, `GPU-…`."""
        return self._uuid

    @property
    def energy_counter_period_s(self) -> float | None:
        """How often the energy counter moves; measured at the first question."""
        return self._ticks.period_s

    def clock_grid(self) -> ClockGrid:
        """Clocks that the device lists and takes, and its power limits up to the one found.

        Memory clocks are listed only where the device string says `memory_lock=on` and the
        device switches its memory clock at once: elsewhere it takes none.

        Raises:
            NotSupported: it lists no SM clocks.
            DeviceLost: it no longer answers.
        """
        if self._clocks is None:
            device = self._device
            mem = needed_clocks(device, listed_mem_clocks(device))
            is_taken = self._options.is_memory_lock_allowed and self._memory_switch.refusal is None
            self._clocks = ClockGrid(
                sm_clocks_mhz=needed_clocks(device, listed_sm_clocks(device)),
                mem_clocks_mhz=mem if is_taken else (),
                read_mem_clocks_mhz=mem,
            )
        if not (self._is_asked or self._is_kept):
            # Whatever holds before anything was asked for is how the GPU is found.
            self._enforced_w = self._enforced_limit_w()
        found_w = self._kept_w if self._is_kept else self._knobs.found_limit_w
        limits = power_limit_range(self._device, found_w)
        if limits is not None:
            limits = replace(limits, enforced_w=self._enforced_w)
        return replace(self._clocks, power_limits=limits)

    def knob_state(self) -> KnobState:
        """The power limit that is set; clock locks cannot be read back. Raises DeviceLost."""
        return KnobState(power_limit_w=current_power_limit_w(self._device))

    def sample(self) -> GpuSample:
        """Read everything once; about eight calls.

        The meters of energy and power have to answer. What else is read is `None` where it
        fails in a way that may pass; other processes are those that were listed last.

        Raises DeviceLost, DeviceError.
        """
        meters = self._meters.read()
        hasty, title = self._hasty, self._device.title
        sm_clock_mhz, mem_clock_mhz = self.clocks_mhz()
        return GpuSample(
            time_s=meters.time_s,
            energy_j=meters.energy_j,
            power_w=meters.power_w,
            average_power_w=meters.average_power_w,
            sm_clock_mhz=sm_clock_mhz,
            mem_clock_mhz=mem_clock_mhz,
            temp_c=temperature_c(temperature(hasty).told(title)),
            power_capped_s=meters.power_capped_s,
            thermally_throttled_s=meters.thermally_throttled_s,
            power_braked_s=meters.power_braked_s,
            sync_boosted_s=meters.sync_boosted_s,
            power_limit_w=self._enforced_limit_w(),
            event_reasons=event_reasons(reasons(hasty).told(title)),
            other_process_count=self._others.count(),
            activity=self._activity.read(sm_clock_mhz),
        )

    def now_s(self) -> float:
        """Time on the clock that samples are stamped by."""
        return self._timer.now_s()

    def clocks_mhz(self) -> tuple[int | None, int | None]:
        """The SM and the memory clock, in two calls. Raises DeviceLost, DeviceError."""
        hasty, title = self._hasty, self._device.title
        return clock_mhz(sm_clock(hasty).told(title)), clock_mhz(mem_clock(hasty).told(title))

    def wait_for_energy_tick(self, timeout_s: float) -> GpuSample:
        """Wait until the energy counter moves, and read everything right then.

        Before that other processes are listed: windows begin and end here.

        Raises:
            MeasurementError: it does not move within `timeout_s`.
            NotSupported: there is no counter.
            DeviceLost: the GPU no longer answers.
        """
        self._others.refresh()
        self._ticks.wait(timeout_s)
        return self.sample()

    def wait(self, duration_s: float) -> None:
        """Let time pass. Raises InputError for a duration that is negative or endless."""
        if not 0 <= duration_s < math.inf:
            raise InputError(
                f"a duration must be zero or more seconds, got {duration_s}", field="duration_s"
            )
        self._timer.sleep(duration_s)

    def request(self, point: OperatingPoint) -> None:
        """Ask for a point. Raises NotPermitted, NotSupported, DeviceLost, DeviceError."""
        grid = self.clock_grid()
        self._check(point, grid)
        # What holds now is how the GPU was found; whatever differs later is somebody else's.
        self._is_asked = True
        self._knobs.request(point, grid)

    def reset(self, touched: Touched | None = None) -> None:
        """Give touched knobs back. Raises NotPermitted, DeviceLost, DeviceError."""
        was_set = self._knobs.is_set
        self._knobs.reset(touched)
        # A lock of somebody else that is dropped changes nothing of how the GPU was found.
        if touched is None or (was_set and not self._knobs.is_set):
            self._is_asked = False

    def forget_asked(self) -> None:
        """Take nothing that is set for ours any more; whoever set it gives it back."""
        self._knobs.forget()
        self._is_asked = False

    def keep_found(self) -> None:
        """As it is now, it was found: another process sets it for us. Raises DeviceLost."""
        self._kept_w, self._enforced_w = self._knobs.found_limit_w, self._enforced_limit_w()
        self._is_kept = True

    def forget_found(self) -> None:
        """It is set for us no more."""
        self._is_kept = False

    def _enforced_limit_w(self) -> float | None:
        """The power limit in force, whoever set it (nvmlDeviceGetEnforcedPowerLimit)."""
        return power_w(enforced_power_limit(self._hasty).told(self._device.title))

    def _check(self, point: OperatingPoint, grid: ClockGrid) -> None:
        title = self._device.title
        # Whatever is set here is set for all instances, whoever computes on them.
        if not point.is_auto and partitioning(self._device).known(title):
            raise NotSupported(
                f"{title}: MIG is on, and all its instances share one clock and one power limit",
                hint="Turn MIG off to set them: nvidia-smi -mig 0. Reading works as it is.",
            )
        if point.mem_clock_mhz is not None:
            self._check_memory_lock()
        _check_clock(title, "SM clock", point.sm_clock_mhz, grid.sm_clocks_mhz)
        _check_clock(title, "memory clock", point.mem_clock_mhz, grid.mem_clocks_mhz)
        _check_limit(title, point.power_limit_w, grid.power_limits)

    def _check_memory_lock(self) -> None:
        """Raise NotSupported where no memory clock may be locked, or none would take effect."""
        title, refusal = self._device.title, self._memory_switch.refusal
        if not self._options.is_memory_lock_allowed:
            raise NotSupported(
                f"{title}: locks of the memory clock are off",
                hint=f"Open the device as {self._identity.spec},memory_lock=on; on some GPUs "
                "such a lock slows work at any clock, and joulewise checks that.",
            )
        if refusal is not None:
            raise NotSupported(
                f"{title} {refusal}, so that a lock of it would not take effect",
                hint="Leave the memory clock at auto.",
            )


def _caveats(
    device: NvmlDevice, *, is_fake: bool, is_superchip: bool, scope: int
) -> tuple[Caveat, ...]:
    caveats = []
    if is_fake:
        caveats.append(Caveat(kind=CaveatKind.SIMULATED_DEVICE, seen="fake NVIDIA driver"))
    if is_superchip:
        what = "energy and power" if scope == MODULE_SCOPE else "energy"
        caveats.append(
            Caveat(
                kind=CaveatKind.ENERGY_OF_MODULE,
                seen=f"{device.title} shares a module with a CPU, whose {what} it tells",
            )
        )
    if partitioning(device).known(device.title):
        caveats.append(Caveat(kind=CaveatKind.GPU_PARTITIONED, seen=f"MIG is on on {device.title}"))
    set_w = current_power_limit_w(device)
    enforced_w = power_w(enforced_power_limit(device).told(device.title))
    if set_w is not None and enforced_w is not None and enforced_w < set_w - _SAME_LIMIT_W:
        caveats.append(
            Caveat(
                kind=CaveatKind.FOREIGN_CONTROL,
                seen=f"a power limit of {enforced_w:g} W is in force on {device.title}, below the "
                f"{set_w:g} W that are set",
                advice="Ask who runs the machine: its management, or Dynamic Boost, limits it from "
                "outside the driver.",
            )
        )
    if persistence(device).known(device.title) is False:
        caveats.append(
            Caveat(
                kind=CaveatKind.PERSISTENCE_OFF, seen=f"persistence mode is off on {device.title}"
            )
        )
    return tuple(caveats)


def _check_clock(title: str, name: str, clock: int | None, listed_mhz: Sequence[int]) -> None:
    if clock is None or clock in listed_mhz:
        return
    nearest = sorted(listed_mhz, key=lambda other: abs(other - clock))[:_NEAREST_COUNT]
    raise NotSupported(
        f"{title} lists no {name} of {clock} MHz",
        hint=f"Nearest: {', '.join(map(str, sorted(nearest)))}.",
    )


def _check_limit(title: str, limit_w: float | None, limits: PowerLimitRange | None) -> None:
    if limit_w is None:
        return
    if limits is None:
        raise no_power_limit(title)
    if not limits.least_w <= limit_w <= limits.found_w:
        raise NotSupported(
            f"{title} takes no power limit of {limit_w:g} W",
            hint=f"From {limits.least_w:g} W up to the limit found, {limits.found_w:g} W.",
        )
