"""The report of a pipeline plan as one self-contained page."""

from __future__ import annotations

from dataclasses import dataclass

from joulewise.domain.caveats import Caveat, CaveatKind, gravity
from joulewise.domain.pipeline import PipelinePlan
from joulewise.report.doubts import Doubt, title
from joulewise.report.html_page import (
    content_policy,
    page_environment,
    page_resource,
    page_scripts,
)
from joulewise.report.inputs import Provenance
from joulewise.report.pipeline_frontier import pipeline_frontier_figure
from joulewise.report.pipeline_gantt import gantt_figure
from joulewise.report.pipeline_rows import clocks_in_use, operation_rows, waiting_time_s
from joulewise.report.pipeline_verdict import (
    pipeline_verdict,
    proof,
    shape_words,
    straggler_words,
)
from joulewise.report.wording import change, counted, duration

_MOST_ROWS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class SideRow:
    """The pipeline at one setting, as one row of the page's first table."""

    role: str
    label: str
    under: str
    time_s: float
    slowdown_ratio: float
    energy_j: float
    saving_ratio: float
    waiting_j: float | None


def render_pipeline_report(plan: PipelinePlan, provenance: Provenance) -> str:
    """One HTML page that opens offline, under the same policy as every report's."""
    scripts = page_scripts()
    environment = page_environment()
    environment.filters["clocks_in_use"] = clocks_in_use
    simulated = next((c for c in plan.caveats if c.kind is CaveatKind.SIMULATED_DEVICE), None)
    return environment.get_template("pipeline_page.html.j2").render(
        plan=plan,
        provenance=provenance,
        verdict=pipeline_verdict(plan),
        shape=shape_words(plan.request),
        simulated=simulated,
        sides=_sides(plan),
        proof=proof(plan),
        figures={
            "gantt-plot": gantt_figure(plan),
            "frontier-plot": pipeline_frontier_figure(plan),
        },
        rows=operation_rows(plan)[:_MOST_ROWS],
        doubts=_doubts(plan.caveats),
        provenance_rows=_provenance_rows(plan, provenance),
        content_policy=content_policy(scripts),
        style=page_resource("page.css") + page_resource("pipeline_page.css"),
        plotly_script=scripts[0],
        page_script=scripts[1],
    )


def _sides(plan: PipelinePlan) -> tuple[SideRow, ...]:
    """Baseline and plan; what waiting takes is known where the operations are."""
    power_w = plan.request.blocking_power_w
    waiting_s = waiting_time_s(plan, plan.operations, plan.time_s)
    at_baseline_j = None
    if plan.baseline_operations:
        at_baseline_j = power_w * waiting_time_s(
            plan, plan.baseline_operations, plan.baseline_time_s
        )
    return (
        SideRow(
            role="baseline",
            label="Baseline",
            under="every operation at its baseline setting",
            time_s=plan.baseline_time_s,
            slowdown_ratio=1.0,
            energy_j=plan.baseline_energy_j,
            saving_ratio=0.0,
            waiting_j=at_baseline_j,
        ),
        SideRow(
            role="promised",
            label="Plan",
            under=proof(plan),
            time_s=plan.time_s,
            slowdown_ratio=plan.slowdown_ratio,
            energy_j=plan.energy_j,
            saving_ratio=plan.saving_ratio,
            waiting_j=power_w * waiting_s,
        ),
        SideRow(
            role="bound",
            label="Bound",
            under="no plan within the allowed time needs less",
            time_s=plan.max_time_s,
            slowdown_ratio=plan.max_time_s / plan.baseline_time_s,
            energy_j=plan.bound_j,
            saving_ratio=1.0 - plan.bound_j / plan.baseline_energy_j,
            waiting_j=None,
        ),
    )


def _doubts(caveats: tuple[Caveat, ...]) -> tuple[Doubt, ...]:
    """Those that matter most first, equal kinds told once."""
    kinds = dict.fromkeys(caveat.kind for caveat in caveats)
    ordered = sorted(kinds, key=gravity)
    doubts = []
    for kind in ordered:
        own = [caveat for caveat in caveats if caveat.kind is kind]
        doubts.append(
            Doubt(
                title=title(kind),
                seen=tuple(dict.fromkeys(caveat.seen for caveat in own)),
                why=own[0].why,
                helps=own[0].helps,
            )
        )
    return tuple(doubts)


def _provenance_rows(plan: PipelinePlan, provenance: Provenance) -> tuple[tuple[str, str], ...]:
    request = plan.request
    rows: list[tuple[str, str | None]] = [
        ("Profile", plan.profile_name),
        ("Pipeline", shape_words(request)),
        ("Stragglers", straggler_words(request)),
        ("Blocking power", f"{request.blocking_power_w:g} W a stage while it waits"),
        ("Time allowed", f"{duration(plan.max_time_s)}, {_allowed(plan)}"),
        ("Operations", counted(len(plan.operations), "operation")),
        ("Kernel-level plans", str(len(plan.kernel_plans)) if plan.kernel_plans else None),
        *provenance.notes,
        ("Written", provenance.written_on),
        ("Written by", f"joulewise {provenance.joulewise_version}"),
    ]
    return tuple((label, text) for label, text in rows if text is not None)


def _allowed(plan: PipelinePlan) -> str:
    return f"{change(plan.max_time_s / plan.baseline_time_s)} against the baseline"
