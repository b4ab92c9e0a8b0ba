"""A workload as one self-contained page."""

from __future__ import annotations

from collections.abc import Sequence

from joulewise import __version__
from joulewise.domain.caveats import Caveat, by_gravity
from joulewise.report.doubts import title
from joulewise.report.html_page import (
    content_policy,
    page_environment,
    page_resource,
    page_scripts,
)
from joulewise.report.workload_facts import DeviceCosts, WorkloadFacts
from joulewise.report.workload_figure import MOST_BARS, roofline_figure, timeline_figure
from joulewise.report.workload_words import (
    ESTIMATED_NOTE,
    pass_flop_text,
    passes_text,
    size_rows,
    trace_rows,
    work_text,
    workload_sentence,
)

_MOST_KERNELS = 200


def render_workload(
    facts: WorkloadFacts, caveats: Sequence[Caveat], on_device: DeviceCosts | None = None
) -> str:
    """One HTML page that opens offline, under the same policy as every report's.

    `on_device` is what the facts were made with.
    """
    scripts = page_scripts()
    environment = page_environment()
    environment.filters.update(
        capitalize_first=_capitalized,
        pass_flop_text=pass_flop_text,
        passes_text=passes_text,
        work_text=work_text,
    )
    figures = {
        "timeline-plot": timeline_figure(facts, on_device),
        "roofline-plot": roofline_figure(facts),
    }
    listed = by_gravity(caveats)
    return environment.get_template("workload_page.html.j2").render(
        facts=facts,
        source=facts.time_source.value if facts.time_source else None,
        sentence=workload_sentence(facts),
        is_merged=facts.launch_count + facts.gap_count > MOST_BARS,
        kernels=facts.kernels[:_MOST_KERNELS],
        estimated_note=ESTIMATED_NOTE if facts.is_work_estimated else None,
        size_rows=size_rows(facts.workload.size),
        trace_rows=trace_rows(facts.workload.trace),
        figures=figures,
        caveats=listed,
        titles=[title(caveat.kind) for caveat in listed],
        version=__version__,
        content_policy=content_policy(scripts),
        style=page_resource("page.css"),
        plotly_script=scripts[0],
        page_script=scripts[1],
    )


def _capitalized(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"
