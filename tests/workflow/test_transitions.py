"""Texts that name a transition model."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.domain.errors import InputError, PlanError
from joulewise.domain.plan import PlanRequest
from joulewise.domain.ports import no_progress
from joulewise.domain.transition import TransitionDomain, uniform_transition
from joulewise.domain.transition_presets import STALL_POWER_W, TRANSITION_PRESETS
from joulewise.store.transition_files import write_transition
from joulewise.workflow.transitions import (
    load_optional_transition,
    load_transition,
    parse_duration,
    transition_file,
    transition_lines,
)
from joulewise.workflow.tuning import TuneJob, tune_to_folder


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("stall=1ms,power=60", (1e-3, 0.0, 0.06, 0.0)),
        ("stall=1ms", (1e-3, 0.0, 1e-3 * STALL_POWER_W, 0.0)),
        ("stall=10us,power=100W,energy=0.5J", (1e-5, 0.0, 0.501, 0.0)),
        ("stall=10\N{MICRO SIGN}s,power=0", (1e-5, 0.0, 0.0, 0.0)),
        ("stall=0,power=60", (0.0, 0.0, 0.0, 0.0)),
        ("stall=0.25", (0.25, 0.0, 15.0, 0.0)),
        ("lag=5ms", (0.0, 5e-3, 0.0, 0.0)),
        ("lag=5ms,dwell=20ms", (0.0, 5e-3, 0.0, 20e-3)),
        (" LAG = 5 MS , dwell = .02 s".replace("LAG", "lag"), (0.0, 5e-3, 0.0, 20e-3)),
        ("dwell=1e-3", (0.0, 0.0, 0.0, 1e-3)),
        ("energy=0.1", (0.0, 0.0, 0.1, 0.0)),
    ],
)
def test_costs_in_words_hold_for_every_change(
    text: str, expected: tuple[float, float, float, float]
) -> None:
    model = load_transition(text)

    stall_s, lag_s, energy_j, dwell_s = expected
    assert list(TransitionDomain) == [cost.domain for cost in model.costs]
    for cost in model.costs:
        assert (stall_s, lag_s, None) == (cost.stall_s, cost.lag_s, cost.target)
        assert pytest.approx(energy_j) == cost.energy_j
    assert (dwell_s, text.strip(), None) == (model.dwell_s, model.name, model.device_name)


def test_a_power_that_nobody_gave_is_called_assumed() -> None:
    assert "60 W during a stall (assumed)" in load_transition("stall=1ms").source
    assert "assumed" not in load_transition("stall=1ms,power=60").source
    assert "stall" not in load_transition("lag=5ms").source.removeprefix("as asked for: lag=5ms")


@pytest.mark.parametrize("name", TRANSITION_PRESETS)
def test_a_preset_goes_by_its_name(name: str) -> None:
    assert TRANSITION_PRESETS[name] == load_transition(name)
    assert transition_file(name) is None


def test_a_file_is_read_by_any_name_and_a_preset_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = uniform_transition("mine", "a test", stall_s=2e-3)
    for name in ("own.json", "stall=1ms", "ascend"):
        write_transition(model, tmp_path / name)

    assert model == load_transition("own.json") == load_transition("stall=1ms")
    assert TRANSITION_PRESETS["ascend"] == load_transition("ascend")
    assert Path("own.json") == transition_file("own.json")


def test_no_text_is_no_model() -> None:
    assert load_optional_transition(None) is None
    assert transition_file(None) is None


@given(st.text(max_size=20) | st.from_regex(r"(stall|lag|power|dwell|x)=[0-9.eE+ms-]{0,9}"))
def test_any_text_is_a_model_or_one_clear_error(text: str) -> None:
    if Path(text.strip() or "x").name in os.listdir():  # noqa: PTH208 - names alone matter
        return
    try:
        model = load_transition(text)
    except InputError:
        return

    assert all(cost.stall_s < float("inf") for cost in model.costs)


@given(st.floats(min_value=0.0, max_value=1e5), st.sampled_from([("us", 1e-6), ("ms", 1e-3)]))
def test_units_scale(number: float, unit: tuple[str, float]) -> None:
    name, factor = unit

    assert pytest.approx(number * factor) == parse_duration(f"{number!r}{name}", "latencies")


def test_every_preset_has_a_line() -> None:
    assert tuple(TRANSITION_PRESETS) == tuple(line.transition for line in transition_lines())


@pytest.mark.parametrize(
    ("text", "limit"),
    [("stall=1e300", "1e+06 s"), ("stall=1ms,power=1e308", "1000 W"), ("energy=1e10", "1e+09 J")],
)
def test_what_is_too_much_is_told_the_limit(text: str, limit: str) -> None:
    with pytest.raises(InputError) as caught:
        load_transition(text)

    assert f"at most {limit}" in str(caught.value.hint)


def test_a_change_that_a_file_lacks_names_the_file_before_tune_measures_anything(
    tmp_path: Path,
) -> None:
    file = tmp_path / "hole.json"
    whole = uniform_transition("hole", "a test", stall_s=0.001)
    write_transition(replace(whole, costs=whole.costs[:1]), file)
    job = TuneJob(
        device="virtual:rtx3080ti,noise=0",
        workload="gpt3-xl",
        request=PlanRequest(max_slowdown_ratio=0.006),
        sm_clocks_mhz=(None, 1680),
        mem_clocks_mhz=(None, 5001),
        pair_count=3,
        out=tmp_path / "run",
        transition=str(file),
    )

    with pytest.raises(PlanError, match="says nothing of a change of memory") as caught:
        tune_to_folder(job, no_progress)

    assert (str(file), "transition") == (caught.value.file, caught.value.field)
    assert not (tmp_path / "run").exists()
