"""The report as one self-contained page."""

from __future__ import annotations

from dataclasses import dataclass

from joulewise.domain.plan import Plan, Status
from joulewise.domain.sweep import SweepSource
from joulewise.report.clocks_figure import (
    KNOBS,
    MOST_STRETCHES,
    clocks_figure,
    first_view_s,
    moved_knobs,
    time_scale,
)
from joulewise.report.compare import (
    KernelSaving,
    comparison_rows,
    equal_slowdown_ratio,
    kernel_savings,
)
from joulewise.report.doubts import gathered_doubts
from joulewise.report.efficiency import efficiency_section
from joulewise.report.frontier_figure import frontier_figure
from joulewise.report.html_page import (
    content_policy,
    page_environment,
    page_resource,
    page_scripts,
)
from joulewise.report.inputs import ReportInputs
from joulewise.report.provenance import origin, provenance_rows
from joulewise.report.savings_figure import savings_figure
from joulewise.report.timeline import (
    Stretch,
    change_count,
    pass_bands,
    point_shares,
    stretches,
)
from joulewise.report.verdict import headline
from joulewise.report.wording import (
    count,
    counted,
    duration,
    energy,
    percent,
)

_MOST_ROWS = 200
_MOST_SIGHTINGS = 5
_MOST_VIEWS = 6
_SEEN_DIFFERENCE_RATIO = 0.0005


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A part of the iteration that a button shows."""

    name: str
    start_s: float
    end_s: float


def render_report(inputs: ReportInputs) -> str:
    """One HTML page that opens offline: no script, style, font or figure comes from elsewhere.

    A content policy in the page lets only its own two scripts run, named by their hashes, and
    forbids every request, so that a hostile kernel name stays text. Raises PlanError where plan
    and sweep do not fit together.
    """
    plotly_script, page_script = page_scripts()
    parts = stretches(inputs.plan, inputs.sweep)
    savings = kernel_savings(inputs.plan, inputs.sweep)
    rows = comparison_rows(inputs)
    return (
        page_environment()
        .get_template("page.html.j2")
        .render(
            plan=inputs.plan,
            sweep=inputs.sweep,
            verification=inputs.verification,
            rivals_basis=inputs.rivals_basis,
            provenance=inputs.provenance,
            verdict=headline(
                inputs.plan,
                inputs.verification,
                rows,
                is_table_simulated=inputs.sweep.source.is_simulated,
            ),
            origin=origin(inputs.sweep.source),
            rows=rows,
            limit_ratio=equal_slowdown_ratio(inputs.plan, inputs.verification),
            efficiency=efficiency_section(inputs),
            figures={
                "frontier-plot": frontier_figure(inputs),
                "clocks-plot": clocks_figure(parts),
                "savings-plot": savings_figure(savings),
            },
            clocks_sentence=_clocks_sentence(inputs, parts),
            views=_views(parts),
            view_scale=time_scale(parts)[0],
            shares=point_shares(inputs.plan, inputs.sweep),
            savings=savings,
            savings_sentence=_savings_sentence(inputs, savings),
            total_time_s=parts[-1].end_s,
            total_energy_j=sum(saving.baseline_energy_j for saving in savings),
            doubts=gathered_doubts(inputs),
            provenance_rows=provenance_rows(inputs),
            most_rows=_MOST_ROWS,
            most_sightings=_MOST_SIGHTINGS,
            content_policy=content_policy((plotly_script, page_script)),
            style=page_resource("page.css"),
            plotly_script=plotly_script,
            page_script=page_script,
        )
    )


def _clocks_sentence(inputs: ReportInputs, parts: tuple[Stretch, ...]) -> str:
    """What the figure shows, and what it leaves out."""
    moved = moved_knobs(parts)
    if not moved:
        return "The plan leaves every clock to the driver throughout."
    changes = change_count(parts)
    sentences = ["The plan keeps one operating point throughout."]
    if changes:
        sentences = [f"The plan changes the operating point {counted(changes, 'time')}."]
    still = [knob.name for knob in KNOBS[:2] if knob not in moved]
    if still:
        sentences.append(f"It leaves the {still[0]} to the driver throughout.")
    if changes:
        sentences.append(_changes_sentence(inputs.plan, inputs.sweep.source))
    if len(parts) > MOST_STRETCHES:
        sentences.append(f"The first {count(MOST_STRETCHES)} steps are shown.")
    return " ".join(sentences)


def _changes_sentence(plan: Plan, source: SweepSource) -> str:
    """What the changes take, where the plan counts that."""
    model = plan.request.transition
    if model is None:
        return "Changing takes no time here: each kernel was measured alone."
    is_measured = model.is_measured_on(source.device_name, is_simulated=source.is_simulated)
    known = "measured" if is_measured else "assumed"
    taken = [duration(plan.transition_time_s)] if plan.transition_time_s else []
    taken += [energy(plan.transition_energy_j)] if plan.transition_energy_j else []
    sentence = (
        f"By the {known} transition model {model.name!r} the changes take "
        f"{' and '.join(taken)} of an iteration"
        if taken
        else f"By the {known} transition model {model.name!r} the GPU does not wait for changes"
    )
    lead_s = max((request.lead_s for request in plan.requests), default=0.0)
    if lead_s:
        sentence += f"; they are asked for up to {duration(lead_s)} ahead"
    return f"{sentence}."


def _views(parts: tuple[Stretch, ...]) -> tuple[View, ...]:
    """The first steps, the whole iteration, and its passes where they are few."""
    shown = parts[:MOST_STRETCHES]
    end_s, first_s = shown[-1].end_s, first_view_s(shown)
    views = [View(name="Whole iteration", start_s=0.0, end_s=end_s)]
    if first_s < end_s:
        views.insert(0, View(name=f"First {duration(first_s)}", start_s=0.0, end_s=first_s))
    bands = pass_bands(shown)
    if 1 < len(bands) <= _MOST_VIEWS:
        views += [
            View(name=band.pass_.value.capitalize(), start_s=band.start_s, end_s=band.end_s)
            for band in bands
        ]
    return tuple(views)


def _savings_sentence(inputs: ReportInputs, savings: tuple[KernelSaving, ...]) -> str:
    saved_energy_j = sum(saving.saved_energy_j for saving in savings)
    ratio = saved_energy_j / sum(saving.baseline_energy_j for saving in savings)
    sentence = f"The bars add up to {percent(ratio)} of the iteration's energy at the baseline."
    taken_ratio = inputs.plan.transition_energy_j / inputs.plan.baseline_energy_j
    if taken_ratio:
        sentence += f" Changing the point takes {percent(taken_ratio)} of it back."
    if (
        inputs.plan.status is not Status.NO_GAIN
        and abs(ratio - taken_ratio - inputs.plan.saving_ratio) > _SEEN_DIFFERENCE_RATIO
    ):
        sentence += (
            f" They are the sweep's numbers; the plan promises {percent(inputs.plan.saving_ratio)}"
            " from cells that were measured again."
        )
    return sentence
