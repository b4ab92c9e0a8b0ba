"""`finetune sweep` over the built-in grid: every job at every clock, each a run of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from joulewise.domain.board_state import BoardState
from joulewise.domain.caveats import Caveat
from joulewise.domain.errors import DeviceError, InputError, NotSupported
from joulewise.domain.finetuning import ClockCurve
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.ports import Gpu, Lease, Progress, no_progress
from joulewise.domain.session import DeviceSession
from joulewise.domain.workload import Launch, Workload
from joulewise.finetune.jobs import TrainingJob
from joulewise.finetune.step_work import step_work
from joulewise.measure.cell import CellVisit, measure_visit
from joulewise.measure.order import shuffled
from joulewise.measure.settings import MeasureSettings
from joulewise.simulator.device_string import is_recorded
from joulewise.workflow.baseline_state import baseline_doubts, with_baseline_doubts
from joulewise.workflow.devices import chosen_clocks, memory_clocks_of_device, open_session
from joulewise.workflow.finetune_curves import (
    CurveSource,
    JobRun,
    ListeningGpu,
    curves_of,
    job_run,
)
from joulewise.workflow.governed_state import changed_since, governed_state
from joulewise.workflow.leasing import lease_on

SETTINGS = MeasureSettings(power_sample_s=0.1)
"""Power is read as often as the slowest sensor of a virtual board moves."""
MOST_ROUNDS = 50
_WHAT = "measuring jobs"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Visit:
    """One point to be set, and the label of its round: `begin`, a number, or `end`."""

    point: OperatingPoint
    label: str


def sweep_jobs(  # noqa: PLR0913 - what, where, how, and whom to tell
    device: str,
    jobs: Sequence[TrainingJob],
    sm_clocks_mhz: Sequence[int] | None,
    *,
    mem_clock_mhz: int | None = None,
    settings: MeasureSettings = SETTINGS,
    round_count: int = 1,
    progress: Progress = no_progress,
) -> tuple[ClockCurve, ...]:
    """Measure built-in jobs at every clock and under the governor.

    Every job at every clock is a measuring run of its own, so that what shifts a whole run hits
    each alone, as it does where each clock gets a training run. The governor is measured before
    the first round of clocks and after every one; clocks come in random order.

    Args:
        device: A simulated device; its jobs are what `step_work` says of them.
        jobs: Which jobs; one curve each, in this order.
        sm_clocks_mhz: Clocks to pin; `None`: all that the device lists.
        mem_clock_mhz: Memory clock to lock beside them; `None` leaves it to the driver, as the
            baseline always does.
        settings: Windows and warm-up of a run.
        round_count: How often every clock is measured.
        progress: Told after every run.

    Raises:
        InputError: no jobs, one of them twice, a clock that the device does not list, or an
            unknown device.
        NotSupported: a device that runs programs, which a grid of names is none of.
        MeasurementError: no trustworthy number came out of a run.
        DeviceError: the device refused a clock, or was lost.
    """
    _check(jobs, round_count)
    workload = Workload(
        name="fine-tuning",
        launches=tuple(Launch(kernel=job.name) for job in jobs),
        works=tuple(step_work(job) for job in jobs),
    )
    session = _open(device, workload)
    with lease_on(session.gpu) as lease:
        found, doubts = governed_state(session.gpu), baseline_doubts(session.gpu)
        points = _points(session.gpu, sm_clocks_mhz, mem_clock_mhz)
        visits = tuple(_visits(points, round_count, settings.seed))
        runs: list[JobRun] = []
        progress(_WHAT, 0, len(visits) * len(jobs))
        for visit in visits:
            for run in _runs_at(session, lease, visit, workload.kernels, settings):
                if visit.point == AUTO:
                    _check_still_governed(session.gpu, found)
                runs.append(run)
                progress(_WHAT, len(runs), len(visits) * len(jobs))
        source = _source(session.gpu, doubts)
    return curves_of([(job.name, job.features) for job in jobs], runs, source)


def _check(jobs: Sequence[TrainingJob], round_count: int) -> None:
    if not jobs:
        raise InputError("there are no jobs to measure", field="jobs", hint="Name some.")
    names = [job.name for job in jobs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"the job {twice!r} is named twice", field="jobs", hint="Name it once.")
    if not 1 <= round_count <= MOST_ROUNDS:
        raise InputError(
            f"{round_count} rounds cannot be measured",
            field="rounds",
            hint=f"Write a whole number from 1 to {MOST_ROUNDS}.",
        )


def _open(device: str, workload: Workload) -> DeviceSession:
    """A simulated device; hardware needs the training program itself."""
    if is_recorded(device):
        raise NotSupported(
            f"{device} is a recording, and tells nothing of jobs that are not in it",
            hint="For the built-in jobs take --device virtual:agx-orin.",
        )
    needs_program = NotSupported(
        f"{device} runs programs, and the built-in jobs are none: they are FLOPs, bytes and host "
        "time of a step, which simulated devices run",
        hint="Give the training command: joulewise finetune sweep --device "
        f"{device} -- python train.py. For the built-in jobs take --device virtual:agx-orin.",
    )
    try:
        session = open_session(device, workload)
    except NotSupported as error:
        raise needs_program from error
    if not session.gpu.identity.is_simulated:
        raise needs_program
    return session


def _points(
    gpu: Gpu, sm_clocks_mhz: Sequence[int] | None, mem_clock_mhz: int | None
) -> tuple[OperatingPoint, ...]:
    grid = gpu.clock_grid()
    sm = chosen_clocks(sm_clocks_mhz, grid.sm_clocks_mhz, "sm-clocks") or grid.sm_clocks_mhz
    asked = None if mem_clock_mhz is None else (mem_clock_mhz,)
    mem = chosen_clocks(
        memory_clocks_of_device(gpu.identity, asked), grid.mem_clocks_mhz, "mem-clock"
    )
    return grid.points(tuple(dict.fromkeys(sm)), (None,) if asked is None else mem or (None,))


def _visits(points: Sequence[OperatingPoint], round_count: int, seed: int) -> Iterator[_Visit]:
    yield _Visit(point=AUTO, label="begin")
    for number in range(1, round_count + 1):
        for point in shuffled(points, seed=seed, label=f"finetune/{number}"):
            yield _Visit(point=point, label=str(number))
        yield _Visit(point=AUTO, label="end" if number == round_count else str(number))


def _runs_at(
    session: DeviceSession,
    lease: Lease,
    visit: _Visit,
    kernels: Sequence[str],
    settings: MeasureSettings,
) -> Iterator[JobRun]:
    """Set a point once, and give every job a measuring run of its own there."""
    lease.apply(visit.point)
    for kernel in kernels:
        heard = ListeningGpu(session.gpu)
        cell = measure_visit(
            replace(session, gpu=heard),
            CellVisit(
                kernel=kernel,
                point=visit.point,
                run=f"finetune/{kernel}/{visit.point.label}/{visit.label}",
                window_count=settings.window_count,
            ),
            settings,
        )
        # The first sample is from before the job ran.
        yield job_run(cell, heard.samples[1:])


def _check_still_governed(gpu: Gpu, found: BoardState | None) -> None:
    """Raises DeviceError where somebody has set the governor's bounds since the first point."""
    now = governed_state(gpu)
    seen = () if found is None or now is None else changed_since(found, now)
    if seen:
        raise DeviceError(
            f"{seen[0].seen}; the sweep is of no use",
            hint="Stop the other controller, and sweep again.",
        )


def _source(gpu: Gpu, doubts: Sequence[Caveat]) -> CurveSource:
    identity = gpu.identity
    return CurveSource(
        device=identity.spec,
        device_name=identity.name,
        is_simulated=identity.is_simulated,
        caveats=with_baseline_doubts(identity.caveats, doubts),
    )
