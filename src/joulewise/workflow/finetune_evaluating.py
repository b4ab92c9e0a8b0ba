"""What policies that pick clocks are worth: on a virtual board's truth or on measured curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from joulewise.domain.caveats import Caveat, CaveatKind, first_of_each_kind
from joulewise.domain.errors import InputError
from joulewise.domain.finetuning import ClockCost, ClockCurve
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.ports import Progress, no_progress
from joulewise.finetune.evaluation import Bench, SeedPicks, pick_clocks
from joulewise.finetune.evaluation_noise import (
    HARD_NOISE,
    NO_NOISE,
    USUAL_NOISE,
    EvaluationNoise,
)
from joulewise.finetune.evaluation_scores import policy_scores
from joulewise.finetune.jobs import TrainingJob, training_jobs, unseen_jobs
from joulewise.finetune.step_work import step_work
from joulewise.report.policy_table import PolicyScore
from joulewise.simulator.device_string import is_virtual, parse_device
from joulewise.simulator.oracle import open_oracle
from joulewise.store.clock_curves import read_curves

DEFAULT_DEVICE = "virtual:agx-orin"
_STAGE = "measure, train, pick"


class NoiseLevelName(StrEnum):
    """How noisy the curves and blocks are that policies go by."""

    USUAL = "usual"
    HARD = "hard"
    NONE = "none"


NOISES = {
    NoiseLevelName.USUAL: USUAL_NOISE,
    NoiseLevelName.HARD: HARD_NOISE,
    NoiseLevelName.NONE: NO_NOISE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateJob:
    """What to evaluate on: measured curves, or else a virtual board's own."""

    curves: Path | None = None
    device: str | None = None
    seed_count: int = 10
    noise: NoiseLevelName = NoiseLevelName.USUAL
    max_slowdown_ratio: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Scores of every policy, and what they stand on."""

    scores: tuple[PolicyScore, ...]
    device: str
    device_name: str
    is_simulated: bool
    caveats: tuple[Caveat, ...]


def evaluate_policies(job: EvaluateJob, progress: Progress = no_progress) -> Evaluation:
    """Let every policy pick from noisy curves, and hold its picks against the true ones.

    A virtual board knows its truth; measured curves are taken for theirs, and blurred anew.

    Raises:
        InputError: curves and a device at once, curves that cannot be read, or that no policy can
            be learned from, or a device that is not virtual.
    """
    if job.curves is not None and job.device is not None:
        raise InputError(
            "policies are evaluated on a file of curves or on a virtual device, not on both",
            field="device",
            hint="Leave one of them out.",
        )
    bench = _bench(job)
    try:
        picks = pick_all(bench, range(job.seed_count), progress)
    except InputError as error:
        if job.curves is None:
            raise
        raise InputError(
            error.message, file=str(job.curves), field=error.field, hint=error.hint
        ) from error
    first = bench.training[0]
    curves = (*bench.training, *bench.unseen)
    return Evaluation(
        scores=policy_scores(bench, picks),
        device=first.device,
        device_name=first.device_name,
        is_simulated=any(curve.is_simulated for curve in curves),
        caveats=_doubts(curves, is_measured=job.curves is not None),
    )


def _doubts(curves: Sequence[ClockCurve], *, is_measured: bool) -> tuple[Caveat, ...]:
    """Those of the curves, and what they do not say themselves."""
    doubts = [caveat for curve in curves for caveat in curve.caveats]
    if is_measured:
        seen = "Measured curves are taken for the true ones, with the luck of their single points."
        advice = "Sweep in several rounds before small differences are believed."
        doubts.append(Caveat(kind=CaveatKind.SELECTION_BIAS, seen=seen, advice=advice))
    simulated = next((curve for curve in curves if curve.is_simulated), None)
    if simulated is not None:
        seen = f"The curves are those of {simulated.device_name}, a physics model."
        doubts.append(Caveat(kind=CaveatKind.SIMULATED_DEVICE, seen=seen))
    return first_of_each_kind(*doubts)


def pick_all(
    bench: Bench, seeds: Sequence[int], progress: Progress = no_progress
) -> list[SeedPicks]:
    """Picks under each of these seeds. Raises InputError as `pick_clocks` does."""
    picks = []
    for done_count, seed in enumerate(seeds):
        progress(_STAGE, done_count, len(seeds))
        picks.append(pick_clocks(bench, seed))
    progress(_STAGE, len(seeds), len(seeds))
    return picks


def virtual_bench(
    device: str, noise: EvaluationNoise, max_slowdown_ratio: float | None = None
) -> Bench:
    """The 27 training jobs and the 54 unseen ones on a virtual board.

    Raises InputError as `true_curves` does.
    """
    jobs = (*training_jobs(), *unseen_jobs())
    curves = true_curves(device, jobs)
    training_count = len(training_jobs())
    return Bench(
        training=curves[:training_count],
        unseen=curves[training_count:],
        steps={job.name: job.step_count for job in jobs},
        noise=noise,
        max_slowdown_ratio=max_slowdown_ratio,
    )


def _bench(job: EvaluateJob) -> Bench:
    noise = NOISES[job.noise]
    if job.curves is None:
        return virtual_bench(job.device or DEFAULT_DEVICE, noise, job.max_slowdown_ratio)
    steps = {one.name: one.step_count for one in (*training_jobs(), *unseen_jobs())}
    return Bench(
        training=read_curves(job.curves),
        unseen=(),
        steps=steps,
        noise=noise,
        max_slowdown_ratio=job.max_slowdown_ratio,
    )


def true_curves(device: str, jobs: Sequence[TrainingJob]) -> tuple[ClockCurve, ...]:
    """The noise-free curves of built-in jobs on a virtual board, at every clock that it lists.

    Time and energy are those of one training step, the memory clock is left to the board.

    Raises:
        InputError: the device is not virtual, or its string cannot be read.
    """
    if not is_virtual(device):
        raise InputError(
            f"the truth of {device!r} is not known",
            field="device",
            hint="Name a virtual board, virtual:agx-orin, or give a file of measured curves.",
        )
    oracle = open_oracle(device, [step_work(job) for job in jobs])
    clocks = oracle.spec.grid.sm_clocks_mhz
    points = (AUTO, *(OperatingPoint(sm_clock_mhz=clock) for clock in clocks))
    time_s, energy_j = oracle.table(points)
    seen = f"The curves are the physics of {parse_device(device).preset}, without noise."
    doubts = (Caveat(kind=CaveatKind.SIMULATED_DEVICE, seen=seen),)
    return tuple(
        ClockCurve(
            job=job.name,
            device=device,
            device_name=oracle.spec.name,
            is_simulated=True,
            features=job.features,
            baseline=_cost(None, time_s[row, 0], energy_j[row, 0]),
            costs=tuple(
                _cost(clock, time_s[row, column], energy_j[row, column])
                for column, clock in enumerate(clocks, start=1)
            ),
            caveats=doubts,
        )
        for row, job in enumerate(jobs)
    )


def _cost(sm_clock_mhz: int | None, time_s: float, energy_j: float) -> ClockCost:
    return ClockCost(sm_clock_mhz=sm_clock_mhz, time_s=float(time_s), energy_j=float(energy_j))
