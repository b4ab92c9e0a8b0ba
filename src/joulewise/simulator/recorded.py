"""A GPU made of a recorded sweep: every cell as it was measured, and nothing besides."""

from __future__ import annotations

import math
from collections.abc import Mapping
from hashlib import blake2b

from joulewise.domain.caveats import Caveat, CaveatKind, first_of_each_kind
from joulewise.domain.errors import InputError, MeasurementError, NotSupported
from joulewise.domain.measurement import GpuSample
from joulewise.domain.points import (
    AUTO,
    ClockGrid,
    KnobState,
    OperatingPoint,
    PowerLimitRange,
    Touched,
)
from joulewise.domain.ports import GpuIdentity
from joulewise.domain.session import DeviceSession
from joulewise.domain.sweep import FloatTable, Sweep
from joulewise.domain.transition import TransitionModel, uniform_transition
from joulewise.simulator.boards import BoardSpec
from joulewise.simulator.clock_driver import board_transition
from joulewise.simulator.device_string import VirtualOptions, parse_recorded
from joulewise.simulator.operations import Operation
from joulewise.simulator.sensors import SensorSpec
from joulewise.simulator.thermal import ThermalSpec
from joulewise.simulator.virtual import VirtualGpu, VirtualRunner
from joulewise.simulator.virtual_board import VirtualBoard

# Cells are recorded at thermal equilibrium, so a load heats nothing here; the counter's period
# is that of most boards, and power reads as it is at the moment.
_BOARD_PERIOD_S = 0.1
_THERMAL = ThermalSpec(resistance_c_per_w=0.0, leakage_w_per_c=0.0, slowdown_temp_c=math.inf)
_INSTANT_S = 1e-9


def open_recorded(
    sweep: Sweep, device: str, transition: TransitionModel | None = None
) -> DeviceSession:
    """Open a device that does what a sweep says, free of noise.

    A kernel takes the time and draws the power of its cell. Idle power is what the sweep tells
    (energy less energy above idle); where it tells none, the meters of the idle device give
    nothing. So is temperature, which stands still here.

    Args:
        sweep: The recording.
        device: `recorded:FILE` with options; see `device_string.RECORDED_OPTIONS`.
        transition: What changes of point cost where the device string says nothing of them;
            `None`: nothing, for a sweep does not tell.

    Raises:
        InputError: the device string cannot be read.
    """
    options = parse_recorded(device)
    table = RecordedTable(sweep, options.preset)
    sensors = SensorSpec(
        energy_period_s=options.counter_period_s or _BOARD_PERIOD_S, power_window_s=_INSTANT_S
    )
    spec = BoardSpec(thermal=_THERMAL, sensors=sensors, transition_lag_s=0.0)
    is_told = transition is not None or _says_changes(options)
    free = uniform_transition("recorded", f"a sweep does not tell: {options.spec}")
    board = VirtualBoard(table, spec, options, board_transition(options, transition or free))
    runner = VirtualRunner(table, board, options)
    inner = VirtualGpu(table, board, options, _identity(sweep, options))
    return DeviceSession(
        gpu=RecordedGpu(inner, board, sweep.points),
        runner=runner,
        iterations=runner,
        transition=board.driver.transition if is_told else None,
    )


class RecordedTable:
    """An `OperationTable` read off a sweep; cells and points that it lacks are refused."""

    def __init__(self, sweep: Sweep, file: str) -> None:
        """Look the cells up once; `file` names the recording in errors."""
        self._sweep = sweep
        self._file = file
        self._rows = {kernel: row for row, kernel in enumerate(sweep.kernels)}
        self._columns = {point: column for column, point in enumerate(sweep.points)}
        self._idle_w = _idle_powers_w(sweep)
        present = sweep.is_present
        self._most_w = float((sweep.energy_j[present] / sweep.time_s[present]).max())

    @property
    def kernels(self) -> tuple[str, ...]:
        """Rows of the sweep."""
        return self._sweep.kernels

    def grid(self) -> ClockGrid:
        """Clocks and power limits of the recorded points.

        The limit found is not recorded; it was no lower than what was set and what was drawn.
        """
        points = self._sweep.points
        limits = {one.power_limit_w for one in points if one.power_limit_w is not None}
        found_w = max((*limits, self._most_w))
        return ClockGrid(
            sm_clocks_mhz=_ascending({one.sm_clock_mhz for one in points}),
            mem_clocks_mhz=_ascending({one.mem_clock_mhz for one in points}),
            power_limits=PowerLimitRange(least_w=min(limits), found_w=found_w) if limits else None,
        )

    def check_point(self, point: OperatingPoint) -> None:
        """Raise NotSupported for a point that was not recorded; auto can always be asked for."""
        if point != AUTO and point not in self._columns:
            raise NotSupported(
                f"the recording {self._file} has no point {point.label}",
                hint=f"It has {', '.join(one.label for one in self._sweep.points[:5])} …",
            )

    def check_kernel(self, kernel: str) -> None:
        """Raise InputError for a kernel that was not recorded."""
        if kernel not in self._rows:
            raise InputError(
                f"the recording {self._file} has no kernel {kernel!r}",
                field="kernel",
                hint=f"Known: {', '.join(self.kernels[:5])}.",
            )

    def running(self, kernel: str, point: OperatingPoint) -> Operation:
        """The cell as recorded. Raises NotSupported for one that was not."""
        sweep = self._sweep
        column = self._columns.get(point)
        row = self._rows[kernel]
        if column is None or not sweep.is_present[row, column]:
            raise NotSupported(
                f"the recording {self._file} does not tell what {kernel!r} does at {point.label}",
                hint="Ask for points that were measured, or measure this one on the device.",
            )
        kinds = {caveat.kind for caveat in sweep.cell_caveats.get((kernel, point), ())}
        held_mhz = _told(sweep.sm_clock_held_mhz, row, column)
        return Operation(
            time_s=float(sweep.time_s[row, column]),
            power_w=float(sweep.energy_j[row, column] / sweep.time_s[row, column]),
            sm_clock_mhz=point.sm_clock_mhz if held_mhz is None else round(held_mhz),
            mem_clock_mhz=point.mem_clock_mhz,
            is_power_capped=CaveatKind.POWER_CAPPED in kinds,
            is_throttled=CaveatKind.THERMALLY_THROTTLED in kinds,
            temp_c=_told(sweep.temp_c, row, column),
        )

    def throttled(self, kernel: str, point: OperatingPoint, power_w: float) -> Operation:  # noqa: ARG002 - as the port has it
        """The cell as recorded: a recording does not get hot."""
        return self.running(kernel, point)

    def idle(self, point: OperatingPoint) -> Operation:
        """Idle power of the visit to this point, where it was recorded."""
        power_w = self._idle_w.get(point)
        return Operation(
            time_s=0.0,
            power_w=power_w or 0.0,
            sm_clock_mhz=None,
            mem_clock_mhz=None,
            is_power_capped=False,
            is_power_known=power_w is not None,
        )


class RecordedGpu:
    """A `Gpu` that tells what was recorded, and nothing where nothing was."""

    def __init__(
        self, inner: VirtualGpu, board: VirtualBoard, points: tuple[OperatingPoint, ...]
    ) -> None:
        """Show this board's recorded readings only."""
        self._inner = inner
        self._board = board
        self.points = points
        """What was recorded."""

    @property
    def identity(self) -> GpuIdentity:
        """Which GPU was recorded, under the device string that opens the recording again."""
        return self._inner.identity

    @property
    def energy_counter_period_s(self) -> float:
        """How often the energy counter moves."""
        return self._inner.energy_counter_period_s

    def clock_grid(self) -> ClockGrid:
        """Clocks and power limits that were recorded."""
        return self._inner.clock_grid()

    def knob_state(self) -> KnobState:
        """The power limit asked for; the one found is not recorded. Raises DeviceLost."""
        self._board.check()
        return KnobState(power_limit_w=self._board.driver.wanted.power_limit_w)

    def sample(self) -> GpuSample:
        """Read what was recorded. Raises DeviceLost."""
        return self._as_recorded(self._inner.sample())

    def now_s(self) -> float:
        """Virtual time."""
        return self._inner.now_s()

    def clocks_mhz(self) -> tuple[int | None, int | None]:
        """The SM and the memory clock as recorded. Raises DeviceLost."""
        sample = self.sample()
        return sample.sm_clock_mhz, sample.mem_clock_mhz

    def wait_for_energy_tick(self, timeout_s: float) -> GpuSample:
        """Go to the counter's next movement. Raises MeasurementError where none is recorded."""
        self._board.check()
        if not self._board.operation.is_power_known:
            raise MeasurementError(
                f"the recording {self.identity.spec} does not tell what the idle GPU draws",
                hint="Energy above idle stays unknown.",
            )
        return self._as_recorded(self._inner.wait_for_energy_tick(timeout_s))

    def wait(self, duration_s: float) -> None:
        """Let virtual time pass. Raises DeviceLost."""
        self._inner.wait(duration_s)

    def request(self, point: OperatingPoint) -> None:
        """Ask for a recorded point. Raises NotPermitted, NotSupported, DeviceLost."""
        self._inner.request(point)

    def reset(self, touched: Touched | None = None) -> None:
        """Give touched knobs back. Raises NotPermitted, DeviceLost."""
        self._inner.reset(touched)

    def _as_recorded(self, sample: GpuSample) -> GpuSample:
        operation = self._board.operation
        is_known = operation.is_power_known
        return GpuSample(
            time_s=sample.time_s,
            energy_j=sample.energy_j if is_known else None,
            power_w=sample.power_w if is_known else None,
            sm_clock_mhz=sample.sm_clock_mhz,
            mem_clock_mhz=sample.mem_clock_mhz,
            temp_c=operation.temp_c,
            power_capped_s=sample.power_capped_s,
            thermally_throttled_s=sample.thermally_throttled_s,
            other_process_count=sample.other_process_count,
        )


def _identity(sweep: Sweep, options: VirtualOptions) -> GpuIdentity:
    source = sweep.source
    replayed = Caveat(
        kind=CaveatKind.RECORDING_REPLAYED,
        seen=f"replays {options.preset} (device: {source.device_name}; made by {source.tool})",
    )
    simulated = Caveat(
        kind=CaveatKind.SIMULATED_DEVICE, seen=f"{options.preset} is of a virtual device"
    )
    digest = blake2b(options.preset.encode(), digest_size=8).hexdigest()
    return GpuIdentity(
        spec=options.spec,
        name=source.device_name,
        uuid=f"GPU-recorded-{digest}",
        is_simulated=source.is_simulated,
        is_in_process=True,
        caveats=first_of_each_kind(
            replayed, *sweep.caveats, *((simulated,) if source.is_simulated else ())
        ),
    )


def _says_changes(options: VirtualOptions) -> bool:
    return any(one is not None for one in (options.lag_s, options.stall_s, options.transition))


def _idle_powers_w(sweep: Sweep) -> Mapping[OperatingPoint, float]:
    """Idle power by point: that of the visit, which all its cells share."""
    if sweep.energy_above_idle_j is None:
        return {}
    powers_w = {}
    for column, point in enumerate(sweep.points):
        for row in sweep.is_present[:, column].nonzero()[0]:
            idle_j = sweep.energy_j[row, column] - sweep.energy_above_idle_j[row, column]
            powers_w[point] = float(idle_j / sweep.time_s[row, column])
            break
    return powers_w


def _told(table: FloatTable | None, row: int, column: int) -> float | None:
    return None if table is None else float(table[row, column])


def _ascending(clocks_mhz: set[int | None]) -> tuple[int, ...]:
    return tuple(sorted(clock for clock in clocks_mhz if clock is not None))
