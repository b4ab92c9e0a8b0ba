"""The table and the figure of `joulewise transition-cost` as one self-contained page."""

from __future__ import annotations

from joulewise import __version__
from joulewise.report.doubts import title
from joulewise.report.html_page import (
    content_policy,
    page_environment,
    page_resource,
    page_scripts,
)
from joulewise.report.transition_cost import (
    TransitionCosts,
    latency_text,
    transition_cost_sentence,
)
from joulewise.report.transition_cost_figure import transition_cost_figure


def render_transition_cost(costs: TransitionCosts) -> str:
    """One HTML page that opens offline, under the same policy as the report of a run."""
    plotly_script, page_script = page_scripts()
    return (
        page_environment()
        .get_template("transition_cost.html.j2")
        .render(
            costs=costs,
            verdict=transition_cost_sentence(costs),
            latencies=[latency_text(row.latency_s) for row in costs.rows],
            figures={"cost-plot": transition_cost_figure(costs)},
            titles=[title(caveat.kind) for caveat in costs.caveats],
            version=__version__,
            content_policy=content_policy((plotly_script, page_script)),
            style=page_resource("page.css"),
            plotly_script=plotly_script,
            page_script=page_script,
        )
    )
