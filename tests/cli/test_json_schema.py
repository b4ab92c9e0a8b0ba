"""What every command prints with `--json` obeys the published schema."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from tests.cli.conftest import FEW_POINTS, Joulewise

QUIET = "virtual:rtx3080ti,noise=0"
SCHEMA = json.loads(
    (Path(__file__).resolve().parents[2] / "docs" / "schemas" / "result.json").read_text("utf-8")
)


def assert_obeys(document: dict[str, object], definition: str) -> None:
    """Hold against the one shape that is meant, so that an error does not pass as a result."""
    shape = {**SCHEMA, "anyOf": [{"$ref": f"#/$defs/{definition}"}]}
    jsonschema.Draft202012Validator(shape).validate(document)


def test_every_stage_of_a_run_prints_a_result(joulewise: Joulewise) -> None:
    few = (*FEW_POINTS, "--json")

    for arguments in (
        ("measure", "--out", "sweep.parquet", *few),
        ("plan", "sweep.parquet", "--workload", "gpt3-xl", "--out", "plan.json", "--json"),
        ("verify", "plan.json", "--pairs", "2", "--out", "verification.json", "--json"),
        ("frontier", "sweep.parquet", "--workload", "gpt3-xl", "--json"),
        ("report", ".", "--json"),
        ("replay", "plan.json", "--json"),
        ("transition-cost", "sweep.parquet", "--latencies", "0,1ms", "--json"),
        ("probe", "transitions", "--device", QUIET, "--sm-clocks", "840,1155", "--json"),
        ("transitions", "--json"),
        ("tune", "--out", "run", "--pairs", "2", *few),
        ("devices", "--json"),
        ("workloads", "--json"),
    ):
        said = joulewise(*arguments)
        assert 0 == said.code, said.out
        assert_obeys(said.document, "CommandResult")


def test_an_import_prints_a_result(joulewise: Joulewise, sweep_csv: Path) -> None:
    columns = ("--kernel", "kernel", "--sm-clock", "sm_clock_mhz", "--time", "time_s")

    said = joulewise("import", "csv", sweep_csv, *columns, "--energy", "energy_j", "--json")

    assert_obeys(said.document, "CommandResult")


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("plan", "nowhere.csv"), "error"),
        (("plan", "table.csv", "--max-slowdown", "-50%"), "infeasible"),
        (("fly",), "error"),
    ],
)
def test_what_fails_prints_an_error(
    joulewise: Joulewise, sweep_csv: Path, arguments: tuple[str, ...], status: str
) -> None:
    assert sweep_csv.name == "table.csv"

    said = joulewise(*arguments, "--json")

    assert status == said.document["status"]
    assert_obeys(said.document, "CommandError")
