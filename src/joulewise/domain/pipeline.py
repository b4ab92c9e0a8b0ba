"""Pipelines: stages x micro-batches, their operations, and plans for them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from joulewise.domain.caveats import Caveat
from joulewise.domain.plan import PlannedLaunch, Status
from joulewise.domain.points import OperatingPoint


class PipelineSchedule(StrEnum):
    """In which order a stage runs its micro-batches.

    Sources: GPipe (arXiv 1811.06965); 1F1B and its interleaved form (arXiv 2104.04473).
    """

    ONE_F_ONE_B = "1f1b"
    GPIPE = "gpipe"
    INTERLEAVED = "interleaved"


class Instruction(StrEnum):
    """What an operation does with its micro-batch."""

    FORWARD = "forward"
    BACKWARD = "backward"


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineShape:
    """How a pipeline is cut: `chunk_count` model chunks per stage, 1 unless interleaved."""

    stage_count: int
    micro_batch_count: int
    schedule: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B
    chunk_count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler:
    """A stage that takes `slowdown_ratio` times as long as its profile says, 1.1: 10 % more."""

    stage: int
    slowdown_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationOption:
    """One way to run one operation of a stage: its time and energy, and by which clocks.

    `point` is the one operating point of the operation; `None` where it runs a kernel-level
    plan, whose `launches` are then given.
    """

    time_s: float
    energy_j: float
    point: OperatingPoint | None = None
    launches: tuple[PlannedLaunch, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundPoint:
    """A corner of the convex hull of all ways to run an operation, listed as options or not."""

    time_s: float
    energy_j: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StageProfile:
    """Options of one instruction on one stage, in any order.

    `baseline_index` is that of the option that users have today. The stage is all of its chunks:
    with several of them, one operation does an equal share of what an option says.

    Where the options are a sample of a richer choice, as kernel-level plans are, `bound_points`
    are all corners of that choice's convex hull, in any order: bounds hold for the whole choice,
    while plans take options only. Empty: the options are all there is.
    """

    stage: int
    instruction: Instruction
    options: tuple[OperationOption, ...]
    baseline_index: int = 0
    bound_points: tuple[BoundPoint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRequest:
    """What to plan for.

    `blocking_power_w` is what a stage draws while it waits. `max_time_s` is the budget for one
    iteration; `None`: no longer than with every operation at its baseline option.
    """

    shape: PipelineShape
    blocking_power_w: float
    max_time_s: float | None = None
    stragglers: tuple[Straggler, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what is no power and no time."""
        if not 0.0 <= self.blocking_power_w < math.inf:
            raise ValueError(
                f"blocking_power_w must be a number from 0 up, got {self.blocking_power_w}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedOperation:
    """One operation with its option, on its stage's time line.

    `launches_index` points into the plan's `kernel_plans`; `None` where `point` says it all.
    """

    stage: int
    chunk: int
    micro_batch: int
    instruction: Instruction
    start_s: float
    time_s: float
    energy_j: float
    point: OperatingPoint | None
    launches_index: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelPlan:
    """The kernel-level plan of one instruction on one stage, with the figures of its profile."""

    stage: int
    instruction: Instruction
    time_s: float
    energy_j: float
    launches: tuple[PlannedLaunch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelinePoint:
    """One plan on a pipeline's frontier; `bound_j` bounds all plans within `max_time_s`.

    `changing_stage_count` says on how many stages the plan changes clocks, between operations
    or within them; `None` in files from before it was counted.
    """

    max_time_s: float
    time_s: float
    energy_j: float
    bound_j: float
    slowdown_ratio: float
    saving_ratio: float
    changing_stage_count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelinePlan:
    """A plan for one iteration of a pipeline.

    `energy_j` is that of all stages, waiting included: the sum over operations of
    energy - blocking power x time, plus stages x iteration time x blocking power. `bound_j` is
    what no plan within `max_time_s` can fall below (linear-program bound); where operations run
    kernel-level plans, no such plans either, be they among the options or not.

    `baseline_operations` and `frontier` are what a reader sees beside the plan: the same
    operations at their baseline options, and plans for other times. The planner leaves them
    empty; the workflow adds them.
    """

    status: Status
    request: PipelineRequest
    profile_name: str
    max_time_s: float
    time_s: float
    energy_j: float
    bound_j: float
    bound_gap_ratio: float
    baseline_time_s: float
    baseline_energy_j: float
    slowdown_ratio: float
    saving_ratio: float
    operations: tuple[PlannedOperation, ...]
    kernel_plans: tuple[KernelPlan, ...] = ()
    caveats: tuple[Caveat, ...] = ()
    baseline_operations: tuple[PlannedOperation, ...] = ()
    frontier: tuple[PipelinePoint, ...] = ()
