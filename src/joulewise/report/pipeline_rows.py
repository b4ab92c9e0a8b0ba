"""What a pipeline plan runs, added up for tables."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from joulewise.domain.pipeline import Instruction, PipelinePlan, PlannedOperation
from joulewise.domain.points import OperatingPoint

_MOST_LISTED = 3
_UNIT = " MHz"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationRow:
    """All operations of one instruction on one stage: what they run at, and what that takes.

    Times and energies are sums over the micro-batches of an iteration; `points` lists the
    settings in use with their number of operations, `kernel_plan_count` the kernel-level plans.
    Those at the baseline are `None` where the plan does not hold the baseline's operations.
    """

    stage: int
    instruction: Instruction
    points: tuple[tuple[OperatingPoint, int], ...]
    kernel_plan_count: int
    time_s: float
    energy_j: float
    baseline_time_s: float | None
    baseline_energy_j: float | None


def operation_rows(plan: PipelinePlan) -> tuple[OperationRow, ...]:
    """Operations added up per stage and instruction, forward first."""
    rows = []
    for stage in range(plan.request.shape.stage_count):
        for instruction in Instruction:
            own = _of(plan.operations, stage, instruction)
            baseline = _of(plan.baseline_operations, stage, instruction)
            rows.append(
                OperationRow(
                    stage=stage,
                    instruction=instruction,
                    points=tuple(Counter(one.point for one in own if one.point).items()),
                    kernel_plan_count=len({one.launches_index for one in own} - {None}),
                    time_s=math.fsum(one.time_s for one in own),
                    energy_j=math.fsum(one.energy_j for one in own),
                    baseline_time_s=math.fsum(o.time_s for o in baseline) if baseline else None,
                    baseline_energy_j=math.fsum(o.energy_j for o in baseline) if baseline else None,
                )
            )
    return tuple(rows)


def clocks_in_use(row: OperationRow) -> str:
    """Few settings are listed, many are told by their ends and number."""
    points = sorted((point for point, _ in row.points), key=_speed)
    texts = [_listed(points)] if points else []
    if row.kernel_plan_count:
        plural = "s" if row.kernel_plan_count > 1 else ""
        texts.append(f"{row.kernel_plan_count} kernel plan{plural}")
    return " and ".join(texts)


def clock_span(row: OperationRow) -> str:
    """The lowest and the highest setting in use, in MHz without saying so; or kernel plans."""
    points = sorted((point for point, _ in row.points), key=_speed)
    labels = dict.fromkeys(point_label(point).removesuffix(_UNIT) for point in points)
    ends = list(labels)[:1] + list(labels)[1:][-1:]
    parts = [" … ".join(ends)] if ends else []
    return " and ".join([*parts, "kernel plans"] if row.kernel_plan_count else parts)


def setting_count(row: OperationRow) -> int:
    """How many settings, and kernel-level plans, the operations run at."""
    return len(row.points) + row.kernel_plan_count


def _listed(points: Sequence[OperatingPoint]) -> str:
    labels = [point_label(point) for point in points]
    if all(label.endswith(_UNIT) for label in labels):  # the unit is said once
        labels = [label.removesuffix(_UNIT) for label in labels[:-1]] + labels[-1:]
    if len(labels) <= _MOST_LISTED:
        return ", ".join(labels)
    return f"{labels[0]} … {labels[-1]} ({len(labels)})"


def point_label(point: OperatingPoint) -> str:
    """The SM clock alone where nothing else is set, else `SM/memory` in MHz."""
    if point.sm_clock_mhz and point.mem_clock_mhz is None and point.power_limit_w is None:
        return f"{point.sm_clock_mhz} MHz"
    return point.label


def waiting_time_s(
    plan: PipelinePlan, operations: Sequence[PlannedOperation], end_s: float
) -> float:
    """How long all stages together wait in an iteration that takes `end_s`."""
    return plan.request.shape.stage_count * end_s - math.fsum(one.time_s for one in operations)


def _of(
    operations: Sequence[PlannedOperation], stage: int, instruction: Instruction
) -> list[PlannedOperation]:
    return [one for one in operations if one.stage == stage and one.instruction is instruction]


def _speed(point: OperatingPoint) -> tuple[float, float, float]:
    """Lowest clocks first, auto last."""
    knobs = (point.sm_clock_mhz, point.mem_clock_mhz, point.power_limit_w)
    sm, mem, limit = (math.inf if knob is None else float(knob) for knob in knobs)
    return sm, mem, limit
