"""Pipelines whose stages run kernel-level plans, from one sweep per stage."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import cast

import pytest

from joulewise.domain.pipeline import Instruction
from joulewise.store.pipeline_files import read_pipeline
from tests.cli.conftest import SWEEP_CSV, Joulewise

ASKED = ("--stages", "2", "--microbatches", "3", "--blocking-power", "90", "--max-slowdown", "2%")
LAUNCHES = {
    "schema_version": 1,
    "name": "small-stage",
    "launches": [
        {"kernel": "a", "pass": "forward", "repeat": 3},
        {"kernel": "b", "pass": "communication"},
        {"kernel": "b", "pass": "backward", "repeat": 2},
        {"kernel": "a", "pass": "backward"},
        {"kernel": "a", "pass": "optimizer"},
    ],
}


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    """A stage of two kernels, with communication in the forward pass and an optimizer."""
    path = tmp_path / "stage.json"
    path.write_text(json.dumps(LAUNCHES), encoding="utf-8")
    return path


def test_an_operation_takes_what_its_launches_take(
    joulewise: Joulewise, sweep_csv: Path, workload: Path, tmp_path: Path
) -> None:
    said = joulewise(
        *("pipeline", "plan", sweep_csv, sweep_csv, "--workload", workload, *ASKED),
        *("--out", "pipeline.json", "--json"),
    )

    assert 0 == said.code, said.out
    rows = [line.split(",") for line in SWEEP_CSV.splitlines()[1:]]
    cells = {
        (kernel, int(sm) if sm else None): (float(t), float(e)) for kernel, sm, _, t, e in rows
    }
    plan = read_pipeline(tmp_path / "pipeline.json")
    counts = {Instruction.FORWARD: 3 + 1, Instruction.BACKWARD: 2 + 1}
    assert plan.kernel_plans
    for one in plan.kernel_plans:
        own = [cells[launch.kernel, launch.point.sm_clock_mhz] for launch in one.launches]
        assert counts[one.instruction] == len(own)
        assert math.isclose(one.time_s, sum(time_s for time_s, _ in own))
        assert math.isclose(one.energy_j, sum(energy_j for _, energy_j in own))
    for operation in plan.operations:
        if operation.launches_index is not None:
            chosen = plan.kernel_plans[operation.launches_index]
            assert (chosen.stage, chosen.instruction) == (operation.stage, operation.instruction)
            assert chosen.time_s == operation.time_s


def test_kernel_plans_of_one_pass_save_more_than_one_point_does(
    joulewise: Joulewise, sweep_csv: Path, workload: Path, tmp_path: Path
) -> None:
    lines = ["kernel,sm_clock_mhz,time_s,energy_j"]
    for stage in range(2):
        for sm, (at, ae), (bt, be) in (
            ("", (1.0, 100), (2.0, 300)),
            ("1000", (1.1, 80), (2.0, 240)),
            ("1500", (1.0, 95), (2.0, 280)),
        ):
            lines.append(f"stage{stage}/forward,{sm},{3 * at + bt},{3 * ae + be}")
            lines.append(f"stage{stage}/backward,{sm},{2 * bt + at},{2 * be + ae}")
    whole = tmp_path / "whole.csv"
    whole.write_text("\n".join(lines) + "\n", encoding="utf-8")

    nested = joulewise(
        "pipeline", "plan", sweep_csv, sweep_csv, "--workload", workload, *ASKED, "--json"
    ).document
    single = joulewise("pipeline", "plan", whole, *ASKED, "--json").document

    assert nested["baseline_energy_j"] == pytest.approx(single["baseline_energy_j"])
    assert nested["baseline_time_s"] == pytest.approx(single["baseline_time_s"])
    assert cast("float", nested["energy_j"]) < cast("float", single["energy_j"])


def test_the_optimizer_is_in_no_operation(
    joulewise: Joulewise, sweep_csv: Path, workload: Path
) -> None:
    said = joulewise("pipeline", "plan", sweep_csv, sweep_csv, "--workload", workload, *ASKED)

    assert "launches of the optimizer are in no operation" in " ".join(said.out.split())


def test_two_virtual_stages_are_planned_and_reported(joulewise: Joulewise, tmp_path: Path) -> None:
    few = ("--sm-clocks", "auto,1680", "--mem-clocks", "auto,5001")
    for name, size in (("first.parquet", "gpt3-xl,batch=2"), ("second.parquet", "gpt3-xl,batch=4")):
        device = ("--device", "virtual:rtx3080ti,noise=0")
        joulewise("measure", *device, "--workload", size, *few, "--out", name)

    said = joulewise(
        "pipeline", "plan", "first.parquet", "second.parquet", *ASKED, "--points", "4",
        "--out", "pipeline.json", "--json",
    )  # fmt: skip
    report = joulewise("report", ".")

    assert (0, 0) == (said.code, report.code), said.out + report.err
    document = said.document
    kinds = {caveat["kind"] for caveat in cast("list[dict[str, str]]", document["caveats"])}
    assert {"SimulatedDevice", "TransitionsNotCounted"} <= kinds
    assert "SelectionBias" not in kinds  # nothing was picked from noise
    assert 0.05 < cast("float", document["saving_ratio"])
    plans = cast("list[dict[str, object]]", document["kernel_plans"])
    points = cast("list[dict[str, object]]", plans[0]["points"])
    assert {"kernel", "sm_clock_mhz", "mem_clock_mhz", "power_limit_w", "launch_count"} == set(
        points[0]
    )
    assert "Simulated." in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", ["plan", "frontier"])
def test_stages_of_kernel_level_plans_do_not_interleave(
    joulewise: Joulewise, sweep_csv: Path, workload: Path, command: str
) -> None:
    said = joulewise(
        *("pipeline", command, sweep_csv, sweep_csv, "--workload", workload, *ASKED[:-2]),
        *("--microbatches", "4", "--schedule", "interleaved", "--json"),
    )

    assert (1, "schedule") == (said.code, said.document["field"])
    assert "stage 0 runs kernel-level plans" in str(said.document["message"])
    assert "1f1b or gpipe" in str(said.document["hint"])


def test_a_pass_without_launches_is_refused(
    joulewise: Joulewise, sweep_csv: Path, tmp_path: Path
) -> None:
    path = tmp_path / "forward.json"
    text = {**LAUNCHES, "launches": [{"kernel": "a"}]}
    path.write_text(json.dumps(text), encoding="utf-8")

    said = joulewise("pipeline", "plan", sweep_csv, sweep_csv, "--workload", path, *ASKED, "--json")

    assert (1, "workload") == (said.code, said.document["field"])
    assert "backward" in str(said.document["message"])


def test_a_kernel_that_the_sweep_lacks_is_named(
    joulewise: Joulewise, sweep_csv: Path, tmp_path: Path
) -> None:
    path = tmp_path / "other.json"
    launches = [{"kernel": "a"}, {"kernel": "c", "pass": "backward"}]
    path.write_text(json.dumps({**LAUNCHES, "launches": launches}), encoding="utf-8")

    said = joulewise("pipeline", "plan", sweep_csv, sweep_csv, "--workload", path, *ASKED, "--json")

    assert 1 == said.code
    assert "'c'" in str(said.document["message"])
