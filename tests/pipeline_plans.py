"""Pipeline plans of small profiles, as the workflow makes them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from joulewise.domain.pipeline import (
    Instruction,
    OperationOption,
    PipelinePlan,
    PipelineRequest,
    PipelineShape,
    StageProfile,
)
from joulewise.domain.plan import PlannedLaunch
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.workload import Pass
from joulewise.plan.pipeline.solve import pipeline_frontier, plan_pipeline

REQUEST = PipelineRequest(
    shape=PipelineShape(stage_count=3, micro_batch_count=4), blocking_power_w=80.0
)


def profiles(stage_count: int) -> tuple[StageProfile, ...]:
    """Three clocks each; later stages and backward passes take longer."""
    found = []
    for stage in range(stage_count):
        for instruction in Instruction:
            work_s = (0.05 + 0.005 * stage) * (1 if instruction is Instruction.FORWARD else 2)
            options = tuple(
                OperationOption(
                    time_s=work_s * 1410 / clock,
                    energy_j=work_s * 1410 / clock * (100 + 300 * (clock / 1410) ** 3),
                    point=OperatingPoint(sm_clock_mhz=clock),
                )
                for clock in (1410, 1200, 990)
            )
            found.append(StageProfile(stage=stage, instruction=instruction, options=options))
    return tuple(found)


@cache
def toy_plan() -> PipelinePlan:
    """Three stages, four micro-batches, with its baseline and frontier."""
    return _with_company(profiles(3), "toy <b>profile</b>")


@cache
def nested_plan() -> PipelinePlan:
    """The same, with a kernel-level plan behind the slower options."""
    nested = []
    for profile in profiles(3):
        pass_ = Pass(profile.instruction.value)
        fast, *slow = profile.options
        options = [replace(fast, point=AUTO)]
        for option in slow:
            launches = (
                PlannedLaunch(kernel="gemm", pass_=pass_, point=AUTO),
                PlannedLaunch(kernel="norm", pass_=pass_, point=option.point or AUTO),
            )
            options.append(replace(option, point=None, launches=launches))
        nested.append(replace(profile, options=tuple(options)))
    return _with_company(tuple(nested), "nested")


def _with_company(found: tuple[StageProfile, ...], name: str) -> PipelinePlan:
    plan = plan_pipeline(found, REQUEST, profile_name=name)
    alone = tuple(replace(profile, options=profile.options[:1]) for profile in found)
    baseline = plan_pipeline(alone, REQUEST, profile_name=name)
    return replace(
        plan,
        baseline_operations=baseline.operations,
        frontier=pipeline_frontier(found, REQUEST, point_count=6),
    )
