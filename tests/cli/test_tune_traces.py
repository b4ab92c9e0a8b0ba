"""A profile imported, tuned, and carried on with: what is printed can be typed."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.cli.conftest import Joulewise, Said

TRACE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "trace.json"
QUICK = ("--sm-clocks", "auto,1095,1275", "--mem-clocks", "auto", "--max-slowdown", "2%")


@pytest.fixture
def imported(joulewise: Joulewise) -> Path:
    """The example of the docs as a workload."""
    assert joulewise("import", "kineto", TRACE, "--out", "w.json").code == 0
    return Path("w.json")


def _tuned(joulewise: Joulewise, folder: str) -> Said:
    words = ("--workload", "w.json", "--device", "virtual:a100-sxm", "--out", folder)
    return joulewise("tune", *words, "--pairs", "2", *QUICK)


@pytest.mark.integration
@pytest.mark.usefixtures("imported")
def test_the_command_that_tune_prints_works_without_the_file_it_was_given(
    joulewise: Joulewise,
) -> None:
    said = _tuned(joulewise, "my run")
    Path("w.json").unlink()
    (line,) = [one for one in said.out.splitlines() if "joulewise replay" in one]
    _, *words = shlex.split(line.partition(": ")[2])

    assert words == ["replay", "my run/plan.json"]
    assert 0 == joulewise(*words).code


@pytest.mark.usefixtures("imported")
def test_a_run_folder_is_all_that_verify_and_report_need(joulewise: Joulewise) -> None:
    assert 0 == _tuned(joulewise, "run").code
    Path("w.json").unlink()

    assert 0 == joulewise("verify", "run/plan.json", "--pairs", "2").code
    assert 0 == joulewise("report", "run").code


@pytest.mark.usefixtures("imported")
def test_a_copy_of_another_workload_is_not_taken_for_the_plans(joulewise: Joulewise) -> None:
    assert 0 == _tuned(joulewise, "run").code
    kept = Path("run/workload.json")
    kept.write_text(kept.read_text("utf-8").replace('"repeat": 1', '"repeat": 2', 1), "utf-8")

    said = joulewise("verify", "run/plan.json", "--pairs", "2")

    assert said.code == 1
    assert "no workload.json of it lies beside the plan" in said.err
    assert "the workload file that measure, plan or tune was given" in said.err
    # Given by name, it goes on.
    assert 0 == joulewise("verify", "run/plan.json", "--pairs", "2", "--workload", "w.json").code


def test_a_run_can_be_repeated_from_its_own_copy(joulewise: Joulewise, imported: Path) -> None:
    assert 0 == _tuned(joulewise, "run").code
    imported.unlink()
    words = ("tune", "--workload", "run/workload.json", "--device", "virtual:a100-sxm")

    assert 0 == joulewise(*words, "--out", "run", "--pairs", "2", *QUICK).code


@pytest.mark.usefixtures("imported")
def test_a_trace_of_another_kind_of_gpu_is_doubted_and_its_own_kind_named(
    joulewise: Joulewise,
) -> None:
    there = joulewise("workload", "show", "w.json", "--device", "virtual:a100-sxm")
    elsewhere = joulewise("workload", "show", "w.json", "--device", "virtual:h100-sxm")
    measured = joulewise(
        *("measure", "--workload", "w.json", "--device", "virtual:h100-sxm"),
        *("--sm-clocks", "auto", "--mem-clocks", "auto", "--out", "s.csv"),
    )

    assert "TracedElsewhere" not in there.out
    assert "Efficiency of 8 GPUs run alike" in there.out
    assert "--tokens N at import gives tokens/kJ." in " ".join(there.out.split())
    for said in (elsewhere, measured):
        assert "TracedElsewhere: traced 1.477 ms on NVIDIA A100-SXM4-80GB; here" in said.out
        assert "virtual:a100-sxm, which is of the kind" in " ".join(said.out.split())
