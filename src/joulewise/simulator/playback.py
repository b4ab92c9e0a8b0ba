"""An iteration that runs over and over on a virtual board, asking for points on its way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from joulewise.domain.plan import PlannedLaunch, PlannedRequest
from joulewise.domain.points import OperatingPoint
from joulewise.simulator.noise import QUIET, WindowNoise
from joulewise.simulator.virtual_time import NEVER, UNITS_PER_S, Units, units

# A point this near to its launch is on time: no host's timer is better.
_PUNCTUAL_UNITS = units(1e-4)

CellNoise = Callable[[str, OperatingPoint], WindowNoise]


def no_noise(_kernel: str, _point: OperatingPoint) -> WindowNoise:
    """Every launch as the physics has it."""
    return QUIET


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a playback has come: whole iterations, and requests by their fate.

    `late_units` is the longest that a point came after its launch had begun, and `early_units`
    before it would begin, since those were last forgotten.
    """

    at_units: Units
    iteration_count: int = 0
    request_count: int = 0
    late_count: int = 0
    skipped_count: int = 0
    late_units: Units = 0
    early_count: int = 0
    early_units: Units = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """One launch at its planned point: how long it takes, and what it draws.

    `power_w` is blurred as `time_s` is, `settled_w` is not. `wait_units` is the stall before it,
    `is_hot` whether the kernel alone would overheat the board.
    """

    units: Units
    wait_units: Units
    time_s: float
    power_w: float
    settled_w: float
    is_power_capped: bool
    is_hot: bool


class Playback:
    """Launches in order around a cycle, and requests issued ahead of the launches they are for.

    The board tells what time it is and how long the running launch takes at the point in
    force; the playback tells which kernel runs, when the launch ends and when to ask. When a
    later launch begins is reckoned from when the running one ends and from the times of those
    between at their planned points, so a request goes out exactly its lead ahead as long as
    all launches run as planned.
    """

    def __init__(
        self,
        launches: Sequence[PlannedLaunch],
        requests: Sequence[PlannedRequest],
        ask: Callable[[OperatingPoint], None],
        now: Units,
    ) -> None:
        """Begin with the first launch, now."""
        self._launches = tuple(launches)
        self._requests = tuple(sorted(requests, key=lambda one: one.launch_index))
        self._indices = tuple(one.launch_index for one in self._requests)
        self._leads = tuple(units(one.lead_s) for one in self._requests)
        self._ask = ask
        self.noise_of: CellNoise = no_noise
        self.boundary = Progress(at_units=now)
        """As it was when the last iteration ended."""
        self._requested = self._late = self._early = self._skipped = 0
        self._late_units: Units = 0
        self._early_units: Units = 0
        self._numbers = {index: number for number, index in enumerate(self._indices)}
        self._begun: dict[tuple[int, int], Units] = {}
        self._awaited: tuple[int, int] | None = None
        self._runs: tuple[PlannedRun, ...] = ()
        self._planned_ends: tuple[Units, ...] = ()
        self._region_ends = region_ends(self._launches)
        self._cursor = 0
        self._began_at = now
        self._launch_s: float | None = None
        self._remaining_ratio = 1.0
        self._runs_from = now
        self.ends_at: Units = NEVER
        """When the running launch ends."""
        self._next_request = 0
        self._next_iteration = 0
        self._fire_at: Units = NEVER
        self._note_begin(now)

    @property
    def kernel(self) -> str:
        """What runs now."""
        return self._launches[self._cursor].kernel

    @property
    def iteration_count(self) -> int:
        """Iterations that have ended."""
        return self.boundary.iteration_count

    def expect(self, runs: Sequence[PlannedRun]) -> None:
        """Reckon with these launches, in order."""
        self._runs = tuple(runs)
        self._planned_ends = tuple(accumulate(run.wait_units + run.units for run in runs))

    def run_ahead(self, limit: Units, point: OperatingPoint) -> Sequence[PlannedRun]:
        """Go on to the last launch that ends by then, within the region and the iteration.

        Every launch on the way has to run at its planned point.

        Returns:
            The launches after the one that ran so far, up to the one that runs now and is at
            its end; empty where there are none, and nothing changed then.
        """
        first = self._cursor + 1
        if self._launches[self._cursor].point != point:
            return ()
        stop, ends_at = first, self.ends_at
        for run in self._runs[first : self._region_ends[self._cursor]]:
            if run.is_hot or ends_at + run.units > limit:
                break
            stop, ends_at = stop + 1, ends_at + run.units
        if stop == first:
            return ()
        passed = self._runs[first:stop]
        self._cursor = stop - 1
        self._began_at = self._runs_from = ends_at - passed[-1].units
        self._launch_s, self._remaining_ratio = passed[-1].time_s, 1.0
        self.ends_at = ends_at
        return passed

    def finish(self, now: Units) -> None:
        """Go on to the next launch where the running one has ended."""
        if now < self.ends_at:
            return
        self._cursor += 1
        if self._cursor == len(self._launches):
            self._cursor = 0
            self.boundary = Progress(
                at_units=now,
                iteration_count=self.boundary.iteration_count + 1,
                request_count=self._requested,
                late_count=self._late,
                skipped_count=self._skipped,
                late_units=self._late_units,
                early_count=self._early,
                early_units=self._early_units,
            )
        self._began_at = self._runs_from = now
        self._launch_s, self._remaining_ratio, self.ends_at = None, 1.0, NEVER
        self._note_begin(now)

    def pace(self, now: Units, launch_s: float, resumes_at: Units) -> None:
        """Reckon with this time per launch from now on, once the GPU no longer waits."""
        resumes_at = max(now, resumes_at)
        is_waiting_longer = resumes_at > max(now, self._runs_from)
        if launch_s == self._launch_s and not is_waiting_longer:
            return
        if self._launch_s is not None and now > self._runs_from:
            done_units = now - self._runs_from
            self._remaining_ratio -= done_units / (self._launch_s * UNITS_PER_S)
        self._launch_s = launch_s
        self._runs_from = max(resumes_at, self._runs_from)
        left_s = max(0.0, self._remaining_ratio) * launch_s
        self.ends_at = max(now + 1, self._runs_from + units(left_s))

    def ask_if_due(self, now: Units, ready_at: Units) -> bool:
        """Make the next request where its time has come and the last one is in force."""
        if not self._requests:
            return False
        self._fire_at = self._fires_at()
        if self._fire_at > now:
            return False
        while self._due_at(*self._following()) <= now:
            self._skipped += 1
            self._step()
            self._fire_at = self._fires_at()
        if ready_at > now:
            return False
        request = self._requests[self._next_request]
        self._awaited = self._next_iteration, self._next_request
        self._requested += 1
        self._step()
        self._ask(request.point)
        return True

    def note_in_force(self, now: Units) -> None:
        """Take note that the point asked for last is in force now."""
        awaited, self._awaited = self._awaited, None
        if awaited is None:
            return
        if awaited in self._begun:
            late_units = now - self._begun[awaited]
            self._late += late_units > _PUNCTUAL_UNITS
            self._late_units = max(self._late_units, late_units)
        else:
            iteration, number = awaited
            early_units = self._due_at(number, iteration) + self._leads[number] - now
            self._early += early_units > _PUNCTUAL_UNITS
            self._early_units = max(self._early_units, early_units)
        self._begun = {key: at for key, at in self._begun.items() if key > awaited}

    def forget_lateness(self) -> None:
        """Find the longest that a point came too late or too early anew from now on."""
        self._late_units = self._early_units = 0
        self.boundary = replace(self.boundary, late_units=0, early_units=0)

    def next_event(self, now: Units, ready_at: Units) -> Units:
        """When something happens next: the launch ends, or a request comes due.

        As `ask_if_due` found it, which has to have been asked before.
        """
        return min(self.ends_at, max(self.asks_at(ready_at), now))

    def asks_at(self, ready_at: Units) -> Units:
        """When the next request is made, as `ask_if_due` found it."""
        return max(self._fire_at, ready_at)

    def _note_begin(self, now: Units) -> None:
        """Remember when a launch began that a request is for."""
        number = self._numbers.get(self._cursor)
        if number is not None:
            self._begun[self.boundary.iteration_count, number] = now

    def _step(self) -> None:
        self._next_request, self._next_iteration = self._following()

    def _following(self) -> tuple[int, int]:
        """Number and iteration of the request after the next."""
        number = self._next_request + 1
        if number < len(self._requests):
            return number, self._next_iteration
        return 0, self._next_iteration + 1

    def _fires_at(self) -> Units:
        """When the next request comes due."""
        return self._due_at(self._next_request, self._next_iteration)

    def _due_at(self, number: int, iteration: int) -> Units:
        """Its lead before its launch is expected to begin, any wait before that included.

        For the running launch, before it began.
        """
        launch_index = self._indices[number]
        turns = iteration - self.boundary.iteration_count
        if turns == 0 and launch_index == self._cursor:
            return self._began_at - self._leads[number]
        ends = self._planned_ends
        planned_units = turns * ends[-1] - ends[self._cursor]
        planned_units += ends[launch_index - 1] if launch_index else 0
        return self.ends_at + planned_units - self._leads[number]


def region_ends(launches: Sequence[PlannedLaunch]) -> tuple[int, ...]:
    """For every launch, the first one after it that has another point."""
    ends = [len(launches)] * len(launches)
    for index in range(len(launches) - 2, -1, -1):
        is_border = launches[index].point != launches[index + 1].point
        ends[index] = index + 1 if is_border else ends[index + 1]
    return tuple(ends)
