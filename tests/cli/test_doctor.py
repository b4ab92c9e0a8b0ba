"""`joulewise doctor` and `joulewise probe sensors` as a user calls them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from joulewise.cli.commands.probe_sensors import sentence
from joulewise.domain.sensor_probe import SensorProbe
from joulewise.workflow.sensor_probing import SensorsResult
from tests.cli.conftest import FEW_POINTS, Joulewise
from tests.cli.test_json_schema import assert_obeys

QUIET = "virtual:rtx3080ti,noise=0"


def test_the_exit_code_says_whether_something_can_be_read(joulewise: Joulewise) -> None:
    said = joulewise("doctor", "--json")

    document = said.document
    assert document["can_read"] == (said.code == 0)
    assert_obeys(document, "CommandResult" if said.code == 0 else "CommandError")
    assert document["gpus"] or not document["can_read"]


def test_text_and_json_say_the_same(joulewise: Joulewise) -> None:
    told, document = joulewise("doctor"), joulewise("doctor", "--json").document

    assert str(document["verdict"]) in " ".join(told.out.split())
    assert told.err == ""


def test_a_virtual_gpu_needs_nothing_of_the_machine(joulewise: Joulewise) -> None:
    said = joulewise("doctor", "--device", QUIET)

    assert (0, "") == (said.code, said.err)
    assert "all of it can be read and set" in " ".join(said.out.split())


def test_a_recording_needs_nothing_of_the_machine_but_its_file(joulewise: Joulewise) -> None:
    missing = joulewise("doctor", "--device", "recorded:sweep.parquet", "--json")
    joulewise("measure", *FEW_POINTS, "--out", "sweep.parquet")

    said = joulewise("doctor", "--device", "recorded:sweep.parquet")

    assert (1, "sweep.parquet") == (missing.code, missing.document["file"])
    assert (0, "") == (said.code, said.err)
    assert "is a recording of NVIDIA GeForce RTX 3080 Ti" in said.out


@pytest.mark.parametrize("device", ["fly", "nvml0", "virtual:nothing"])
def test_a_device_that_is_none_is_an_error(joulewise: Joulewise, device: str) -> None:
    said = joulewise("doctor", "--device", device, "--json")

    assert (1, "device") == (said.code, said.document["field"])
    assert "can_read" not in said.document


def test_sensors_are_probed_without_load_where_that_is_asked_for(joulewise: Joulewise) -> None:
    said = joulewise("probe", "sensors", "--device", QUIET, "--idle")
    document = joulewise("probe", "sensors", "--device", QUIET, "--idle", "--json").document

    assert_obeys(document, "CommandResult")
    sensors = document["sensors"]
    assert isinstance(sensors, dict)
    assert pytest.approx(0.1, rel=1e-6) == sensors["counter"]["period_s"]
    assert (None, None) == (sensors["kernel"], sensors["power_excess_ratio"])
    assert "energy counter 100.0 ms" in " ".join(said.out.split())
    assert "Without load: nothing was run, as was asked for." in " ".join(said.out.split())


def test_a_kernel_that_the_workload_has_not_is_an_error(joulewise: Joulewise) -> None:
    said = joulewise("probe", "sensors", "--device", QUIET, "--kernel", "fly", "--json")

    assert (1, "kernel") == (said.code, said.document["field"])


def test_the_doctor_loads_neither_torch_nor_anything_heavy_before_it_is_asked() -> None:
    heavy = (
        "import sys, joulewise.workflow.doctor, json; "
        "print(json.dumps(sorted({'torch', 'pynvml', 'scipy', 'polars', 'importlib.metadata'}"
        " & set(sys.modules))))"
    )

    done = subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True)

    assert [] == json.loads(done.stdout)


def test_a_counter_that_was_compared_is_never_just_not_seen() -> None:
    probe = SensorProbe(
        device="nvml:0",
        device_name="A GPU",
        kernel="gemm",
        counter=None,
        power=None,
        average_power=None,
        instant_window_s=None,
        average_window_s=None,
        power_excess_ratio=0.0,
        steady_s=10.0,
        steady_power_w=300.0,
        idle_power_w=30.0,
        idle_s=30.0,
    )

    said = sentence(SensorsResult(probe=probe))

    assert said.startswith("How often the energy counter moves was not seen: too seldom")
    assert "than the counter says" in said
