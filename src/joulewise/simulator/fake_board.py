"""One GPU of the fake driver and the kernels of a workload on it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import groupby

from joulewise.domain.errors import InputError, MeasurementError
from joulewise.domain.points import OperatingPoint
from joulewise.domain.workload import KernelKind, KernelWork
from joulewise.simulator.device_string import parse_device
from joulewise.simulator.fake_driver import FakeDriver, FakeKernel, FakeProgress
from joulewise.simulator.fake_requests import ChangeTimes
from joulewise.simulator.noise import QUIET, NoiseLevel, WindowKey, WindowNoise, window_noise
from joulewise.simulator.operations import Operations
from joulewise.simulator.physics import kernel_load
from joulewise.simulator.presets import preset

# Real time is looked at this often where something is waited for.
_POLL_S = 2e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeNoise:
    """How strongly the windows of a fake GPU are blurred, and which blur."""

    level: NoiseLevel
    seed: int = 0


def fake_noise(text: str) -> FakeNoise:
    """Noise as virtual devices take it: `default`, `stress`, `0.5`, `noise=stress,seed=7`.

    Raises InputError for any other option than noise, seed and shift, and for a bad value.
    """
    options = text.strip() or "0"
    named = options if "=" in options else f"noise={options}"
    unknown = {part.partition("=")[0].strip() for part in named.split(",")} - _NOISE_OPTIONS
    if unknown:
        raise InputError(
            f"{text!r} is no noise of the fake driver",
            field="FAKE_NVML_NOISE",
            hint="Write default, stress, a multiple of the default, or noise=default,seed=7.",
        )
    parsed = parse_device(f"virtual:rtx3080ti,{named}")
    return FakeNoise(level=parsed.noise_level, seed=parsed.seed)


_NOISE_OPTIONS = {"noise", "seed", "shift"}


@contextmanager
def in_a_thread(act: Callable[[threading.Event], None], name: str) -> Iterator[None]:
    """Have `act` run beside the block; it has to end soon after its event is set."""
    is_over = threading.Event()
    thread = threading.Thread(target=act, args=(is_over,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


class FakeBoard:
    """A GPU that one thing at a time runs on, kernels known by name."""

    def __init__(
        self, driver: FakeDriver, device_index: int, works: Sequence[KernelWork], noise: FakeNoise
    ) -> None:
        """Make the works known to the driver.

        Raises InputError for no such GPU or a kernel given twice, NotSupported for arithmetic
        that it lacks.
        """
        self.driver = driver
        self.device_index = device_index
        self.noise = noise
        self.operations = Operations(preset(driver.profile(device_index)), works)
        """The same physics in Python, by name."""
        load = kernel_load(self.operations.spec, works)
        self._numbers = {
            work.kernel: driver.add_kernel(
                device_index,
                FakeKernel(
                    compute_cycle_count=float(load.compute_cycle_count[row]),
                    memory_bytes=float(load.memory_bytes[row]),
                    core_j=float(load.core_j[row]),
                    memory_j=float(load.memory_j[row]),
                    set_point_ratio=float(load.set_point_ratio[row]),
                    overlap_exponent_ratio=float(load.overlap_exponent_ratio[row]),
                    wait_s=float(load.wait_s[row]),
                ),
            )
            for row, work in enumerate(works)
        }
        self._gaps = frozenset(work.kernel for work in works if work.kind is KernelKind.GAP)
        self._is_running = False

    def running(self, what: str, kernels: Sequence[str]) -> AbstractContextManager[None]:
        """Run these launches over and over inside the block.

        Raises InputError for an unknown kernel, MeasurementError where something else runs,
        DeviceLost.
        """
        for kernel in dict.fromkeys(kernels):
            self.operations.check_kernel(kernel)
        return self.running_program(what, self._program(kernels))

    @contextmanager
    def running_program(self, what: str, steps: Sequence[tuple[int, int]]) -> Iterator[None]:
        """Run these (kernel, launches in a row) over and over inside the block.

        Raises MeasurementError where something else runs, DeviceLost.
        """
        if self._is_running:
            raise MeasurementError(
                f"another kernel is running; {what} has to wait",
                hint="Leave the block of the first loop before the next one.",
            )
        self.check()
        self.driver.run(self.device_index, steps)
        self._is_running = True
        try:
            yield
        finally:
            self._is_running = False
            self.blur(None)
            self.driver.run(self.device_index, ())

    def progress(self) -> FakeProgress:
        """How far it has come."""
        return self.driver.progress(self.device_index)

    def check(self) -> None:
        """Raise DeviceLost once the GPU has gone."""
        self.driver.check(self.device_index)

    def next_launch(self) -> FakeProgress:
        """Let time pass up to the start of a launch: now, or of the next one."""
        progress = self.progress()
        if progress.launch_start_s == self.driver.now_s() and progress.launch_done_ratio == 0.0:
            return progress
        return self.pass_launches(1)

    def pass_launches(self, launch_count: int) -> FakeProgress:
        """Let time pass until so many more launches have ended."""
        if self.driver.is_virtual_time:
            self.driver.run_launches(self.device_index, launch_count)
            return self.progress()
        last = self.progress().launch_count + launch_count
        while (progress := self.progress()).launch_count < last:
            self.driver.timer.sleep(_POLL_S)
        return progress

    def blur(self, noise: WindowNoise | None) -> None:
        """Apply this noise from now on; `None`: none."""
        self.driver.blur(
            self.device_index,
            time_ratio=1.0 if noise is None else noise.time_ratio,
            power_ratio=1.0 if noise is None else noise.power_ratio,
        )

    def change_times(self) -> ChangeTimes:
        """What a change of point takes, as the board's knobs stand."""
        names = ("set_call_s", "lag_s", "stall_s", "dwell_s")
        call_s, lag_s, stall_s, dwell_s = (
            self.driver.knob(self.device_index, name) for name in names
        )
        return ChangeTimes(call_s=call_s, lag_s=lag_s, stall_s=stall_s, dwell_s=dwell_s)

    def cell_noise(self, run: str, kernel: str, point: OperatingPoint, window: int) -> WindowNoise:
        """Noise of a window of a cell, drawn as on a virtual device."""
        is_capped = self.operations.running(kernel, point).is_power_capped
        return self._drawn(run, kernel, point.label, window, is_power_capped=is_capped)

    def running_noise(self, run: str, kernel: str, window: int) -> WindowNoise:
        """Noise of a window of the kernel that runs, at whatever point is in force.

        What point that is nobody can ask, so the cell is known by its clock and its pace.
        """
        if not self.is_noisy:
            return QUIET
        first = self.next_launch().launch_start_s
        launch_s = self.pass_launches(1).launch_start_s - first
        clock_mhz = self.driver.true_sm_clock_mhz(self.device_index)
        return self._drawn(
            run,
            kernel,
            f"{clock_mhz:.0f} MHz, {launch_s:.2e} s",
            window,
            is_power_capped=self._is_off_the_list(clock_mhz),
        )

    @property
    def is_noisy(self) -> bool:
        """Whether windows are blurred at all."""
        level = self.noise.level
        return any((level.time_ratio, level.energy_ratio, level.run_shift_ratio))

    def _drawn(
        self, run: str, kernel: str, point_label: str, window: int, *, is_power_capped: bool
    ) -> WindowNoise:
        key = WindowKey(
            seed=self.noise.seed,
            run=run,
            kernel=kernel,
            point_label=point_label,
            window=window,
            is_power_capped=is_power_capped,
            is_host_time=kernel in self._gaps,
        )
        return window_noise(self.noise.level, key)

    def _is_off_the_list(self, clock_mhz: float) -> bool:
        """Whether only the regulator can have chosen this clock."""
        spec = self.operations.spec
        ceilings = (state.sm_clock_ceiling_mhz for state in spec.memory_states)
        return clock_mhz not in {*spec.grid.sm_clocks_mhz, spec.sm_clock_max_mhz, *ceilings}

    def _program(self, kernels: Sequence[str]) -> list[tuple[int, int]]:
        """Neighbouring launches of one kernel as one step."""
        return [
            (self._numbers[kernel], sum(1 for _ in launches))
            for kernel, launches in groupby(kernels)
        ]
