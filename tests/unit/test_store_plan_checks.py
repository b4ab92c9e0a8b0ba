"""Requests of a plan that its transition model does not allow are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.plans import bare_plan

from joulewise.domain.errors import InputError
from joulewise.domain.plan import Plan, PlannedLaunch, PlanRequest, Status
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.transition import TransitionModel, uniform_transition
from joulewise.domain.workload import IterationSize, Pass
from joulewise.plan.requests import planned_requests
from joulewise.store.documents import read_plan, write_plan

POINTS = (AUTO, OperatingPoint(sm_clock_mhz=1050), AUTO, OperatingPoint(sm_clock_mhz=1500))


def plan_with(model: TransitionModel | None) -> Plan:
    """Four changes in an iteration of 1 s."""
    launches = [PlannedLaunch(kernel="a", pass_=Pass.FORWARD, point=point) for point in POINTS]
    return bare_plan(launches, PlanRequest(transition=model), planned_requests(POINTS, model))


def read_back(plan: Plan, folder: Path) -> Plan:
    path = folder / "plan.json"
    write_plan(plan, path)
    return read_plan(path)


LAGGING = uniform_transition(name="m", source="test", lag_s=0.1)


@pytest.mark.parametrize(
    "model",
    [
        None,
        LAGGING,
        uniform_transition(name="m", source="test", lag_s=0.1, dwell_s=0.25),
        uniform_transition(name="m", source="test", lag_s=1 / 30, stall_s=1e-3),
    ],
)
def test_requests_as_they_are_planned_are_read(
    tmp_path: Path, model: TransitionModel | None
) -> None:
    plan = plan_with(model)

    assert plan == read_back(plan, tmp_path)


SIZE = IterationSize(gpu_count=8, node_gpu_count=8, token_count=4096, model_flop_count=1e15)


def test_a_size_that_a_job_can_have_is_read(tmp_path: Path) -> None:
    plan = replace(plan_with(None), size=SIZE)

    assert plan == read_back(plan, tmp_path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("gpu_count", 0),
        ("gpu_count", 10**8),
        ("gpu_count", 10**400),
        ("node_gpu_count", 0),
        ("node_gpu_count", 9),
        ("token_count", 0),
        ("token_count", 10**400),
        ("parameter_count", 10**16),
        ("model_flop_count", 0.5),
        ("kernel_flop_count", 1e40),
    ],
)
def test_a_size_that_no_job_has_is_refused_with_its_field(
    tmp_path: Path, field: str, value: float
) -> None:
    path = tmp_path / "plan.json"
    write_plan(replace(plan_with(None), size=SIZE), path)
    document = json.loads(path.read_text(encoding="utf-8"))
    document["size"][field] = value
    path.write_text(json.dumps(document), encoding="utf-8")

    with pytest.raises(InputError) as caught:
        read_plan(path)

    assert f"size.{field}" == caught.value.field
    assert caught.value.hint


@pytest.mark.parametrize("model", [None, LAGGING])
def test_a_lead_other_than_the_lag_of_its_change_is_refused(
    tmp_path: Path, model: TransitionModel | None
) -> None:
    plan = plan_with(model)
    first, *others = plan.requests
    late = replace(plan, requests=(first, replace(others[0], lead_s=0.05), *others[1:]))

    with pytest.raises(InputError, match=r"not 0\.05 s") as caught:
        read_back(late, tmp_path)

    assert "requests[1].lead_s" == caught.value.field


@pytest.mark.parametrize(("lag_s", "dwell_s"), [(0.26, 0.0), (0.0, 0.26), (0.1, 0.26)])
def test_more_requests_than_an_iteration_has_time_for_are_refused(
    tmp_path: Path, lag_s: float, dwell_s: float
) -> None:
    plan = plan_with(uniform_transition(name="m", source="test", lag_s=lag_s, dwell_s=dwell_s))

    with pytest.raises(InputError, match=r"take at least 1\.04 s, and its iteration 1 s") as caught:
        read_back(plan, tmp_path)

    assert "requests" == caught.value.field


STALLING = uniform_transition(name="m", source="test", stall_s=1e-3, energy_j=0.06)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("slowdown_ratio", 1.0 + 1e-6),
        ("saving_ratio", 1e-6),
        ("bound_gap_ratio", -1.0),
        ("bound_gap_ratio", 1.5),
        ("transition_time_s", 3e-3),
        ("transition_energy_j", 0.0),
    ],
)
def test_a_figure_that_the_others_contradict_is_refused(
    tmp_path: Path, field: str, value: float
) -> None:
    plan = plan_with(STALLING)
    changes: dict[str, Any] = {field: value}

    with pytest.raises(InputError) as caught:
        read_back(replace(plan, **changes), tmp_path)

    assert field == caught.value.field


@pytest.mark.parametrize(
    ("field", "ratio"), [("time_s", "slowdown_ratio"), ("baseline_energy_j", "saving_ratio")]
)
def test_an_amount_that_its_ratio_contradicts_is_refused(
    tmp_path: Path, field: str, ratio: str
) -> None:
    changes: dict[str, Any] = {field: 1.25}

    with pytest.raises(InputError, match=r"is (1\.25|0\.2)\b") as caught:
        read_back(replace(plan_with(None), **changes), tmp_path)

    assert ratio == caught.value.field


def test_a_gap_to_the_bound_is_no_proof(tmp_path: Path) -> None:
    plan = replace(plan_with(None), status=Status.OPTIMAL, bound_gap_ratio=0.01)

    with pytest.raises(InputError, match="proven best") as caught:
        read_back(plan, tmp_path)

    assert "status" == caught.value.field
