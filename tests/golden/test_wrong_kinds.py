"""A file of the wrong kind is named for what it is, and what it is for, whoever reads it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from joulewise.domain.errors import InputError
from joulewise.store.clock_curves import read_curves
from joulewise.store.documents import read_plan, read_verification, read_workload
from joulewise.store.pipeline_files import read_pipeline, read_profile
from joulewise.store.policies import read_policy
from joulewise.store.sweeps import read_sweep
from joulewise.store.transition_files import read_transition

Read = Callable[[Path], object]

READERS: Mapping[str, Read] = {
    "a plan": read_plan,
    "a pipeline plan": read_pipeline,
    "a verification": read_verification,
    "a transition model": read_transition,
    "a workload": read_workload,
    "a sweep": read_sweep,
    "a file of U-curves": read_curves,
    "a policy": read_policy,
}
# What every document of a kind has; more is not looked at.
DOCUMENTS: Mapping[str, bytes] = {
    "a plan": json.dumps({"launches": [], "request": {}, "caveats": []}).encode(),
    "a pipeline plan": json.dumps({"operations": [], "request": {}, "status": "x"}).encode(),
    "a verification": json.dumps({"pairs": [], "plan_sha256": ""}).encode(),
    "a transition model": json.dumps({"name": "m", "costs": [], "source": "s"}).encode(),
    "a workload": json.dumps({"name": "w", "launches": []}).encode(),
    "a sweep": b"PAR1 and more",
    "a file of U-curves": json.dumps({"schema_version": 1, "curves": []}).encode(),
    "a policy": json.dumps({"policy": "tree", "nodes": [], "training_jobs": []}).encode(),
}
PRINTED = json.dumps({"status": "optimal", "bound_gap_ratio": 0.0, "caveats": []}).encode()


def complaint(read: Read, path: Path) -> InputError:
    with pytest.raises(InputError) as caught:
        read(path)
    assert str(path) == caught.value.file
    return caught.value


@pytest.mark.parametrize(
    ("wanted", "given"), [pair for pair in product(READERS, DOCUMENTS) if pair[0] != pair[1]]
)
def test_every_other_kind_is_named(tmp_path: Path, wanted: str, given: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(DOCUMENTS[given])

    assert f"this is {given}, not {wanted}" == complaint(READERS[wanted], path).message


@pytest.mark.parametrize("kind", READERS)
def test_what_is_of_the_right_kind_is_read_by_its_fields(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(DOCUMENTS[kind])

    assert "this is" not in complaint(READERS[kind], path).message


@pytest.mark.parametrize("wanted", READERS)
def test_what_a_command_printed_is_no_document(tmp_path: Path, wanted: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(PRINTED)

    said = complaint(READERS[wanted], path)

    assert f"this is what a command prints with --json, not {wanted}" == said.message


def test_a_profile_that_is_a_plan_is_named(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(DOCUMENTS["a plan"])

    assert "this is a plan, not a sweep" == complaint(read_profile, path).message


@pytest.mark.parametrize("missing", ["launches", "request"])
def test_a_plan_that_lacks_a_field_is_a_plan_still(tmp_path: Path, missing: str) -> None:
    path = tmp_path / "file"
    fields = {"schema_version": 1, "launches": [], "request": {}, "status": "optimal"}
    fields |= {"bound_gap_ratio": 0.0, "caveats": []}
    del fields[missing]
    path.write_text(json.dumps(fields), encoding="utf-8")

    assert "this is" not in complaint(read_plan, path).message


def test_each_kind_says_what_it_is_for(tmp_path: Path) -> None:
    hints = {}
    for kind, content in {**DOCUMENTS, "printed": PRINTED}.items():
        path = tmp_path / "file"
        path.write_bytes(content)
        read = read_plan if kind != "a plan" else read_sweep
        hints[kind] = (complaint(read, path).hint or "").replace(str(tmp_path), "FOLDER")

    assert hints == snapshot(
        {
            "a plan": "`joulewise verify FOLDER/file` runs it afresh, `joulewise replay FOLDER/file` plays it.",
            "a pipeline plan": "Named pipeline.json, `joulewise report FOLDER` shows it.",
            "a verification": "`joulewise report FOLDER` shows it beside its plan.",
            "a transition model": "Give it to --transition.",
            "a workload": "Give it to --workload.",
            "a sweep": "`joulewise plan FOLDER/file` plans on it.",
            "a file of U-curves": "`joulewise finetune curves FOLDER/file` shows it, `joulewise finetune train-policy FOLDER/file` learns from it.",
            "a policy": "Give it to joulewise finetune advise or run as --policy FOLDER/file.",
            "printed": "Write the document itself with --out.",
        }
    )


def test_a_bad_value_comes_with_the_values_there_are(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    found = {}
    wrong: dict[str, dict[str, object]] = {
        "status": {"status": "good"},
        "inside": {"status": "optimal", "request": {"granularity": "layer"}},
        "list": {"launches": [{"kernel": "a", "pass": "sideways"}]},
        "either": {"request": {"transition": {"costs": [{"domain": "fan"}]}}},
    }
    for name, fields in wrong.items():
        document = {"schema_version": 1, "launches": [], "request": {}, **fields}
        path.write_text(json.dumps(document), encoding="utf-8")
        said = complaint(read_plan, path)
        found[name] = f"{said.field}: {said.message} | {said.hint}"

    assert found == snapshot(
        {
            "status": "status: this cannot be 'good' | Write one of optimal, feasible, infeasible, no_gain, error.",
            "inside": "request.granularity: this cannot be 'layer' | Write one of iteration, pass, region, kernel.",
            "list": "launches[0].pass: this cannot be 'sideways' | Write one of forward, backward, optimizer, communication.",
            "either": "request.transition.costs[0].domain: this cannot be 'fan' | Write one of sm, memory, both.",
        }
    )
