"""`finetune sweep`: from what was asked for to curves, their page and what they come to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from joulewise.domain.caveats import Caveat, CaveatKind, by_gravity
from joulewise.domain.errors import InputError, JoulewiseError
from joulewise.domain.finetuning import ClockCurve, JobFeatures
from joulewise.domain.ports import Progress, no_progress
from joulewise.domain.workload import Launch, Workload
from joulewise.finetune.characterisation import characterise
from joulewise.finetune.jobs import (
    MODELS,
    TASKS,
    TrainingJob,
    job,
    job_of,
    training_jobs,
    unseen_jobs,
)
from joulewise.finetune.step_work import step_work
from joulewise.measure.settings import MeasureSettings
from joulewise.report.ucurve import CurveCharacter, curve_caveats, ucurve_sentence
from joulewise.report.ucurve_page import render_ucurves
from joulewise.store.atomic import require_place, write_atomically
from joulewise.store.clock_curves import read_curves, replace_curves
from joulewise.workflow.command import Command
from joulewise.workflow.devices import open_session
from joulewise.workflow.finetune_advising import job_features
from joulewise.workflow.finetune_running_advice import only_gpu
from joulewise.workflow.finetune_sweeping import SETTINGS, sweep_jobs
from joulewise.workflow.finetune_sweeping_command import CommandSweepSettings, sweep_command
from joulewise.workflow.point_watch import Notice

ALL, TRAINING, UNSEEN = "all", "training", "unseen"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsAsked:
    """Built-in jobs as people name them: by name, or every model on every task of two lists.

    `names` may hold `training` (27 jobs), `unseen` (54) and `all`. With nothing named, it is
    the 27 that policies learn from.
    """

    names: Sequence[str] = ()
    models: Sequence[str] = ()
    tasks: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GridSweep:
    """What `finetune sweep` without a command was asked for."""

    device: str
    jobs: JobsAsked
    sm_clocks_mhz: Sequence[int] | None
    mem_clock_mhz: int | None
    round_count: int
    window_s: float | None
    out: Path | None
    page: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramSweep:
    """What `finetune sweep -- COMMAND` was asked for.

    `device` is `None` for the board that this machine is, else its only GPU. `name` is what the
    job is called; `None`: as its program. With `config` and `mean_sequence_count` the curve says
    what is known of the job, so that policies can be learned from it.
    """

    device: str | None
    arguments: Sequence[str]
    settings: CommandSweepSettings
    name: str | None
    config: Path | None
    mean_sequence_count: float | None
    out: Path | None
    page: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveReport:
    """Curves, what they come to, and the sentence over them."""

    characters: tuple[CurveCharacter, ...]
    sentence: str
    caveats: tuple[Caveat, ...]
    former: Path | None = None
    """Where the curves are kept that lay in place of the new ones."""

    @property
    def curves(self) -> tuple[ClockCurve, ...]:
        """The curves themselves."""
        return tuple(one.curve for one in self.characters)


def sweep_grid(asked: GridSweep, progress: Progress = no_progress) -> CurveReport:
    """Measure built-in jobs, write their curves, and the page where one is wanted.

    Raises what `sweep_jobs` raises; InputError for an unknown job, or a place that cannot be
    written to.
    """
    require_places(asked.out, asked.page)
    jobs = chosen_jobs(asked.jobs)
    curves = sweep_jobs(
        asked.device,
        jobs,
        _with_highest_of_device(asked.device, jobs, asked.sm_clocks_mhz),
        mem_clock_mhz=asked.mem_clock_mhz,
        settings=_settings(asked.window_s),
        round_count=asked.round_count,
        progress=progress,
    )
    return report_curves(curves, asked.out, asked.page)


def sweep_program(
    asked: ProgramSweep, notice: Notice, progress: Progress = no_progress
) -> tuple[CurveReport, int]:
    """Measure a training program, write its curve, and the page where one is wanted.

    Returns:
        What the curve comes to, and the exit code of the program's last run.

    Raises:
        InputError: no such program or device, a config without the length of its examples or
            the other way round, or a place that cannot be written to.
        Others, as `sweep_command` and `only_gpu` raise them.
    """
    require_places(asked.out, asked.page)
    command = Command(asked.arguments)
    features = _features(asked)
    gpu = only_gpu(asked.device)
    listed = gpu.clock_grid().sm_clocks_mhz
    clocks = _with_highest(asked.settings.sm_clocks_mhz, listed)
    settings = replace(asked.settings, sm_clocks_mhz=clocks)
    swept = sweep_command(gpu, command, settings, notice=notice, progress=progress)
    name = asked.name or command.name or "command"
    if features is not None:
        features = replace(features, gpu_busy_ratio=swept.curve.baseline.busy_ratio)
    curve = replace(swept.curve, job=name, features=features)
    return report_curves((curve,), asked.out, asked.page), swept.code


def report_file(path: Path, page: Path | None) -> CurveReport:
    """What the curves of a file come to; write the page where one is wanted. Raises InputError."""
    if page is not None:
        require_place(page, sources=(path,))
    return report_curves(read_curves(path), None, page)


def report_curves(
    curves: Sequence[ClockCurve], out: Path | None = None, page: Path | None = None
) -> CurveReport:
    """Characterise curves; write their file and their page where asked to. Raises InputError."""
    former = None if out is None else replace_curves(out, curves)
    characters = tuple(characterise(curve) for curve in curves)
    caveats = by_gravity((*curve_caveats(characters), *_selection(characters)))
    if page is not None:
        write_atomically(page, render_ucurves(characters, caveats).encode())
    return CurveReport(
        characters=characters,
        sentence=ucurve_sentence(characters),
        caveats=caveats,
        former=former,
    )


def require_places(out: Path | None, page: Path | None) -> None:
    """See that both files can be written, before anything is measured. Raises InputError."""
    for path in (out, page):
        if path is not None:
            require_place(path)
    if out is not None and page is not None and out.resolve() == page.resolve():
        raise InputError(
            "curves and page cannot both go here",
            file=str(out),
            hint="Choose two places for --out and --html.",
        )


def chosen_jobs(asked: JobsAsked) -> tuple[TrainingJob, ...]:
    """The jobs that were asked for, each once.

    Raises:
        InputError: an unknown name, or names beside lists of models and tasks.
    """
    if asked.names and (asked.models or asked.tasks):
        raise InputError(
            "jobs are named one by one, or by models and tasks, not both",
            field="jobs",
            hint="Leave --jobs out, or --models and --tasks.",
        )
    if asked.names:
        named = [found for name in asked.names for found in _named(name)]
        return tuple({one.name: one for one in named}.values())
    if not asked.models and not asked.tasks:
        return training_jobs()
    models = [_known(name, MODELS, "models") for name in asked.models or MODELS]
    default = [name for name, task in TASKS.items() if not task.is_unseen]
    tasks = [_known(name, TASKS, "tasks") for name in asked.tasks or default]
    return tuple(job_of(MODELS[model], TASKS[task]) for model in models for task in tasks)


def _with_highest_of_device(
    device: str, jobs: Sequence[TrainingJob], sm_clocks_mhz: Sequence[int] | None
) -> tuple[int, ...] | None:
    """The clocks asked for, and the highest that the device lists; `None`: all of them."""
    if sm_clocks_mhz is None:
        return None
    workload = Workload(
        name="fine-tuning",
        launches=tuple(Launch(kernel=one.name) for one in jobs),
        works=tuple(step_work(one) for one in jobs),
    )
    try:
        listed = open_session(device, workload).gpu.clock_grid().sm_clocks_mhz
    except JoulewiseError:
        # The sweep itself opens it next, and says what is wrong.
        return tuple(sm_clocks_mhz)
    return _with_highest(sm_clocks_mhz, listed)


def _with_highest(
    sm_clocks_mhz: Sequence[int] | None, listed_mhz: Sequence[int]
) -> tuple[int, ...] | None:
    """Every curve has the highest clock that may be pinned, for people compare with that."""
    if sm_clocks_mhz is None:
        return None
    return tuple(dict.fromkeys((*sm_clocks_mhz, *([max(listed_mhz)] if listed_mhz else []))))


def _features(asked: ProgramSweep) -> JobFeatures | None:
    if asked.config is None and asked.mean_sequence_count is None:
        return None
    if asked.config is None or asked.mean_sequence_count is None:
        raise InputError(
            "what is known of a job is its config and the mean length of its examples, both",
            field="config" if asked.config is None else "avg-seq-len",
            hint="Give --config config.json and --avg-seq-len 48, or neither.",
        )
    return job_features(asked.config, mean_sequence_count=asked.mean_sequence_count)


def _named(name: str) -> Sequence[TrainingJob]:
    groups = {
        TRAINING: training_jobs(),
        UNSEEN: unseen_jobs(),
        ALL: (*training_jobs(), *unseen_jobs()),
    }
    if name in groups:
        return groups[name]
    try:
        return (job(name),)
    except InputError as error:
        hint = f"{error.hint or ''} Or {TRAINING}, {UNSEEN}, {ALL}.".strip()
        raise InputError(error.message, field="jobs", hint=hint) from error


def _known(name: str, known: Iterable[str], field: str) -> str:
    names = tuple(known)
    if name not in names:
        raise InputError(
            f"there is no {name!r} among the built-in {field}",
            field=field,
            hint=f"Known: {', '.join(names)}.",
        )
    return name


def _settings(window_s: float | None) -> MeasureSettings:
    return SETTINGS if window_s is None else replace(SETTINGS, window_s=window_s)


def _selection(characters: Sequence[CurveCharacter]) -> tuple[Caveat, ...]:
    """SelectionBias where the numbers that the best clock was chosen by scatter."""
    clock_count = max(len(one.curve.costs) for one in characters)
    # Nothing was chosen where there was one clock.
    if clock_count == 1 or not any(one.saving_error_ratio for one in characters):
        return ()
    return (
        Caveat(
            kind=CaveatKind.SELECTION_BIAS,
            seen=f"the best of {clock_count} clocks was chosen by the numbers that it is told by",
            advice="joulewise finetune run checks its clock on paired blocks of fresh steps.",
        ),
    )
