"""A Jetson's GPU behind the `Gpu` port: sysfs and debugfs, neither NVML nor jtop.

NVML answers NOT_SUPPORTED to nearly every question there, and what it does not say would pass
for a reading of nothing; so it is never asked.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from joulewise.device.jetson_clock import measured_mhz
from joulewise.device.jetson_devfreq import GOVERNOR, LEAST, MOST, Devfreq, GpuNode, label_mhz
from joulewise.device.jetson_emc import EmcClock
from joulewise.device.jetson_files import BoardFiles, FolderFiles
from joulewise.device.jetson_knobs import GpuClockKnob, JetsonKnobs, MemoryClockKnob, allowed
from joulewise.device.jetson_load import busy_ratio
from joulewise.device.jetson_modes import PowerMode, power_mode
from joulewise.device.jetson_nodes import board_name, board_uuid, is_fake, is_tegra
from joulewise.device.jetson_rails import RailReader, find_rails, module_power_w
from joulewise.device.jetson_state import GpuSettings, board_state
from joulewise.device.jetson_string import JetsonOptions, parse_jetson
from joulewise.device.jetson_thermal import gpu_temp_c, over_current_count
from joulewise.device.real_time import MonotonicTimer
from joulewise.domain.board_state import HZ_PER_MHZ, BoardState
from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.errors import InputError, NotPermitted, NotSupported
from joulewise.domain.measurement import GpuSample, RailPower
from joulewise.domain.points import (
    ClockGrid,
    FoundSetting,
    KnobState,
    OperatingPoint,
    Touched,
)
from joulewise.domain.ports import GpuIdentity, Timer

_NEAREST_COUNT = 3


def open_jetson(
    device: str,
    *,
    files: BoardFiles | None = None,
    timer: Timer | None = None,
    caveats: Sequence[Caveat] = (),
) -> JetsonGpu:
    """Open the GPU of a Jetson board; reads only, and sets nothing.

    A board whose GPU has no devfreq node yet is opened as well: it is looked for at every
    question.

    Args:
        device: such as `jetson`, `jetson,root=/mnt/board,memory_lock=on`; see `jetson_string`.
        files: the board's files; `None` for those below the root that the device string names.
        timer: the time that the board lives in; `None` for that of the machine.
        caveats: what is doubtful of all that will be read from it, beside its own doubts.

    Raises:
        InputError: the device string cannot be used, or its root is no folder.
        NotSupported: no Jetson's files lie there.
    """
    options = parse_jetson(device, os.environ)
    if files is None:
        if not os.path.isdir(options.root):  # noqa: PTH112 - errors count as absent
            raise InputError(f"{options.root} is no folder", field="root")
        files = FolderFiles(Path(options.root))
    if not is_tegra(files):
        raise NotSupported(
            f"{files.place('/proc/device-tree/compatible')} names no NVIDIA SoC, so this is no "
            "Jetson",
            hint="In a container, mount /proc/device-tree and /sys; `joulewise devices` lists "
            "other GPUs.",
        )
    return JetsonGpu(files, options, MonotonicTimer() if timer is None else timer, caveats)


class JetsonGpu:
    """A `Gpu` through the files of a Jetson board. Threads may share it."""

    def __init__(
        self,
        files: BoardFiles,
        options: JetsonOptions,
        timer: Timer,
        caveats: Sequence[Caveat] = (),
    ) -> None:
        """Read what stays the same."""
        self._files = files
        self._options = options
        self._timer = timer
        self._name = board_name(files)
        self._node = GpuNode(files, timer, title=self._name)
        self._emc = EmcClock(files, timer)
        self._knobs = JetsonKnobs(
            GpuClockKnob(files, self._node, timer), MemoryClockKnob(self._emc)
        )
        self._rails = find_rails(files)
        self._uuid = board_uuid(files)
        self._identity = GpuIdentity(
            spec=options.spec,
            name=self._name,
            uuid=self._uuid,
            is_simulated=is_fake(files),
            caveats=(*self._own_caveats(), *caveats),
        )

    @property
    def identity(self) -> GpuIdentity:
        """Which GPU this is, with the doubts that everything read from it carries."""
        return self._identity

    @property
    def uuid(self) -> str:
        """`GPU-jetson-` and the board's serial number."""
        return self._uuid

    @property
    def energy_counter_period_s(self) -> float | None:
        """There is no energy counter: energy comes from the power of the rails."""
        return None

    def clock_grid(self) -> ClockGrid:
        """Clocks that the board lists and its power mode allows; it has no power limit.

        Memory clocks are taken only where the device string says `memory_lock=on`.

        Raises:
            NotSupported: it lists no GPU clocks, or has no GPU at present.
            DeviceLost: the GPU is gone.
        """
        memory = self._emc.listed_mhz
        return ClockGrid(
            sm_clocks_mhz=tuple(allowed(self._files, self._node().listed())),
            mem_clocks_mhz=memory if self._options.is_memory_lock_allowed else (),
            read_mem_clocks_mhz=memory,
            is_governed=True,
        )

    def knob_state(self) -> KnobState:
        """The files that set clocks as they read now, in the order in which they go back.

        Raises DeviceLost; NotSupported where there is no GPU at present.
        """
        devfreq = self._node()
        read = ((name, devfreq.text(name)) for name in (GOVERNOR, LEAST, MOST))
        clocks = tuple(
            FoundSetting(knob="sm_clock_mhz", path=devfreq.place(name), text=text)
            for name, text in read
            if text is not None
        )
        return KnobState(settings=(*clocks, *self._emc.settings()))

    def board_state(self) -> BoardState:
        """How the board is set right now.

        Raises DeviceLost; NotSupported where it lists no GPU clocks, or has no GPU at present.
        """
        devfreq = self._node()
        now = devfreq.clock_range
        settings = GpuSettings(
            board=self._name,
            governor=devfreq.governor,
            stock_governor=devfreq.stock_governor,
            listed_mhz=tuple(devfreq.listed()),
            least_mhz=None if now is None else label_mhz(now.least),
            most_mhz=None if now is None else label_mhz(now.most),
        )
        return board_state(self._files, settings, self._emc)

    def sample(self) -> GpuSample:
        """Read everything once; what the board does not tell is `None`.

        `power_w` is that of the module, as the caveats of the identity say. Raises DeviceLost.
        """
        devfreq = self._node.if_there()
        time_s = self._timer.now_s()
        rails = self._read_rails()
        sm_clock_mhz, mem_clock_mhz = self._clocks_mhz(devfreq)
        return GpuSample(
            time_s=time_s,
            energy_j=None,
            power_w=module_power_w(rails),
            sm_clock_mhz=sm_clock_mhz,
            mem_clock_mhz=mem_clock_mhz,
            temp_c=gpu_temp_c(self._files),
            power_capped_s=None,
            thermally_throttled_s=None,
            other_process_count=None,
            busy_ratio=busy_ratio(self._files, None if devfreq is None else devfreq.folder),
            rails=rails,
            over_current_count=over_current_count(self._files),
        )

    def now_s(self) -> float:
        """Time on the clock that samples are stamped by."""
        return self._timer.now_s()

    def clocks_mhz(self) -> tuple[int | None, int | None]:
        """The measured GPU clock and the memory clock. Raises DeviceLost."""
        return self._clocks_mhz(self._node.if_there())

    def wait_for_energy_tick(self, timeout_s: float) -> GpuSample:  # noqa: ARG002 - as the port
        """Raise NotSupported, for there is no energy counter; DeviceLost."""
        self._node.if_there()
        raise NotSupported(
            f"{self._name} has no energy counter",
            hint="Its energy is power over time: read samples.",
        )

    def wait(self, duration_s: float) -> None:
        """Let time pass. Raises InputError for a duration that is negative or endless."""
        if not 0 <= duration_s < math.inf:
            raise InputError(
                f"a duration must be zero or more seconds, got {duration_s}", field="duration_s"
            )
        self._timer.sleep(duration_s)

    def request(self, point: OperatingPoint) -> None:
        """Ask for a point: all of it, or nothing.

        Raises:
            NotSupported: a clock that is not listed, or that the power mode does not allow.
            DeviceError: the kernel refuses it, or the clock does not come; then what was
                written is put back. NotPermitted, DeviceLost.
        """
        listed: Mapping[int, str] = {}
        if not point.is_auto:
            listed = self._checked(point)
        self._knobs.request(point, listed)

    def reset(self, touched: Touched | None = None) -> None:
        """Give touched knobs back as they were found; where that is not known, as in stock.

        Raises NotPermitted, DeviceLost, DeviceError.
        """
        self._knobs.reset(touched)

    def forget_asked(self) -> None:
        """Take nothing that is set for ours any more; whoever set it gives it back."""
        self._knobs.forget()

    def _clocks_mhz(self, devfreq: Devfreq | None) -> tuple[int | None, int | None]:
        sm_clock_mhz = None if devfreq is None else measured_mhz(self._files, devfreq)
        return sm_clock_mhz, self._emc.current_mhz()

    def _read_rails(self) -> tuple[RailPower, ...]:
        """Every rail; where one that counts fails, its sensor may have been given another name."""
        rails = () if self._rails is None else self._rails.read()
        known = self._rails
        if module_power_w(rails) is None and (known is None or known.counted):
            found = find_rails(self._files)
            # The sum never covers less than it did, or more.
            if found is not None and (known is None or found.counted == known.counted):
                self._rails = found
                return found.read()
        return rails

    def _checked(self, point: OperatingPoint) -> Mapping[int, str]:
        """GPU clocks that may be asked for: Hz as listed, by label. Raises NotSupported."""
        if point.power_limit_w is not None:
            raise NotSupported(
                f"{self._name} has no power limit that can be set",
                hint="Leave the power limit at auto; nvpmodel chooses among power modes.",
            )
        if point.mem_clock_mhz is not None:
            self._check_memory_clock(point.mem_clock_mhz)
        listed = self._node().listed()
        clocks = allowed(self._files, listed)
        if point.sm_clock_mhz in set(listed) - set(clocks):
            raise NotSupported(
                f"the power mode of {self._name} allows no GPU clock above {max(clocks)} MHz",
                hint="nvpmodel -q says which mode it is, and nvpmodel -m takes another one.",
            )
        _check_clock(self._name, "GPU clock", point.sm_clock_mhz, tuple(clocks))
        return clocks

    def _check_memory_clock(self, clock_mhz: int) -> None:
        if not self._options.is_memory_lock_allowed:
            raise NotSupported(
                f"{self._name}: locks of the memory clock are off",
                hint=f"Open the device as {self._options.spec},memory_lock=on.",
            )
        listed = self._emc.listed_mhz
        if not listed:
            raise NotSupported(
                f"{self._name} tells no clock that its memory can be locked at",
                hint="It is set through debugfs, which belongs to root: run as root.",
            )
        _check_clock(self._name, "memory clock", clock_mhz, listed)

    def _own_caveats(self) -> tuple[Caveat, ...]:
        mode = power_mode(self._files)
        caveats = [
            *_simulated(self._files, self._name),
            *_module_power(self._rails, self._name),
            *_gated(mode),
            *_capped(mode, self._node, self._emc),
        ]
        return tuple(caveats)


def _simulated(files: BoardFiles, name: str) -> list[Caveat]:
    if not is_fake(files):
        return []
    seen = f"{name} is a tree of files in {files.place('/')}"
    return [Caveat(kind=CaveatKind.SIMULATED_DEVICE, seen=seen)]


def _module_power(rails: RailReader | None, name: str) -> list[Caveat]:
    if rails is None:
        # Energy that is silently missing passes for none (intelligence-per-watt 40).
        return [_no_power(name, "none of its supply rails can be read")]
    if not rails.counted:
        return [_no_power(name, rails.left_out)]
    left_out = "" if rails.left_out is None else f"; {rails.left_out}"
    seen = f"power of {name} is that of {' + '.join(rails.counted)}{left_out}"
    return [Caveat(kind=CaveatKind.ENERGY_OF_MODULE, seen=seen)]


def _no_power(name: str, why: str | None) -> Caveat:
    return Caveat(
        kind=CaveatKind.ENERGY_OF_MODULE,
        seen=f"{name} tells no power of its module, and so no energy: {why}",
        advice="In a container, mount /sys/class/hwmon and /sys/bus/i2c.",
    )


def _gated(mode: PowerMode | None) -> list[Caveat]:
    if mode is None or not mode.gated_tpc_count:
        return []
    count = mode.gated_tpc_count
    tpcs = "1 TPC" if count == 1 else f"{count} TPCs"
    seen = f"the power mode {mode.name} switches {tpcs} of the GPU off"
    return [Caveat(kind=CaveatKind.TPCS_GATED, seen=seen)]


def _capped(mode: PowerMode | None, node: GpuNode, emc: EmcClock) -> list[Caveat]:
    """What a mode allows less of than there is; where that is not known, its cap is told."""
    if mode is None:
        return []
    caps = (
        ("GPU clock", mode.gpu_cap_hz, _highest_mhz(node)),
        ("memory clock", mode.emc_cap_hz, emc.highest_mhz),
    )
    held = [
        f"the {clock} at {cap_hz // HZ_PER_MHZ} MHz{'' if most is None else f' of {most} MHz'}"
        for clock, cap_hz, most in caps
        if cap_hz is not None and (most is None or cap_hz // HZ_PER_MHZ < most)
    ]
    if not held:
        return []
    seen = f"the power mode {mode.name} caps {' and '.join(held)}"
    return [Caveat(kind=CaveatKind.POWER_MODE_CAPS, seen=seen)]


def _highest_mhz(node: GpuNode) -> int | None:
    try:
        return max(node().listed())
    except (NotSupported, NotPermitted):
        return None


def _check_clock(title: str, name: str, clock: int | None, listed_mhz: Sequence[int]) -> None:
    if clock is None or clock in listed_mhz:
        return
    nearest = sorted(listed_mhz, key=lambda other: abs(other - clock))[:_NEAREST_COUNT]
    raise NotSupported(
        f"{title} lists no {name} of {clock} MHz",
        hint=f"Nearest: {', '.join(map(str, sorted(nearest)))}.",
    )
