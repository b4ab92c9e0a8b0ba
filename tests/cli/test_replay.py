"""Plans played as whole iterations, and changes of clocks measured, from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from joulewise.domain.ports import no_progress
from joulewise.store.transition_files import read_transition
from joulewise.workflow.measuring import MeasureJob, measure_to_file
from tests.cli.conftest import Joulewise

QUIET = "virtual:rtx3080ti,noise=0"
BUDGET = ("--workload", "gpt3-xl", "--max-slowdown", "1%", "--no-guard", "--out", "plan.json")


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep without noise, measured once for all tests here."""
    folder = tmp_path_factory.mktemp("sweep")
    path = folder / "sweep.parquet"
    job = MeasureJob(
        device=QUIET,
        workload="gpt3-xl",
        sm_clocks_mhz=(None, 1680),
        mem_clocks_mhz=(None, 9501, 5001),
        out=path,
        is_resumed=False,
    )
    measure_to_file(job, no_progress)
    return path


@pytest.mark.parametrize("transition", ["ascend", "stall=0.1ms,lag=2ms"])
def test_a_replay_takes_what_was_planned(
    joulewise: Joulewise, sweep: Path, transition: str
) -> None:
    joulewise("plan", sweep, *BUDGET, "--transition", transition)

    document = joulewise("replay", "plan.json", "--iterations", "3", "--json").document

    assert abs(float(str(document["time_difference_ratio"]))) < 0.005
    assert abs(float(str(document["energy_difference_ratio"]))) < 0.005
    assert transition == document["transition"]
    assert 3 == document["iteration_count"]
    assert 0 < int(str(document["change_count"])) == document["requests_per_iteration"]
    assert (0, 0) == (document["late_per_iteration"], document["skipped_per_iteration"])


def test_a_replay_reads_like_this(joulewise: Joulewise, sweep: Path) -> None:
    joulewise("plan", sweep, *BUDGET, "--transition", "ascend")

    said = joulewise("replay", "plan.json", "--iterations", "3")

    lines = said.out.splitlines()
    assert 0 == said.code, said.err
    assert ["per", "iteration", "planned", "replayed", "difference"] == lines[0].split()
    assert ["time", "energy", "changes"] == [line.split()[0] for line in lines[1:4]]
    assert "Every change was in force in time" in " ".join(lines)
    assert "TransitionsAssumed" in said.out


def test_a_plan_that_did_not_count_its_changes_pays_for_them(
    joulewise: Joulewise, sweep: Path
) -> None:
    joulewise("plan", sweep, *BUDGET)
    document = joulewise(
        *("replay", "plan.json", "--device", f"{QUIET},stall=1ms", "--iterations", "3", "--json")
    ).document

    change_count = int(str(document["change_count"]))
    paid_s = float(str(document["predicted_time_s"])) + change_count * 1e-3
    assert change_count > 100
    assert pytest.approx(paid_s, rel=1e-3) == document["time_s"]


def test_a_plan_for_another_device_or_workload_is_not_played(
    joulewise: Joulewise, sweep: Path
) -> None:
    joulewise("plan", sweep, *BUDGET, "--transition", "ascend")

    device = joulewise("replay", "plan.json", "--device", "virtual:a100-sxm", "--json")
    size = joulewise("replay", "plan.json", "--workload", "gpt3-xl,batch=8", "--json")

    assert (1, "device_name") == (device.code, device.document["field"])
    assert (1, "workload") == (size.code, size.document["field"])


def test_a_plan_with_kernels_that_the_workload_lacks_is_not_played(
    joulewise: Joulewise, sweep: Path, tmp_path: Path
) -> None:
    joulewise("plan", sweep, *BUDGET, "--granularity", "iteration", "--transition", "ascend")
    path = tmp_path / "plan.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    document["launches"][7]["kernel"] = "unheard-of"
    path.write_text(json.dumps(document))

    said = joulewise("replay", "plan.json", "--json")

    assert (1, "plan.json") == (said.code, said.document["file"])
    assert "'unheard-of'" in str(said.document["message"])


def test_a_plan_from_before_there_were_requests_says_so(
    joulewise: Joulewise, sweep: Path, tmp_path: Path
) -> None:
    joulewise("plan", sweep, *BUDGET)
    path = tmp_path / "plan.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    del document["requests"]
    path.write_text(json.dumps(document))

    said = joulewise("replay", "plan.json", "--json")

    assert (1, "requests") == (said.code, said.document["field"])


def test_what_a_change_costs_is_measured_and_planned_with(
    joulewise: Joulewise, sweep: Path
) -> None:
    device = f"{QUIET},stall=2ms,lag=5ms"
    said = joulewise(
        *("probe", "transitions", "--device", device, "--sm-clocks", "840,1155"),
        *("--mem-clocks", "9501", "--out", "own.json"),
    )
    model = read_transition(Path("own.json"))

    assert 0 == said.code, said.err
    assert "written to own.json" in " ".join(said.out.split())
    assert ("sm", True) == (model.costs[0].domain, model.is_simulated)
    assert [840, 1155, None] == [one.target and one.target.sm_clock_mhz for one in model.costs]
    for cost in model.costs:
        assert pytest.approx(2e-3, rel=0.02) == cost.stall_s
        assert pytest.approx(5e-3, rel=0.02) == cost.lag_s
    planned = joulewise("plan", sweep, *BUDGET, "--transition", "own.json", "--json")
    # The file knows SM clocks only, and the sweep has two memory clocks.
    assert "says nothing of a change of" in str(planned.document["message"])


def test_a_measured_model_is_trusted_on_its_device_for_the_clocks_measured(
    joulewise: Joulewise, sweep: Path
) -> None:
    device = f"{QUIET},stall=0.5ms,lag=5ms"
    joulewise(
        *("probe", "transitions", "--device", device, "--sm-clocks", "1680"),
        *("--mem-clocks", "9501,5001", "--out", "own.json"),
    )
    document = json.loads(Path("own.json").read_text(encoding="utf-8"))
    for domain in ("sm", "both"):
        document["costs"].append({"domain": domain, "stall_s": 1e-4})
    Path("own.json").write_text(json.dumps(document))
    document["device_name"] = "NVIDIA A100-SXM4-80GB"
    Path("other.json").write_text(json.dumps(document))

    own, other = (
        joulewise("plan", sweep, *BUDGET, "--transition", name, "--json").document["caveats"]
        for name in ("own.json", "other.json")
    )

    assert isinstance(own, list)
    assert isinstance(other, list)
    own_seen, other_seen = ({one["kind"]: one["seen"] for one in each} for each in (own, other))
    assert "has no measurement of" in own_seen["TransitionsAssumed"]
    assert "measured on NVIDIA A100-SXM4-80GB" in other_seen["TransitionsAssumed"]


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("replay", "none.json"), None),
        (("replay", "plan.json", "--iterations", "0"), "iterations"),
        (("probe", "transitions", "--kernel", "nonsense"), "kernel"),
        (("probe", "transitions", "--sm-clocks", "1681"), "sm-clocks"),
        (("probe", "transitions", "--device", "virtual:rtx9090"), "device"),
    ],
)
def test_what_is_wrong_is_one_sentence(
    joulewise: Joulewise, arguments: tuple[str, ...], field: str | None
) -> None:
    said = joulewise(*arguments, "--json")

    assert (1, "error", field) == (said.code, said.document["status"], said.document["field"])
    assert said.document["hint"]


def test_a_model_is_not_measured_over_the_workload(joulewise: Joulewise, tmp_path: Path) -> None:
    path = tmp_path / "work.json"
    path.write_text("{}")

    said = joulewise("probe", "transitions", "--workload", path, "--out", path, "--json")

    assert (1, str(path)) == (said.code, said.document["file"])
    assert "{}" == path.read_text()
