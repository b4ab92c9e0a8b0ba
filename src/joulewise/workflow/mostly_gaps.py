"""Whether most of an iteration is gaps, in which the GPU waits for its host."""

from __future__ import annotations

from dataclasses import replace

from joulewise.domain.caveats import Caveat, CaveatKind, first_of_each_kind
from joulewise.domain.gaps import is_gap
from joulewise.domain.plan import Plan
from joulewise.domain.sweep import Sweep
from joulewise.report.compare import kernel_savings

MOST_RATIO = 0.5
"""More of an iteration than this is most of it."""


def with_gap_doubts(plan: Plan, sweep: Sweep) -> Plan:
    """The plan, with MostlyGaps where that holds; `sweep` has the cells that it stands on.

    Raises PlanError where the sweep lacks one of them.
    """
    doubts = mostly_gaps(plan, sweep)
    return replace(plan, caveats=first_of_each_kind(*plan.caveats, *doubts)) if doubts else plan


def mostly_gaps(plan: Plan, sweep: Sweep) -> tuple[Caveat, ...]:
    """MostlyGaps where more than half of the time at the baseline is gaps.

    Raises PlanError where the sweep lacks a cell of the plan or its baseline.
    """
    if not any(is_gap(kernel) for kernel in sweep.kernels):
        return ()
    savings = kernel_savings(plan, sweep)
    gaps = [one for one in savings if is_gap(one.kernel)]
    total_s = sum(one.baseline_time_s for one in savings)
    share = sum(one.baseline_time_s for one in gaps) / total_s
    if share <= MOST_RATIO:
        return ()
    seen = f"for {share:.0%} of the iteration the GPU waits for its host"
    saved_j = sum(one.saved_energy_j for one in savings)
    gaps_j = sum(one.saved_energy_j for one in gaps)
    if 0.0 < gaps_j <= saved_j:
        seen = f"{gaps_j / saved_j:.0%} of the saving is in gaps: {seen}"
    return (Caveat(kind=CaveatKind.MOSTLY_GAPS, seen=seen),)
