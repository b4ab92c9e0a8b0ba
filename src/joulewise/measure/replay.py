"""Replay: whole iterations as a plan carries them out, changes of clocks included."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from joulewise.domain.errors import InputError, NotSupported
from joulewise.domain.measurement import ReplayWindow
from joulewise.domain.plan import Plan
from joulewise.domain.ports import (
    Gpu,
    IterationLoop,
    IterationRunner,
    Lease,
    Progress,
    no_progress,
)
from joulewise.domain.session import DeviceSession
from joulewise.measure.replay_window import (
    REPLAYING,
    ReplayTask,
    Schedule,
    enough_iterations,
    measure_replay,
)
from joulewise.measure.settings import MeasureSettings
from joulewise.measure.steady import wait_until_steady

__all__ = ["REPLAY_RUN", "Schedule", "replay_plan", "replay_schedule", "schedule_of"]

REPLAY_RUN = "replay"
# Many short iterations are warmed up with as one of this length, of so many launches at most.
_WARM_ITERATION_S = 0.05
_MOST_WARM_LAUNCH_COUNT = 4096
# Iterations are timed for so long before the window, to know how many fill it.
_TIMED_S = 0.5


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
    count = iteration_count or enough_iterations(iteration_s, gpu.energy_counter_period_s, settings)
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
        task = ReplayTask(
            schedule=schedule, window=window, iteration_count=count, iteration_s=iteration_s
        )
        measured = measure_replay(gpu, loop, task, settings, progress)
    progress(REPLAYING, count, count)
    return replace(measured, caveats=(*measured.caveats, *doubts))


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
    """Time of an iteration that follows on another; of many where one is short."""
    loop.run_iterations(1)
    iteration_s = _timed_s(gpu, loop, 1)
    count = math.ceil(_TIMED_S / iteration_s)
    return iteration_s if count == 1 else _timed_s(gpu, loop, count) / count


def _timed_s(gpu: Gpu, loop: IterationLoop, count: int) -> float:
    start_s = gpu.sample().time_s
    loop.run_iterations(count)
    return gpu.sample().time_s - start_s


def _whole_iterations(loop: IterationLoop, iteration_s: float) -> Callable[[float], None]:
    """Lets time pass up to the end of an iteration.

    Temperature swings within an iteration; read at the same place of each it comes to rest.
    """

    def let_pass(duration_s: float) -> None:
        loop.run_iterations(max(1, math.ceil(duration_s / iteration_s)))

    return let_pass
