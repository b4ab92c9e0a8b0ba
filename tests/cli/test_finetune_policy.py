"""`joulewise finetune train-policy` and `evaluate`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from inline_snapshot import snapshot

from joulewise.store.clock_curves import write_curves
from joulewise.store.policies import PolicyKind, read_policy
from tests.cli.conftest import Joulewise, Said
from tests.finetuning_curves import training_curves

DOCS = Path(__file__).resolve().parents[2] / "docs"
RESULT = json.loads((DOCS / "schemas" / "result.json").read_text("utf-8"))
CURVES = training_curves()


@pytest.fixture
def curves(tmp_path: Path) -> str:
    write_curves(tmp_path / "curves.json", CURVES)
    return "curves.json"


def assert_result(said: Said) -> dict[str, object]:
    assert (0, "") == (said.code, said.err)
    shape = {**RESULT, "anyOf": [{"$ref": "#/$defs/CommandResult"}]}
    jsonschema.Draft202012Validator(shape).validate(said.document)
    return said.document


def test_rules_are_told_and_written(joulewise: Joulewise, curves: str) -> None:
    said = joulewise("finetune", "train-policy", curves, "--out", "policy.json")

    assert (0, "") == (said.code, said.err)
    assert said.out == snapshot("""\
layers <= 9:
  layers <= 5: 408 MHz
  layers > 5: 510 MHz
layers > 9: 612 MHz

Caveats
  SimulatedDevice: The curves are those of Made-up Orin, a physics model.
    The figures come from a physics model, not from hardware. Repeat the run on the GPU in question.

Simulated. Learned from 12 jobs. Each left out in turn: the best clock for 100 % of them, within 2 %
of the least energy for 100 %, regret 0.00 % in the mean and 0.00 % at worst, by smoothed curves
(from eight clocks on); joulewise finetune evaluate goes by the curves as they are. Written to
policy.json.
""")
    assert PolicyKind.REGRET is read_policy(Path("policy.json")).kind


def test_programs_get_the_figures_on_left_out_jobs(joulewise: Joulewise, curves: str) -> None:
    said = joulewise("finetune", "train-policy", curves, "--kind", "ffg", "--json")

    document = assert_result(said)
    written = read_policy(Path("policy.json"))
    left_out = document["left_out"]
    assert isinstance(left_out, dict)
    assert "smoothed curves" == document["judged_by"]
    assert written.left_out.mean_regret_ratio == left_out["mean_regret_ratio"]
    assert list(written.rules) == document["rules"]
    assert ("ffg", 12, True) == (
        document["policy"],
        document["training_job_count"],
        document["is_simulated"],
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "one of the two"),
        (("curves.json", "--device", "virtual:agx-orin"), "one of the two"),
        (("nowhere.json",), "no such file"),
        (("few.json",), "at least 3 jobs"),
        (("--device", "nvml:0"), "truth"),
        (("curves.json", "--out", "curves.json"), "not written over"),
        (("curves.json", "--out", "nowhere/policy.json"), "folder"),
        (("curves.json", "--kind", "guess"), "guess"),
    ],
)
def test_what_cannot_be_learned_from_is_refused(
    joulewise: Joulewise, curves: str, arguments: tuple[str, ...], message: str
) -> None:
    assert "curves.json" == curves
    write_curves(Path("few.json"), CURVES[:2])

    said = joulewise("finetune", "train-policy", *arguments, "--json")

    assert 1 == said.code
    assert message in str(said.document["message"])
    assert said.document["hint"]
    assert not Path("policy.json").exists()


def test_utilisation_is_learned_from_only_where_that_is_asked_for(joulewise: Joulewise) -> None:
    busy = [
        replace(one, baseline=replace(one.baseline, busy_ratio=place / len(CURVES)))
        for place, one in enumerate(CURVES)
    ]
    write_curves(Path("busy.json"), busy)
    train = ("finetune", "train-policy", "busy.json", "--json")

    assert "gpu_busy_ratio" not in str(joulewise(*train).document["features"])
    assert "gpu_busy_ratio" in str(joulewise(*train, "--with-utilisation").document["features"])
    write_curves(Path("busy.json"), (*busy[:3], CURVES[3]))
    refused = joulewise(*train, "--with-utilisation").document
    assert "curves[3].features.gpu_busy_ratio" == refused["field"]


def test_trouble_with_curves_names_their_file(joulewise: Joulewise) -> None:
    write_curves(Path("few.json"), (*CURVES[:2], replace(CURVES[2], features=None)))

    for command in ("train-policy", "evaluate"):
        said = joulewise("finetune", command, "few.json", "--json")
        assert ("few.json", "curves[2].features") == (
            said.document["file"],
            said.document["field"],
        )


def test_policies_are_compared_on_measured_curves(joulewise: Joulewise, curves: str) -> None:
    quick = ("finetune", "evaluate", curves, "--seeds", "1")

    said = joulewise(*quick)
    document = assert_result(joulewise(*quick, "--json"))

    assert 0 == said.code
    assert "Training jobs, each left out of the training (12 jobs)" in said.out
    assert "Simulated. Least energy on jobs that were left out: " in " ".join(said.out.split())
    assert all(len(line) <= 100 for line in said.out.splitlines())
    rows = said.out.split("all in %\n")[1].split("\n\n")[0].splitlines()
    assert all(len(line) <= 80 for line in rows)
    assert ["policy", "saving", "saving", "regret", "interval", "regret"] == rows[1].split()[:6]
    assert rows[-1].startswith("probe, one epoch ")
    assert "Regret is by the curves as they are" in " ".join(said.out.split())
    assert "curves as they are" == document["judged_by"]
    scores = document["scores"]
    assert isinstance(scores, list)
    assert {"left-out", "left-out-small"} == {one["group"] for one in scores}
    governor = next(one for one in scores if one["policy"] == "default")
    assert 0.0 == governor["mean_saving_ratio"]


def test_curves_and_a_device_at_once_are_refused(joulewise: Joulewise, curves: str) -> None:
    said = joulewise("finetune", "evaluate", curves, "--device", "virtual:agx-orin", "--json")

    assert (1, "device") == (said.code, said.document["field"])


def test_curves_of_several_sweeps_are_learned_from_together(joulewise: Joulewise) -> None:
    write_curves(Path("all.json"), CURVES)
    write_curves(Path("a.json"), CURVES[:2])
    write_curves(Path("b.json"), CURVES[2:])
    train = ("finetune", "train-policy")

    whole = joulewise(*train, "all.json", "--json").document
    parts = joulewise(*train, "a.json", "b.json", "--json").document
    twice = joulewise(*train, "a.json", "b.json", "a.json", "--json").document

    assert whole == parts
    assert ("a.json", "curves[0].job") == (twice["file"], twice["field"])
