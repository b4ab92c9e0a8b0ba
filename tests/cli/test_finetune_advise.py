"""`joulewise finetune advise`: a clock for a job, by the config of its model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import cast

import jsonschema
import pytest

from joulewise.domain.points import OperatingPoint
from joulewise.finetune.policies.training import train_policy
from joulewise.store.policies import PolicyKind, write_policy
from tests.cli.conftest import Joulewise, Said
from tests.finetuning_curves import ORIN_MHZ, training_curves

DOCS = Path(__file__).resolve().parents[2] / "docs"
RESULT = json.loads((DOCS / "schemas" / "result.json").read_text("utf-8"))
BERT = {
    "model_type": "bert",
    "architectures": ["BertForSequenceClassification"],
    "num_hidden_layers": 12,
    "hidden_size": 768,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "vocab_size": 30522,
    "max_position_embeddings": 512,
}
JOB = ("--config", "config.json", "--avg-seq-len", "48")


@pytest.fixture(autouse=True)
def config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(BERT), encoding="utf-8")


@pytest.fixture
def policy(tmp_path: Path) -> str:
    """A policy that was learned from curves by hand."""
    document = train_policy(training_curves(), PolicyKind.REGRET)
    write_policy(tmp_path / "policy.json", document)
    return "policy.json"


def assert_result(said: Said) -> dict[str, object]:
    assert (0, "") == (said.code, said.err)
    shape = {**RESULT, "anyOf": [{"$ref": "#/$defs/CommandResult"}]}
    jsonschema.Draft202012Validator(shape).validate(said.document)
    return said.document


def test_the_job_its_rules_and_its_clock_are_told(joulewise: Joulewise, policy: str) -> None:
    said = joulewise("finetune", "advise", *JOB, "--policy", policy)

    assert (0, "") == (said.code, said.err)
    text = " ".join(said.out.split())
    assert "model type encoder layers 12 hidden size 768 mean sequence 48 tokens" in text
    assert "Rules layers <= 9:" in text
    assert "Run at 612 MHz (regret): layers > 9: 612 MHz." in text
    assert "less energy at +" in text
    assert "SimulatedDevice" in text


def test_programs_get_the_same(joulewise: Joulewise, policy: str) -> None:
    said = joulewise("finetune", "advise", *JOB, "--policy", policy, "--json")

    document = assert_result(said)
    assert (612, list(ORIN_MHZ)) == (document["sm_clock_mhz"], document["sm_clocks_mhz"])
    assert document["is_simulated"] is True
    features = document["features"]
    assert isinstance(features, dict)
    assert ("encoder", 12, 48.0) == (
        features["model_type"],
        features["layer_count"],
        features["mean_sequence_count"],
    )
    saving = document["saving_ratio"]
    assert isinstance(saving, float)
    assert 0 < saving < 1


def test_without_a_policy_the_shipped_one_advises(joulewise: Joulewise) -> None:
    document = assert_result(joulewise("finetune", "advise", *JOB, "--json"))

    assert document["sm_clock_mhz"] in ORIN_MHZ
    assert document["is_simulated"] is True


def test_the_published_tree_advises_with_its_missing_node_told(joulewise: Joulewise) -> None:
    said = joulewise("finetune", "advise", *JOB, "--policy", "paper-mlg")

    text = " ".join(said.out.split())
    assert "Run at 714 MHz (paper-mlg)" in text
    assert "layers > 7: mean sequence <= 53: 714 MHz" in text
    assert "where it hangs is not published" in text


def test_clocks_are_those_of_the_device(joulewise: Joulewise) -> None:
    said = joulewise(*("finetune", "advise", *JOB, "--device", "virtual:orin-nano-super", "--json"))

    document = assert_result(said)
    clocks = document["sm_clocks_mhz"]
    assert isinstance(clocks, list)
    assert 1020 == max(clocks)
    assert document["sm_clock_mhz"] in clocks
    assert OperatingPoint(sm_clock_mhz=1020).sm_clock_mhz in clocks


def test_a_budget_that_nothing_keeps_leaves_the_clock_to_the_governor(
    joulewise: Joulewise, policy: str
) -> None:
    said = joulewise(
        *("finetune", "advise", *JOB, "--policy", policy, "--max-slowdown", "-50%", "--json")
    )

    document = assert_result(said)
    assert ("no_gain", None) == (document["status"], document["sm_clock_mhz"])
    assert "left to the governor" in str(document["reason"])


def test_a_budget_that_another_job_may_break_is_doubted_and_a_sure_one_is_not(
    joulewise: Joulewise, tmp_path: Path, policy: str
) -> None:
    small = BERT | {"num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 4}
    (tmp_path / "config.json").write_text(json.dumps(small), encoding="utf-8")
    asked = ("finetune", "advise", *JOB, "--json")
    doubted = joulewise(*asked, "--policy", policy, "--max-slowdown", "30%").document
    sure = joulewise(*asked, "--policy", "paper-mlg", "--max-slowdown", "30%").document

    def promises(document: dict[str, object]) -> list[dict[str, str]]:
        caveats = cast("list[dict[str, str]]", document["caveats"])
        return [one for one in caveats if one["kind"] == "PromiseNotShown"]

    clock = cast("int", doubted["sm_clock_mhz"])
    assert 1300 / clock > 1.3
    (doubt,) = promises(doubted)
    assert f"at {clock} MHz another job may lose up to +{1300 / clock - 1:.0%}" in doubt["seen"]
    assert "joulewise finetune run" in doubt["helps"]
    assert (1020, []) == (sure["sm_clock_mhz"], promises(sure))
    assert not promises(joulewise(*asked, "--policy", policy).document)


def test_doubts_are_told_and_can_be_made_to_fail(joulewise: Joulewise, policy: str) -> None:
    long = ("--config", "config.json", "--avg-seq-len", "400", "--policy", policy)

    said = joulewise("finetune", "advise", *long, "--fail-on", "Extrapolated")

    assert 2 == said.code
    assert "mean sequence length 400, where those had 14 to 55" in " ".join(said.out.split())


@pytest.mark.parametrize(
    ("arguments", "field", "message"),
    [
        (("--avg-seq-len", "0"), "avg-seq-len", "tokens"),
        (("--avg-seq-len", "nan"), "avg-seq-len", "tokens"),
        (("--avg-seq-len", "1e9"), "avg-seq-len", "1e+09 tokens"),
        (("--utilisation", "900"), "utilisation", "no share"),
        (("--utilisation", "busy"), "utilisation", "no share"),
        (("--policy", "best"), "policy", "no policy is called 'best'"),
        (("--policy", "ffg"), "policy", "'ffg' is a kind of policy"),
        (("--policy", "nowhere.json"), None, "no such file"),
        (("--policy", "config.json"), None, "config"),
        (("--config", "nowhere.json"), None, "no such file"),
        (("--device", "virtual:orin"), "device", "orin"),
        (("--device", "recorded:table.csv"), "device", "recording"),
        (("--max-slowdown", "much"), "max-slowdown", "slowdown"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_sentence(
    joulewise: Joulewise, arguments: tuple[str, ...], field: str | None, message: str
) -> None:
    said = joulewise("finetune", "advise", *JOB, *arguments, "--json")

    assert 1 == said.code
    assert message in f"{said.document['message']} {said.document['file']}"
    if field is not None:
        assert field == said.document["field"]
    assert said.document["hint"]


def test_shares_are_written_in_both_ways(joulewise: Joulewise) -> None:
    for text in ("90%", "0.9"):
        said = joulewise("finetune", "advise", *JOB, "--utilisation", text, "--json")
        features = said.document["features"]
        assert isinstance(features, dict)
        assert 0.9 == features["gpu_busy_ratio"]


def test_utilisation_that_a_policy_does_not_ask_for_is_told(
    joulewise: Joulewise, tmp_path: Path, policy: str
) -> None:
    curves = [
        replace(one, baseline=replace(one.baseline, busy_ratio=place / 20))
        for place, one in enumerate(training_curves())
    ]
    busy = train_policy(curves, PolicyKind.REGRET, uses_utilisation=True)
    write_policy(tmp_path / "busy.json", busy)
    assert any("GPU utilisation" in rule for rule in busy.rules)

    for name, is_used in ((policy, False), ("busy.json", True)):
        asked = ("finetune", "advise", *JOB, "--policy", name, "--utilisation", "90%")
        assert is_used is ("not used by this policy" not in joulewise(*asked).out)
        assert is_used is assert_result(joulewise(*asked, "--json"))["is_utilisation_used"]
    silent = joulewise("finetune", "advise", *JOB, "--policy", policy, "--json")
    assert assert_result(silent)["is_utilisation_used"] is None


def test_on_another_board_nothing_is_expected_and_that_is_told(joulewise: Joulewise) -> None:
    asked = ("finetune", "advise", *JOB, "--device", "virtual:orin-nano-super")

    text = " ".join(joulewise(*asked).out.split())
    document = assert_result(joulewise(*asked, "--json"))

    assert "Nothing is expected of it: the policy was learned on another board" in text
    assert "Expected against the governor" not in text
    assert (None, None) == (document["saving_ratio"], document["slowdown_ratio"])
    assert "Nothing is expected" not in joulewise("finetune", "advise", *JOB).out


def test_parameters_are_told_to_be_without_the_head(joulewise: Joulewise, tmp_path: Path) -> None:
    whole = BERT | {"type_vocab_size": 2, "hidden_act": "gelu"}
    (tmp_path / "config.json").write_text(json.dumps(whole), encoding="utf-8")

    assert "M without the head" in joulewise("finetune", "advise", *JOB).out


def test_a_kind_of_policy_is_told_how_to_be_learned(joulewise: Joulewise) -> None:
    for kind in PolicyKind:
        said = joulewise("finetune", "advise", *JOB, "--policy", kind.value, "--json")
        assert f"train-policy CURVES --kind {kind.value}" in str(said.document["hint"])
