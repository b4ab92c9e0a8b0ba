"""`pipeline.json`: what is written reads back; what is no pipeline plan is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tests.stage_profiles import perseus_rows, write_perseus

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.errors import InputError
from joulewise.domain.pipeline import (
    Instruction,
    KernelPlan,
    PipelinePlan,
    PipelinePoint,
    PipelineRequest,
    PipelineShape,
    PlannedOperation,
    Straggler,
)
from joulewise.domain.plan import PlannedLaunch, Status
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.workload import Pass
from joulewise.store.pipeline_files import read_pipeline, read_profile, write_pipeline
from joulewise.store.schemas import json_schemas

Document = dict[str, Any]
SLOW = OperatingPoint(sm_clock_mhz=990)


def _operation(stage: int, instruction: Instruction, start_s: float) -> PlannedOperation:
    is_nested = (stage, instruction) == (0, Instruction.FORWARD)
    return PlannedOperation(
        stage=stage,
        chunk=0,
        micro_batch=0,
        instruction=instruction,
        start_s=start_s,
        time_s=1.0,
        energy_j=200.0,
        point=None if is_nested else SLOW,
        launches_index=0 if is_nested else None,
    )


OPERATIONS = (
    _operation(0, Instruction.FORWARD, 0.0),
    _operation(1, Instruction.FORWARD, 1.0),
    _operation(1, Instruction.BACKWARD, 2.0),
    _operation(0, Instruction.BACKWARD, 3.0),
)
# Four operations of 200 J in 4 s of two stages; each waits for 2 s at 50 W.
PLAN = PipelinePlan(
    status=Status.FEASIBLE,
    request=PipelineRequest(
        shape=PipelineShape(stage_count=2, micro_batch_count=1),
        blocking_power_w=50.0,
        stragglers=(Straggler(stage=1, slowdown_ratio=1.1),),
    ),
    profile_name="toy",
    max_time_s=4.0,
    time_s=4.0,
    energy_j=1000.0,
    bound_j=990.0,
    bound_gap_ratio=0.01,
    baseline_time_s=4.0,
    baseline_energy_j=1200.0,
    slowdown_ratio=1.0,
    saving_ratio=1 / 6,
    operations=OPERATIONS,
    kernel_plans=(
        KernelPlan(
            stage=0,
            instruction=Instruction.FORWARD,
            time_s=1.0,
            energy_j=200.0,
            launches=(PlannedLaunch(kernel="gemm", pass_=Pass.FORWARD, point=AUTO),),
        ),
    ),
    caveats=(Caveat(kind=CaveatKind.NO_UNCERTAINTY, seen="no scatter"),),
    baseline_operations=tuple(
        replace(one, point=AUTO, launches_index=None, energy_j=250.0) for one in OPERATIONS
    ),
    frontier=(
        PipelinePoint(
            max_time_s=4.0,
            time_s=4.0,
            energy_j=1000.0,
            bound_j=990.0,
            slowdown_ratio=1.0,
            saving_ratio=1 / 6,
        ),
    ),
)


def test_a_plan_reads_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.json"

    write_pipeline(PLAN, path)

    assert PLAN == read_pipeline(path)


def test_a_plan_obeys_its_schema(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.json"
    write_pipeline(PLAN, path)

    schema = json_schemas()["pipeline"]

    jsonschema.Draft202012Validator(schema).validate(json.loads(path.read_text("utf-8")))


def _set(*path: str | int, to: object) -> Callable[[Document], None]:
    def change(document: Document) -> None:
        *parents, last = path
        place: Any = document
        for step in parents:
            place = place[step]
        place[last] = to

    return change


DAMAGE: dict[str, tuple[Callable[[Document], None], str]] = {
    "infeasible": (_set("status", to="infeasible"), "status"),
    "no time": (_set("time_s", to=0.0), "time_s"),
    "another time": (_set("time_s", to=5.0), "time_s"),
    "another energy": (_set("energy_j", to=1001.0), "energy_j"),
    "another slowdown": (_set("slowdown_ratio", to=1.01), "slowdown_ratio"),
    "another saving": (_set("saving_ratio", to=0.2), "saving_ratio"),
    "another time of the baseline": (_set("baseline_time_s", to=4.1), "slowdown_ratio"),
    "another energy of the baseline": (_set("baseline_energy_j", to=1300.0), "saving_ratio"),
    "a later end of the baseline": (
        _set("baseline_operations", 3, "start_s", to=3.5),
        "baseline_time_s",
    ),
    "another energy in the baseline": (
        _set("baseline_operations", 3, "energy_j", to=251.0),
        "baseline_energy_j",
    ),
    "another slowdown on the frontier": (
        _set("frontier", 0, "slowdown_ratio", to=1.01),
        "frontier[0].slowdown_ratio",
    ),
    "another saving on the frontier": (
        _set("frontier", 0, "saving_ratio", to=0.2),
        "frontier[0].saving_ratio",
    ),
    "a bound above the frontier": (
        _set("frontier", 0, "bound_j", to=1001.0),
        "frontier[0].bound_j",
    ),
    "a bound above the plan": (_set("bound_j", to=1100.0), "bound_j"),
    "no stages": (_set("request", "shape", "stage_count", to=0), "request.shape.stage_count"),
    "more stages": (_set("request", "shape", "stage_count", to=3), "operations"),
    "negative power": (_set("request", "blocking_power_w", to=-1.0), "request.blocking_power_w"),
    "a stage beyond the last": (_set("operations", 2, "stage", to=2), "operations[2].stage"),
    "a micro-batch before the first": (
        _set("operations", 2, "micro_batch", to=-1),
        "operations[2].micro_batch",
    ),
    "a chunk too many": (_set("operations", 2, "chunk", to=1), "operations[2].chunk"),
    "an operation twice": (_set("operations", 2, "instruction", to="forward"), "operations[2]"),
    "an overlap": (_set("operations", 3, "start_s", to=0.5), "operations[3].start_s"),
    "an operation without energy": (
        _set("operations", 2, "energy_j", to=0.0),
        "operations[2].energy_j",
    ),
    "neither point nor plan": (_set("operations", 2, "point", to=None), "operations[2].point"),
    "no such plan": (
        _set("operations", 0, "launches_index", to=1),
        "operations[0].launches_index",
    ),
    "a plan without launches": (
        _set("kernel_plans", 0, "launches", to=[]),
        "kernel_plans[0].launches",
    ),
    "a baseline in two places": (
        _set("baseline_operations", 3, "start_s", to=0.5),
        "baseline_operations[3].start_s",
    ),
    "half a baseline": (
        lambda document: document.update(baseline_operations=document["operations"][:3]),
        "baseline_operations",
    ),
    "a frontier without time": (_set("frontier", 0, "time_s", to=0.0), "frontier[0].time_s"),
    "a frontier that goes back": (
        lambda document: document["frontier"].append({**document["frontier"][0], "time_s": 3.0}),
        "frontier[1].time_s",
    ),
    "another gap": (_set("bound_gap_ratio", to=-1.0), "bound_gap_ratio"),
    "a proof in spite of a gap": (_set("status", to="optimal"), "status"),
    "another budget": (_set("max_time_s", to=5.0), "max_time_s"),
    "a budget below the plan": (_set("max_time_s", to=3.9), "max_time_s"),
    "a kernel-level plan of another time": (
        _set("kernel_plans", 0, "time_s", to=1.1),
        "operations[0].time_s",
    ),
    "a kernel-level plan of another stage": (
        _set("kernel_plans", 0, "stage", to=1),
        "operations[0].launches_index",
    ),
    "a frontier beyond its budget": (
        _set("frontier", 0, "max_time_s", to=3.9),
        "frontier[0].max_time_s",
    ),
    "an unknown field": (_set("colour", to="red"), "colour"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_named(tmp_path: Path, name: str) -> None:
    change, field = DAMAGE[name]
    path = tmp_path / "pipeline.json"
    write_pipeline(PLAN, path)
    document = json.loads(path.read_text("utf-8"))
    change(document)
    path.write_text(json.dumps(document), encoding="utf-8")

    with pytest.raises(InputError) as caught:
        read_pipeline(path)

    assert (str(path), field) == (caught.value.file, caught.value.field)
    assert caught.value.hint


def test_a_profile_is_told_by_its_columns_and_a_sweep_by_its_own(tmp_path: Path) -> None:
    perseus = write_perseus(tmp_path / "perseus.csv", perseus_rows(1))
    sweep = tmp_path / "sweep.csv"
    sweep.write_text(
        "kernel,sm_clock_mhz,time_s,energy_j\nstage0/forward,1410,1,2\n", encoding="utf-8"
    )

    assert ("stage0/forward", "stage0/backward") == read_profile(perseus).kernels
    assert ("stage0/forward",) == read_profile(sweep).kernels


def test_a_profile_may_quote_its_header_and_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "excel.csv"
    rows = "\n".join(perseus_rows(1))
    text = f'"stage","instruction","frequency","time","energy"\n{rows}\n'
    path.write_text(text, encoding="utf-8-sig")

    assert ("stage0/forward", "stage0/backward") == read_profile(path).kernels
