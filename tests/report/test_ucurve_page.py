"""Sentences, tables, figures and the page of U-curves, from records alone."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace

import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.finetuning import ClockCost, ClockCurve, JobFeatures, ModelType
from joulewise.finetune.characterisation import characterise
from joulewise.report.ucurve import CurveCharacter, clocks_text, curve_caveats, ucurve_sentence
from joulewise.report.ucurve_figure import overview_figure, ucurve_figure
from joulewise.report.ucurve_page import render_ucurves
from joulewise.report.ucurve_table import NOT_SHOWN, clock_rows, energy_with_error, job_rows

CLOCKS_MHZ = (306, 612, 918, 1300)
MODULE = Caveat(kind=CaveatKind.ENERGY_OF_MODULE, seen="three rails are counted")
OUTLIER = Caveat(kind=CaveatKind.OUTLIERS_SEEN, seen="window 1 lies far")


def character(
    energies_j: Sequence[float],
    *,
    job: str = "bert-base/sst2",
    error_ratio: float | None = 0.01,
    model_type: ModelType | None = ModelType.ENCODER,
    is_simulated: bool = True,
) -> CurveCharacter:
    def cost(clock: int | None, time_s: float, energy_j: float) -> ClockCost:
        error_j = None if error_ratio is None else error_ratio * energy_j
        error_s = None if error_ratio is None else error_ratio * time_s
        return ClockCost(
            sm_clock_mhz=clock,
            time_s=time_s,
            energy_j=energy_j,
            step_count=20,
            time_error_s=error_s,
            energy_error_j=error_j,
            busy_ratio=0.9,
            mem_clock_mhz=3199,
            caveats=(OUTLIER,) if clock == CLOCKS_MHZ[0] else (),
        )

    features = None
    if model_type is not None:
        features = JobFeatures(
            model_type=model_type, layer_count=12, hidden_count=768, mean_sequence_count=14.0
        )
    costs = zip(CLOCKS_MHZ, energies_j, strict=False)
    curve = ClockCurve(
        job=job,
        device="virtual:agx-orin",
        device_name="Jetson AGX Orin",
        is_simulated=is_simulated,
        features=features,
        baseline=cost(None, 1.0, 100.0),
        costs=tuple(cost(clock, 1300 / clock, energy_j) for clock, energy_j in costs),
        caveats=(MODULE,),
    )
    return characterise(curve)


ONE = character([95.0, 80.0, 81.0, 101.0])
OTHER = character([70.0, 90.0, 99.0, 100.0], job="pythia-70m/qnli", model_type=ModelType.DECODER)
UNKNOWN = character([99.5, 99.0, 100.0, 104.0], job="train.py", model_type=None, is_simulated=False)


def plain(text: str) -> str:
    for sign, simple in (
        ("\N{NARROW NO-BREAK SPACE}", " "),
        ("\N{MINUS SIGN}", "-"),
        ("\N{EN DASH}", "-"),
    ):
        text = text.replace(sign, simple)
    return text


def test_the_sentence_over_one_job_tells_clock_saving_price_and_band() -> None:
    assert plain(ucurve_sentence([ONE])) == snapshot(
        "bert-base/sst2: 612 MHz takes 20.0 % less energy per step than the governor, at +112.4 % time, and 20.8 % less energy than 1300 MHz, the highest measured; 612-918 MHz come within 2 %, the fastest 918 MHz: 19.0 % less energy than the governor, +41.6 % time."
    )
    assert plain(ucurve_sentence([OTHER])) == snapshot(
        "pythia-70m/qnli: 306 MHz takes 30.0 % less energy per step than the governor, at +324.8 % time, and 30.0 % less energy than 1300 MHz, the highest measured. That is the lowest clock measured: the least may lie beyond."
    )


def test_a_saving_that_is_not_shown_is_not_claimed() -> None:
    assert plain(ucurve_sentence([UNKNOWN])) == snapshot(
        "train.py: no saving against the governor is shown, as the difference is within two standard errors; 612 MHz took the least energy per step, at +112.4 % time, and 4.8 % less energy than 1300 MHz, the highest measured; 306-918 MHz come within 2 %, the fastest 918 MHz: +41.6 % time."
    )
    assert plain(ucurve_sentence([character([99.0, 120.0], error_ratio=None)])) == snapshot(
        "bert-base/sst2: no saving against the governor is shown, as errors are not known; 306 MHz took the least energy per step, at +324.8 % time. That is the lowest clock measured: the least may lie beyond."
    )
    # The highest clock is as good, and the governor dearer.
    assert "highest measured" not in ucurve_sentence([character([90.0, 80.0, 80.5])])


def test_a_loss_beyond_its_errors_is_told() -> None:
    dearer = character([120.0, 110.0, 115.0, 130.0])

    assert plain(ucurve_sentence([dearer])) == snapshot(
        "bert-base/sst2: no clock saves energy; the best, 612 MHz, takes 10.0 % more energy per step than the governor, at +112.4 % time, and 15.4 % less energy than 1300 MHz, the highest measured."
    )
    assert "-10.0 % ± 1.6 %" == plain(job_rows([dearer])[0].saving)


def test_over_several_jobs_what_errors_do_not_part_is_not_claimed() -> None:
    other = character([99.0, 120.0], job="other", error_ratio=None)

    assert plain(ucurve_sentence([UNKNOWN, UNKNOWN])) == snapshot(
        "Of 2 jobs the least energy lies at 612 MHz: no saving against the governor is shown on average, at +112.4 % time. The fastest clocks within 2 % of that energy: no shown saving, at +41.6 % time. For train.py, train.py no saving is shown: it is within two standard errors."
    )
    assert plain(ucurve_sentence([UNKNOWN, other])) == snapshot(
        "Of 2 jobs the least energy lies at 306 to 612 MHz: no saving against the governor is shown on average, at +218.6 % time. The fastest clocks within 2 % of that energy: no shown saving, at +183.2 % time. For train.py no saving is shown: it is within two standard errors. For other no saving is shown: errors are not known. At the edge of the clocks measured: other."
    )
    doubtful = [character([100.0 - 0.1 * count]) for count in range(9)]
    assert plain(ucurve_sentence([character([97.0]), *doubtful])) == snapshot(
        "Of 10 jobs the least energy lies at 306 MHz: no saving against the governor is shown on average, at +324.8 % time; where a job's own is shown, it is 3.0 %. For 9 jobs no saving is shown: it is within two standard errors."
    )


@given(
    st.lists(st.floats(50.0, 150.0), min_size=4, max_size=4),
    st.floats(0.0, 0.2),
)
def test_no_sentence_and_no_row_tells_a_saving_within_two_errors(
    energies_j: list[float], error_ratio: float
) -> None:
    one = character(energies_j, error_ratio=error_ratio)
    best_j = min(energies_j)
    error = best_j / 100.0 * math.hypot(error_ratio, error_ratio)
    is_told = abs(1.0 - best_j / 100.0) > 2.0 * error

    assert is_told == ("no saving against the governor is shown" not in ucurve_sentence([one]))
    assert is_told == (one.told_saving_ratio is not None)
    assert is_told == (job_rows([one])[0].saving != NOT_SHOWN)
    assert energy_with_error(one.best) == job_rows([one])[0].energy


def test_the_sentence_over_several_jobs_tells_mean_and_span() -> None:
    assert plain(ucurve_sentence([ONE, OTHER, UNKNOWN])) == snapshot(
        "Of 3 jobs the least energy lies at 306 to 612 MHz: on average 17.0 % less energy than the governor takes, at +183.2 % time, and 20.0 % to 30.0 % where a job's own saving is shown. The fastest clocks within 2 % of that energy: 16.3 % less energy, at +136.0 % time. For train.py no saving is shown: it is within two standard errors. At the edge of the clocks measured: pythia-70m/qnli."
    )


@pytest.mark.parametrize(
    ("clocks", "text"),
    [
        ((306,), "306"),
        ((612, 918), "612-918"),
        ((306, 918, 1300), "306, 918-1300"),
        (CLOCKS_MHZ, "306-1300"),
        ((), ""),
    ],
)
def test_neighbours_are_told_as_a_range_and_gaps_are_not(
    clocks: tuple[int, ...], text: str
) -> None:
    assert text == plain(clocks_text(clocks, CLOCKS_MHZ))


def test_doubts_come_once_a_kind_and_those_of_cells_are_counted() -> None:
    found = curve_caveats([ONE, OTHER])

    assert {
        CaveatKind.ENERGY_OF_MODULE: "three rails are counted",
        CaveatKind.OUTLIERS_SEEN: "2 of 10 cells.",
    } == {caveat.kind: caveat.seen for caveat in found}


def test_the_row_of_a_job_holds_what_people_compare() -> None:
    row, unshown = job_rows([ONE, UNKNOWN])

    assert ("bert-base/sst2", "612", "612-918", "918", "") == (
        row.job,
        row.best,
        plain(row.near),
        row.alike,
        row.note,
    )
    assert "20.0 % ± 1.1 %" == plain(row.saving)
    assert "lowest clock measured" == job_rows([OTHER])[0].note
    assert ("not shown", "99.00 J ± 1.0 %", "100.0 J ± 1.0 %") == tuple(
        map(plain, (unshown.saving, unshown.energy, unshown.baseline_energy))
    )
    assert ("1300", "20.8 %") == (row.highest, plain(row.highest_saving))
    assert "is the best" == job_rows([character([9.0, 8.0])])[0].highest_saving
    assert "unknown" == job_rows([character([9.0, 8.0], error_ratio=None)])[0].alike


def test_the_rows_of_clocks_begin_with_the_governor_and_mark_what_is_special() -> None:
    rows = clock_rows(ONE)

    assert ["governor", "306", "612", "918", "1300"] == [row.clock for row in rows]
    assert ["baseline", "", "least energy", "within 2 %", "highest measured"] == [
        plain(row.mark) for row in rows
    ]
    assert ("80.00 J ± 1.0 %", "-20.0 %", "90 %", "3199") == tuple(
        plain(text)
        for text in (rows[2].energy, rows[2].energy_change, rows[2].busy, rows[2].memory)
    )


def test_the_figure_of_a_curve_obeys_plotly_and_shades_the_band() -> None:
    drawn = go.Figure(ucurve_figure(ONE))

    energies = next(trace for trace in drawn.data if trace.name == "energy per step")
    times = next(trace for trace in drawn.data if trace.name == "time per step")
    assert (95.0, 80.0, 81.0, 101.0) == energies.y
    assert [1.9, 1.6, 1.62, 2.02] == pytest.approx(list(energies.error_y.array))
    assert ("y2", list(CLOCKS_MHZ)) == (times.yaxis, list(times.x))
    band = drawn.layout.shapes[0]
    # Half of the smallest step on both sides: the wide gap above 918 MHz was not measured.
    assert (459.0, 1071.0) == (band.x0, band.x1)
    stars = [trace for trace in drawn.data if trace.name == "least energy"]
    assert [(612, 80.0), (612, 1300 / 612)] == [(one.x[0], one.y[0]) for one in stars]
    governor = [trace for trace in drawn.data if trace.name == "governor"]
    assert [(100.0, 100.0), (1.0, 1.0)] == [one.y for one in governor]


def test_a_curve_of_one_clock_and_without_errors_can_be_drawn() -> None:
    lone = character([50.0], error_ratio=None)
    drawn = go.Figure(ucurve_figure(lone))

    assert not any(trace.error_y.visible for trace in drawn.data)
    assert drawn.layout.shapes[0].x0 < 306 < drawn.layout.shapes[0].x1


def test_the_overview_has_a_line_a_job_against_its_governor() -> None:
    drawn = go.Figure(overview_figure([ONE, OTHER, UNKNOWN]))

    lines = {trace.name: list(trace.y) for trace in drawn.data if trace.mode == "lines"}
    assert {"encoders", "decoders", "other jobs"} == set(lines)
    assert [-5.0, -20.0, -19.0, 1.0] == pytest.approx(lines["encoders"])


def test_the_page_asks_for_nothing_from_elsewhere_and_says_what_it_is() -> None:
    hostile = replace(ONE, curve=replace(ONE.curve, job="<b>w</b>"))
    page = render_ucurves([hostile, OTHER], curve_caveats([ONE, OTHER]))
    markup = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)

    assert "default-src 'none'" in html.unescape(page)
    assert not re.search(r"<(link|img|iframe|object|base|a)\b|\bsrc=|href=", markup)
    assert "Simulated." in markup
    assert "&lt;b&gt;w&lt;/b&gt;" in markup
    assert "three rails are counted" in markup
    assert "<dd>3199 MHz</dd>" in markup
    assert "<dd>200</dd>" in markup
    figures = re.search(r'id="figures">(.*?)</script>', page, flags=re.DOTALL)
    curves = re.search(r'id="curves">(.*?)</script>', page, flags=re.DOTALL)
    assert figures is not None
    assert curves is not None
    assert {"curve-plot", "overview-plot"} == set(json.loads(figures[1]))
    assert [ucurve_figure(hostile), ucurve_figure(OTHER)] == json.loads(curves[1])


def test_the_page_of_one_measured_job_has_no_choice_and_no_overview() -> None:
    markup = render_ucurves([UNKNOWN], ())

    assert "Measured." in markup
    assert 'id="job-choice"' not in markup
    assert "overview-plot" not in markup
    assert "None were raised." in markup


def test_energy_of_a_command_without_marks_is_not_told_as_that_of_steps() -> None:
    unmarked = Caveat(kind=CaveatKind.STEPS_UNMARKED, seen="no mark came")
    curve = replace(UNKNOWN.curve, caveats=(unmarked,))

    assert "it marked no steps" in render_ucurves([replace(UNKNOWN, curve=curve)], (unmarked,))
    assert "over steps alone" in render_ucurves([UNKNOWN], ())


def test_clocks_side_by_side_share_one_label() -> None:
    # 1224 and 1300 MHz of AGX Orin overlap on a page 500 pixels wide.
    clocks = [306, 408, 510, 612, 714, 816, 918, 1020, 1122, 1224, 1300]
    shown = ucurve_figure(
        characterise(
            replace(
                ONE.curve,
                costs=tuple(replace(ONE.curve.costs[0], sm_clock_mhz=clock) for clock in clocks),
            )
        )
    )
    ticks = go.Figure(shown).layout.xaxis.tickvals
    assert 1300 in ticks
    assert 1224 not in ticks
