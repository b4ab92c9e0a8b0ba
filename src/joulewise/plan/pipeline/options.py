"""What each operation may choose from: undominated options, and the convex ones among them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from joulewise.domain.errors import PlanError
from joulewise.domain.pipeline import (
    BoundPoint,
    Instruction,
    OperationOption,
    PipelineRequest,
    PipelineShape,
    StageProfile,
    Straggler,
)
from joulewise.domain.sweep import FloatTable, IntTable
from joulewise.plan.options import options_of, relaxation_of

Pass = tuple[int, Instruction]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PassOptions:
    """The undominated options of one instruction on one stage, from fast to frugal.

    `net_j` is what an option needs beyond what the stage would draw anyway while it waits:
    energy - blocking power x time; `all_time_s` and `all_net_j` (L,) are those of all options of
    the profile. Along the M undominated ones `time_s` rises and `net_j` falls, both strictly.
    `indices` (M,) point into the profile's options, `hull` (H,) at those of the M on the lower
    convex hull. `bound_time_s` and `bound_net_j` (B,) are the hull's options and the profile's
    bound points: at no price of time is any way to run the operation cheaper than all of these.
    All is `scale_ratio` times as much as in the profile: more where the stage is slowed down,
    less where one operation is a chunk of the stage.
    """

    profile: StageProfile
    scale_ratio: float
    all_time_s: FloatTable
    all_net_j: FloatTable
    indices: IntTable
    time_s: FloatTable
    net_j: FloatTable
    hull: IntTable
    bound_time_s: FloatTable
    bound_net_j: FloatTable


def pass_options(
    profiles: Sequence[StageProfile], request: PipelineRequest
) -> dict[Pass, PassOptions]:
    """Options of every instruction on every stage, stragglers slowed.

    A straggler takes longer at unchanged power, so its energies rise with its times. A stage cut
    into chunks does an equal share of its work in each.

    Raises:
        PlanError: A stage without a profile or with two, one that the pipeline does not have, a
            profile with impossible numbers, kernel-level plans for a stage cut into chunks, a
            straggler that is none.
    """
    by_pass = _by_pass(profiles, request.shape)
    if request.shape.chunk_count > 1:
        _refuse_launches(profiles)
    slowdown_ratios = _slowdown_ratios(request.stragglers, request.shape)
    share_ratio = 1.0 / request.shape.chunk_count
    scale_ratios = [slowdown_ratios.get(stage, 1.0) * share_ratio for stage, _ in by_pass]
    return _options(by_pass, scale_ratios, request.blocking_power_w)


def _by_pass(profiles: Sequence[StageProfile], shape: PipelineShape) -> dict[Pass, StageProfile]:
    found: dict[Pass, StageProfile] = {}
    for profile in profiles:
        key = (profile.stage, profile.instruction)
        if key in found:
            raise PlanError(f"stage {profile.stage} has two profiles of its {profile.instruction}")
        if not 0 <= profile.stage < shape.stage_count:
            raise PlanError(
                f"there is a profile of stage {profile.stage}, but the pipeline has"
                f" {shape.stage_count} stages, counted from 0",
                hint="Give as many stages as the profile has.",
            )
        _check(profile)
        found[key] = profile
    for stage in range(shape.stage_count):
        for instruction in Instruction:
            if (stage, instruction) not in found:
                raise PlanError(
                    f"stage {stage} has no profile of its {instruction}",
                    hint="Every stage needs a profile of its forward and of its backward.",
                )
    return found


def _check(profile: StageProfile) -> None:
    name = f"the profile of stage {profile.stage}, {profile.instruction},"
    if not profile.options:
        raise PlanError(f"{name} has no options")
    if not 0 <= profile.baseline_index < len(profile.options):
        raise PlanError(
            f"{name} has {len(profile.options)} options and no baseline {profile.baseline_index}"
        )
    ways: tuple[OperationOption | BoundPoint, ...] = (*profile.options, *profile.bound_points)
    for option in ways:
        if not (0.0 < option.time_s < math.inf and 0.0 < option.energy_j < math.inf):
            raise PlanError(
                f"{name} has an option of {option.time_s} s and {option.energy_j} J;"
                " both must be positive numbers"
            )


def _refuse_launches(profiles: Sequence[StageProfile]) -> None:
    """A kernel-level plan is of a whole stage: nothing says which launches are whose chunk's."""
    for profile in profiles:
        if profile.bound_points or any(option.launches for option in profile.options):
            raise PlanError(
                f"stage {profile.stage} runs kernel-level plans, and nothing says which of its"
                " launches belong to which chunk of the interleaved schedule",
                field="schedule",
                hint="Take the schedule 1f1b or gpipe, or profiles of whole operations.",
            )


def _slowdown_ratios(stragglers: Sequence[Straggler], shape: PipelineShape) -> dict[int, float]:
    found: dict[int, float] = {}
    for straggler in stragglers:
        if not 0 <= straggler.stage < shape.stage_count:
            raise PlanError(
                f"there is no stage {straggler.stage} to slow down: the pipeline has"
                f" {shape.stage_count} stages, counted from 0",
                field="straggler",
            )
        if straggler.stage in found:
            raise PlanError(f"stage {straggler.stage} is slowed down twice", field="straggler")
        if not 0.0 < straggler.slowdown_ratio < math.inf:
            raise PlanError(
                f"a straggler's slowdown must be a positive number, got {straggler.slowdown_ratio}",
                field="straggler",
            )
        found[straggler.stage] = straggler.slowdown_ratio
    return found


def _options(
    by_pass: dict[Pass, StageProfile], scale_ratios: Sequence[float], blocking_power_w: float
) -> dict[Pass, PassOptions]:
    """All passes at once: each is a class of the one table."""
    own = list(by_pass.values())
    shape = (len(own), max(len(profile.options) for profile in own))
    time_s, net_j = np.full(shape, np.inf), np.full(shape, np.inf)
    for row, (profile, scale_ratio) in enumerate(zip(own, scale_ratios, strict=True)):
        times = scale_ratio * np.array([option.time_s for option in profile.options])
        energies = scale_ratio * np.array([option.energy_j for option in profile.options])
        time_s[row, : times.size] = times
        net_j[row, : times.size] = energies - blocking_power_w * times
    options = options_of(time_s, net_j)
    relaxation = relaxation_of(options)
    begins = np.append(options.fastest, options.classes.size)
    # Steps of one class come in order of time.
    is_own = relaxation.step_classes == np.arange(len(own))[:, None]
    found = {}
    for row, (key, profile) in enumerate(by_pass.items()):
        begin, end = begins[row], begins[row + 1]
        hull = np.concatenate([[0], relaxation.step_ends[is_own[row]] - begin])
        more_s = scale_ratios[row] * np.array([point.time_s for point in profile.bound_points])
        more_j = scale_ratios[row] * np.array([point.energy_j for point in profile.bound_points])
        own_s, own_j = options.time_s[begin:end], options.energy_j[begin:end]
        found[key] = PassOptions(
            profile=profile,
            scale_ratio=scale_ratios[row],
            all_time_s=time_s[row, : len(profile.options)],
            all_net_j=net_j[row, : len(profile.options)],
            indices=options.columns[begin:end],
            time_s=own_s,
            net_j=own_j,
            hull=hull,
            bound_time_s=np.concatenate([own_s[hull], more_s]),
            bound_net_j=np.concatenate([own_j[hull], more_j - blocking_power_w * more_s]),
        )
    return found
