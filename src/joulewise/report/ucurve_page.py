"""U-curves of fine-tuning jobs as one self-contained page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from joulewise import __version__
from joulewise.domain.caveats import Caveat, CaveatKind, by_gravity
from joulewise.report.doubts import title
from joulewise.report.figures import Figure
from joulewise.report.html_page import (
    content_policy,
    page_environment,
    page_resource,
    page_scripts,
)
from joulewise.report.ucurve import CurveCharacter, ucurve_sentence
from joulewise.report.ucurve_figure import overview_figure, ucurve_figure
from joulewise.report.ucurve_table import clock_rows, job_rows
from joulewise.report.wording import count, counted


def render_ucurves(characters: Sequence[CurveCharacter], caveats: Sequence[Caveat]) -> str:
    """One HTML page that opens offline, under the same policy as every report's.

    With several jobs, the figure shows the one that is chosen above it.

    Raises:
        ValueError: no curves.
    """
    if not characters:
        raise ValueError("there are no curves to show")
    plotly_script, page_script = page_scripts()
    choice_script = page_resource("ucurve.js")
    is_several = len(characters) > 1
    curves = [ucurve_figure(one) for one in characters]
    figures: dict[str, Figure] = {"curve-plot": curves[0]}
    if is_several:
        figures["overview-plot"] = overview_figure(characters)
    listed = by_gravity(caveats)
    first = characters[0].curve
    return (
        page_environment()
        .get_template("ucurve_page.html.j2")
        .render(
            device=first.device,
            device_name=first.device_name,
            is_simulated=any(one.curve.is_simulated for one in characters),
            is_several=is_several,
            verdict=ucurve_sentence(characters),
            near_ratio=characters[0].near_ratio,
            jobs=job_rows(characters),
            clocks=[clock_rows(one) for one in characters],
            figures=figures,
            curves=curves if is_several else [],
            caveats=listed,
            titles=[title(caveat.kind) for caveat in listed],
            provenance=list(_provenance(characters)),
            version=__version__,
            content_policy=content_policy((plotly_script, page_script, choice_script)),
            style=page_resource("page.css"),
            plotly_script=plotly_script,
            page_script=page_script,
            choice_script=choice_script,
        )
    )


def _provenance(characters: Sequence[CurveCharacter]) -> Iterator[tuple[str, str]]:
    curves = [one.curve for one in characters]
    costs = [cost for curve in curves for cost in (curve.baseline, *curve.costs)]
    yield "Device", ", ".join(dict.fromkeys(f"{one.device_name} ({one.device})" for one in curves))
    yield "Jobs", counted(len(curves), "job")
    clocks = sorted({clock for curve in curves for clock in curve.sm_clocks_mhz})
    yield "Pinned GPU clocks", f"{', '.join(map(str, clocks))} MHz"
    memory = sorted({one.mem_clock_mhz for one in costs if one.mem_clock_mhz is not None})
    yield "Memory clock", f"{', '.join(map(str, memory))} MHz" if memory else "not known"
    steps = [cost.step_count for cost in costs if cost.step_count is not None]
    yield "Training steps measured", count(sum(steps)) if steps else "not known"
    kinds = {caveat.kind for curve in curves for caveat in curve.caveats}
    kinds |= {caveat.kind for cost in costs for caveat in cost.caveats}
    if CaveatKind.STEPS_UNMARKED in kinds:
        yield "Energy", "of the whole command: it marked no steps"
    else:
        yield "Energy", "of a training step, over steps alone: no loading, no evaluation"
    yield "Written by", f"joulewise {__version__}"
