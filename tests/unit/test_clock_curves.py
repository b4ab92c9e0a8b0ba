"""U-curves in and out of JSON files, and what is refused of them."""

from __future__ import annotations

import copy
import json
import math
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.errors import InputError
from joulewise.domain.finetuning import ClockCost, ClockCurve, JobFeatures, ModelType
from joulewise.store.clock_curves import read_curves, write_curves
from joulewise.store.schemas import json_schemas

COST = ClockCost(sm_clock_mhz=None, time_s=1.25, energy_j=40.0)
CURVE = ClockCurve(
    job="bert-base/sst2",
    device="virtual:agx-orin",
    device_name="AGX Orin",
    is_simulated=True,
    features=JobFeatures(
        model_type=ModelType.ENCODER, layer_count=12, hidden_count=768, mean_sequence_count=14.0
    ),
    baseline=COST,
    costs=(
        replace(COST, sm_clock_mhz=306, energy_j=35.0, energy_error_j=0.5, busy_ratio=0.9),
        replace(COST, sm_clock_mhz=408, energy_j=34.0),
    ),
)

amounts = st.floats(min_value=1e-9, max_value=1e9)
errors = st.none() | st.floats(min_value=0.0, max_value=1e6)
shares = st.none() | st.floats(min_value=0.0, max_value=1.0)
whole = st.none() | st.integers(1, 10**9)
caveats = st.lists(
    st.builds(Caveat, kind=st.sampled_from(CaveatKind), seen=st.text(max_size=9)), max_size=2
).map(tuple)


def cost_at(clock: int | None) -> st.SearchStrategy[ClockCost]:
    return st.builds(
        ClockCost,
        sm_clock_mhz=st.just(clock),
        time_s=amounts,
        energy_j=amounts,
        step_count=whole,
        time_error_s=errors,
        energy_error_j=errors,
        busy_ratio=shares,
        mem_clock_mhz=whole,
        caveats=caveats,
    )


@st.composite
def some_curves(draw: st.DrawFn) -> list[ClockCurve]:
    names = draw(st.lists(st.sampled_from(["a/b", "train.py", "Ä 1"]), min_size=1, unique=True))
    found = []
    for name in names:
        clocks = sorted(draw(st.sets(st.integers(1, 5000), min_size=1, max_size=4)))
        features = st.builds(
            JobFeatures,
            model_type=st.sampled_from(ModelType),
            layer_count=st.integers(1, 99),
            hidden_count=st.integers(1, 9999),
            mean_sequence_count=amounts,
            gpu_busy_ratio=shares,
            parameter_count=whole,
        )
        found.append(
            ClockCurve(
                job=name,
                device="jetson,root=/tmp/x",
                device_name="Jetson",
                is_simulated=draw(st.booleans()),
                features=draw(st.none() | features),
                baseline=draw(cost_at(None)),
                costs=tuple(draw(cost_at(clock)) for clock in clocks),
                caveats=draw(caveats),
            )
        )
    return found


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(some_curves())
def test_what_is_written_is_read_back(tmp_path: Path, curves: list[ClockCurve]) -> None:
    path = tmp_path / "curves.json"
    write_curves(path, curves)

    assert tuple(curves) == read_curves(path)
    jsonschema.Draft202012Validator(json_schemas()["curves"]).validate(json.loads(path.read_text()))


@pytest.mark.parametrize(
    ("place", "value", "field", "words"),
    [
        (("curves", 0, "baseline", "time_s"), -1.0, "curves[0].baseline.time_s", "number >= 0"),
        (("curves", 0, "baseline", "time_s"), 0.0, "curves[0].baseline.time_s", "above 0"),
        (("curves", 0, "baseline", "energy_j"), 5e-324, "curves[0].baseline.energy_j", "above 0"),
        (("curves", 0, "costs", 1, "energy_j"), 1e31, "curves[0].costs[1].energy_j", "possible"),
        (("curves", 0, "costs", 1, "energy_j"), "1", "curves[0].costs[1].energy_j", "a number"),
        (("curves", 0, "costs", 0, "busy_ratio"), 1.5, "curves[0].costs[0].busy_ratio", "share"),
        (("curves", 0, "costs", 0, "step_count"), 0, "curves[0].costs[0].step_count", "1 or more"),
        (("curves", 0, "costs", 0, "mem_clock_mhz"), 0, "curves[0].costs[0].mem_clock_mhz", "1 or"),
        (("curves", 0, "costs", 0, "sm_clock_mhz"), 408, "curves[0]", "ascend"),
        (("curves", 0, "costs", 0, "sm_clock_mhz"), 500, "curves[0]", "ascend"),
        (("curves", 0, "costs", 0, "sm_clock_mhz"), None, "curves[0]", "ascend"),
        (("curves", 0, "costs"), [], "curves[0]", "ascend"),
        (("curves", 0, "baseline", "sm_clock_mhz"), 306, "curves[0]", "governor"),
        (("curves", 0, "features", "layer_count"), 0, "curves[0].features.layer_count", "1 or"),
        (
            ("curves", 0, "features", "mean_sequence_count"),
            0.0,
            "curves[0].features.mean_sequence_count",
            "above 0",
        ),
        (("curves", 0, "features", "gpu_busy_ratio"), -0.1, None, "share"),
        (("curves", 0, "features", "model_type"), "rnn", None, "this cannot be 'rnn'"),
        (("curves", 0, "job"), " ", "curves[0].job", "name of a job"),
        (("curves", 0, "job"), "a\x1b[2J", "curves[0].job", "name of a job"),
        (("curves", 0, "colour"), "red", "curves[0].colour", "not known"),
        (("curves",), [], "curves", "no curves"),
        (("schema_version",), 2, "schema_version", "version 2"),
    ],
)
def test_one_wrong_value_is_named_with_file_curve_and_field(
    tmp_path: Path, place: tuple[str | int, ...], value: object, field: str | None, words: str
) -> None:
    path = tmp_path / "curves.json"
    write_curves(path, [CURVE])
    document = json.loads(path.read_text())
    spot = document
    for step in place[:-1]:
        spot = spot[step]
    spot[place[-1]] = value
    path.write_text(json.dumps(document))

    with pytest.raises(InputError, match=words) as caught:
        read_curves(path)

    assert str(path) == caught.value.file
    assert caught.value.hint
    if field is not None:
        assert field == caught.value.field


def test_no_number_and_half_a_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "curves.json"
    write_curves(path, [CURVE])
    text = path.read_text()

    for wrong in (text.replace("40.0", "NaN", 1), text.replace("40.0", "1e999", 1), text[:200]):
        path.write_text(wrong)
        with pytest.raises(InputError) as caught:
            read_curves(path)
        assert str(path) == caught.value.file


def test_one_job_twice_on_one_device_is_refused_and_on_two_devices_is_not(tmp_path: Path) -> None:
    path = tmp_path / "curves.json"
    write_curves(path, [CURVE, replace(CURVE, device="jetson")])
    document = json.loads(path.read_text())
    document["curves"].append(copy.deepcopy(document["curves"][0]))
    path.write_text(json.dumps(document))

    with pytest.raises(InputError, match=r"curves\[0\] is of the job 'bert-base/sst2'") as caught:
        read_curves(path)

    assert "curves[2]" == caught.value.field


@pytest.mark.parametrize(
    "cost",
    [
        replace(CURVE.costs[0], energy_j=math.nan),
        replace(CURVE.costs[0], time_s=math.inf),
        replace(CURVE.costs[0], energy_error_j=math.nan),
        replace(CURVE.costs[0], time_error_s=-0.1),
        replace(CURVE.costs[0], busy_ratio=math.nan),
    ],
)
def test_what_could_not_be_read_back_is_not_written(tmp_path: Path, cost: ClockCost) -> None:
    path = tmp_path / "curves.json"
    write_curves(path, [CURVE])
    before = path.read_bytes()

    with pytest.raises(InputError, match="bert-base/sst2"):
        write_curves(path, [replace(CURVE, costs=(cost,))])

    assert before == path.read_bytes()
    assert [path] == list(tmp_path.iterdir())


def test_the_example_of_the_page_on_file_formats_is_read(tmp_path: Path) -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "file-formats.md"
    blocks = page.read_text(encoding="utf-8").split("```json\n")
    example = next(block for block in blocks if '"curves"' in block[:80]).partition("```")[0]
    (tmp_path / "curves.json").write_text(example, encoding="utf-8")

    assert (612, 816) == read_curves(tmp_path / "curves.json")[0].sm_clocks_mhz


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "curves.json"
    path.write_text('{"schema_version": 1, "launches": [], "name": "w"}')

    with pytest.raises(InputError) as caught:
        read_curves(path)

    assert str(path) == caught.value.file
