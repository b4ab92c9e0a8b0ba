"""A virtual board in motion: time, clocks in force, temperature and counters."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from joulewise.domain.measurement import GpuSample
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.transition import TransitionModel
from joulewise.simulator.boards import BoardSpec
from joulewise.simulator.clock_driver import ClockDriver
from joulewise.simulator.device_string import VirtualOptions
from joulewise.simulator.noise import QUIET, WindowNoise, board_gain
from joulewise.simulator.operations import Operation, OperationTable
from joulewise.simulator.outside import Outside
from joulewise.simulator.playback import Playback
from joulewise.simulator.sensors import EnergyCounter, PowerMeter, Stretch
from joulewise.simulator.thermal import SETTLED_AFTER_S, SNAP_C, Drift
from joulewise.simulator.virtual_time import NEVER, UNITS_PER_S, Units, seconds, units

# Another process takes turns with the kernel and draws some power of its own. Its heat is
# left out, so that a window measured again afterwards is clean at once.
_FOREIGN_TIME_RATIO = 1.25
_FOREIGN_POWER_W = 25.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long the kernel ran at one time per launch; infinite while the GPU waited."""

    time_s: float
    duration_units: Units


class VirtualBoard:
    """The state of one virtual GPU; time moves only in `advance`.

    Between two events (a requested point takes effect, a launch of an iteration ends, the
    board settles or gets too hot, a foreign process comes or goes …) power follows one law, so
    any span costs a few evaluations, however long it is.

    While an iteration plays the board never counts as settled: temperature then hovers where
    the mean power holds it, and what leakage deviates from the kernels' own equilibria adds up
    to nothing.
    """

    def __init__(
        self,
        operations: OperationTable,
        spec: BoardSpec,
        options: VirtualOptions,
        transition: TransitionModel,
    ) -> None:
        """Idle, settled, every knob with the driver, at time zero."""
        self._operations = operations
        self.driver = ClockDriver(transition)
        """Which point is in force, and what changing it costs."""
        self._spec = spec
        self._gain_ratio = board_gain(options.noise_level, options.seed)
        self._outside = Outside(options)
        self._kernel: str | None = None
        self._playback: Playback | None = None
        self._is_handling = False
        self._noise = QUIET
        self._throttled_cell: tuple[str, OperatingPoint] | None = None
        self._paces: list[Pace] | None = None
        self._now = 0
        self.counter = EnergyCounter(units(self._spec.sensors.energy_period_s))
        self._meter = PowerMeter(self._spec.sensors.power_window_s)
        self._capped_units = self._throttled_units = 0
        self._temp_c = self._spec.thermal.equilibrium_c(operations.idle(AUTO).power_w)
        self._drift: Drift | None = None
        self._heading_c = self._temp_c
        """Where the load of this moment leads, and since when."""
        self._heading_since = 0
        self._drift_start = 0
        self.operation: Operation = operations.idle(AUTO)
        """What the board does now."""
        self._next_event = 0
        self._outer_event = 0
        self._enter()

    @property
    def now_units(self) -> Units:
        """Virtual time since the device was opened."""
        return self._now

    @property
    def point(self) -> OperatingPoint:
        """The operating point in force."""
        return self.driver.point

    @property
    def is_stalled(self) -> bool:
        """Whether the GPU waits for its clocks."""
        return self._now < self.driver.stalled_until

    @property
    def is_foreign(self) -> bool:
        """Whether another process is on the GPU."""
        return self._outside.is_foreign(self._now)

    def check(self) -> None:
        """Raise DeviceLost once the device has gone."""
        self._outside.check(self._now)

    def want(self, point: OperatingPoint) -> None:
        """Install a request; it takes effect after the transition lag."""
        self.driver.want(point, self._now)
        if not self._is_handling:
            self._handle_events()

    def load(self, kernel: str | None) -> None:
        """Run this kernel back to back from now on, or nothing."""
        self._kernel = kernel
        self._throttled_cell = None
        self._enter()

    def play(self, playback: Playback | None) -> None:
        """Run these iterations from now on, or nothing."""
        self._playback, self._noise = playback, QUIET
        self.load(None)
        self._handle_events()

    def refresh(self) -> None:
        """See to whatever a playback changed."""
        self._handle_events()

    def blur(self, noise: WindowNoise) -> None:
        """Apply these factors to time and power from now on."""
        self._noise = noise
        self._enter()

    def start_pacing(self) -> None:
        """Note from now on how long the kernel ran at which time per launch."""
        self._paces = []

    def stop_pacing(self) -> None:
        """Drop the notes."""
        self._paces = None

    def paces(self) -> tuple[Pace, ...]:
        """The notes since `start_pacing`, neighbours of equal time per launch as one."""
        return tuple(self._paces or ())

    def advance(self, duration_units: Units) -> None:
        """Let time pass. Raises DeviceLost when the device goes meanwhile."""
        end = self._now + duration_units
        while self._now < end:
            self._step(end)

    def advance_to_event(self) -> None:
        """Let time pass until something happens. Raises DeviceLost when the device goes."""
        self.check()
        self._step(NEVER)

    def wait_out_stall(self) -> None:
        """Let time pass until the GPU works again. Raises DeviceLost when the device goes."""
        while self.is_stalled:
            self.advance_to_event()

    def launch_time_s(self) -> float:
        """Time per launch, as blurred now; infinite while the GPU waits for its clocks."""
        foreign_ratio = _FOREIGN_TIME_RATIO if self.is_foreign else 1.0
        return self.operation.time_s * self._noise.time_ratio * foreign_ratio

    def sample(self) -> GpuSample:
        """Read every sensor."""
        resolution_c = self._spec.sensors.temp_resolution_c
        power_w = self._meter.power_w()
        return GpuSample(
            time_s=seconds(self._now),
            energy_j=self.counter.energy_j,
            power_w=self._read_power_w() if power_w is None else power_w,
            sm_clock_mhz=self.operation.sm_clock_mhz,
            mem_clock_mhz=self.operation.mem_clock_mhz,
            temp_c=round(self._temperature_c() / resolution_c) * resolution_c,
            power_capped_s=seconds(self._capped_units),
            thermally_throttled_s=seconds(self._throttled_units),
            other_process_count=int(self.is_foreign),
        )

    def _read_power_w(self) -> float:
        """What the sensor makes of the power at thermal equilibrium."""
        own_w = self.operation.power_w * self._noise.power_ratio
        return (own_w + (_FOREIGN_POWER_W if self.is_foreign else 0.0)) * self._gain_ratio

    def _temperature_c(self) -> float:
        if self._drift is None:
            return self._temp_c
        return self._drift.temp_c(seconds(self._now - self._drift_start))

    def _step(self, end: Units) -> None:
        """Go on to the next event, or to the end where that comes first."""
        if not self._play_ahead(end):
            self._pass_until(min(end, self._next_event))
        if self._now >= self._next_event:
            self.check()
            self._handle_events()

    def _pass_until(self, stop: Units) -> None:
        """Account for a span without events."""
        duration = stop - self._now
        self._count(stop, self._read_power_w(), self._noise.power_ratio)
        self._capped_units += duration * self.operation.is_power_capped
        self._throttled_units += duration * self.operation.is_throttled
        if self._paces is not None:
            self._pace(duration)
        self._now = stop

    def _play_ahead(self, end: Units) -> bool:
        """Account at once for launches of an iteration that nothing comes between.

        They run within one period of the energy counter, in which the board warms by next to
        nothing: one stretch of their mean power leads to the same temperature and energy.
        """
        playback = self._playback
        if playback is None or self._is_unsettled():
            return False
        own_units = playback.ends_at - self._now
        asks_at = playback.asks_at(self.driver.ready_at(self._now))
        tick = self.counter.next_tick_units(self._now)
        runs = playback.run_ahead(min(end, self._outer_event, tick, asks_at), self.point)
        if not runs:
            return False
        own, ratio = self.operation, self._noise.power_ratio
        stop = playback.ends_at
        duration = stop - self._now
        settled = own.power_w * own_units + sum(run.units * run.settled_w for run in runs)
        power = own.power_w * ratio * own_units + sum(run.units * run.power_w for run in runs)
        self._drift = Drift(
            from_c=self._temperature_c(),
            equilibrium_c=self._spec.thermal.equilibrium_c(settled / duration),
            time_constant_s=self._spec.thermal.drift_time_constant_s(),
        )
        self._drift_start = self._now
        self._count(stop, power / duration * self._gain_ratio, power / settled)
        self._capped_units += own_units * own.is_power_capped
        self._capped_units += sum(run.units for run in runs if run.is_power_capped)
        self._now = self._next_event = stop
        return True

    def _is_unsettled(self) -> bool:
        """Whether launches do not run as planned: clocks change, or others or heat interfere."""
        is_hot = self.operation.power_w > self.slowdown_power_w
        is_changing = self.is_stalled or self.driver.due_at != NEVER
        return is_hot or is_changing or self.is_foreign

    @property
    def slowdown_power_w(self) -> float:
        """A kernel that draws more gets too hot in the end."""
        return self._spec.thermal.slowdown_power_w()

    def _count(self, stop: Units, power_w: float, power_ratio: float) -> None:
        """Let the sensors take in what is drawn until then."""
        leakage_w_per_c = self._spec.thermal.leakage_w_per_c
        stretch = Stretch(
            start_units=self._now,
            stop_units=stop,
            power_w=power_w,
            drift=self._drift,
            drift_start_units=self._drift_start,
            leakage_w_per_c=leakage_w_per_c * power_ratio * self._gain_ratio,
        )
        self.counter.add(stretch)
        self._meter.add(stretch)

    def _pace(self, duration: Units) -> None:
        time_s = self.launch_time_s()
        paces = self._paces or []
        if paces and paces[-1].time_s == time_s:
            duration += paces.pop().duration_units
        self._paces = [*paces, Pace(time_s=time_s, duration_units=duration)]

    def _handle_events(self) -> None:
        if self._outside.resets_counter(self._now):
            self.counter.start_anew()
        self._is_handling = True
        try:
            self._change_points()
        finally:
            self._is_handling = False

    def _change_points(self) -> None:
        """Put in force what is due, and let the iteration that plays ask for more."""
        playback = self._playback
        while True:
            self._take_effect()
            if playback is not None:
                playback.finish(self._now)
                self._kernel = playback.kernel
                self._noise = playback.noise_of(playback.kernel, self.point)
            self._enter()
            if playback is None:
                return
            playback.pace(self._now, self._running_time_s(), self.driver.stalled_until)
            if not playback.ask_if_due(self._now, self.driver.ready_at(self._now)):
                break
        next_event = playback.next_event(self._now, self.driver.ready_at(self._now))
        self._next_event = min(self._next_event, next_event)

    def _take_effect(self) -> None:
        spent_j = self.driver.take_effect(self._now)
        if spent_j is None:
            return
        self._throttled_cell = None
        if self._playback is not None:
            self._playback.note_in_force(self._now)
        if spent_j:
            self.counter.add_at_once(spent_j * self._noise.power_ratio * self._gain_ratio)

    def _running_time_s(self) -> float:
        """Time per launch once the GPU no longer waits."""
        if not self.is_stalled:
            return self.launch_time_s()
        foreign_ratio = _FOREIGN_TIME_RATIO if self.is_foreign else 1.0
        return self._cool_operation().time_s * self._noise.time_ratio * foreign_ratio

    def _enter(self) -> None:
        """Find the law that holds from now on, and when it ends."""
        thermal = self._spec.thermal
        temp_c = self._temperature_c()
        kernel, cool = self._kernel, self._cool_operation()
        is_too_hot = (
            kernel is not None and thermal.equilibrium_c(cool.power_w) > thermal.slowdown_temp_c
        )
        self.operation = cool
        if kernel is not None and is_too_hot and self._is_throttling(kernel, temp_c):
            self._throttled_cell = (kernel, self.point)
            self.operation = self._operations.throttled(
                kernel, self.point, thermal.slowdown_power_w()
            )
        if self.is_stalled:
            self.operation = replace(
                cool,
                time_s=math.inf,
                power_w=self.driver.stall_power_w,
                is_power_capped=False,
            )
        self._start_drift(temp_c)
        is_warming_up = is_too_hot and not self.operation.is_throttled
        self._next_event = self._find_next_event(is_warming_up=is_warming_up)

    def _cool_operation(self) -> Operation:
        if self._kernel is None:
            return self._operations.idle(self.point)
        return self._operations.running(self._kernel, self.point)

    def _is_throttling(self, kernel: str, temp_c: float) -> bool:
        """Too hot now, or already throttling: the same cell does not flicker."""
        is_at_limit = temp_c >= self._spec.thermal.slowdown_temp_c - SNAP_C
        return is_at_limit or self._throttled_cell == (kernel, self.point)

    def _start_drift(self, temp_c: float) -> None:
        thermal = self._spec.thermal
        equilibrium_c = thermal.equilibrium_c(self.operation.power_w)
        self._drift_start = self._now
        if equilibrium_c != self._heading_c:
            self._heading_c, self._heading_since = equilibrium_c, self._now
        if temp_c == equilibrium_c or self._has_settled(temp_c):
            self._drift, self._temp_c = None, equilibrium_c
            return
        self._drift = Drift(
            from_c=temp_c,
            equilibrium_c=equilibrium_c,
            time_constant_s=thermal.drift_time_constant_s(),
        )

    def _has_settled(self, temp_c: float) -> bool:
        """Near where this load leads, for long enough, and no iteration plays."""
        is_near = abs(temp_c - self._heading_c) <= SNAP_C
        return is_near and self._playback is None and self._now >= self._settles_from()

    def _settles_from(self) -> Units:
        return self._heading_since + units(SETTLED_AFTER_S)

    def _find_next_event(self, *, is_warming_up: bool) -> Units:
        if self._now >= self._outer_event:
            self._outer_event = self._outside.next_event(self._now)
        next_event = self._outer_event
        for event in (self.driver.due_at, self.driver.stalled_until):
            if self._now < event < next_event:
                next_event = event
        if self._drift is None:
            return next_event
        if self._playback is None:
            near_at = self._after(self._drift.settles_after_s)
            next_event = min(next_event, max(near_at, self._settles_from()))
        if is_warming_up:
            slowdown_c = self._spec.thermal.slowdown_temp_c - SNAP_C
            next_event = min(next_event, self._after(self._drift.reaches_after_s(slowdown_c)))
        return next_event

    def _after(self, duration_s: float) -> Units:
        """The first unit by which this much time has certainly passed."""
        if math.isinf(duration_s):
            return NEVER
        return self._now + math.ceil(duration_s * UNITS_PER_S) + 1
