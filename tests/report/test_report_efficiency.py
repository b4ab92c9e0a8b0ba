"""The efficiency section of a report and the line of a terminal."""

from __future__ import annotations

import html
import re
import textwrap
from collections.abc import Callable
from dataclasses import replace

import pytest
from inline_snapshot import snapshot

from joulewise.domain.workload import Dtype, IterationSize
from joulewise.report.efficiency import (
    efficiency_line,
    efficiency_rows,
    efficiency_section,
    significant,
)
from joulewise.report.inputs import ReportInputs
from joulewise.report.page import render_report
from joulewise.report.provenance import provenance_rows

Make = Callable[..., ReportInputs]

A100 = "NVIDIA A100-SXM4-80GB"
SIZE = IterationSize(
    gpu_count=16,
    node_gpu_count=8,
    token_count=4096,
    parameter_count=124_000_000,
    model_flop_count=48e12,
    kernel_flop_count=64e12,
    dtype=Dtype.BF16,
)


def sized(
    inputs: ReportInputs, size: IterationSize | None = SIZE, device_name: str = A100
) -> ReportInputs:
    plan = replace(inputs.plan, size=size, device_name=device_name)
    return replace(inputs, plan=plan)


def legible(text: str) -> str:
    return text.replace("\N{NARROW NO-BREAK SPACE}", " ").replace("\N{MINUS SIGN}", "-")


def cells(inputs: ReportInputs) -> list[str]:
    rows = efficiency_rows(inputs.plan, inputs.verification)
    return [legible(f"{row.label}: {row.baseline} | {row.plan} | {row.change}") for row in rows]


def section_of(page: str) -> str | None:
    """The text of the efficiency section, tags left out."""
    found = re.search(r'<section [^>]*id="efficiency">(.*?)</section>', page, re.DOTALL)
    if found is None:
        return None
    return legible(" ".join(html.unescape(re.sub(r"<[^>]+>", " ", found[1])).split()))


def test_every_metric_is_told_with_the_figures_of_fresh_runs(make_inputs: Make) -> None:
    assert cells(sized(make_inputs())) == snapshot(
        [
            "Tokens per second: 124 124 | 123 625 | -0.40 %",
            "Energy per token: 41.34 mJ | 37.13 mJ | -10.18 %",
            "Tokens per kJ: 24 189 | 26 930 | +11.33 %",
            "TFLOP/s per GPU: 90.91 | 90.55 | -0.40 %",
            "TFLOP/s per GPU, computed: 121.2 | 120.7 | -0.40 %",
            "MFU: 29.1 % | 29.0 % | -0.40 %",
            "HFU: 38.9 % | 38.7 % | -0.40 %",
            "TFLOPs per kW, node by node: 283.5 | 315.6 | +11.33 %",
            "TFLOPs per kW, one GPU by its node: 35.43 | 39.45 | +11.33 %",
            "TFLOPs per kW, node by node, computed: 378.0 | 420.8 | +11.33 %",
        ]
    )


def test_without_fresh_runs_the_promise_is_told_and_called_one(make_inputs: Make) -> None:
    inputs = sized(make_inputs(is_verified=False))

    section = efficiency_section(inputs)

    assert section is not None
    assert section.origin == snapshot(
        "Simulated. The plan's figures are its promise; nobody has run it afresh."
    )
    # The sample promises the time of its plan, not that of its fresh runs.
    promised = SIZE.token_count
    assert promised is not None
    tokens_per_s = significant(promised / inputs.plan.time_s)
    assert tokens_per_s == section.rows[0].plan
    verified = sized(make_inputs())
    assert tokens_per_s != efficiency_rows(verified.plan, verified.verification)[0].plan


def test_the_page_has_the_section_where_the_plan_has_a_size(make_inputs: Make) -> None:
    page = render_report(sized(make_inputs()))

    assert textwrap.fill(section_of(page) or "", 88) == snapshot("""\
Efficiency Metric Baseline Plan Change Tokens per second tokens of the whole job ÷ time
124 124 123 625 -0.40 % Energy per token energy of all GPUs of the job ÷ tokens 41.34 mJ
37.13 mJ -10.18 % Tokens per kJ 1000 J ÷ energy per token 24 189 26 930 +11.33 % TFLOP/s
per GPU FLOPs that the model needs, nothing counted twice ÷ GPUs ÷ time 90.91 90.55
-0.40 % TFLOP/s per GPU, computed FLOPs that matrix kernels execute, recomputation
included and what a causal mask spares left out ÷ GPUs ÷ time 121.2 120.7 -0.40 % MFU
model FLOPs utilisation: TFLOP/s per GPU ÷ the GPU's peak 29.1 % 29.0 % -0.40 % HFU
hardware FLOPs utilisation: computed TFLOP/s per GPU ÷ the GPU's peak; below MFU where
flash attention skips what is masked 38.9 % 38.7 % -0.40 % TFLOPs per kW, node by node
TFLOP/s of all GPUs of a node ÷ kW of all GPUs of a node 283.5 315.6 +11.33 % TFLOPs per
kW, one GPU by its node TFLOP/s of one GPU ÷ kW of all GPUs of its node, as arXiv
2507.16781 reports 35.43 39.45 +11.33 % TFLOPs per kW, node by node, computed computed
TFLOP/s of all GPUs of a node ÷ kW of all GPUs of a node 378.0 420.8 +11.33 % Simulated.
The plan's figures are those of fresh runs: their ratios of the baseline in the table
above. Energy is that of GPU boards only; host, fans and switches are not counted. One
GPU was measured; all 16 GPUs of the job are taken to run like it. Peak of A100 SXM 80
GB: 312.0 TFLOP/s in bf16, dense (NVIDIA A100 datasheet (June 2021)), at the clock that
its maker states; a board that boosts higher can exceed it.\
""")
    order = [page.index(f'id="{name}"') for name in ("efficiency", "frontier", "clocks")]
    assert sorted(order) == order


def test_a_plan_without_a_size_has_no_section_and_no_line(make_inputs: Make) -> None:
    inputs = make_inputs()

    assert section_of(render_report(inputs)) is None
    assert efficiency_line(inputs.plan, inputs.verification) is None
    assert "Job" not in dict(provenance_rows(inputs))


def test_hardware_is_not_called_simulated(make_inputs: Make) -> None:
    simulated, measured = sized(make_inputs()), sized(make_inputs(is_simulated=False))

    for inputs, is_simulated in ((simulated, True), (measured, False)):
        for seen in (inputs.verification, None):
            section = efficiency_section(replace(inputs, verification=seen))
            assert section is not None
            assert section.origin.startswith("Simulated.") == is_simulated


def test_an_unlisted_gpu_has_no_share_of_a_peak_and_the_note_says_why(make_inputs: Make) -> None:
    inputs = sized(make_inputs(), device_name="<b>Unheard-of</b> GPU")

    assert not [row for row in cells(inputs) if "MFU" in row or "HFU" in row]
    page = render_report(inputs)
    assert "<b>Unheard-of" not in page
    section = section_of(page)
    assert section is not None
    assert "No peak in bf16 is listed for <b>Unheard-of</b> GPU, so there is no MFU." in section


def test_a_share_that_no_board_reaches_is_called_impossible(make_inputs: Make) -> None:
    said = "No board works so far above its peak"
    wrong = replace(SIZE, model_flop_count=48e13, kernel_flop_count=64e13)

    for size, is_said in ((SIZE, False), (wrong, True)):
        section = efficiency_section(sized(make_inputs(), size))
        assert section is not None
        assert is_said == any(note.startswith(said) for note in section.notes)


def test_one_stage_of_a_pipeline_has_no_section_and_no_line(make_inputs: Make) -> None:
    stage = IterationSize(gpu_count=8, parameter_count=10**9, dtype=Dtype.BF16)
    inputs = sized(make_inputs(), stage)

    assert section_of(render_report(inputs)) is None
    assert efficiency_line(inputs.plan, inputs.verification) is None
    assert "8 GPUs" in dict(provenance_rows(inputs))["Job"]


def test_one_gpu_is_not_told_as_if_it_were_many(make_inputs: Make) -> None:
    inputs = sized(make_inputs(), replace(SIZE, gpu_count=1, node_gpu_count=None))

    section = section_of(render_report(inputs))

    assert section is not None
    assert "One GPU was measured" not in section
    assert "run alike" not in (efficiency_line(inputs.plan, inputs.verification) or "")
    # A node of one GPU has one value under both definitions.
    readings = ("TFLOPs per kW, node by node:", "TFLOPs per kW, one GPU by its node:")
    ends = [row.split(": ")[1] for row in cells(inputs) if row.startswith(readings)]
    assert 2 == len(ends)
    assert 1 == len(set(ends))


def test_one_line_says_the_gist(make_inputs: Make) -> None:
    inputs = sized(make_inputs())

    verified = efficiency_line(inputs.plan, inputs.verification) or ""
    promised = efficiency_line(inputs.plan, None) or ""
    assert textwrap.fill(legible(verified), 88) == snapshot("""\
Efficiency of 16 GPUs run alike, baseline → verified: 24 189 → 26 930 tokens/kJ (+11.3
%), 0.04134 → 0.03713 J/token (-10.2 %), 124 124 → 123 625 tokens/s (-0.4 %), MFU 29.1 →
29.0 %.\
""")
    assert textwrap.fill(legible(promised), 88) == snapshot("""\
Efficiency of 16 GPUs run alike, baseline → plan: 24 189 → 27 080 tokens/kJ (+12.0 %),
0.04134 → 0.03693 J/token (-10.7 %), 124 124 → 123 748 tokens/s (-0.3 %), MFU 29.1 →
29.1 %.\
""")


def test_without_tokens_the_line_falls_back_on_flops(make_inputs: Make) -> None:
    said: list[str] = []
    for size in (
        IterationSize(kernel_flop_count=6e12),
        IterationSize(model_flop_count=5e12, kernel_flop_count=6e12),
    ):
        inputs = sized(make_inputs(), size)
        said.append(legible(efficiency_line(inputs.plan, None) or ""))

    assert said == snapshot(
        [
            "Efficiency, baseline → plan: 566.9 → 634.7 computed TFLOPs per kW, node by node (+12.0 %), 181.8 → 181.3 computed TFLOP/s per GPU (-0.3 %).",
            "Efficiency, baseline → plan: 472.4 → 528.9 TFLOPs per kW, node by node (+12.0 %), 151.5 → 151.1 TFLOP/s per GPU (-0.3 %).",
        ]
    )


def test_provenance_says_what_the_job_is(make_inputs: Make) -> None:
    assert legible(dict(provenance_rows(sized(make_inputs())))["Job"]) == snapshot(
        "4 096 tokens per iteration, 124 000 000 parameters, matrices in bf16, 16 GPUs, 8 in a node"
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0442898, "0.04429"),
        (1.0, "1.000"),
        (22578.55, "22 579"),
        (9999.96, "10 000"),
        (1e-6, "0.000001000"),
        (3e30, "3.000e+30"),
    ],
)
def test_numbers_have_four_digits_that_count(value: float, text: str) -> None:
    assert text == legible(significant(value))
