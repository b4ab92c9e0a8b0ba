"""What latency leaves of the saving, on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from inline_snapshot import snapshot

from tests.cli.conftest import Joulewise


def test_what_latency_leaves_of_the_saving_reads_like_this(
    joulewise: Joulewise, sweep: Path
) -> None:
    said = joulewise(
        *("transition-cost", sweep, "--max-slowdown", "1%", "--latencies", "0,1ms,20ms,1s"),
        *("--out", "cost.html"),
    )

    assert 0 == said.code, said.err
    assert said.out == snapshot("""\
latency   saving  slowdown  changes  not counted: saving  slowdown
0        15.75 %   +0.67 %        2              15.75 %   +0.67 %
1\u202fms     15.72 %   +0.73 %        2              15.72 %   +0.73 %
20\u202fms     5.75 %   +0.67 %        0              15.15 %   +2.00 %
1\u202fs       5.75 %   +0.67 %        0             \N{MINUS SIGN}14.25 %  +67.33 %

Caveats
  TransitionsAssumed: Every latency of the table is assumed, and the same for every change. The 60 W
  during a stall are assumed as well.
    What a change of clocks costs differs between GPUs, drivers and clocks. Measure it on the device
    with joulewise probe transitions.
  WorkloadAssumed: No workload is given: each kernel is taken to run once, in the order of the
  table.
    What changes of clocks cost hangs on which kernel follows which, and how often. Name the
    workload with --workload.
  NoUncertainty: The table has no standard deviations.
    Without scatter in the table, lucky outliers cannot be told from good points. Measure each cell
    more than once and keep the standard deviation.

Within +1.00\u202f% time, 15.7\u202f% less energy at latency 0; 15.7\u202f% are left at 1\u202fms, and from 20\u202fms on
changing clocks pays no more; the plan that does not count changes breaks the budget from 20\u202fms on
and takes +67\u202f% time at worst. The best single point, 1500/auto, saves 5.75 % energy at +0.67 % time
whatever a change takes.
Figure: cost.html
""")
    page = Path("cost.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert "<script src" not in page


def test_what_latency_leaves_of_the_saving_as_json(joulewise: Joulewise, sweep: Path) -> None:
    said = joulewise(
        *("transition-cost", sweep, "--max-slowdown", "1%", "--latencies", "20ms, 0"),
        *("--power", "100", "--json"),
    )

    assert ("", 0) == (said.err, said.code)
    rows = said.document["rows"]
    assert isinstance(rows, list)
    assert [
        {key: round(value, 9) if isinstance(value, float) else value for key, value in row.items()}
        for row in rows
    ] == snapshot(
        [
            {
                "latency_s": 0.0,
                "saving_ratio": 0.1575,
                "slowdown_ratio": 1.006666667,
                "change_count": 2,
                "bound_gap_ratio": 0.0,
                "time_s": 3.02,
                "energy_j": 337.0,
                "naive_saving_ratio": 0.1575,
                "naive_slowdown_ratio": 1.006666667,
                "naive_change_count": 2,
                "naive_bound_gap_ratio": 0.0,
                "naive_time_s": 3.02,
                "naive_energy_j": 337.0,
                "static_saving_ratio": 0.0575,
                "static_slowdown_ratio": 1.006666667,
                "static_change_count": 0,
                "static_bound_gap_ratio": 0.106100796,
                "static_time_s": 3.02,
                "static_energy_j": 377.0,
            },
            {
                "latency_s": 0.02,
                "saving_ratio": 0.0575,
                "slowdown_ratio": 1.006666667,
                "change_count": 0,
                "bound_gap_ratio": 0.0,
                "time_s": 3.02,
                "energy_j": 377.0,
                "naive_saving_ratio": 0.1475,
                "naive_slowdown_ratio": 1.02,
                "naive_change_count": 2,
                "naive_bound_gap_ratio": None,
                "naive_time_s": 3.06,
                "naive_energy_j": 341.0,
                "static_saving_ratio": 0.0575,
                "static_slowdown_ratio": 1.006666667,
                "static_change_count": 0,
                "static_bound_gap_ratio": 0.0,
                "static_time_s": 3.02,
                "static_energy_j": 377.0,
            },
        ]
    )
    assert "TransitionsAssumed" in str(said.document["caveats"])


def test_a_table_fits_a_terminal_of_80_columns_and_keeps_its_first_and_last(
    joulewise: Joulewise, sweep: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    said = joulewise(
        "transition-cost", sweep, "--max-slowdown", "1%", "--latencies", "100us,1ms", "--power=60W"
    )

    lines = said.out.splitlines()
    assert ["latency", "slowdown"] == [lines[0].split()[0], lines[0].split()[-1]]
    for line, latency in zip(lines[1:3], ("100", "1"), strict=True):
        assert len(line) <= 80
        assert latency == line.split()[0]
        assert 4 == line.count("%")


def test_a_lag_lets_the_naive_plan_run_late(joulewise: Joulewise, sweep: Path) -> None:
    said = joulewise(
        *("transition-cost", sweep, "--max-slowdown", "1%", "--latencies", "500ms"),
        *("--model", "lag", "--json"),
    )

    rows = said.document["rows"]
    assert isinstance(rows, list)
    row = rows[0]
    # Ours asks ahead and loses nothing; the other has half a second of each kernel at the wrong
    # point: b's first 0.5 s at 1500 MHz, a's first 0.5 s at 1000 MHz.
    assert pytest.approx(1 - 337 / 400) == row["saving_ratio"]
    late_j = 0.5 / 1.1 * 80 + (1 - 0.5 / 1.1) * 97 + 0.25 * 280 + 0.75 * 240
    assert pytest.approx(1 - late_j / 400) == row["naive_saving_ratio"]
    assert row["naive_slowdown_ratio"] > 1.01


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("--latencies", "1ms,fast"), "latencies"),
        (("--latencies", "-1ms"), "latencies"),
        (("--latencies", ""), "latencies"),
        (("--power", "-60"), "power"),
        (("--power", "nan"), "power"),
        (("--power", "1e308"), "power"),
        (("--power", "1001W"), "power"),
        (("--model", "wait"), "model"),
        (("--max-slowdown", "7"), "max-slowdown"),
    ],
)
def test_what_is_wrong_is_one_sentence_that_names_it(
    joulewise: Joulewise, sweep: Path, arguments: tuple[str, str], field: str
) -> None:
    said = joulewise("transition-cost", sweep, *arguments, "--json")

    assert (1, "error", field) == (said.code, said.document["status"], said.document["field"])
    assert said.document["hint"]
