"""What people read when a transition model or the schedule of a plan is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from inline_snapshot import snapshot
from tests.plans import bare_plan

from joulewise.domain.errors import InputError
from joulewise.domain.plan import Plan, PlannedLaunch, PlannedRequest, PlanRequest
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.transition import TransitionCost, TransitionDomain, uniform_transition
from joulewise.domain.workload import Pass
from joulewise.store.documents import read_plan, write_plan
from joulewise.store.transition_files import read_transition
from joulewise.workflow.transitions import load_transition

SLOW = OperatingPoint(sm_clock_mhz=1050)
LOW = OperatingPoint(sm_clock_mhz=1050, mem_clock_mhz=5001)
_JOINT = ", "
MODEL = uniform_transition("ascend", "a test", stall_s=1e-3, energy_j=0.06)


def complaint(read: Callable[[], object], folder: Path | None = None) -> str:
    """The error as the reader sees it, without the folder of the test."""
    with pytest.raises(InputError) as caught:
        read()
    text = f"{caught.value} | {caught.value.hint}"
    return text if folder is None else text.replace(f"{folder}/", "")


def model(*costs: str) -> str:
    """The text of a transition model with these entries."""
    return f'{{"schema_version": 1, "name": "m", "source": "s",\n "costs": [{_JOINT.join(costs)}]}}'


def sm(fields: str) -> str:
    """An entry for changes of the SM clock."""
    return f'{{"domain": "sm"{_JOINT * bool(fields)}{fields}}}'


def test_a_bad_transition_file_names_the_field(tmp_path: Path) -> None:
    files = {
        "empty": "",
        "not JSON": '{"schema_version": 1,\nname: m}',
        "no version": '{"name": "m", "source": "s", "costs": []}',
        "unknown version": '{"schema_version": 7}',
        "no costs": model(),
        "missing costs": '{"schema_version": 1, "name": "m", "source": "s"}',
        "nameless": model(sm("")).replace('"m"', '" "'),
        "unknown field": model(sm('"stall_ms": 1')),
        "unknown domain": model('{"domain": "fan"}'),
        "negative stall": model(sm('"stall_s": -0.001')),
        "negative lag": model(sm('"lag_s": -1')),
        "negative energy": model(sm('"energy_j": -1')),
        "negative dwell": model(sm("")).replace('"costs"', '"dwell_s": -1, "costs"'),
        "text for a time": model(sm('"stall_s": "1ms"')),
        "endless stall": model(sm('"stall_s": 1e300')),
        "overflowing stall": model(sm('"stall_s": 1e999')),
        "no clock": model(sm('"target": {"sm_clock_mhz": 0}')),
        "negative clock": model(sm('"target": {"mem_clock_mhz": -5001}')),
        "half a clock": model(sm('"target": {"sm_clock_mhz": 1402.5}')),
        "duplicate": model(sm(""), sm('"stall_s": 1')),
        "duplicate target": model(
            sm('"target": {"sm_clock_mhz": 1050}'),
            sm('"target": {"sm_clock_mhz": 1050, "mem_clock_mhz": 5001}'),
        ),
    }
    path = tmp_path / "bad.json"
    found = {}
    for name, text in files.items():
        path.write_text(text, encoding="utf-8")
        found[name] = complaint(lambda: read_transition(path), tmp_path)

    assert found == snapshot(
        {
            "empty": "bad.json: the file is empty | See the page on file formats.",
            "not JSON": "bad.json, row 2: the line is not JSON | Look for a stray comma or quote.",
            "no version": "bad.json, field 'schema_version': the file does not say its schema version | Add \"schema_version\": 1.",
            "unknown version": "bad.json, field 'schema_version': schema version 7 is not known; this joulewise reads version 1 | Use a newer joulewise, or write the file anew.",
            "no costs": "bad.json, field 'costs': the model has no costs | Give one entry for each of the domains sm, memory and both.",
            "missing costs": "bad.json, field 'costs': the field is missing | See the page on file formats.",
            "nameless": "bad.json, field 'name': the name is empty or cannot be shown | Give the model a name of letters, digits and signs.",
            "unknown field": "bad.json, field 'costs[0].stall_ms': the field is not known | Check its spelling, or leave it out.",
            "unknown domain": "bad.json, field 'costs[0].domain': this cannot be 'fan' | Write one of sm, memory, both.",
            "negative stall": "bad.json, field 'costs[0].stall_s': this must be a number >= 0.0 | See the page on file formats.",
            "negative lag": "bad.json, field 'costs[0].lag_s': this must be a number >= 0.0 | See the page on file formats.",
            "negative energy": "bad.json, field 'costs[0].energy_j': this must be a number >= 0.0 | See the page on file formats.",
            "negative dwell": "bad.json, field 'dwell_s': this must be a number >= 0.0 | See the page on file formats.",
            "text for a time": "bad.json, field 'costs[0].stall_s': this must be a number, not text | See the page on file formats.",
            "endless stall": "bad.json, field 'costs[0].stall_s': this must be at most 1e+06, not 1e+300; is the unit right? | Times are in seconds, energies in joules.",
            "overflowing stall": "bad.json, field 'costs[0].stall_s': number out of range | See the page on file formats.",
            "no clock": "bad.json, field 'target': sm_clock_mhz must be positive or None (auto), got 0 | See the page on file formats.",
            "negative clock": "bad.json, field 'costs[0].target.mem_clock_mhz': this must be a whole number >= 0 | See the page on file formats.",
            "half a clock": "bad.json, field 'costs[0].target.sm_clock_mhz': this must be a whole number or null, not a number | See the page on file formats.",
            "duplicate": "bad.json, field 'costs[1]': costs[0] is for changes of sm to every target already | Keep one of the two.",
            "duplicate target": "bad.json, field 'costs[1]': costs[0] is for changes of sm to 1050/5001 already | Keep one of the two.",
        }
    )


def test_a_bad_text_for_a_transition_is_one_sentence() -> None:
    texts = (
        "ascent",
        "",
        "none.json",
        "stall=1ms;power=60",
        "stall",
        "stall=",
        "stall=-1ms",
        "stall=nan",
        "stall=inf",
        "stall=1e999",
        "stall=1m",
        "stall=1 000us",
        "stall=1_0us",
        "stal=1ms",
        "stall=1ms,",
        "stall=1ms,stall=2ms",
        "power=60",
        "stall=1ms,power=60kW",
        "energy=0.1Wh",
    )

    found = {text: complaint(partial(load_transition, text)) for text in texts}

    assert found == snapshot(
        {
            "ascent": "field 'transition': 'ascent' is neither a transition preset nor a file | Presets: free, fast-ivr, ascend, hopper, ampere, turing; or write stall=1ms,power=60.",
            "": "field 'transition': '' is neither a transition preset nor a file | Presets: free, fast-ivr, ascend, hopper, ampere, turing; or write stall=1ms,power=60.",
            "none.json": "none.json: there is no such file | Check the path.",
            "stall=1ms;power=60": "field 'transition': '1ms;power=60' is no value for 'stall' | Write a number from 0 up in us, ms or s, at most 1e+06 s, as in stall=1ms,power=60.",
            "stall": "field 'transition': 'stall' is neither a transition preset nor a file | Presets: free, fast-ivr, ascend, hopper, ampere, turing; or write stall=1ms,power=60.",
            "stall=": "field 'transition': '' is no value for 'stall' | Write a number from 0 up in us, ms or s, at most 1e+06 s, as in stall=1ms,power=60.",
            "stall=-1ms": "field 'transition': '-1ms' is no value for 'stall' | Write a number from 0 up in us, ms or s, at most 1e+06 s, as in stall=1ms,power=60.",
            "stall=nan": "field 'transition': 'nan' is no value for 'stall' | Write a number from 0 up in us, ms or s, at most 1e+06 s, as in stall=1ms,power=60.",
            "stall=inf": "field 'transition': 'inf' is no value for 'stall' | Write a number from 0 up in us, ms or s, at most 1e+06 s, as in stall=1ms,power=60.",
            "stall=1e999": "field 'transition': '1e999' is no value for 'stall' | Write a number from 0 up in us, ms or s, at most 1e+06 s, as in stall=1ms,power=60.",
            "stall=1m": "field 'transition': '1m' is no value for 'stall' | Write a number from 0 up in us, ms or s, at most 1e+06 s, as in stall=1ms,power=60.",
            "stall=1 000us": "field 'transition': '1 000us' is no value for 'stall' | Write a number from 0 up in us, ms or s, at most 1e+06 s, as in stall=1ms,power=60.",
            "stall=1_0us": "field 'transition': '1_0us' is no value for 'stall' | Write a number from 0 up in us, ms or s, at most 1e+06 s, as in stall=1ms,power=60.",
            "stal=1ms": "field 'transition': 'stal=1ms' is not a part of a transition model | The parts are stall=, power=, energy=, lag=, dwell= as in stall=1ms,power=60.",
            "stall=1ms,": "field 'transition': '' is not a part of a transition model | The parts are stall=, power=, energy=, lag=, dwell= as in stall=1ms,power=60.",
            "stall=1ms,stall=2ms": "field 'transition': 'stall' is given twice | Keep one of the two.",
            "power=60": "field 'transition': power is what the GPU draws during a stall, and no stall is given | Write stall=1ms,power=60, or energy=0.1J for what a change takes without a stall.",
            "stall=1ms,power=60kW": "field 'transition': '60kW' is no value for 'power' | Write a number from 0 up in W, at most 1000 W, as in stall=1ms,power=60.",
            "energy=0.1Wh": "field 'transition': '0.1Wh' is no value for 'energy' | Write a number from 0 up in J, at most 1e+09 J, as in stall=1ms,power=60.",
        }
    )


def plan_of(*points: OperatingPoint) -> Plan:
    """A plan of one launch per point, with the requests that it takes."""
    launches = [PlannedLaunch(kernel="a", pass_=Pass.FORWARD, point=point) for point in points]
    requests = [
        PlannedRequest(launch_index=index, lead_s=0.0, point=point)
        for index, point in enumerate(points)
        if point != points[index - 1]
    ]
    return bare_plan(launches, PlanRequest(transition=MODEL), requests)


GOOD = plan_of(AUTO, SLOW, SLOW, AUTO)


def asking(launch_index: int, point: OperatingPoint, lead_s: float = 0.0) -> PlannedRequest:
    return PlannedRequest(launch_index=launch_index, lead_s=lead_s, point=point)


def test_a_plan_that_cannot_be_carried_out_is_refused(tmp_path: Path) -> None:
    first, second = asking(1, SLOW), asking(3, AUTO)
    request = GOOD.request
    holed = replace(MODEL, costs=(TransitionCost(domain=TransitionDomain.MEMORY),))
    endless = replace(MODEL, costs=(TransitionCost(domain=TransitionDomain.SM, stall_s=1e300),))
    plans = {
        "launch outside": replace(GOOD, requests=(first, second, asking(4, AUTO))),
        "another point": replace(GOOD, requests=(asking(1, LOW), second)),
        "out of order": replace(GOOD, requests=(second, first)),
        "twice": replace(GOOD, requests=(first, first, second)),
        "nothing changes": replace(GOOD, requests=(first, asking(2, SLOW), second)),
        "missing change": replace(GOOD, requests=(first,)),
        "no requests": replace(GOOD, requests=()),
        "endless lead": replace(GOOD, requests=(first, asking(3, AUTO, 1e20))),
        "no cost for a change": replace(GOOD, request=replace(request, transition=holed)),
        "endless stall": replace(GOOD, request=replace(request, transition=endless)),
        "too many regions": replace(GOOD, request=replace(request, max_region_count=1)),
        "no regions": replace(GOOD, request=replace(request, max_region_count=0)),
        "changes longer than all": replace(GOOD, transition_time_s=2.0),
        "changes dearer than all": replace(GOOD, transition_energy_j=2.0),
    }
    path = tmp_path / "bad.json"
    found = {}
    for name, plan in plans.items():
        write_plan(plan, path)
        found[name] = complaint(lambda: read_plan(path), tmp_path)
    write_plan(GOOD, path)
    document = json.loads(path.read_text(encoding="utf-8"))
    document["requests"][0]["lead_s"] = -0.001
    path.write_text(json.dumps(document))
    found["negative lead"] = complaint(lambda: read_plan(path), tmp_path)
    document["requests"][0] = {"launch_index": -1, "lead_s": 0.0, "point": {}}
    path.write_text(json.dumps(document))
    found["negative launch"] = complaint(lambda: read_plan(path), tmp_path)

    assert found == snapshot(
        {
            "launch outside": "bad.json, field 'requests[2].launch_index': the plan's launches count from 0 to 3 | Use the file as joulewise wrote it, or make it anew.",
            "another point": "bad.json, field 'requests[0].point': launch 1 runs at 1050/auto, and this asks for 1050/5001 | Use the file as joulewise wrote it, or make it anew.",
            "out of order": "bad.json, field 'requests[1].launch_index': requests are in order of launches, one at most for each | Use the file as joulewise wrote it, or make it anew.",
            "twice": "bad.json, field 'requests[1].launch_index': requests are in order of launches, one at most for each | Use the file as joulewise wrote it, or make it anew.",
            "nothing changes": "bad.json, field 'requests[1].launch_index': launch 2 runs at the point of the launch before it; nothing changes there | Use the file as joulewise wrote it, or make it anew.",
            "missing change": "bad.json, field 'requests': no request changes the point from 1050/auto to auto/auto before launch 3 | Use the file as joulewise wrote it, or make it anew.",
            "no requests": "bad.json, field 'requests': no request changes the point from auto/auto to 1050/auto before launch 1 | Use the file as joulewise wrote it, or make it anew.",
            "endless lead": "bad.json, field 'requests[1].lead_s': no lead is longer than 1e+06 s | Use the file as joulewise wrote it, or make it anew.",
            "no cost for a change": "bad.json, field 'request.transition.costs': the plan changes from auto/auto to 1050/auto before launch 1, and its transition model does not say what that costs | Use the file as joulewise wrote it, or make it anew.",
            "endless stall": "bad.json, field 'request.transition.costs[0].stall_s': this must be at most 1e+06, not 1e+300; is the unit right? | Times are in seconds, energies in joules.",
            "too many regions": "bad.json, field 'request.max_region_count': the plan has 2 regions, more than this allows | Use the file as joulewise wrote it, or make it anew.",
            "no regions": "bad.json, field 'request.max_region_count': an iteration has at least one region | Use the file as joulewise wrote it, or make it anew.",
            "changes longer than all": "bad.json, field 'transition_time_s': this is a part of the whole iteration, not more | Use the file as joulewise wrote it, or make it anew.",
            "changes dearer than all": "bad.json, field 'transition_energy_j': this is a part of the whole iteration, not more | Use the file as joulewise wrote it, or make it anew.",
            "negative lead": "bad.json, field 'requests[0].lead_s': this must be a number >= 0.0 | See the page on file formats.",
            "negative launch": "bad.json, field 'requests[0].launch_index': the plan's launches count from 0 to 3 | Use the file as joulewise wrote it, or make it anew.",
        }
    )


def test_a_plan_that_can_be_carried_out_reads_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    around = plan_of(SLOW, AUTO, AUTO, SLOW, LOW)
    for plan in (GOOD, around, plan_of(SLOW, SLOW)):
        write_plan(plan, path)
        assert plan == read_plan(path)
