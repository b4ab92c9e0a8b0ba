"""Replay: whole iterations as a plan carries them out, changes of clocks included."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.errors import InputError, MeasurementError, NotSupported
from joulewise.domain.measurement import GpuSample, IterationTiming, ReplayWindow
from joulewise.domain.plan import Plan, PlannedLaunch, PlannedRequest
from joulewise.domain.ports import (
    Gpu,
    IterationLoop,
    IterationRunner,
    Lease,
    Progress,
    no_progress,
)
from joulewise.domain.session import DeviceSession
from joulewise.measure.settings import MeasureSettings
from joulewise.measure.steady import wait_until_steady
from joulewise.measure.window import (
    REPEAT_STRIDE,
    coarseness,
    disturbances,
    energy_between_j,
    power_capping,
    wait_for_tick,
)

REPLAY_RUN = "replay"
REPLAYING = "replaying"
FEWEST_ITERATIONS_COUNT = 3
# Many short iterations are warmed up with as one of this length, of so many launches at most.
_WARM_ITERATION_S = 0.05
_MOST_WARM_LAUNCH_COUNT = 4096
_TOLD_COUNT = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """An iteration as it is carried out: launches with their points, and when to ask."""

    launches: tuple[PlannedLaunch, ...]
    requests: tuple[PlannedRequest, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RawReplay:
    """What was read around a number of whole iterations.

    `start` and `next_tick` follow the start of an iteration, `end` the start of a later one;
    each is a tick of the energy counter.
    """

    window: int
    start: GpuSample
    next_tick: GpuSample
    end: GpuSample
    timing: IterationTiming

    @property
    def energy_j(self) -> float:
        """Energy of the whole iterations.

        Ticks come up to one counter period after an iteration began. What was counted too
        much or too little between the two phases is taken off at the power that was drawn
        there, which the counter's first step tells: iterations are all alike.
        """
        counted_j = energy_between_j(self.start, self.end)
        step_s = self.next_tick.time_s - self.start.time_s
        local_w = energy_between_j(self.start, self.next_tick) / step_s
        excess_s = self.end.time_s - self.start.time_s - self.timing.elapsed_s
        return counted_j - local_w * excess_s


def replay_plan(  # noqa: PLR0913 - what, where, under which label, how, and whom to tell
    session: DeviceSession,
    lease: Lease,
    plan: Plan,
    *,
    settings: MeasureSettings,
    run: str = REPLAY_RUN,
    window: int = 0,
    iteration_count: int | None = None,
    progress: Progress = no_progress,
) -> ReplayWindow:
    """Carry a plan out, warm, for several iterations, and measure one window of them.

    Args:
        session: The device and what runs on it.
        lease: The right to set its clocks.
        plan: What to carry out; its requests must lead to its points.
        settings: Length of a window, warm-up and patience.
        run: Label of the measuring run.
        window: Number of the window within the run.
        iteration_count: Iterations in the window; `None`: as many as the energy counter
            needs, and at least 3.
        progress: Told at every stage.

    Returns:
        Time (s) and energy (J) per iteration, with what became of the requests.

    Raises:
        InputError: the plan has no launches, or requests that do not lead to its points.
        NotSupported: the device runs no whole iterations, or has no energy counter.
        MeasurementError: no trustworthy number came out.
        DeviceError: the device refused a point, or was lost.
    """
    return replay_schedule(
        session,
        lease,
        schedule_of(plan),
        settings=settings,
        run=run,
        window=window,
        iteration_count=iteration_count,
        progress=progress,
    )


def schedule_of(plan: Plan) -> Schedule:
    """A plan as it is carried out.

    Raises:
        InputError: no launches, or requests that do not lead to the points of the launches.
    """
    if not plan.launches:
        raise InputError("the plan has no launches", field="launches")
    asked = {request.launch_index: request.point for request in plan.requests}
    for index, launch in enumerate(plan.launches):
        before = plan.launches[index - 1].point
        if asked.get(index, before) == launch.point:
            continue
        raise InputError(
            f"the plan's requests do not lead to {launch.point.label} at launch {index}",
            field="requests",
            hint="Plan again: plans of older versions cannot be replayed.",
        )
    return Schedule(launches=plan.launches, requests=plan.requests)


def replay_schedule(  # noqa: PLR0913 - what, where, under which label, how, and whom to tell
    session: DeviceSession,
    lease: Lease,
    schedule: Schedule,
    *,
    settings: MeasureSettings,
    run: str = REPLAY_RUN,
    window: int = 0,
    iteration_count: int | None = None,
    is_soak_optional: bool = False,
    progress: Progress = no_progress,
) -> ReplayWindow:
    """Carry out a schedule as `replay_plan` does a plan."""
    runner = _runner(session)
    gpu = session.gpu
    lease.apply(schedule.launches[0].point)
    with runner.iterate(schedule.launches, schedule.requests, lease.apply, run=run) as loop:
        iteration_s = _iteration_s(gpu, loop)
    count = iteration_count or _enough(iteration_s, gpu, settings)
    warm = _repeated(schedule, iteration_s)
    progress("warming up", 0, 1)
    with runner.iterate(warm.launches, warm.requests, lease.apply, run=run) as loop:
        warm_s = iteration_s * len(warm.launches) / len(schedule.launches)
        doubts = wait_until_steady(
            gpu, _whole_iterations(loop, warm_s), settings, is_soak_optional=is_soak_optional
        )
    progress("warming up", 1, 1)
    with runner.iterate(schedule.launches, schedule.requests, lease.apply, run=run) as loop:
        # The first follows on a start, and not on an iteration with its requests.
        loop.run_iterations(1)
        measured = _measure(gpu, loop, window, count, settings, progress)
    progress(REPLAYING, count, count)
    return _finish(measured, gpu, settings, doubts)


def _repeated(schedule: Schedule, iteration_s: float) -> Schedule:
    """A short iteration many times over, so that warming up needs few of them."""
    launch_count = len(schedule.launches)
    wanted_count = math.ceil(_WARM_ITERATION_S / iteration_s)
    copy_count = max(1, min(wanted_count, _MOST_WARM_LAUNCH_COUNT // launch_count))
    return Schedule(
        launches=schedule.launches * copy_count,
        requests=tuple(
            replace(request, launch_index=request.launch_index + number * launch_count)
            for number in range(copy_count)
            for request in schedule.requests
        ),
    )


def _runner(session: DeviceSession) -> IterationRunner:
    if session.iterations is None:
        raise NotSupported(
            f"{session.gpu.identity.name} runs kernels alone, not whole iterations",
            hint="Verify the plan on a device that can run the workload.",
        )
    return session.iterations


def _iteration_s(gpu: Gpu, loop: IterationLoop) -> float:
    """Time of an iteration that follows on another."""
    loop.run_iterations(1)
    start_s = gpu.sample().time_s
    loop.run_iterations(1)
    return gpu.sample().time_s - start_s


def _whole_iterations(loop: IterationLoop, iteration_s: float) -> Callable[[float], None]:
    """Lets time pass up to the end of an iteration.

    Temperature swings within an iteration; read at the same place of each it comes to rest.
    """

    def let_pass(duration_s: float) -> None:
        loop.run_iterations(max(1, math.ceil(duration_s / iteration_s)))

    return let_pass


def _enough(iteration_s: float, gpu: Gpu, settings: MeasureSettings) -> int:
    """Iterations that fill a window."""
    window_s = settings.window_duration_s(gpu.energy_counter_period_s)
    return max(FEWEST_ITERATIONS_COUNT, math.ceil(window_s / iteration_s))


def _measure(
    gpu: Gpu,
    loop: IterationLoop,
    window: int,
    count: int,
    settings: MeasureSettings,
    progress: Progress,
) -> RawReplay:
    """One window, measured again where something disturbed it."""
    spoilt: RawReplay | None = None
    reason = ""
    for attempt in range(settings.repeat_count + 1):
        try:
            raw = _read(gpu, loop, window + attempt * REPEAT_STRIDE, count, progress)
        except MeasurementError as error:
            reason = error.message
            continue
        if not disturbances(raw.start, raw.end):
            return raw
        spoilt = raw
    if spoilt is None:
        raise MeasurementError(
            f"no replay of {settings.repeat_count + 1} gave an energy: {reason}",
            hint="Look whether another program resets the driver, and measure again.",
        )
    return spoilt


def _read(gpu: Gpu, loop: IterationLoop, window: int, count: int, progress: Progress) -> RawReplay:
    loop.begin_window(window)
    try:
        start = wait_for_tick(gpu)
        next_tick = wait_for_tick(gpu)
        _run_telling(loop, count, progress)
        end = wait_for_tick(gpu)
    finally:
        timing = loop.end_window()
    raw = RawReplay(window=window, start=start, next_tick=next_tick, end=end, timing=timing)
    if raw.energy_j <= 0:
        raise MeasurementError("the energy counter moved too rarely")
    return raw


def _run_telling(loop: IterationLoop, count: int, progress: Progress) -> None:
    """So many iterations, told of now and then."""
    step_count = max(1, count // _TOLD_COUNT)
    for done_count in range(0, count, step_count):
        progress(REPLAYING, done_count, count)
        loop.run_iterations(min(step_count, count - done_count))


def _finish(
    raw: RawReplay, gpu: Gpu, settings: MeasureSettings, doubts: tuple[Caveat, ...]
) -> ReplayWindow:
    timing, count = raw.timing, raw.timing.iteration_count
    duration_s = raw.end.time_s - raw.start.time_s
    return ReplayWindow(
        window=raw.window,
        time_s=timing.elapsed_s / count,
        energy_j=raw.energy_j / count,
        duration_s=duration_s,
        iteration_count=count,
        request_count=timing.request_count / count,
        late_count=timing.late_count / count,
        skipped_count=timing.skipped_count / count,
        max_late_s=timing.max_late_s,
        temp_c=raw.end.temp_c,
        caveats=(
            *power_capping(raw.start, raw.end),
            *disturbances(raw.start, raw.end),
            *coarseness(duration_s, gpu.energy_counter_period_s, settings),
            *_unkept_requests(timing),
            *doubts,
        ),
    )


def _unkept_requests(timing: IterationTiming) -> tuple[Caveat, ...]:
    """ChangesLate where points came late or not at all, so launches ran at other points."""
    if not (timing.late_count or timing.skipped_count):
        return ()
    count = timing.iteration_count
    return (
        Caveat(
            kind=CaveatKind.CHANGES_LATE,
            seen=f"of the changes {timing.late_count / count:g} came into force up to "
            f"{timing.max_late_s * 1e3:.3g} ms after their launch had begun, and "
            f"{timing.skipped_count / count:g} fell away, per iteration",
        ),
    )
