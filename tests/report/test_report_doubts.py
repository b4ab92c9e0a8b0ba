from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.report.doubts import gathered_doubts, title
from joulewise.report.inputs import ReportInputs

Make = Callable[..., ReportInputs]


def test_caveats_of_cells_are_counted_not_listed(make_inputs: Make) -> None:
    doubts = {doubt.title: doubt for doubt in gathered_doubts(make_inputs())}
    seen = tuple(text.replace("\u202f", " ") for text in doubts["Power capped"].seen)
    assert seen == ("In 1 of the 90 cells of the sweep; the plan uses 0 of them.",)


def test_one_kind_is_told_once_with_every_sighting(make_inputs: Make) -> None:
    inputs = make_inputs()
    assert inputs.verification is not None
    simulated = inputs.plan.caveats[0]
    other = Caveat(kind=CaveatKind.SIMULATED_DEVICE, seen="the verification was virtual too")
    inputs = replace(
        inputs,
        sweep=replace(inputs.sweep, caveats=(simulated,)),
        verification=replace(inputs.verification, caveats=(simulated, other)),
    )
    *_, last = gathered_doubts(inputs)
    assert last.title == "Simulated device"
    assert last.seen == (simulated.seen, other.seen)
    assert (last.why, last.helps) == (simulated.why, simulated.helps)


def test_what_matters_most_comes_first(make_inputs: Make) -> None:
    inputs = make_inputs(is_verified=False)
    every = tuple(Caveat(kind=kind, seen="seen") for kind in reversed(CaveatKind))
    doubts = gathered_doubts(replace(inputs, plan=replace(inputs.plan, caveats=every)))
    assert [doubt.title for doubt in doubts[:2]] == ["Promise not shown", "Prediction missed"]
    assert [doubt.title for doubt in doubts[-6:]] == [
        "Power capped",
        "TPCs gated",
        "Power mode caps",
        "Recording replayed",
        "Uncalibrated",
        "Simulated device",
    ]
    assert len(doubts) == len(CaveatKind)


def test_a_plan_that_was_verified_is_no_longer_called_unverified(make_inputs: Make) -> None:
    inputs = make_inputs()
    unrun = Caveat(kind=CaveatKind.NOT_VERIFIED, seen="This plan has not been run.")
    plan = replace(inputs.plan, caveats=(*inputs.plan.caveats, unrun))
    run, not_run = replace(inputs, plan=plan), replace(inputs, plan=plan, verification=None)
    assert "Not verified" not in [doubt.title for doubt in gathered_doubts(run)]
    assert "Not verified" in [doubt.title for doubt in gathered_doubts(not_run)]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (CaveatKind.POWER_CAPPED, "Power capped"),
        (CaveatKind.OTHER_PROCESS_ON_GPU, "Other process on GPU"),
    ],
)
def test_kinds_read_as_words(kind: CaveatKind, expected: str) -> None:
    assert title(kind) == expected
