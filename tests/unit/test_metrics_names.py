"""Metrics are fields of records under the names that Prometheus expects."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.domain.control import ControlledGpu, DaemonCounts
from joulewise.domain.measurement import GpuActivity, GpuSample
from joulewise.domain.points import KnobState, OperatingPoint
from joulewise.domain.quantities import (
    ALL,
    COUNT,
    LABELS,
    Behaviour,
    Quantity,
    metric_name,
    metric_value,
    quantity_of,
)
from joulewise.integrations.metric_families import DAEMON_READINGS, FLAGS, OTHER_NAMES
from joulewise.integrations.metric_readings import READINGS, Reading

ROOT = Path(__file__).resolve().parents[2]
DASHBOARD = ROOT / "deploy" / "grafana" / "joulewise.json"
ALERTS = ROOT / "deploy" / "prometheus" / "joulewise-alerts.yml"
EVERY_READING = (*READINGS, *DAEMON_READINGS)
EVERY_NAME = {
    *(reading.name for reading in EVERY_READING),
    *(flag.name for flag in FLAGS),
    *OTHER_NAMES,
}
words = st.lists(st.from_regex(r"[a-z]{1,6}", fullmatch=True), min_size=1, max_size=3)
fields = st.builds(
    lambda parts, quantity: "_".join(parts) + quantity.suffix, words, st.sampled_from(ALL)
).filter(lambda field: "_per_" not in field)


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("energy_j", "joulewise_energy_joules_total"),
        ("power_w", "joulewise_power_watts"),
        ("sm_clock_mhz", "joulewise_sm_clock_hertz"),
        ("asked_mem_clock_mhz", "joulewise_asked_memory_clock_hertz"),
        ("temp_c", "joulewise_temperature_celsius"),
        ("power_capped_s", "joulewise_power_capped_seconds_total"),
        ("sent_bytes", "joulewise_sent_bytes_total"),
        ("tensor_ratio", "joulewise_tensor_ratio"),
        ("question_count", "joulewise_questions_total"),
        ("other_process_count", "joulewise_other_processes_total"),
    ],
)
def test_a_field_has_the_name_that_prometheus_expects(field: str, name: str) -> None:
    assert name == metric_name(field)


def test_what_does_not_count_up_is_no_total() -> None:
    assert "joulewise_other_processes" == metric_name("other_process_count", Behaviour.GAUGE)


@given(fields)
def test_every_field_with_a_unit_has_a_metric_in_its_base_unit(field: str) -> None:
    quantity, name = quantity_of(field), metric_name(field)

    assert re.fullmatch(r"joulewise(_[a-z]+)+", name)
    assert name.endswith("_total") == (quantity.behaviour is Behaviour.COUNTER)
    if quantity is not COUNT:
        assert quantity.base_unit in name.removesuffix("_total").rpartition("_")[2]
    assert not name.endswith("_count")


@given(fields, st.floats(min_value=-1e9, max_value=1e9))
def test_values_are_scaled_to_the_base_unit(field: str, value: float) -> None:
    factor = 1e6 if field.endswith("_mhz") else 1.0

    assert value * factor == metric_value(field, value)


@pytest.mark.parametrize("field", ["name", "pid", "power_w_per_c", ""])
def test_a_field_without_a_registered_unit_has_no_metric(field: str) -> None:
    with pytest.raises(ValueError, match="no registered unit"):
        metric_name(field)


def numbers(record: type) -> set[str]:
    """Fields that hold a number, or numbers by some key; names such as `pid` aside."""
    return {
        field.name
        for field in dataclasses.fields(record)
        if re.match(r"(int|float|Mapping\[.*, int\])( \| None)?\Z", str(field.type))
        and field.name not in LABELS
    }


def exported(record: type) -> set[str]:
    return {reading.field for reading in EVERY_READING if reading.record is record}


@pytest.mark.parametrize(
    ("record", "untold"),
    [
        # When something was read is when it was scraped, and how long a mean is taken over.
        (GpuSample, {"time_s"}),
        (GpuActivity, {"duration_s"}),
        (OperatingPoint, set[str]()),
        (KnobState, set[str]()),
        (DaemonCounts, set[str]()),
    ],
)
def test_no_number_that_is_known_of_a_gpu_is_forgotten(record: type, untold: set[str]) -> None:
    assert numbers(record) == exported(record) | untold


@pytest.mark.parametrize("reading", EVERY_READING, ids=lambda reading: reading.name)
def test_every_metric_is_a_field_of_a_record_and_a_registered_quantity(reading: Reading) -> None:
    quantity: Quantity = quantity_of(reading.field)

    assert reading.field in {field.name for field in dataclasses.fields(reading.record)}
    assert quantity in ALL
    assert quantity.base_unit in reading.name.removesuffix("_total")
    assert reading.tells.endswith(".")


def test_every_yes_or_no_is_judged_by_a_field() -> None:
    known = {field.name for field in dataclasses.fields(ControlledGpu)}

    assert set() == {flag.field for flag in FLAGS} - known


def test_no_two_metrics_share_a_name() -> None:
    assert len(EVERY_READING) + len(FLAGS) + len(OTHER_NAMES) == len(EVERY_NAME)


def names_in(text: str) -> set[str]:
    return set(re.findall(r"\bjoulewise_\w+", text))


def test_the_dashboard_and_the_alerts_ask_for_nothing_that_is_not_served() -> None:
    for path in (DASHBOARD, ALERTS):
        asked = names_in(path.read_text(encoding="utf-8"))
        assert asked
        assert set() == asked - EVERY_NAME


def test_every_metric_is_on_the_page_on_metrics_and_no_other() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")

    assert names_in(page) == EVERY_NAME


def test_the_dashboard_fits_grafana_ten() -> None:
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    panels = board["panels"]

    # The schema of Grafana 10.0, which later ones migrate by themselves.
    assert 38 == board["schemaVersion"]
    assert len(panels) == len({panel["id"] for panel in panels})
    assert ["datasource", "instance", "gpu"] == [
        variable["name"] for variable in board["templating"]["list"]
    ]
    for panel in panels:
        if panel["type"] == "row":
            continue
        assert "${datasource}" == panel["datasource"]["uid"]
        assert panel["targets"]
        assert panel["description"]
        if panel["type"] != "table":
            assert panel["fieldConfig"]["defaults"]["unit"]


def test_no_two_panels_of_the_dashboard_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert max(x for x, _ in cells) < 24
        assert not cells & taken
        taken |= cells
