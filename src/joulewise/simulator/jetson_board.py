"""A virtual board behind a tree of files: written files set it, and it is read in others.

It is the `Timer` of an adapter on the tree: virtual time passes in `sleep` alone. First the
control files are read, then time passes, then the sensors are written.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from joulewise.domain.errors import DeviceLost
from joulewise.domain.points import OperatingPoint
from joulewise.simulator.boards import board_of
from joulewise.simulator.device_string import VirtualOptions, parse_device
from joulewise.simulator.jetson_layout import BoardLayout
from joulewise.simulator.jetson_sensors import TreeSensors
from joulewise.simulator.jetson_spec import preset_of, transition_of
from joulewise.simulator.jetson_tree import (
    PERFORMANCE,
    USERSPACE,
    Controls,
    TreeControls,
    TreeFiles,
)
from joulewise.simulator.operations import OperationTable
from joulewise.simulator.virtual_board import VirtualBoard
from joulewise.simulator.virtual_time import Units, duration_units, seconds, units

# An INA3221 as these boards set it up shows a new mean about every 0.15 s: of readings 0.1 s
# apart a third repeats (26 to 54 % did in tegrastats logs of dankang21/jetson-latency-lab).
RAIL_PERIOD_S = 0.15

Move = Callable[[Units], None]


def tree_options(layout: BoardLayout, options: str) -> VirtualOptions:
    """Options of the virtual board, written as in a device string: `noise=0,seed=3`.

    Raises InputError for one that is unknown.
    """
    preset = preset_of(layout)
    return parse_device(f"virtual:{preset},{options}" if options else f"virtual:{preset}")


class TreeBoard:
    """The board behind one tree, and the time that it lives in.

    Of what the options say, `lost_after` takes the GPU's folder out of the tree, and
    `control=denied` means nothing here: rights are a matter of files.
    """

    def __init__(
        self,
        root: Path,
        layout: BoardLayout,
        operations: OperationTable,
        options: VirtualOptions,
        *,
        is_read_meanwhile: bool = False,
    ) -> None:
        """Idle and settled, set as the files say; the tree has to be there already.

        `is_read_meanwhile` says that other processes read it while it moves.
        """
        self.layout = layout
        self.virtual = VirtualBoard(operations, board_of(options), options, transition_of(layout))
        """The board in motion, which knows nothing of files."""
        self._operations = operations
        self._files = TreeFiles(root, is_read_meanwhile=is_read_meanwhile)
        self._controls = TreeControls(self._files, layout)
        self._sensors = TreeSensors(self._files, layout)
        self._mem_cap_mhz = _mem_cap_mhz(self._files, layout)
        self._kernel: str | None = None
        self._is_iterating = False
        self._is_asking = False
        self._reading = -1
        self._lost: Units = 0
        """Time that passed after the board was lost."""
        self._asked_s = 0.0
        """Time that somebody waited while asking, which does not pass for the board."""
        self._told_s = 0.0
        self._take_as_found()
        self.show()

    @property
    def mem_rate_hz(self) -> int:
        """The memory rate in force."""
        return self._sensors.rate_hz(self.virtual.operation.mem_clock_mhz)

    @property
    def time_s(self) -> float:
        """Virtual time since the board was opened."""
        return seconds(self.virtual.now_units + self._lost)

    def now_s(self) -> float:
        """Virtual time as told to whoever asks; it never goes back."""
        self.look()
        self.show()
        self._told_s = max(self._told_s, self.time_s + self._asked_s)
        return self._told_s

    def sleep(self, duration_s: float) -> None:
        """Let virtual time pass; time goes on where the board is lost meanwhile."""
        if duration_s <= 0:
            return
        if self._is_asking:
            self._asked_s += duration_s
            self.look()
            self.show()
            return
        start, duration = self.virtual.now_units, duration_units(duration_s)
        try:
            self.advance(duration)
        except DeviceLost:
            self._lost += duration - (self.virtual.now_units - start)

    def advance(self, duration: Units, move: Move | None = None) -> None:
        """Let time pass, by `move` where something runs that has to know of it.

        Raises DeviceLost when the board goes meanwhile.
        """
        step = self.virtual.advance if move is None else move
        self.look()
        start = self.virtual.now_units
        end, period = start + duration, units(RAIL_PERIOD_S)
        last_reading = end - end % period
        with self.leaving():
            if last_reading > start:
                step(last_reading - start)
                self._read_rails()
            step(end - self.virtual.now_units)
        self.show()

    @contextmanager
    def leaving(self) -> Iterator[None]:
        """Take the GPU out of the tree where it is lost inside the block, which then raises."""
        try:
            yield
        except DeviceLost:
            shutil.rmtree(self._files.place(self.layout.gpu_folder), ignore_errors=True)
            raise

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Inside the block no time passes, and what is asked for reads as if it were in force.

        Whoever asks for a point waits until it reads back, while the work goes on: here the
        requests of an iteration are made between two moments of virtual time.
        """
        self._is_asking = True
        try:
            yield
        finally:
            self._is_asking, self._asked_s = False, 0.0

    def expect(self, kernel: str | None, *, is_iteration: bool = False) -> None:
        """Know what runs from now on: the governor goes by it."""
        self._kernel, self._is_iterating = kernel, is_iteration
        self.look()

    def look(self) -> None:
        """Take over what the control files ask for."""
        controls = self._controls.read(self.time_s, self.mem_rate_hz)
        point = self._wanted(controls)
        if point != self.virtual.driver.wanted:
            self.virtual.want(point)

    def show(self) -> None:
        """Have the sensor files say how the board is now."""
        operation, wanted = self.virtual.operation, self.virtual.driver.wanted
        sm, mem = operation.sm_clock_mhz, operation.mem_clock_mhz
        if self._is_asking:
            sm, mem = wanted.sm_clock_mhz or sm, wanted.mem_clock_mhz or mem
        self._sensors.show_clock(sm)
        self._controls.show_rate(self._sensors.rate_hz(mem))
        self._sensors.show_load(operation.busy_ratio)
        self._sensors.show_heat(self.virtual.sample().temp_c)
        if self.virtual.now_units // units(RAIL_PERIOD_S) != self._reading:
            self._read_rails()

    def _read_rails(self) -> None:
        """Have the rail monitors make a reading: the mean of their last period."""
        self._reading = self.virtual.now_units // units(RAIL_PERIOD_S)
        sample = self.virtual.sample()
        if sample.power_w is not None:
            self._sensors.show_rails(sample.power_w, self.virtual.operation)

    def _take_as_found(self) -> None:
        """What the files say at first has been in force for long."""
        driver = self.virtual.driver
        point = self._wanted(self._controls.read(0.0, self.mem_rate_hz))
        driver.point = driver.wanted = point
        self.virtual.refresh()

    def _wanted(self, controls: Controls) -> OperatingPoint:
        mem = controls.mem_locked_mhz
        if mem is None and self._is_working:
            mem = self._mem_cap_mhz
        return OperatingPoint(sm_clock_mhz=self._sm_clock_mhz(controls, mem), mem_clock_mhz=mem)

    def _sm_clock_mhz(self, controls: Controls, mem_clock_mhz: int | None) -> int | None:
        """The clock that the governor holds within its bounds; `None`: its own choice."""
        least, most = controls.sm_least_mhz, controls.sm_most_mhz
        clocks = self.layout.sm_clocks_mhz
        if controls.governor == PERFORMANCE:
            return most
        if controls.governor == USERSPACE and controls.sm_asked_mhz is not None:
            return min(most, max(least, controls.sm_asked_mhz))
        if (least, most) == (clocks[0], clocks[-1]):
            return None
        chosen = self._chosen_mhz(mem_clock_mhz)
        held = min(most, max(least, chosen))
        # Held where it would be anyhow, it is the governor's own choice, but for a pinned clock.
        return None if held == chosen and least < most else held

    def _chosen_mhz(self, mem_clock_mhz: int | None) -> int:
        """What the governor takes without bounds."""
        clocks = self.layout.sm_clocks_mhz
        if self._kernel is None:
            return clocks[-1] if self._is_iterating else clocks[0]
        free = OperatingPoint(mem_clock_mhz=mem_clock_mhz)
        return self._operations.running(self._kernel, free).sm_clock_mhz or clocks[-1]

    @property
    def _is_working(self) -> bool:
        return self._kernel is not None or self._is_iterating


def _mem_cap_mhz(files: TreeFiles, layout: BoardLayout) -> int | None:
    """The memory clock that the power mode allows at most; `None`: all of them."""
    path = layout.emc.cap_path
    cap_hz = None if path is None else files.read_number(path)
    if cap_hz is None or cap_hz >= layout.emc.rates_hz[-1]:
        return None
    allowed = [
        mhz
        for mhz, rate_hz in zip(layout.mem_clocks_mhz, layout.emc.rates_hz, strict=True)
        if rate_hz <= cap_hz
    ]
    return max(allowed, default=layout.mem_clocks_mhz[0])
