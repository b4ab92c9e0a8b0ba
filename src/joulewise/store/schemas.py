"""JSON Schemas of every file and of the CLI's `--json` object.

`python -m joulewise.store.schemas docs/schemas` writes them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from joulewise.domain.caveats import CaveatKind
from joulewise.domain.pipeline import PipelinePlan
from joulewise.domain.plan import Plan, Verification
from joulewise.domain.transition import TransitionModel
from joulewise.store import sweep_csv
from joulewise.store.atomic import write_atomically
from joulewise.store.clock_curves import ClockCurves
from joulewise.store.json_files import SCHEMA_VERSION
from joulewise.store.policies import PolicyDocument
from joulewise.store.sweep_parquet import SweepHeader
from joulewise.store.wire import document_type
from joulewise.store.workload_files import WorkloadFile

Schema = dict[str, object]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


class ShownCaveat(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One typed doubt: what was seen, why it matters, what helps."""

    kind: CaveatKind
    seen: str
    why: str
    helps: str


class CommandResult(msgspec.Struct, kw_only=True):
    """What a command found; a field it has no say about is null. Commands may add fields."""

    schema_version: Literal[1]
    status: Literal["optimal", "feasible", "infeasible", "no_gain"]
    slowdown_ratio: float | None
    saving_ratio: float | None
    energy_j: float | None
    time_s: float | None
    bound_gap_ratio: float | None
    caveats: tuple[ShownCaveat, ...]


class CommandError(msgspec.Struct, kw_only=True):
    """Why a command gave up: one sentence, and where to look. Data rows count from 1.

    Notes tell what it left behind, such as clocks that could not be given back.
    """

    status: Literal["error", "infeasible"]
    message: str
    file: str | None
    row: int | None
    field: str | None
    hint: str | None
    notes: tuple[str, ...] = ()
    schema_version: Literal[1] = 1


def json_schemas() -> dict[str, Schema]:
    """Schemas of every file by name, and of the command line's `result`."""
    bodies: dict[str, Schema] = {
        "sweep-row": _sweep_row(),
        "sweep-metadata": msgspec.json.schema(SweepHeader),
        "plan": msgspec.json.schema(document_type(Plan, SCHEMA_VERSION)),
        "verification": msgspec.json.schema(document_type(Verification, SCHEMA_VERSION)),
        "pipeline": msgspec.json.schema(document_type(PipelinePlan, SCHEMA_VERSION)),
        "transition": msgspec.json.schema(document_type(TransitionModel, SCHEMA_VERSION)),
        "curves": msgspec.json.schema(document_type(ClockCurves, SCHEMA_VERSION)),
        "policy": msgspec.json.schema(document_type(PolicyDocument, SCHEMA_VERSION)),
        "workload": _workload(),
        "result": _result(),
    }
    return {
        name: {
            "$schema": _DIALECT,
            "$id": f"urn:joulewise:schema:{name}:{SCHEMA_VERSION}",
            **body,
        }
        for name, body in bodies.items()
    }


def write_schemas(folder: Path) -> None:
    """Write every schema as `NAME.json` into an existing folder.

    Raises:
        InputError: the folder is missing or cannot be written to.
    """
    for name, schema in json_schemas().items():
        write_atomically(folder / f"{name}.json", schema_text(schema))


def schema_text(schema: Mapping[str, object]) -> bytes:
    """A schema as it is written."""
    return msgspec.json.format(msgspec.json.encode(schema), indent=2) + b"\n"


def _sweep_row() -> Schema:
    measured = {"type": "number", "exclusiveMinimum": 0}
    scatter = {"type": ["number", "null"], "minimum": 0}
    clock = {"type": ["integer", "null"], "minimum": 1, "description": "null (empty) is auto"}
    properties: dict[str, Schema] = {
        "kernel": {"type": "string", "minLength": 1},
        "sm_clock_mhz": dict(clock),
        "mem_clock_mhz": dict(clock),
        "power_limit_w": {
            "type": ["number", "null"],
            "exclusiveMinimum": 0,
            "description": "null (empty) is auto",
        },
        "time_s": {**measured, "description": "per launch"},
        "energy_j": {**measured, "description": "per launch"},
        "time_std_s": {**scatter, "description": "of one window, not of the median"},
        "energy_std_j": {**scatter, "description": "of one window, not of the median"},
        "window_count": {"type": ["integer", "null"], "minimum": 1},
        "schema_version": {"enum": [sweep_csv.SCHEMA_VERSION]},
    }
    return {
        "title": "SweepRow",
        "description": (
            "One row of the native sweep CSV: one kernel at one operating point. The columns of "
            "the Parquet file are these and what was measured besides."
        ),
        "type": "object",
        "properties": properties,
        "required": list(sweep_csv.REQUIRED_COLUMNS),
        "additionalProperties": False,
    }


def _workload() -> Schema:
    schema = msgspec.json.schema(WorkloadFile)
    items = schema["$defs"]["LaunchItem"]
    items["oneOf"] = [
        {"required": ["kernel"], "not": {"required": ["launches"]}},
        {"required": ["launches"], "not": {"anyOf": _each_required(("kernel", "pass"))}},
    ]
    for owner in (items, schema["$defs"]["WorkloadFile"]):
        owner["properties"]["launches"]["minItems"] = 1
    return schema


def _result() -> Schema:
    shapes, components = msgspec.json.schema_components(
        (CommandResult, CommandError), ref_template="#/$defs/{name}"
    )
    return {"title": "Result", "anyOf": list(shapes), "$defs": components}


def _each_required(names: Iterable[str]) -> list[Schema]:
    return [{"required": [name]} for name in names]


if __name__ == "__main__":
    write_schemas(Path(sys.argv[1]))
