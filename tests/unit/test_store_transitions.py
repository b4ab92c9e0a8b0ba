"""Transition models in and out of JSON, and what old plans keep."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.plans import bare_plan

from joulewise.domain.errors import InputError
from joulewise.domain.plan import PlannedLaunch, PlannedRequest, PlanRequest
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.transition import (
    ChangeLead,
    TransitionCost,
    TransitionDomain,
    TransitionModel,
    changed_domain,
    uniform_transition,
)
from joulewise.domain.transition_presets import TRANSITION_PRESETS
from joulewise.domain.workload import Pass
from joulewise.plan.requests import planned_requests
from joulewise.store.documents import plan_sha256, read_plan, write_plan
from joulewise.store.schemas import json_schemas
from joulewise.store.transition_files import read_transition, write_transition

amounts = st.floats(min_value=0.0, max_value=1e3)
points = st.builds(
    OperatingPoint,
    sm_clock_mhz=st.none() | st.integers(1, 3000),
    mem_clock_mhz=st.none() | st.integers(1, 20_000),
)
costs = st.builds(
    TransitionCost,
    domain=st.sampled_from(TransitionDomain),
    target=st.none() | points,
    stall_s=amounts,
    lag_s=amounts,
    energy_j=amounts,
)


def change(cost: TransitionCost) -> tuple[object, ...]:
    """What tells one entry from another."""
    own = cost.target
    if own is None:
        return cost.domain, None
    clocks = {
        TransitionDomain.SM: (own.sm_clock_mhz, own.power_limit_w),
        TransitionDomain.MEMORY: (own.mem_clock_mhz,),
        TransitionDomain.BOTH: (own.sm_clock_mhz, own.power_limit_w, own.mem_clock_mhz),
    }
    return cost.domain, *clocks[cost.domain]


models = st.builds(
    TransitionModel,
    name=st.sampled_from(["ascend", "GPU 0: gemessen \N{MICRO SIGN}s"]),
    source=st.text(max_size=9),
    costs=st.lists(costs, min_size=1, max_size=4, unique_by=change).map(tuple),
    dwell_s=amounts,
    device_name=st.none() | st.sampled_from(["NVIDIA A100", "Ger\xe4t 1"]),
    is_simulated=st.booleans(),
)


@st.composite
def models_with_leads(draw: st.DrawFn) -> TransitionModel:
    """Leads of some changes, none longer than the costs say."""
    model = draw(models)
    changes = draw(st.lists(st.tuples(points, points), max_size=4, unique=True))
    leads = []
    for before, after in changes:
        cost = model.cost(before, after)
        if before == after or cost is None:
            continue
        lead_s = cost.lag_s * draw(st.floats(0.0, 1.0))
        partial_s = lead_s * draw(st.floats(0.0, 1.0))
        leads.append(ChangeLead(before=before, after=after, lead_s=lead_s, partial_s=partial_s))
    return replace(model, leads=tuple(leads))


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(models_with_leads())
def test_a_model_reads_as_it_was_written(tmp_path: Path, model: TransitionModel) -> None:
    path = tmp_path / "transition.json"
    write_transition(model, path)

    assert model == read_transition(path)
    jsonschema.Draft202012Validator(json_schemas()["transition"]).validate(
        json.loads(path.read_text(encoding="utf-8"))
    )


@pytest.mark.parametrize("device_name", ["", "  ", "A100\n"])
def test_a_device_without_a_readable_name_is_refused(tmp_path: Path, device_name: str) -> None:
    path = tmp_path / "transition.json"
    model = replace(uniform_transition("own", "a test"), device_name=device_name)
    write_transition(model, path)

    with pytest.raises(InputError) as caught:
        read_transition(path)
    assert "device_name" == caught.value.field


@pytest.mark.parametrize("name", TRANSITION_PRESETS)
def test_every_preset_can_be_written(tmp_path: Path, name: str) -> None:
    path = tmp_path / "transition.json"
    write_transition(TRANSITION_PRESETS[name], path)

    assert TRANSITION_PRESETS[name] == read_transition(path)


PLAN = bare_plan(
    [
        PlannedLaunch(kernel="a", pass_=Pass.FORWARD, point=AUTO),
        PlannedLaunch(kernel="b", pass_=Pass.FORWARD, point=OperatingPoint(sm_clock_mhz=1050)),
    ]
)
NAME = "16120a691b08a781a015607fa2662b216288fc580b813b0565801bb9d633caf6"
SINCE_TRANSITIONS = ("requests", "transition_time_s", "transition_energy_j")


def test_a_plan_from_before_there_were_transitions_reads_and_keeps_its_name(
    tmp_path: Path,
) -> None:
    path = tmp_path / "plan.json"
    write_plan(PLAN, path)
    document = json.loads(path.read_text(encoding="utf-8"))
    for name in SINCE_TRANSITIONS:
        del document[name]
    for name in ("transition", "max_region_count"):
        del document["request"][name]
    path.write_text(json.dumps(document))

    assert PLAN == read_plan(path)
    # As the first release named this plan.
    assert NAME == plan_sha256(PLAN)


def test_what_a_plan_says_of_transitions_is_part_of_its_name() -> None:
    request = PlannedRequest(launch_index=1, lead_s=0.0, point=PLAN.launches[1].point)
    asked = replace(PLAN, requests=(request,))
    counted = replace(asked, request=PlanRequest(transition=uniform_transition("free", "a test")))

    assert 3 == len({plan_sha256(plan) for plan in (PLAN, asked, counted)})


def test_a_field_given_twice_in_one_object_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "transition.json"
    write_transition(uniform_transition("own", "a test", stall_s=0.001), path)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"stall_s": 0.001', '"stall_s": 0.5, "stall_s": 0.001', 1))

    with pytest.raises(InputError, match="given twice") as caught:
        read_transition(path)

    assert (str(path), "stall_s") == (caught.value.file, caught.value.field)


@pytest.mark.parametrize("field", ["name", "device_name"])
def test_a_name_beyond_any_line_is_refused(field: str, tmp_path: Path) -> None:
    path = tmp_path / "transition.json"
    write_transition(uniform_transition("own", "a test"), path)
    document = json.loads(path.read_text(encoding="utf-8"))
    document[field] = "x" * 200
    path.write_text(json.dumps(document), encoding="utf-8")
    assert getattr(read_transition(path), field) == "x" * 200

    document[field] += "x"
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(InputError, match="201 letters") as caught:
        read_transition(path)

    assert field == caught.value.field


@given(model=models, before=points, after=points)
def test_the_cost_of_a_change_is_that_of_the_first_entry_that_fits(
    model: TransitionModel, before: OperatingPoint, after: OperatingPoint
) -> None:
    domain = changed_domain(before, after)
    asked = None if domain is None else change(TransitionCost(domain=domain, target=after))
    own = [one for one in model.costs if change(one) == asked]
    rest = [one for one in model.costs if one.domain is domain and one.target is None]

    for known in (model, copy.copy(model), copy.deepcopy(model)):
        cost = known.cost(before, after)
        if domain is None:
            assert cost == TransitionCost(domain=TransitionDomain.SM)
        else:
            assert next(iter([*own, *rest]), None) == cost


def test_a_lead_that_no_cost_allows_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "transition.json"
    lead = ChangeLead(before=AUTO, after=OperatingPoint(sm_clock_mhz=840), lead_s=0.01)
    model = replace(uniform_transition("own", "a test", lag_s=0.01), leads=(lead,))
    write_transition(model, path)
    path.write_text(path.read_text().replace('"lead_s": 0.01', '"lead_s": 0.5'))

    with pytest.raises(InputError, match="lead of auto/auto to 840/auto is longer"):
        read_transition(path)


def test_a_plan_asks_for_a_change_as_far_ahead_as_was_measured_of_it(tmp_path: Path) -> None:
    """Its file is refused where it says anything else."""
    low = OperatingPoint(sm_clock_mhz=840)
    leads = (ChangeLead(before=AUTO, after=low, lead_s=0.01),)
    model = replace(uniform_transition("own", "a test", lag_s=0.02), leads=leads)
    launches = tuple(
        PlannedLaunch(kernel="a", pass_=Pass.FORWARD, point=point) for point in (AUTO, low)
    )
    plan = bare_plan(launches, PlanRequest(transition=model), planned_requests((AUTO, low), model))
    assert [0.02, 0.01] == [request.lead_s for request in plan.requests]
    path = tmp_path / "plan.json"
    write_plan(plan, path)
    assert plan == read_plan(path)

    wrong = tuple(replace(request, lead_s=0.02) for request in plan.requests)
    write_plan(replace(plan, requests=wrong), path)
    with pytest.raises(InputError, match="asked for as long ahead"):
        read_plan(path)
