"""Transitions on the command line: planning with them, pricing them, listing them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from joulewise.domain.transition import uniform_transition
from joulewise.store.documents import read_plan
from joulewise.store.transition_files import write_transition
from tests.cli.conftest import Joulewise, Said


def clocks(said: Said) -> dict[str, int | None]:
    points = said.document["points"]
    assert isinstance(points, list)
    return {point["kernel"]: point["sm_clock_mhz"] for point in points}


def test_a_plan_that_counts_its_changes_reads_like_this(joulewise: Joulewise, sweep: Path) -> None:
    said = joulewise("plan", sweep, "--max-slowdown", "1%", "--transition", "stall=10ms,power=60")

    assert 0 == said.code, said.err
    assert said.out == snapshot("""\
setting                   time    energy  slowdown  saving
Baseline               3.000 s  400.00 J   +0.00 %   0.0 %
Best single point      3.020 s  377.00 J   +0.67 %   5.8 %
Best pass-level plan   3.020 s  377.00 J   +0.67 %   5.8 %
Chosen plan, promised  3.020 s  341.20 J   +0.67 %  14.7 %

Caveats
  NotVerified: This plan has not been run.
    The figures are the plan's own; nobody has run it afresh. Run joulewise verify on the device.
  TransitionsAssumed: The plan changes clocks 2 times an iteration; each change is taken to cost
  what the model 'stall=10ms,power=60' says.
    What a change of clocks costs differs between GPUs, drivers and clocks. Measure it on the device
    with joulewise probe transitions.
  WorkloadAssumed: No workload is given: each kernel is taken to run once, in the order of the
  table.
    What changes of clocks cost hangs on which kernel follows which, and how often. Name the
    workload with --workload.
  NoUncertainty: The table has no standard deviations.
    Without scatter in the table, lucky outliers cannot be told from good points. Measure each cell
    more than once and keep the standard deviation.

Promised, not verified: 14.7\u202f% less energy at +0.67\u202f% time (allowed: +1.00\u202f%), 9.0 percentage points
more than the best single point saves. Workload: each kernel once; proven best; 2 changes of the
operating point per iteration, which take 20.00 ms and 1.2000 J of it.
""")


def test_a_plan_that_counts_its_changes_as_json(joulewise: Joulewise, sweep: Path) -> None:
    said = joulewise(
        "plan", sweep, "--max-slowdown", "1%", "--transition", "stall=10ms,power=60", "--json"
    )

    names = (
        *("status", "transition", "change_count", "region_count", "request_count"),
        *("transition_time_s", "transition_energy_j", "time_s", "energy_j", "regions"),
    )
    document = said.document
    rounded = {
        name: round(value, 9) if isinstance(value, float) else value
        for name, value in ((name, document[name]) for name in names)
    }
    assert rounded == snapshot(
        {
            "status": "optimal",
            "transition": "stall=10ms,power=60",
            "change_count": 2,
            "region_count": 2,
            "request_count": 2,
            "transition_time_s": 0.02,
            "transition_energy_j": 1.2,
            "time_s": 3.02,
            "energy_j": 341.2,
            "regions": [
                {
                    "first_launch": 0,
                    "last_launch": 0,
                    "sm_clock_mhz": None,
                    "mem_clock_mhz": None,
                    "power_limit_w": None,
                },
                {
                    "first_launch": 1,
                    "last_launch": 1,
                    "sm_clock_mhz": 1000,
                    "mem_clock_mhz": None,
                    "power_limit_w": None,
                },
            ],
        }
    )


def test_changes_that_cost_too_much_are_not_made(joulewise: Joulewise, sweep: Path) -> None:
    cheap = joulewise("plan", sweep, "--transition", "free", "--json")
    short = joulewise("plan", sweep, "--max-slowdown", "1%", "--transition", "stall=15ms", "--json")
    long = joulewise("plan", sweep, "--max-slowdown", "1%", "--transition", "stall=16ms", "--json")

    assert {"a": None, "b": 1000} == clocks(cheap) == clocks(short)
    assert {"a": 1500, "b": 1500} == clocks(long)
    assert (2, 2, 0) == tuple(said.document["change_count"] for said in (cheap, short, long))
    assert [] != long.document["regions"]


@pytest.mark.parametrize(
    ("budget", "stall", "status"), [("1%", "16ms", "optimal"), ("0", "10s", "no_gain")]
)
def test_a_plan_that_changes_nothing_has_no_doubt_about_changes(
    joulewise: Joulewise, sweep: Path, budget: str, stall: str, status: str
) -> None:
    options = ("plan", sweep, "--max-slowdown", budget, "--transition", f"stall={stall}")
    document = joulewise(*options, "--json").document
    said = joulewise(*options)

    assert (status, 0, 0) == tuple(
        document[name] for name in ("status", "change_count", "request_count")
    )
    assert "Transitions" not in str(document["caveats"])
    assert "Transitions" not in said.out
    assert "no change of the operating point" in " ".join(said.out.split())


def test_the_defaults_of_measuring_changes_are_its_own(joulewise: Joulewise) -> None:
    told = " ".join(joulewise("probe", "transitions", "--help").out.split())

    assert "two in the middle" in told
    assert "ten spread evenly" not in told


def test_changes_are_probed_each_in_its_own_direction(joulewise: Joulewise) -> None:
    """On virtual time a request does not block; a lag of 5 ms and a stall of 2 ms are found."""
    said = joulewise(
        *("probe", "transitions", "--device", "virtual:rtx3080ti,noise=0,lag=5ms,stall=2ms"),
        *("--sm-clocks", "840,1155", "--mem-clocks", "9501", "--out", "own.json"),
    )

    assert 0 == said.code, said.err
    assert said.out == snapshot("""\
from       to         call      lag    stall  energy
840/9501   1155/9501  none  5.00 ms  2.00 ms  120 mJ
1155/9501  840/9501   none  5.00 ms  2.00 ms  120 mJ

Caveats
  SimulatedDevice: virtual NVIDIA GeForce RTX 3080 Ti
    The figures come from a physics model, not from hardware. Repeat the run on the GPU in question.

Simulated NVIDIA GeForce RTX 3080 Ti (virtual:rtx3080ti,noise=0,lag=0.005,stall=0.002). 2 changes of
the operating point (SM/memory clock in MHz, @ power limit) under kernel 20_bias_gradient, written
to own.json. Times are medians, with the longest seen in brackets where it is another; < is what
could not be told from none.
""")


def test_what_was_probed_as_json(joulewise: Joulewise) -> None:
    said = joulewise(
        *("probe", "transitions", "--device", "virtual:rtx3080ti,noise=0,lag=5ms"),
        *("--sm-clocks", "840,1155", "--mem-clocks", "9501", "--json"),
    )

    changes = said.document["changes"]
    assert isinstance(changes, list)
    assert [(840, 1155), (1155, 840)] == [
        (one["before"]["sm_clock_mhz"], one["after"]["sm_clock_mhz"]) for one in changes
    ]
    for one in changes:
        assert (0.0, 0.0) == (one["call_s"], one["worst_call_s"])
        assert pytest.approx(0.005, rel=0.02) == one["lag_s"] == one["worst_lag_s"]
        assert one["stall_s"] <= one["stall_least_s"] < 1e-4
    assert "transition.json" == said.document["transition"]


def test_the_files_and_the_presets_and_the_words_mean_the_same(
    joulewise: Joulewise, sweep: Path, tmp_path: Path
) -> None:
    model = uniform_transition("ascend", "by hand", stall_s=1e-3, energy_j=0.06)
    write_transition(model, tmp_path / "own.json")

    said = [
        joulewise("plan", sweep, "--max-slowdown", "1%", "--transition", text, "--json").document
        for text in ("ascend", "stall=1ms,power=60", "own.json")
    ]

    assert 1 == len({json.dumps([one["time_s"], one["energy_j"], one["regions"]]) for one in said})


def test_without_a_model_nothing_is_counted(joulewise: Joulewise, sweep: Path) -> None:
    document = joulewise("plan", sweep, "--json").document

    assert [None, 2, None, None] == [
        document[name]
        for name in ("transition", "change_count", "transition_time_s", "transition_energy_j")
    ]
    assert "regions" not in document
    assert "TransitionsNotCounted" in str(document["caveats"])


def test_a_model_brings_its_own_caveat(joulewise: Joulewise, sweep: Path) -> None:
    said = joulewise(
        *("plan", sweep, "--max-slowdown", "1%", "--transition", "ascend"),
        *("--fail-on", "TransitionsAssumed", "--json"),
    )

    assert 2 == said.code
    assert "TransitionsNotCounted" not in str(said.document["caveats"])


def test_regions_can_be_bounded(joulewise: Joulewise, sweep: Path) -> None:
    options = ("--granularity", "region", "--max-slowdown", "1%", "--json")
    free = joulewise("plan", sweep, *options).document
    one = joulewise("plan", sweep, *options, "--max-regions", "1").document

    assert (2, 1) == (free["region_count"], one["region_count"])
    assert 2 == len(free["regions"])  # type: ignore[arg-type]


def test_requests_and_model_are_written_with_the_plan(joulewise: Joulewise, sweep: Path) -> None:
    joulewise(
        *("plan", sweep, "--max-slowdown", "1%", "--transition", "lag=5ms", "--out", "plan.json")
    )

    plan = read_plan(Path("plan.json"))
    assert [(0, 0.005), (1, 0.005)] == [(one.launch_index, one.lead_s) for one in plan.requests]
    assert "lag=5ms" == (plan.request.transition.name if plan.request.transition else None)


def test_a_frontier_counts_changes_too(joulewise: Joulewise, sweep: Path) -> None:
    free = joulewise("frontier", sweep, "--json").document
    paid = joulewise("frontier", sweep, "--transition", "stall=50ms", "--json").document

    assert (None, "stall=50ms") == (free["transition"], paid["transition"])
    least = {
        name: min(point["energy_j"] for point in document["frontier"] if point["time_s"] < 3.05)  # type: ignore[attr-defined]
        for name, document in (("free", free), ("paid", paid))
    }
    assert least["free"] < least["paid"]


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("plan", "table.csv", "--transition", "ascent"), "transition"),
        (("plan", "table.csv", "--transition", "stall=-1ms"), "transition"),
        (("plan", "table.csv", "--max-regions", "3"), "max-regions"),
        (("plan", "table.csv", "--granularity", "region", "--max-regions", "0"), "max-regions"),
        (
            ("plan", "table.csv", "--granularity", "region", "--max-regions", "9" * 20),
            "max-regions",
        ),
        (("frontier", "table.csv", "--transition", "lag"), "transition"),
        (("tune", "--transition", "lag"), "transition"),
    ],
)
def test_what_is_wrong_is_one_sentence_that_names_it(
    joulewise: Joulewise, sweep: Path, arguments: tuple[str, ...], field: str
) -> None:
    assert sweep.name == "table.csv"

    said = joulewise(*arguments, "--json")

    assert (1, "error", field) == (said.code, said.document["status"], said.document["field"])
    assert said.document["hint"]


def test_a_model_with_a_hole_names_the_change(
    joulewise: Joulewise, sweep: Path, tmp_path: Path
) -> None:
    (tmp_path / "hole.json").write_text(
        '{"schema_version": 1, "name": "hole", "source": "s", "costs": [{"domain": "memory"}]}'
    )

    said = joulewise("plan", sweep, "--transition", "hole.json", "--json")

    assert (1, "error") == (said.code, said.document["status"])
    assert "says nothing of a change of sm" in str(said.document["message"])


def test_a_plan_is_not_written_over_its_model(
    joulewise: Joulewise, sweep: Path, tmp_path: Path
) -> None:
    path = tmp_path / "own.json"
    write_transition(uniform_transition("own", "by hand", stall_s=1e-3), path)
    before = path.read_bytes()

    said = joulewise("plan", sweep, "--transition", path, "--out", path, "--json")

    assert (1, str(path)) == (said.code, said.document["file"])
    assert before == path.read_bytes()


def test_an_unreachable_budget_says_the_least_time_with_its_changes(
    joulewise: Joulewise, sweep: Path
) -> None:
    said = joulewise("plan", sweep, "--transition", "ascend", "--max-slowdown", "-5%", "--json")

    assert (1, "infeasible") == (said.code, said.document["status"])
    assert 1.0 == said.document["least_slowdown_ratio"]


def test_the_presets_are_listed_with_their_sources(joulewise: Joulewise) -> None:
    lines = joulewise("transitions", "--json").document["transitions"]

    assert isinstance(lines, list)
    assert {
        "free": 0.0,
        "fast-ivr": 1e-5,
        "ascend": 1e-3,
        "hopper": 6e-3,
        "ampere": 15e-3,
        "turing": 0.15,
    } == {line["transition"]: line["stall_s"] for line in lines}
    assert all(line["source"] for line in lines)
    assert "ascend" in joulewise("transitions").out
