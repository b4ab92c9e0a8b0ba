"""Pipeline plans in and out of `pipeline.json`, and the tables that pipelines are planned on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from joulewise.domain.pipeline import PipelinePlan, PipelinePoint, PipelineShape, PlannedOperation
from joulewise.domain.plan import Status
from joulewise.domain.sweep import Sweep
from joulewise.store.atomic import write_atomically
from joulewise.store.files import read_bytes
from joulewise.store.importers.perseus import import_perseus
from joulewise.store.record_files import read_record, record_document, require_positive, unlike
from joulewise.store.sweeps import read_sweep

_PLANNED = (Status.OPTIMAL, Status.FEASIBLE, Status.NO_GAIN)
_AMOUNTS = (
    *("max_time_s", "time_s", "energy_j", "baseline_time_s", "baseline_energy_j"),
    "slowdown_ratio",
)
_POINT_AMOUNTS = ("max_time_s", "time_s", "energy_j", "slowdown_ratio")
_INSTRUCTIONS_COUNT = 2
_LARGEST_COUNT = 100_000
# Sums over thousands of operations in another order than theirs differ by less.
_ROUNDING_RATIO = 1e-6


def read_profile(path: Path) -> Sweep:
    """Read a table that pipelines are planned on: a Perseus profile or any sweep.

    A CSV with the columns `stage` and `instruction` is a Perseus profile, whose kernels become
    `stageN/INSTRUCTION`; all else is a sweep.

    Raises:
        InputError: anything wrong with the file; names file, row and field.
    """
    return import_perseus(path) if _is_perseus(path) else read_sweep(path)


def read_pipeline(path: Path) -> PipelinePlan:
    """Read `pipeline.json`.

    Raises:
        InputError: anything wrong with the file, also operations that do not make up the
            pipeline, overlap on a stage or do not add up; names file, line or field.
    """
    plan, file = read_record(path, PipelinePlan), str(path)
    if plan.status not in _PLANNED:
        raise unlike("a plan is never of this status", file, "status")
    require_positive(plan, _AMOUNTS, "", file)
    shape = plan.request.shape
    _check_shape(shape, file)
    _check_kernel_plans(plan, file)
    _check_operations(plan.operations, plan, "operations", file)
    _check_sums(plan.operations, plan, "", file)
    _check_ratios(plan, plan, "", file)
    if plan.baseline_operations:
        _check_operations(plan.baseline_operations, plan, "baseline_operations", file)
        _check_sums(plan.baseline_operations, plan, "baseline_", file)
    _check_budget(plan, file)
    _check_frontier(plan, file)
    return plan


def write_pipeline(plan: PipelinePlan, path: Path) -> None:
    """Write `pipeline.json`, whole or not at all.

    Raises:
        InputError: the place cannot be written to.
    """
    write_atomically(path, record_document(plan))


def _is_perseus(path: Path) -> bool:
    if path.suffix == ".parquet":
        return False
    raw = read_bytes(path)
    if raw.startswith(b"PAR1"):
        return False
    header = raw.partition(b"\n")[0].decode("utf-8-sig", "replace")
    names = {name.strip().strip('"') for name in header.split(",")}
    return {"stage", "instruction"} <= names


def _check_shape(shape: PipelineShape, file: str) -> None:
    for name in ("stage_count", "micro_batch_count", "chunk_count"):
        if not 1 <= getattr(shape, name) <= _LARGEST_COUNT:
            raise unlike("this must be a whole number from 1 up", file, f"request.shape.{name}")


def _check_kernel_plans(plan: PipelinePlan, file: str) -> None:
    for index, kernel_plan in enumerate(plan.kernel_plans):
        where = f"kernel_plans[{index}]"
        if not kernel_plan.launches:
            raise unlike("the kernel-level plan has no launches", file, f"{where}.launches")
        require_positive(kernel_plan, ("time_s", "energy_j"), f"{where}.", file)
    shape = plan.request.shape
    ratios = {one.stage: one.slowdown_ratio for one in plan.request.stragglers}
    for place, one in enumerate(plan.operations):
        if one.launches_index is None or not 0 <= one.launches_index < len(plan.kernel_plans):
            continue
        own, where = plan.kernel_plans[one.launches_index], f"operations[{place}]"
        if (own.stage, own.instruction) != (one.stage, one.instruction):
            raise unlike("its kernel-level plan is of another", file, f"{where}.launches_index")
        share_ratio = ratios.get(one.stage, 1.0) / shape.chunk_count
        for name in ("time_s", "energy_j"):
            whole = share_ratio * getattr(own, name)
            if not math.isclose(getattr(one, name), whole, rel_tol=_ROUNDING_RATIO):
                message = f"by its kernel-level plan this is {whole:.9g}"
                raise unlike(message, file, f"{where}.{name}")


def _check_operations(
    operations: Sequence[PlannedOperation], plan: PipelinePlan, field: str, file: str
) -> None:
    """Every operation of the pipeline once, none beside another on its stage."""
    shape = plan.request.shape
    expected_count = (
        shape.stage_count * shape.chunk_count * shape.micro_batch_count * _INSTRUCTIONS_COUNT
    )
    if len(operations) != expected_count:
        raise unlike(
            f"the pipeline has {expected_count} operations, not {len(operations)}", file, field
        )
    seen = set()
    for index, one in enumerate(operations):
        where = f"{field}[{index}]"
        require_positive(one, ("time_s", "energy_j"), f"{where}.", file)
        _check_place(one, shape, where, file)
        _check_choice(one, len(plan.kernel_plans), where, file)
        key = (one.stage, one.chunk, one.micro_batch, one.instruction)
        if key in seen:
            raise unlike("this operation comes twice", file, where)
        seen.add(key)
    _check_overlaps(operations, field, file)


def _check_place(one: PlannedOperation, shape: PipelineShape, where: str, file: str) -> None:
    for name, count in (
        ("stage", shape.stage_count),
        ("chunk", shape.chunk_count),
        ("micro_batch", shape.micro_batch_count),
    ):
        if not 0 <= getattr(one, name) < count:
            raise unlike(f"the pipeline has only {count}, counted from 0", file, f"{where}.{name}")


def _check_choice(one: PlannedOperation, kernel_plan_count: int, where: str, file: str) -> None:
    """An operation runs at one point or by one kernel-level plan."""
    index = one.launches_index
    if (one.point is None) == (index is None):
        raise unlike("an operation has a point or a kernel-level plan", file, f"{where}.point")
    if index is not None and not 0 <= index < kernel_plan_count:
        raise unlike("there is no such kernel-level plan", file, f"{where}.launches_index")


def _check_overlaps(operations: Sequence[PlannedOperation], field: str, file: str) -> None:
    order = sorted(
        range(len(operations)), key=lambda i: (operations[i].stage, operations[i].start_s)
    )
    for before, after in pairwise(order):
        first, second = operations[before], operations[after]
        end_s = first.start_s + first.time_s
        is_beside = second.start_s < end_s - _ROUNDING_RATIO * end_s
        if first.stage == second.stage and is_beside:
            raise unlike(
                "this operation starts before the one ahead of it on its stage ends",
                file,
                f"{field}[{after}].start_s",
            )


def _check_sums(
    operations: Sequence[PlannedOperation], plan: PipelinePlan, prefix: str, file: str
) -> None:
    """The iteration ends with its last operation, and its energy is that of its parts."""
    time_s: float = getattr(plan, f"{prefix}time_s")
    energy_j: float = getattr(plan, f"{prefix}energy_j")
    power_w = plan.request.blocking_power_w
    last_s = max(one.start_s + one.time_s for one in operations)
    if not math.isclose(last_s, time_s, rel_tol=_ROUNDING_RATIO):
        raise unlike(f"the last operation ends at {last_s:.6g} s", file, f"{prefix}time_s")
    busy_j = math.fsum(one.energy_j - power_w * one.time_s for one in operations)
    total_j = busy_j + plan.request.shape.stage_count * time_s * power_w
    if not math.isclose(total_j, energy_j, rel_tol=_ROUNDING_RATIO):
        message = f"the operations and waiting add up to {total_j:.6g} J"
        raise unlike(message, file, f"{prefix}energy_j")


def _check_ratios(
    found: PipelinePlan | PipelinePoint, plan: PipelinePlan, prefix: str, file: str
) -> None:
    """Ratios are against the baseline, and no plan lies below its bound."""
    slowdown_ratio = found.time_s / plan.baseline_time_s
    if not math.isclose(found.slowdown_ratio, slowdown_ratio, rel_tol=_ROUNDING_RATIO):
        message = f"against the baseline's time this is {slowdown_ratio:.6g}"
        raise unlike(message, file, f"{prefix}slowdown_ratio")
    saving_ratio = 1.0 - found.energy_j / plan.baseline_energy_j
    if not math.isclose(found.saving_ratio, saving_ratio, abs_tol=_ROUNDING_RATIO):
        message = f"against the baseline's energy this is {saving_ratio:.6g}"
        raise unlike(message, file, f"{prefix}saving_ratio")
    if not 0.0 <= found.bound_j <= found.energy_j * (1.0 + _ROUNDING_RATIO):
        raise unlike("the bound lies above the plan", file, f"{prefix}bound_j")


def _check_budget(plan: PipelinePlan, file: str) -> None:
    """The time is what was allowed, the gap what lies between plan and bound."""
    if plan.time_s > plan.max_time_s * (1.0 + _ROUNDING_RATIO):
        raise unlike("the plan takes longer than this", file, "max_time_s")
    asked_s = plan.request.max_time_s
    asked_s = plan.baseline_time_s if asked_s is None else asked_s
    if not math.isclose(plan.max_time_s, asked_s, rel_tol=_ROUNDING_RATIO):
        raise unlike(f"what was asked for is {asked_s:.9g} s", file, "max_time_s")
    gap_ratio = 1.0 - plan.bound_j / plan.energy_j
    if not math.isclose(plan.bound_gap_ratio, gap_ratio, abs_tol=_ROUNDING_RATIO):
        message = f"between plan and bound there lies {gap_ratio:.6g}"
        raise unlike(message, file, "bound_gap_ratio")
    if plan.status is Status.OPTIMAL and gap_ratio > _ROUNDING_RATIO:
        raise unlike("a plan with such a gap to its bound is not proven best", file, "status")


def _check_frontier(plan: PipelinePlan, file: str) -> None:
    for index, point in enumerate(plan.frontier):
        require_positive(point, _POINT_AMOUNTS, f"frontier[{index}].", file)
    for index, (before, after) in enumerate(pairwise(plan.frontier), start=1):
        if after.time_s < before.time_s:
            raise unlike("the frontier goes back in time", file, f"frontier[{index}].time_s")
    for index, point in enumerate(plan.frontier):
        where = f"frontier[{index}]."
        _check_ratios(point, plan, where, file)
        if point.time_s > point.max_time_s * (1.0 + _ROUNDING_RATIO):
            raise unlike("the plan takes longer than this", file, f"{where}max_time_s")
        is_within = point.time_s <= plan.max_time_s
        if is_within and point.energy_j < plan.bound_j * (1.0 - _ROUNDING_RATIO):
            raise unlike("this lies below the bound of the plan", file, f"{where}energy_j")
