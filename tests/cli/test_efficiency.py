"""Efficiency as `plan` and `verify` print it."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Joulewise

QUIET = "virtual:rtx3080ti,noise=0"


def test_plan_and_verify_tell_tokens_per_joule(joulewise: Joulewise) -> None:
    joulewise("measure", "--device", QUIET, "--sm-clocks", "auto,1680", "--mem-clocks", "auto")
    asked = ("plan", "sweep.parquet", "--workload", "gpt3-xl", "--out", "plan.json")

    table = joulewise(*asked, "--max-slowdown", "2%")
    planned = joulewise(*asked, "--max-slowdown", "2%", "--json").document
    verified = joulewise("verify", "plan.json", "--pairs", "2", "--json").document
    text = joulewise("verify", "plan.json", "--pairs", "2")

    assert 0 == table.code == text.code
    assert "Efficiency, baseline → plan: " in table.out
    assert "Efficiency, baseline → verified: " in text.out
    for document in (planned, verified):
        found = document["efficiency"]
        assert isinstance(found, dict)
        assert ["baseline", "plan"] == list(found)
        saving_ratio = document["saving_ratio"]
        assert isinstance(saving_ratio, float)
        assert saving_ratio > 0
        kept = found["plan"]["energy_j_per_token"] / found["baseline"]["energy_j_per_token"]
        assert abs(kept - (1 - saving_ratio)) < 1e-9
        assert 0.5 < found["baseline"]["mfu_ratio"] <= 1


def test_a_table_of_unknown_work_has_no_efficiency(joulewise: Joulewise, sweep_csv: Path) -> None:
    text = joulewise("plan", sweep_csv)
    document = joulewise("plan", sweep_csv, "--json").document

    assert 0 == text.code
    assert "Efficiency" not in text.out
    assert document["efficiency"] is None
