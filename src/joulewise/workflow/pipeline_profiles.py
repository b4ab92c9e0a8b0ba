"""What the operations of a pipeline can choose from: options per stage and instruction."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from joulewise.domain.caveats import Caveat, CaveatKind, first_of_each_kind
from joulewise.domain.errors import InputError, PlanError
from joulewise.domain.pipeline import Instruction, OperationOption, StageProfile
from joulewise.domain.points import OperatingPoint
from joulewise.domain.sweep import Sweep
from joulewise.domain.workload import Workload
from joulewise.store.importers.perseus import PERSEUS_DEVICE
from joulewise.store.pipeline_files import read_profile
from joulewise.workflow.stage_plans import stage_options
from joulewise.workflow.workloads import (
    is_named,
    load_workload,
    refuse_other_size,
    workload_file,
)

_STAGE_KERNEL = re.compile(r"stage(\d{1,6})/(.+)")
_MOST_NAMES = 3
_MEASURE_AGAIN = "Measure the chosen settings again, and plan on those figures."
_INSTRUCTIONS = tuple(Instruction)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadedProfiles:
    """Options of every stage and instruction, and the sweeps that they come from.

    `sweeps` holds the sweep of every stage, `kernels` those that an operation launches.
    """

    name: str
    profiles: tuple[StageProfile, ...]
    sweeps: tuple[Sweep, ...]
    kernels: Mapping[tuple[int, Instruction], tuple[str, ...]]
    stages_in_profile_count: int
    left_out_launch_count: int = 0
    """Launches of the optimizer, which runs once an iteration and in no operation."""
    caveats: tuple[Caveat, ...] = ()


def load_profiles(
    paths: Sequence[Path], stage_count: int | None, workload: str | None
) -> LoadedProfiles:
    """Read what each stage can choose from.

    One profile (a Perseus CSV, or a sweep whose kernels are named `stageN/forward` and
    `stageN/backward`) holds all stages, of which the first `stage_count` are taken; else there
    is one kernel-level sweep per stage, in order. `workload` says what one micro-batch of a
    kernel-level stage launches; by default the built-in workload that the sweep names.

    Raises:
        InputError: A file or field that cannot be used; names it.
        PlanError: Sweep and workload do not fit together.
    """
    if not paths:
        raise InputError("no profile is given", field="profile", hint="Name a profile file.")
    if stage_count is not None and stage_count < 1:
        raise InputError(f"a pipeline has at least one stage, got {stage_count}", field="stages")
    sweeps = tuple(read_profile(path) for path in dict.fromkeys(paths))
    by_path = dict(zip(dict.fromkeys(paths), sweeps, strict=True))
    staged = [path for path in by_path if _is_staged(by_path[path])]
    if not staged:
        return _kernel_level(paths, by_path, stage_count, workload)
    if len(paths) > 1:
        raise InputError(
            "this profile holds whole stages, and so no other can stand beside it",
            file=str(staged[0]),
            field="kernel",
            hint="Give one profile of all stages, or one kernel-level sweep per stage.",
        )
    if workload is not None:
        raise InputError(
            "this profile times whole operations, so that there are no launches to choose",
            file=str(paths[0]),
            field="workload",
            hint="Leave --workload away.",
        )
    return _staged(paths[0], sweeps[0], stage_count)


def _is_staged(sweep: Sweep) -> bool:
    """Whether its kernels are whole operations; those of a Perseus profile always are."""
    return sweep.source.device == PERSEUS_DEVICE or any(
        _STAGE_KERNEL.fullmatch(kernel) for kernel in sweep.kernels
    )


def _staged(path: Path, sweep: Sweep, stage_count: int | None) -> LoadedProfiles:
    rows = _rows_of_stages(path, sweep)
    known_count = 1 + max(stage for stage, _ in rows)
    wanted_count = known_count if stage_count is None else stage_count
    profiles = []
    for stage in range(wanted_count):
        for instruction in _INSTRUCTIONS:
            row = rows.get((stage, instruction))
            if row is None:
                raise _lacking(path, rows, stage, instruction, wanted_count)
            profiles.append(_profile_of_row(sweep, stage, instruction, row))
    return LoadedProfiles(
        name=_shown(path),
        profiles=tuple(profiles),
        sweeps=(sweep,) * wanted_count,
        kernels={place: (sweep.kernels[row],) for place, row in rows.items()},
        stages_in_profile_count=known_count,
        caveats=_of_sweeps((sweep,)),
    )


def _rows_of_stages(path: Path, sweep: Sweep) -> dict[tuple[int, Instruction], int]:
    rows: dict[tuple[int, Instruction], int] = {}
    names = {instruction.value: instruction for instruction in _INSTRUCTIONS}
    for row, kernel in enumerate(sweep.kernels):
        found = _STAGE_KERNEL.fullmatch(kernel)
        if found is None:
            raise InputError(
                f"kernel {kernel!r} is not named as an operation of a stage",
                file=str(path),
                field="kernel",
                hint="Name every kernel stageN/forward or stageN/backward, stages from 0.",
            )
        if found[2] not in names:
            raise InputError(
                f"stage {found[1]} has the instruction {found[2]!r}, which is neither "
                "forward nor backward",
                file=str(path),
                field="instruction",
                hint="Leave out its rows, or add their time and energy to one of the two.",
            )
        place = (int(found[1]), names[found[2]])
        if place in rows:
            raise InputError(
                f"stage {place[0]} has its {place[1]} operation twice: {kernel!r} and "
                f"{sweep.kernels[rows[place]]!r}",
                file=str(path),
                field="stage",
                hint="Number the stages 0, 1, 2, … without leading zeros.",
            )
        rows[place] = row
    return rows


def _lacking(
    path: Path,
    rows: Mapping[tuple[int, Instruction], int],
    stage: int,
    instruction: Instruction,
    wanted_count: int,
) -> InputError:
    stages = sorted({known for known, _ in rows})
    if stage in stages:
        return InputError(
            f"stage {stage} has no {instruction} operation",
            file=str(path),
            field="instruction",
            hint="Measure both forward and backward on every stage.",
        )
    if stage > stages[-1]:
        message = f"a pipeline of {wanted_count} stages was asked for"
        has = f"the profile has {len(stages)}, up to stage {stages[-1]}"
        return InputError(f"{message}, and {has}", file=str(path), field="stages")
    return InputError(
        f"there is no stage {stage}, while there are later ones",
        file=str(path),
        field="stage",
        hint="Stages count from 0, without gaps.",
    )


def _profile_of_row(sweep: Sweep, stage: int, instruction: Instruction, row: int) -> StageProfile:
    columns = [c for c in range(len(sweep.points)) if sweep.is_present[row, c]]
    if sweep.baseline_index not in columns:
        raise PlanError(
            f"kernel {sweep.kernels[row]!r} was not measured at the baseline "
            f"{sweep.baseline.label}",
            hint="Savings are against the baseline: measure it for every operation.",
        )
    return StageProfile(
        stage=stage,
        instruction=instruction,
        options=tuple(
            OperationOption(
                time_s=float(sweep.time_s[row, column]),
                energy_j=float(sweep.energy_j[row, column]),
                point=sweep.points[column],
            )
            for column in columns
        ),
        baseline_index=columns.index(sweep.baseline_index),
    )


def _kernel_level(
    paths: Sequence[Path],
    by_path: Mapping[Path, Sweep],
    stage_count: int | None,
    workload: str | None,
) -> LoadedProfiles:
    if stage_count is not None and len(paths) != stage_count:
        raise InputError(
            f"{len(paths)} kernel-level sweep{'s' if len(paths) > 1 else ''} for "
            f"{stage_count} stages",
            file=str(paths[-1]),
            field="stages",
            hint="Give one sweep per stage, in order; the same file may come more than once.",
        )
    planned = {}
    left_out = {}
    for path, sweep in by_path.items():
        micro_batch = _workload_of_stage(path, sweep, workload)
        launches_file = str(workload_file(workload) or path)
        planned[path] = {
            instruction: stage_options(sweep, micro_batch, instruction, launches_file)
            for instruction in _INSTRUCTIONS
        }
        left_out[path] = planned[path][Instruction.FORWARD].left_out_launch_count
    profiles = tuple(
        StageProfile(
            stage=stage,
            instruction=instruction,
            options=planned[path][instruction].options,
            bound_points=planned[path][instruction].bound_points,
            baseline_index=planned[path][instruction].baseline_index,
        )
        for stage, path in enumerate(paths)
        for instruction in _INSTRUCTIONS
    )
    return LoadedProfiles(
        name=_joined_names(paths),
        profiles=profiles,
        sweeps=tuple(by_path[path] for path in paths),
        kernels={
            (stage, instruction): planned[path][instruction].kernels
            for stage, path in enumerate(paths)
            for instruction in _INSTRUCTIONS
        },
        stages_in_profile_count=len(paths),
        left_out_launch_count=sum(left_out[path] for path in paths),
        caveats=_of_sweeps(tuple(by_path.values())),
    )


def _workload_of_stage(path: Path, sweep: Sweep, asked: str | None) -> Workload:
    """What one micro-batch launches on the stage of this sweep."""
    if asked is not None:
        workload = load_workload(asked)
        refuse_other_size(sweep.source.workload, workload, path)
        return workload
    own = sweep.source.workload
    if own is None or not is_named(own):
        raise InputError(
            "nothing says what a micro-batch launches on this stage: the kernels are not named "
            "stageN/forward and stageN/backward, and the sweep names no built-in workload",
            file=str(path),
            field="workload",
            hint="Give --workload NAME or FILE; its launches have a pass, forward or backward.",
        )
    return load_workload(own)


def _shown(path: Path) -> str:
    """A file name need not be Unicode on Unix; text in a plan must."""
    return path.name.encode("utf-8", "backslashreplace").decode()


def _joined_names(paths: Sequence[Path]) -> str:
    names = [_shown(path) for path in paths]
    distinct = list(dict.fromkeys(names))
    if len(distinct) > _MOST_NAMES:
        return f"{distinct[0]} … {distinct[-1]} ({len(names)} stages)"
    return ", ".join(distinct if len(distinct) < len(names) else names)


def _of_sweeps(sweeps: Sequence[Sweep]) -> tuple[Caveat, ...]:
    """Doubts about everything planned on these sweeps, the first of a kind."""
    doubts: list[Caveat] = []
    for sweep in sweeps:
        if sweep.source.is_simulated:
            seen = f"The profile comes from {sweep.source.device_name}, a virtual device."
            doubts.append(Caveat(kind=CaveatKind.SIMULATED_DEVICE, seen=seen))
        doubts.extend(sweep.caveats)
        if not sweep.has_auto_baseline:
            doubts.append(_baseline_assumed(sweep.baseline))
        if sweep.time_std_s is None or sweep.energy_std_j is None:
            seen = "The profile has no standard deviations."
            doubts.append(Caveat(kind=CaveatKind.NO_UNCERTAINTY, seen=seen))
        elif not sweep.is_noise_free:
            seen = "The cells that promise the best plan were chosen for it; nothing is kept back."
            doubts.append(Caveat(kind=CaveatKind.SELECTION_BIAS, seen=seen, advice=_MEASURE_AGAIN))
    return first_of_each_kind(*doubts)


def _baseline_assumed(point: OperatingPoint) -> Caveat:
    return Caveat(
        kind=CaveatKind.BASELINE_ASSUMED,
        seen=f"The profile has no (auto, auto) point; {point.label} stands for it.",
    )
