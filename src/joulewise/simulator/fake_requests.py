"""Requests of an iteration that runs on a device: when each is due, and what became of it.

Nothing here asks or waits. Launches are counted from the first of the first iteration; when
one begins that has not is reckoned from the running launch at the point in force, and from the
times of those between at their planned points.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from joulewise.domain.plan import PlannedLaunch, PlannedRequest
from joulewise.domain.points import OperatingPoint
from joulewise.simulator.fake_driver import FakeProgress
from joulewise.simulator.playback import region_ends

# A point this near to its launch is on time: no host's timer is better.
_PUNCTUAL_S = 1e-4
# The driver's clock is read to the nanosecond; a request made a moment before the last one is
# in force would replace it.
_CLOCK_STEP_S = 2e-9

LaunchTime = Callable[[str, OperatingPoint], float]
"""Seconds that a launch of a kernel takes at a point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCounts:
    """Requests by their fate.

    With the longest that a point came after its launch had begun, or before it would begin.
    """

    request_count: int = 0
    late_count: int = 0
    skipped_count: int = 0
    max_late_s: float = 0.0
    early_count: int = 0
    max_early_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeTimes:
    """What a change takes: how long until it is in force, and how long the GPU waits then.

    The lag counts from the beginning of a call that blocks for `call_s`. Between two requests
    at least `dwell_s` pass.
    """

    call_s: float
    lag_s: float
    stall_s: float
    dwell_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A point that is in force since a moment; the GPU works again from another on."""

    point: OperatingPoint
    since_s: float = -math.inf
    resumes_s: float = -math.inf


class Requests:
    """The requests of one iteration, over and over, one at a time."""

    def __init__(
        self,
        launches: Sequence[PlannedLaunch],
        requests: Sequence[PlannedRequest],
        launch_time_s: LaunchTime,
        change: ChangeTimes,
    ) -> None:
        """Begin with the first launch, at its point."""
        self._launches = tuple(launches)
        self._requests = tuple(sorted(requests, key=lambda one: one.launch_index))
        self._indices = {request.launch_index for request in requests}
        self._launch_time_s = launch_time_s
        self._change = change
        self.counts = RequestCounts()
        self._now = self._next = _Known(point=self._launches[0].point)
        self._ready_s = -math.inf
        self._turn = 0
        self._begun_s: dict[int, float] = {}
        """Starts of launches that requests are for, once they have begun."""
        self._awaited: int | None = None
        """The launch whose point is on its way."""
        self._region_ends = region_ends(self._launches)
        self._starts_s: tuple[float, ...] = ()
        """Starts of the launches of an iteration at their planned points, and its end."""
        self.reckon(1.0)

    def __len__(self) -> int:
        """Requests in an iteration."""
        return len(self._requests)

    def reckon(self, time_ratio: float) -> None:
        """Reckon with launches that take so many times as long from now on."""
        self._time_ratio = time_ratio
        before = (self._launches[-1], *self._launches)
        times_s = (
            time_ratio * self._launch_time_s(launch.kernel, launch.point)
            + (self._change.stall_s if launch.point != last.point else 0.0)
            for last, launch in zip(before, self._launches, strict=False)
        )
        self._starts_s = tuple(accumulate(times_s, initial=0.0))

    def forget_lateness(self) -> None:
        """Find the longest that a point came too late or too early anew from now on."""
        self.counts = replace(self.counts, max_late_s=0.0, max_early_s=0.0)

    def note(self, progress: FakeProgress, now_s: float) -> None:
        """Take note of launches that begin and of points that come into force."""
        if not self._requests:
            return
        if progress.launch_count % len(self._launches) in self._indices:
            self._begun_s.setdefault(progress.launch_count, progress.launch_start_s)
        if self._awaited is None or now_s < self._next.since_s:
            return
        self._judge(self._awaited, progress, now_s)
        over = min(self._awaited, self._target())
        self._begun_s = {launch: at for launch, at in self._begun_s.items() if launch >= over}
        self._awaited = None

    def _judge(self, launch: int, progress: FakeProgress, now_s: float) -> None:
        """Count a point that is in force: too late or too early for its launch, or in time."""
        in_force_s, counts = self._next.since_s - _CLOCK_STEP_S, self.counts
        if launch in self._begun_s:
            late_s = in_force_s - self._begun_s[launch]
            self.counts = replace(
                counts,
                late_count=counts.late_count + (late_s > _PUNCTUAL_S),
                max_late_s=max(counts.max_late_s, late_s),
            )
            return
        # As it would begin had the running launch gone on as before, with no wait.
        running = progress.launch_count
        kernel = self._launches[running % len(self._launches)].kernel
        left_s = (1.0 - progress.launch_done_ratio) * self._time_s(kernel, self._now.point)
        left_s += self._start_s(launch) - self._start_s(running + 1)
        early_s = now_s + left_s - in_force_s
        self.counts = replace(
            counts,
            early_count=counts.early_count + (early_s > _PUNCTUAL_S),
            max_early_s=max(counts.max_early_s, early_s),
        )

    def due(self, progress: FakeProgress, now_s: float) -> PlannedRequest | None:
        """The request whose time has come; those that the next one has overtaken fall away."""
        if not self._requests or self._due_s(self._turn, progress, now_s) > now_s:
            return None
        while self._due_s(self._turn + 1, progress, now_s) <= now_s:
            self.counts = replace(self.counts, skipped_count=self.counts.skipped_count + 1)
            self._turn += 1
        if now_s < self._ready_s:
            return None
        return self._requests[self._turn % len(self._requests)]

    def next_moment_s(self, progress: FakeProgress, now_s: float) -> float:
        """When to look again: the next request comes due, or may be made, or is in force."""
        if not self._requests:
            return math.inf
        moment_s = self._next.since_s if now_s < self._next.since_s else math.inf
        due_s = self._due_s(self._turn, progress, now_s)
        return min(moment_s, due_s if due_s > now_s else max(self._ready_s, now_s))

    def next_launch(self, progress: FakeProgress, now_s: float) -> int:
        """The launch at whose start to look again, at the latest.

        Up to there launches take the time that is reckoned with: that of the next request, the
        next one that is planned at another point, or the very next where the running one is
        not at its planned point.
        """
        running = progress.launch_count
        index = running % len(self._launches)
        if self._launches[index].point != self._known(now_s).point:
            return running + 1
        stop = running + self._region_ends[index] - index
        if not self._requests:
            return stop
        awaited = self._target() if self._awaited is None else self._awaited
        return min(
            stop, *(launch for launch in (self._target(), awaited) if launch > running), stop
        )

    def asked(self, asked_s: float, returned_s: float) -> None:
        """Take note of the request that was made, as `due` gave it."""
        request = self._requests[self._turn % len(self._requests)]
        is_change = request.point != self._next.point
        # Each knob is a call of its own; the last one decides.
        called_s = max(asked_s, returned_s - self._change.call_s)
        in_force_s = called_s + self._change.lag_s + _CLOCK_STEP_S if is_change else asked_s
        self.counts = replace(self.counts, request_count=self.counts.request_count + 1)
        if is_change:
            self._awaited = self._target()
            self._now, self._next = (
                self._next,
                _Known(
                    point=request.point,
                    since_s=in_force_s,
                    resumes_s=max(in_force_s, self._next.resumes_s) + self._change.stall_s,
                ),
            )
        rested_s = called_s + self._change.dwell_s + _CLOCK_STEP_S
        self._ready_s = max(in_force_s, returned_s, rested_s)
        self._turn += 1

    def begins_s(self, launch: int, progress: FakeProgress, now_s: float) -> float:
        """When a launch begins, or began, the wait before it included."""
        running = progress.launch_count
        if launch <= running:
            return self._begun_s.get(launch, progress.launch_start_s)
        planned_s = self._start_s(launch) - self._start_s(running + 1)
        return self._end_s(progress, now_s) + planned_s

    def _end_s(self, progress: FakeProgress, now_s: float) -> float:
        """When the running launch ends."""
        launch = self._launches[progress.launch_count % len(self._launches)]
        known = self._known(now_s)
        left_s = (1.0 - progress.launch_done_ratio) * self._time_s(launch.kernel, known.point)
        return max(now_s, known.resumes_s) + left_s

    def _known(self, now_s: float) -> _Known:
        """What is in force, as far as the requests tell."""
        return self._now if now_s < self._next.since_s else self._next

    def _time_s(self, kernel: str, point: OperatingPoint) -> float:
        return self._time_ratio * self._launch_time_s(kernel, point)

    def _start_s(self, launch: int) -> float:
        turns, index = divmod(launch, len(self._launches))
        return turns * self._starts_s[-1] + self._starts_s[index]

    def _target(self, turn: int | None = None) -> int:
        """The launch that a request is for; `None`: the next one."""
        turns, number = divmod(self._turn if turn is None else turn, len(self._requests))
        return turns * len(self._launches) + self._requests[number].launch_index

    def _due_s(self, turn: int, progress: FakeProgress, now_s: float) -> float:
        lead_s = self._requests[turn % len(self._requests)].lead_s
        return self.begins_s(self._target(turn), progress, now_s) - lead_s
