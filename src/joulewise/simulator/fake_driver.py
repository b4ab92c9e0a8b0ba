"""The fake NVIDIA driver from Python: what runs on its GPUs, its time, its truth, its faults.

A typed rim over `tools/fake-nvml/fake_nvml.h`. NVML itself is spoken through the ordinary
binding; what is here has no counterpart on hardware.
"""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from joulewise.domain.errors import (
    BusyError,
    DeviceError,
    DeviceLost,
    InputError,
    JoulewiseError,
    MeasurementError,
    NotPermitted,
    NotSupported,
)
from joulewise.domain.points import OperatingPoint
from joulewise.simulator.fake_binding import (
    KernelStruct,
    LocksStruct,
    ProgressStruct,
    SteadyStruct,
    StepStruct,
    harness_functions,
)

LIBRARY_NAME: Final = "libnvidia-ml.so.1"
"""What clients of NVML load."""

_ABI = 3
_NS_PER_S = 1e9
# A duration is rounded up to whole nanoseconds, but for what its binary form is off by.
_SLACK_NS = 1e-6
_LONGEST_S = 9e9

_SUCCESS, _INVALID_ARGUMENT, _NOT_SUPPORTED, _NO_PERMISSION, _IN_USE = 0, 2, 3, 4, 19
_FREQUENCY_NOT_SUPPORTED = 24
_ERRORS: Final[dict[int, tuple[type[JoulewiseError], str]]] = {
    _INVALID_ARGUMENT: (InputError, "an argument that it does not take"),
    _NOT_SUPPORTED: (NotSupported, "not supported"),
    _NO_PERMISSION: (NotPermitted, "no permission"),
    _IN_USE: (BusyError, "another process runs something there"),
    _FREQUENCY_NOT_SUPPORTED: (NotSupported, "no such clock"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeKernel:
    """One kernel as one device feels it: a row of `physics.KernelLoad`."""

    compute_cycle_count: float
    memory_bytes: float
    core_j: float
    memory_j: float
    set_point_ratio: float
    overlap_exponent_ratio: float
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeProgress:
    """How far the program of a GPU has come.

    `launch_count` and `iteration_count` have ended since it began; `launch_done_ratio` is the
    share of the running launch that is done, `sm_cycle_count` SM cycles since the beginning.
    """

    launch_count: int
    iteration_count: int
    launch_start_s: float
    iteration_start_s: float
    launch_done_ratio: float
    sm_cycle_count: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeSteady:
    """One kernel at one point at thermal equilibrium, as the driver's physics has it."""

    time_s: float
    power_w: float
    sm_clock_mhz: float
    is_power_capped: bool
    is_clock_not_held: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeLocks:
    """Clock locks in force, which NVML cannot tell; `None`: that clock is not locked."""

    sm_max_mhz: int | None
    memory_max_mhz: int | None


class FakeDriver:
    """The harness of a loaded fake driver; its state is in a file that processes share."""

    def __init__(self, library: ctypes.CDLL) -> None:
        """Bind the harness of this library. Raises NotSupported where it is of another age."""
        self._functions = harness_functions(library)
        abi = int(self._functions["abi"]())
        if abi != _ABI:
            raise NotSupported(
                f"the fake NVIDIA driver has harness {abi}, and this joulewise needs {_ABI}",
                hint="Build it anew: make fake-nvml.",
            )
        self.timer = FakeTimer(self)
        """Time as the fake GPUs live it."""
        self.state_path: Path | None = None
        """The file that another process has to name in FAKE_NVML_STATE to see the same GPUs.

        `None` as long as this process leaves it to its own environment."""

    def create(
        self,
        state_path: Path,
        *,
        profile: str,
        device_count: int = 1,
        is_virtual_time: bool = True,
    ) -> None:
        """Make a driver anew, nothing locked and nothing running, and use it from now on.

        Raises InputError for an unknown profile or a number of devices that it does not take.
        """
        path = str(state_path).encode()
        self._call("create", path, profile.encode(), device_count, int(is_virtual_time))
        self.state_path = state_path

    def attach(self, state_path: Path) -> None:
        """Use a driver that another process made. Raises DeviceError where there is none."""
        self._call("attach", str(state_path).encode())
        self.state_path = state_path

    def profile(self, device_index: int) -> str:
        """Name of the preset that this GPU is. Raises InputError for no such device."""
        name = self._functions["profile"](device_index)
        if not name:
            raise InputError(f"the fake driver has no GPU {device_index}", field="device")
        return str(name.decode())

    @property
    def is_virtual_time(self) -> bool:
        """Whether time passes only where it is let pass."""
        return bool(self._functions["is_virtual_time"]())

    def now_s(self) -> float:
        """The driver's clock."""
        return _seconds(int(self._functions["now_ns"]()))

    def advance(self, duration_s: float) -> None:
        """Let virtual time pass. Raises InputError for a duration that is none."""
        self._call("advance_ns", _whole_ns(duration_s))

    def add_kernel(self, device_index: int, kernel: FakeKernel) -> int:
        """Make a kernel known to a GPU; returns the number that `run` and `steady` take."""
        number = ctypes.c_uint32()
        fields = (float(getattr(kernel, name)) for name in FakeKernel.__dataclass_fields__)
        self._call("add_kernel", device_index, KernelStruct(*fields), number)
        return number.value

    def run(self, device_index: int, steps: Sequence[tuple[int, int]]) -> None:
        """Run a program of (kernel, launches in a row) over and over; none: nothing.

        Raises InputError for an unknown kernel, BusyError where another process runs something.
        """
        program = (StepStruct * len(steps))(*(StepStruct(*step) for step in steps))
        self._call("run", device_index, program, len(steps))

    def progress(self, device_index: int) -> FakeProgress:
        """How far the running program has come. Raises DeviceError where none runs."""
        raw = ProgressStruct()
        self._call("progress", device_index, raw)
        return FakeProgress(
            launch_count=raw.launch_count,
            iteration_count=raw.iteration_count,
            launch_start_s=_seconds(raw.launch_start_ns),
            iteration_start_s=_seconds(raw.iteration_start_ns),
            launch_done_ratio=raw.launch_done_ratio,
            sm_cycle_count=raw.sm_cycle_count,
        )

    def run_launches(self, device_index: int, launch_count: int) -> None:
        """Let virtual time pass until so many more launches have ended."""
        self._call("run_launches", device_index, launch_count)

    def run_iterations(self, device_index: int, iteration_count: int) -> None:
        """Let virtual time pass until so many more iterations have ended."""
        self._call("run_iterations", device_index, iteration_count)

    def blur(self, device_index: int, *, time_ratio: float, power_ratio: float) -> None:
        """Apply these factors to the time of launches and to power from now on."""
        self._call("blur", device_index, time_ratio, power_ratio)

    def steady(self, device_index: int, kernel: int, point: OperatingPoint) -> FakeSteady:
        """A kernel at a point, without noise, as on a cool board.

        Raises InputError for an unknown kernel, NotSupported for a point that cannot be set.
        """
        raw = SteadyStruct()
        knobs = (point.sm_clock_mhz or 0, point.mem_clock_mhz or 0, point.power_limit_w or 0)
        self._call("steady", device_index, kernel, *knobs, raw)
        return FakeSteady(
            time_s=raw.time_s,
            power_w=raw.power_w,
            sm_clock_mhz=raw.sm_clock_mhz,
            is_power_capped=bool(raw.is_power_capped),
            is_clock_not_held=bool(raw.is_clock_not_held),
        )

    def check(self, device_index: int) -> None:
        """Raise DeviceLost once the GPU has gone: the harness itself still answers then."""
        lost_at_s = self.knob(device_index, "lost_at_s")
        if self.knob(device_index, "is_lost") or 0 < lost_at_s <= self.now_s():
            raise DeviceLost(f"the fake GPU {device_index} is lost")

    def true_energy_j(self, device_index: int) -> float:
        """Energy drawn so far, whatever the sensors say."""
        return float(self._functions["true_energy_j"](device_index))

    def true_power_w(self, device_index: int) -> float:
        """Power drawn now."""
        return float(self._functions["true_power_w"](device_index))

    def true_sm_clock_mhz(self, device_index: int) -> float:
        """SM clock in force now."""
        return float(self._functions["true_sm_clock_mhz"](device_index))

    def true_locks(self, device_index: int) -> FakeLocks:
        """Clock locks in force now, whoever set them. Raises InputError for no such device."""
        raw = LocksStruct()
        self._call("true_locks", device_index, raw)
        return FakeLocks(
            sm_max_mhz=raw.sm_max_mhz or None, memory_max_mhz=raw.memory_max_mhz or None
        )

    def set_knob(self, device_index: int, name: str, value: float) -> None:
        """Turn a knob of the board, see tools/fake-nvml/README.md. Raises InputError."""
        if self._functions["set"](device_index, name.encode(), value) != _SUCCESS:
            raise InputError(f"the fake driver takes no {name}={value:g}", field=name)

    def knob(self, device_index: int, name: str) -> float:
        """How a knob of the board stands. Raises InputError for one that it does not have."""
        value = ctypes.c_double()
        if self._functions["get"](device_index, name.encode(), value) != _SUCCESS:
            raise InputError(f"the fake driver has no knob {name!r}", field=name)
        return value.value

    def fail(self, function: str, return_code: int, *, call_count: int = 0) -> None:
        """Make the next so many calls (0: all) of an NVML function return this code."""
        self._call("fail", function.encode(), return_code, call_count)

    def foreign_lock(
        self, device_index: int, *, at_s: float, min_clock_mhz: int, max_clock_mhz: int
    ) -> None:
        """Have another controller lock the SM clock at a moment; 0 and 0: give it back."""
        at_ns = round(at_s * _NS_PER_S)
        self._call("foreign_lock", device_index, at_ns, min_clock_mhz, max_clock_mhz)

    def reload(self) -> None:
        """Reload the driver: locks, limits and the energy counters are forgotten."""
        self._call("reload_driver")

    def _call(self, name: str, *arguments: object) -> None:
        code = int(self._functions[name](*arguments))
        if code == _SUCCESS:
            return
        error, what = _ERRORS.get(code, (DeviceError, f"return code {code}"))
        raise error(
            f"the fake NVIDIA driver refused {name}: {what}",
            hint="tools/fake-nvml/README.md says what it takes.",
        )


class FakeTimer:
    """The clock of a fake driver, virtual or real, as a `Timer`."""

    def __init__(self, driver: FakeDriver) -> None:
        """Tell this driver's time."""
        self._driver = driver
        self._let_pass: Callable[[float], None] | None = None

    def now_s(self) -> float:
        """The driver's clock."""
        return self._driver.now_s()

    def sleep(self, duration_s: float) -> None:
        """Let time pass. Raises InputError for a duration that is none."""
        _whole_ns(duration_s)
        if not self._driver.is_virtual_time:
            time.sleep(duration_s)
        elif self._let_pass is not None:
            self._let_pass(duration_s)
        else:
            self._driver.advance(duration_s)

    @contextmanager
    def steered_by(self, let_pass: Callable[[float], None]) -> Iterator[None]:
        """Have this let virtual time pass inside the block, whoever sleeps.

        Virtual time stands still by itself, so what has to happen at moments within a sleep
        is done by the one that lets it pass. Raises MeasurementError where another one does.
        """
        if self._let_pass is not None:
            raise MeasurementError(
                "iterations on another fake GPU have virtual time to themselves",
                hint="Let them end first, or set FAKE_NVML_TIME=real.",
            )
        self._let_pass = let_pass
        try:
            yield
        finally:
            self._let_pass = None


def loaded_driver() -> FakeDriver | None:
    """The fake driver where `libnvidia-ml.so.1` is one; the same object every time.

    `None` where there is no such library, or a real one. Raises NotSupported where the fake
    one was built for another joulewise.
    """
    try:
        library = ctypes.CDLL(LIBRARY_NAME)
    except OSError:
        return None
    if not hasattr(library, "fakenvml_abi"):
        return None
    handle = library._handle  # noqa: SLF001 - the only name of what the loader found
    if handle not in _DRIVERS:
        _DRIVERS[handle] = FakeDriver(library)
    return _DRIVERS[handle]


_DRIVERS: dict[int, FakeDriver] = {}


def _seconds(duration_ns: int) -> float:
    return duration_ns / _NS_PER_S


def _whole_ns(duration_s: float) -> int:
    """At least that long, so that who sleeps until a moment finds it come."""
    if not 0 <= duration_s <= _LONGEST_S:
        raise InputError(
            f"a duration must be zero or more seconds, got {duration_s}", field="duration_s"
        )
    return max(int(duration_s > 0), math.ceil(duration_s * _NS_PER_S - _SLACK_NS))
