"""The published JSON Schemas are current, and files that are written obey them."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import jsonschema
import numpy as np
import polars as pl
import pytest
from tests.plans import bare_plan

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.errors import InputError
from joulewise.domain.plan import Interval, PlannedLaunch, Verification
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.sweep import Sweep, SweepSource
from joulewise.domain.workload import Launch, Pass, Workload
from joulewise.finetune.policies.catalogue import shipped_policy
from joulewise.store.documents import (
    read_workload,
    write_plan,
    write_verification,
    write_workload,
)
from joulewise.store.policies import write_policy
from joulewise.store.schemas import json_schemas, schema_text, write_schemas
from joulewise.store.sweep_csv import sweep_csv
from joulewise.store.sweep_parquet import METADATA_KEY, sweep_parquet

PUBLISHED = Path(__file__).resolve().parents[2] / "docs" / "schemas"
SCHEMAS = json_schemas()
SWEEP = Sweep(
    kernels=("a",),
    points=(AUTO, OperatingPoint(sm_clock_mhz=1410, power_limit_w=250.0)),
    baseline=AUTO,
    source=SweepSource(device="virtual:x", device_name="X", tool="test"),
    is_present=np.array([[True, True]]),
    time_s=np.array([[1.0, 2.0]]),
    energy_j=np.array([[1.0, 2.0]]),
    window_count=np.array([[3, 3]]),
    caveats=(Caveat(kind=CaveatKind.UNCALIBRATED, seen="never fitted"),),
)
RESULT: dict[str, object] = {
    "schema_version": 1,
    "status": "no_gain",
    "slowdown_ratio": None,
    "saving_ratio": 0.0,
    "energy_j": 1.0,
    "time_s": 1.0,
    "bound_gap_ratio": 0.0,
    "caveats": [{"kind": "NotVerified", "seen": "…", "why": "…", "helps": "…"}],
}
ERROR: dict[str, object] = {
    "status": "error",
    "message": "there is no such file",
    "file": "sweep.csv",
    "row": None,
    "field": None,
    "hint": "Check the path.",
}


def validate(document: object, name: str) -> None:
    jsonschema.Draft202012Validator(SCHEMAS[name]).validate(document)


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_published_schema_is_current(name: str) -> None:
    # If not: python -m joulewise.store.schemas docs/schemas
    assert schema_text(SCHEMAS[name]) == (PUBLISHED / f"{name}.json").read_bytes()


def test_no_schema_is_published_that_is_not_known() -> None:
    assert {f"{name}.json" for name in SCHEMAS} == {path.name for path in PUBLISHED.iterdir()}


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_schema_is_a_schema(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[name])


def test_schemas_are_written_into_a_folder(tmp_path: Path) -> None:
    write_schemas(tmp_path)

    assert {f"{name}.json" for name in SCHEMAS} == {path.name for path in tmp_path.iterdir()}


def test_rows_of_a_written_csv_obey() -> None:
    rows = list(csv.DictReader(io.StringIO(sweep_csv(SWEEP))))

    for row in rows:
        numbers = {
            name: json.loads(text or "null") for name, text in row.items() if name != "kernel"
        }
        validate({"kernel": row["kernel"], **numbers}, "sweep-row")
    assert 2 == len(rows)


def test_metadata_of_a_written_parquet_obeys() -> None:
    metadata = pl.read_parquet_metadata(io.BytesIO(sweep_parquet(SWEEP)))

    validate(json.loads(metadata[METADATA_KEY]), "sweep-metadata")


def test_a_written_plan_obeys(tmp_path: Path) -> None:
    plan = bare_plan([PlannedLaunch(kernel="a", pass_=Pass.FORWARD, point=AUTO)])
    write_plan(plan, tmp_path / "plan.json")

    document = json.loads((tmp_path / "plan.json").read_text())

    validate(document, "plan")
    with pytest.raises(jsonschema.ValidationError):
        validate(document | {"time_s": -1}, "plan")


def test_a_written_verification_obeys(tmp_path: Path) -> None:
    interval = Interval(low_ratio=0.0, high_ratio=1.0)
    verification = Verification(
        plan_sha256="0" * 64,
        device="virtual:x",
        device_name="X",
        pairs=(),
        promised_slowdown_ratio=1.0,
        promised_saving_ratio=0.0,
        slowdown_ratio=1.0,
        slowdown_interval=interval,
        saving_ratio=0.0,
        saving_interval=interval,
        max_slowdown_ratio=None,
        is_within_budget=None,
    )
    write_verification(verification, tmp_path / "verification.json")

    validate(json.loads((tmp_path / "verification.json").read_text()), "verification")


def test_the_policy_that_is_shipped_obeys(tmp_path: Path) -> None:
    write_policy(tmp_path / "policy.json", shipped_policy().document)
    document = json.loads((tmp_path / "policy.json").read_text())

    validate(document, "policy")
    with pytest.raises(jsonschema.ValidationError):
        validate(document | {"kind": "guess"}, "policy")


def test_a_written_workload_obeys(tmp_path: Path) -> None:
    launches = (Launch(kernel="a"), Launch(kernel="a", pass_=Pass.BACKWARD))
    write_workload(Workload(name="w", launches=launches), tmp_path / "workload.json")

    validate(json.loads((tmp_path / "workload.json").read_text()), "workload")


@pytest.mark.parametrize(
    "launches",
    [
        [],
        [{}],
        [{"repeat": 2}],
        [{"kernel": "a", "repeat": 0}],
        [{"kernel": "a", "pass": "sideways"}],
        [{"kernel": "a", "launches": [{"kernel": "b"}]}],
        [{"pass": "forward", "launches": [{"kernel": "b"}]}],
        [{"repeat": 2, "launches": []}],
        [{"repeat": 2, "launches": [{"kernel": "b"}]}],
        [{"kernel": "a", "pass": "backward", "repeat": 24}],
    ],
)
def test_the_workload_schema_and_the_reader_agree(tmp_path: Path, launches: list[object]) -> None:
    document = {"schema_version": 1, "name": "w", "launches": launches}
    path = tmp_path / "workload.json"
    path.write_text(json.dumps(document))

    obeys = jsonschema.Draft202012Validator(SCHEMAS["workload"]).is_valid(document)

    assert obeys == is_read(path)


def is_read(path: Path) -> bool:
    try:
        read_workload(path)
    except InputError:
        return False
    return True


@pytest.mark.parametrize("document", [RESULT, ERROR], ids=["result", "error"])
def test_a_result_or_an_error_obeys_whole_only(document: dict[str, object]) -> None:
    validate(document, "result")
    for name in document:
        with pytest.raises(jsonschema.ValidationError):
            validate({key: value for key, value in document.items() if key != name}, "result")
