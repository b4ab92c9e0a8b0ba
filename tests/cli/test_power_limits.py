"""The power limit as third knob, through the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from joulewise.cli.values import power_limit_list
from joulewise.domain.errors import InputError
from joulewise.domain.points import OperatingPoint
from joulewise.store.documents import read_plan
from joulewise.store.sweeps import read_sweep
from joulewise.workflow.devices import AskedPowerLimit
from tests.cli.conftest import Joulewise

CLOCKS = ("--sm-clocks", "auto", "--mem-clocks", "auto,9501")
LIMITS = ("--power-limits", "auto,300W,250")


@pytest.fixture
def sweep_file(joulewise: Joulewise, tmp_path: Path) -> Path:
    """Six points of the virtual RTX 3080 Ti."""
    path = tmp_path / "limits.parquet"
    said = joulewise("measure", *CLOCKS, *LIMITS, "--out", path, "--json")
    assert (0, 6) == (said.code, said.document["point_count"])
    return path


def test_limits_are_read_in_watts_and_percent() -> None:
    expected = (
        None,
        AskedPowerLimit(limit_w=250.0),
        AskedPowerLimit(limit_w=300.0),
        AskedPowerLimit(found_ratio=0.8),
    )
    assert expected == power_limit_list(" auto, 250,300W , 80 %,250 w")
    assert power_limit_list(None) is None


@pytest.mark.parametrize("text", ["", "0", "-5", "1e3", "250V", "auto,", "0%", "nan"])
def test_what_is_no_power_limit_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is no power limit") as caught:
        power_limit_list(text)
    assert "power-limits" == caught.value.field


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ("351", "351 W is above the limit found"),
        ("101%", "101.000% is above the limit found"),
        ("99.9", "99.9 W is below the least"),
        ("10%", "10.000% is below the least"),
    ],
)
def test_a_limit_beyond_the_range_is_refused_before_anything_runs(
    joulewise: Joulewise, tmp_path: Path, limit: str, message: str
) -> None:
    said = joulewise("measure", "--power-limits", f"auto,{limit}", "--json")

    assert (1, "power-limits") == (said.code, said.document["field"])
    assert message in str(said.document["message"])
    assert "100 to 350 W" in str(said.document["hint"])
    assert [] == [path for path in tmp_path.iterdir() if path.suffix == ".parquet"]


def test_the_limit_found_is_auto(joulewise: Joulewise, tmp_path: Path) -> None:
    said = joulewise(
        "measure", *CLOCKS, "--power-limits", "350,100%,80%", "--out", "a.parquet", "--json"
    )
    points = read_sweep(tmp_path / "a.parquet").points

    assert 0 == said.code
    assert {None, 280.0} == {point.power_limit_w for point in points}


def test_a_sweep_of_limits_is_planned_and_carried_out(
    joulewise: Joulewise, sweep_file: Path, tmp_path: Path
) -> None:
    budget = ("--workload", "gpt3-xl", "--max-slowdown", "5%")
    without = tmp_path / "clocks.parquet"
    joulewise("measure", *CLOCKS, "--out", without)
    with_limits = joulewise("plan", sweep_file, *budget, "--out", "plan.json", "--json")
    clocks_only = joulewise("plan", without, *budget, "--json")
    plan = read_plan(tmp_path / "plan.json")
    verified = joulewise("verify", "plan.json", "--pairs", "2", "--json")

    assert (0, 0) == (with_limits.code, verified.code)
    saving = with_limits.document["saving_ratio"]
    assert isinstance(saving, float)
    assert saving > float(str(clocks_only.document["saving_ratio"])) + 0.05
    assert {250.0, 300.0} <= {launch.point.power_limit_w for launch in plan.launches}
    points = with_limits.document["points"]
    assert isinstance(points, list)
    assert {250.0, 300.0} <= {point["power_limit_w"] for point in points}
    assert saving == pytest.approx(float(str(verified.document["saving_ratio"])), abs=0.02)


def test_a_change_of_the_limit_costs_what_a_change_of_the_sm_clock_costs(
    joulewise: Joulewise, sweep_file: Path, tmp_path: Path
) -> None:
    joulewise(
        "plan",
        sweep_file,
        *("--workload", "gpt3-xl", "--max-slowdown", "5%", "--granularity", "region"),
        *("--transition", "lag=1ms", "--out", "plan.json"),
    )
    plan = read_plan(tmp_path / "plan.json")
    replayed = joulewise("replay", "plan.json", "--json")

    changes = {request.point.power_limit_w for request in plan.requests}
    assert len(changes) > 1
    assert {0.001} == {request.lead_s for request in plan.requests}
    assert (0, 0.0) == (replayed.code, replayed.document["late_per_iteration"])


def test_a_plan_with_a_limit_that_the_device_does_not_take_is_not_carried_out(
    joulewise: Joulewise, tmp_path: Path
) -> None:
    rows = ["kernel,sm_clock_mhz,mem_clock_mhz,power_limit_w,time_s,energy_j", "a,,,,1.0,100"]
    (tmp_path / "t.csv").write_text("\n".join([*rows, "a,,,400,1.0,90", ""]), encoding="utf-8")
    joulewise("plan", "t.csv", "--no-guard", "--out", "plan.json")
    plan = read_plan(tmp_path / "plan.json")
    assert OperatingPoint(power_limit_w=400.0) == plan.launches[0].point

    text = (tmp_path / "plan.json").read_text(encoding="utf-8")
    name = "NVIDIA GeForce RTX 3080 Ti"
    (tmp_path / "plan.json").write_text(
        text.replace(f'"device_name": "{plan.device_name}"', f'"device_name": "{name}"'),
        encoding="utf-8",
    )
    (tmp_path / "w.json").write_text(WORKLOAD, encoding="utf-8")
    arguments = ("--device", "virtual:rtx3080ti", "--workload", "w.json", "--json")
    for command in ("verify", "replay"):
        said = joulewise(command, "plan.json", *arguments)
        assert (1, "power_limit_w") == (said.code, said.document["field"])
        assert "takes no power limit of 400 W" in str(said.document["message"])
        assert "100 to 350 W" in str(said.document["hint"])


def test_reports_and_frontiers_name_the_limit(
    joulewise: Joulewise, sweep_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    sweep_file.rename(tmp_path / "run" / "sweep.parquet")
    joulewise(
        "plan",
        "run/sweep.parquet",
        *("--workload", "gpt3-xl", "--max-slowdown", "5%", "--out", "run/plan.json"),
    )
    said = joulewise("report", "run")
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")

    assert 0 == said.code
    assert "SM auto, memory 9501 MHz, limit 250 W" in page
    assert "power limit (W)" in page
    assert "@250W MHz" not in page


WORKLOAD = """{"schema_version": 1, "name": "one of a",
"launches": [{"kernel": "a"}], "works": [{"kernel": "a", "kind": "gemm", "dtype": "fp16",
"flop_count": 1e12, "traffic_bytes": 1e9, "compute_efficiency_ratio": 0.6,
"memory_efficiency_ratio": 0.8, "core_activity_ratio": 0.5, "memory_activity_ratio": 0.5}]}
"""
