"""What the commands say beside their tables: proofs, changes of clocks, help, progress."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from joulewise.cli.progress import progress_bars
from joulewise.cli.sentences import replay_line, tune_sentence
from joulewise.domain.plan import Interval, Plan, Status, Verification, VerificationPair
from joulewise.report.verdict import proof
from joulewise.store.documents import read_plan
from tests.cli.conftest import Joulewise


def test_the_list_of_commands_fits_eighty_columns(
    joulewise: Joulewise, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    said = joulewise("--help").out

    commands = said.partition("Commands:")[2].strip().splitlines()
    assert commands
    assert [] == [line for line in commands if line.endswith("...") or len(line) > 80]


def test_only_commands_with_objectives_tell_of_their_budgets(joulewise: Joulewise) -> None:
    other = "none for the other objectives"

    assert other in " ".join(joulewise("plan", "--help").out.split())
    for command in ("tune", "transition-cost"):
        assert other not in " ".join(joulewise(command, "--help").out.split())


@pytest.mark.parametrize(
    ("status", "gap_ratio", "expected"),
    [
        (Status.OPTIMAL, 0.0, "proven best"),
        (Status.OPTIMAL, None, "proven best"),
        (Status.FEASIBLE, None, "good, not proven best"),
        (
            Status.FEASIBLE,
            0.00004,
            "less than 0.01\N{NARROW NO-BREAK SPACE}% above the least possible",
        ),
        (
            Status.FEASIBLE,
            0.0002,
            "at most 0.02\N{NARROW NO-BREAK SPACE}% above the least possible",
        ),
    ],
)
def test_a_plan_says_how_far_it_can_lie_above_the_best(
    status: Status, gap_ratio: float | None, expected: str
) -> None:
    assert expected == proof(status, gap_ratio)


def test_changes_that_are_not_counted_are_told_and_lead_to_a_replay(
    joulewise: Joulewise, sweep_csv: Path, tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"

    said = joulewise("plan", sweep_csv, "--max-slowdown", "1%", "--out", file)

    assert "not verified, changes of clocks not counted:" in " ".join(said.out.split())
    assert "2 changes of the operating point per iteration, not counted" in " ".join(
        said.out.split()
    )
    expected = f"With its 2 changes of clocks per iteration: joulewise replay {file}"
    assert expected == replay_line(read_plan(file), file)


def test_one_point_throughout_leaves_nothing_uncounted(
    joulewise: Joulewise, sweep_csv: Path, tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"

    said = joulewise("plan", sweep_csv, "--granularity", "iteration", "--out", file)

    assert "counted" not in said.out
    assert replay_line(read_plan(file), file) is None


def test_regions_say_as_much_in_words_as_in_json(joulewise: Joulewise, sweep_csv: Path) -> None:
    asked = ("plan", sweep_csv, "--max-slowdown", "1%", "--granularity", "region")

    told, document = joulewise(*asked).out, joulewise(*asked, "--json").document

    regions = document["regions"]
    assert isinstance(regions, list)
    assert document["region_count"] == len(regions)
    assert f"{document['change_count']} changes of the operating point" in " ".join(told.split())
    assert document["transition_time_s"] is None


def test_json_lists_the_requests_of_a_plan(joulewise: Joulewise, sweep_csv: Path) -> None:
    asked = ("--max-slowdown", "1%", "--transition", "lag=1ms", "--json")

    document = joulewise("plan", sweep_csv, *asked).document

    assert document["requests"] == snapshot(
        [
            {
                "launch_index": 0,
                "lead_s": 0.001,
                "sm_clock_mhz": 1500,
                "mem_clock_mhz": None,
                "power_limit_w": None,
            },
            {
                "launch_index": 1,
                "lead_s": 0.001,
                "sm_clock_mhz": 1000,
                "mem_clock_mhz": None,
                "power_limit_w": None,
            },
        ]
    )
    assert document["request_count"] == 2


def test_tune_says_how_often_clocks_change_and_what_that_takes(
    joulewise: Joulewise, sweep_csv: Path, tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    asked = ("--max-slowdown", "1%", "--transition", "stall=1ms,power=60")
    joulewise("plan", sweep_csv, *asked, "--out", file)
    plan = read_plan(file)

    said = tune_sentence(plan, _as_promised(plan), ())

    assert said.replace("\N{NARROW NO-BREAK SPACE}", " ") == snapshot(
        "Measured on a GPU not named in a CSV file (csv). Verified on fresh runs: 16.2 % less energy at +0.07 % time (allowed: +1.00 %). 2 changes of the operating point per iteration, which take 2.000 ms and 120.00 mJ of it."
    )


def _as_promised(plan: Plan) -> Verification:
    """Fresh runs that show to the digit what the plan promises."""
    pair = VerificationPair(
        baseline_time_s=plan.baseline_time_s,
        baseline_energy_j=plan.baseline_energy_j,
        plan_time_s=plan.time_s,
        plan_energy_j=plan.energy_j,
    )
    slow, saved = plan.slowdown_ratio, plan.saving_ratio
    return Verification(
        plan_sha256="",
        device=plan.device,
        device_name=plan.device_name,
        pairs=(pair, pair),
        promised_slowdown_ratio=slow,
        promised_saving_ratio=saved,
        slowdown_ratio=slow,
        slowdown_interval=Interval(low_ratio=slow, high_ratio=slow),
        saving_ratio=saved,
        saving_interval=Interval(low_ratio=saved, high_ratio=saved),
        max_slowdown_ratio=plan.request.max_slowdown_ratio,
        is_within_budget=True,
    )


@pytest.mark.parametrize(
    ("device", "meant"),
    [
        ("virtual:a100", "virtual:a100-sxm"),
        ("virtual:a100,noise=0", "virtual:a100-sxm"),
        ("rtx3080ti", "virtual:rtx3080ti"),
        ("virtual:RTX3080Ti", "virtual:rtx3080ti"),
        ("virtual:nothing", None),
        ("mali:0", None),
        ("cuda:1", "nvml:1"),
        ("GPU-4ad1", "nvml:GPU-4ad1"),
    ],
)
def test_a_device_that_is_nearly_one_is_guessed(
    joulewise: Joulewise, device: str, meant: str | None
) -> None:
    said = joulewise("measure", "--device", device, "--json").document

    guess = None if meant is None else f"Did you mean {meant}?"
    assert "device" == said["field"]
    assert (guess is not None) == ("Did you mean" in str(said["hint"]))
    assert str(said["hint"]).startswith(guess or "Known: virtual:rtx3080ti")


def test_devices_say_what_a_change_costs_on_them(joulewise: Joulewise) -> None:
    lines = joulewise("devices", "--json").document["devices"]

    assert isinstance(lines, list)
    lags_s = (0.01, 0.015, 0.02, 0.01, 0.0055, 0.0055)
    assert [(lag_s, 0.0) for lag_s in lags_s] == [
        (line["lag_s"], line["stall_s"]) for line in lines
    ]


def test_a_report_is_one_sentence_and_its_place(
    joulewise: Joulewise, sweep_csv: Path, tmp_path: Path
) -> None:
    sweep_csv.rename(tmp_path / "sweep.csv")
    joulewise("plan", tmp_path / "sweep.csv", "--out", tmp_path / "plan.json")

    said = joulewise("report", tmp_path)

    assert said.out.strip().endswith(f"Report: {tmp_path / 'report.html'}")
    assert "Caveats" not in said.out
    assert len(said.out.strip().splitlines()) <= 4


def test_progress_of_what_is_over_at_once_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bars(is_shown=True, after_s=60.0) as progress:
        progress("planning", 1, 2)

    assert "" == capsys.readouterr().err


def test_progress_of_what_takes_longer_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bars(is_shown=True, after_s=0.01) as progress:
        progress("planning", 1, 2)
        time.sleep(0.3)

    assert "planning" in capsys.readouterr().err
