"""The doctor on the fake driver, through the real binding: what it finds is what was set up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fake_nvml import DriverMaker
from tests.nvml.works import WORKS

from joulewise.domain.errors import InputError
from joulewise.simulator.fake_driver import FakeDriver
from joulewise.simulator.fake_runner import open_fake_session_parts
from joulewise.workflow.doctor import examine
from joulewise.workflow.findings import Availability, Diagnosis, Finding

NOT_SUPPORTED, NO_PERMISSION, FUNCTION_NOT_FOUND, GPU_IS_LOST = 3, 4, 13, 15


def finding(diagnosis: Diagnosis, subject: str) -> Finding:
    (gpu,) = diagnosis.gpus
    (found,) = (row for row in gpu.findings if row.subject == subject)
    return found


def states(diagnosis: Diagnosis) -> dict[str, str]:
    (gpu,) = diagnosis.gpus
    return {row.subject: row.status.value for row in gpu.findings}


def test_a_healthy_board_has_every_meter_and_knob_of_its_generation(driver: FakeDriver) -> None:
    diagnosis = examine()

    assert "1 simulated NVIDIA GPU; it can be read" in diagnosis.verdict
    assert ["SimulatedDevice"] == [caveat.kind.value for caveat in diagnosis.caveats]
    # Whether knobs may be turned hangs on who runs the test.
    knobs = {"SM clock lock", "memory clock lock", "power limit"}
    not_ok = {subject: state for subject, state in states(diagnosis).items() if state != "ok"}
    rest = {subject: state for subject, state in not_ok.items() if subject not in knobs}
    assert {"activity (GPM)": "absent", "locked by others": "unknown"} == rest
    assert "rtx3080ti" == driver.profile(0)


@pytest.mark.parametrize(
    ("profile", "activity", "memory"),
    [
        ("h100-sxm", "ok", "2619 MHz is its only memory clock: nothing to choose"),
        ("a100-sxm", "absent", "1215 MHz is its only memory clock: nothing to choose"),
        ("rtx4090", "absent", "5 clocks; only where the device string says memory_lock=on"),
    ],
)
def test_each_board_has_what_its_generation_has(
    make_driver: DriverMaker, profile: str, activity: str, memory: str
) -> None:
    make_driver(profile)

    diagnosis = examine()

    assert activity == states(diagnosis)["activity (GPM)"]
    assert finding(diagnosis, "memory clock lock").seen.endswith(memory)


def test_looking_changes_nothing_and_takes_no_time_of_the_device(driver: FakeDriver) -> None:
    driver.set_knob(0, "read_call_s", 0.0)
    before_s = driver.now_s()

    examine()

    assert before_s == driver.now_s()


@pytest.mark.parametrize(
    ("function", "code", "subject", "status"),
    [
        (
            "nvmlDeviceGetTotalEnergyConsumption",
            NOT_SUPPORTED,
            "energy counter",
            Availability.ABSENT,
        ),
        (
            "nvmlDeviceGetComputeRunningProcesses_v3",
            NO_PERMISSION,
            "other processes",
            Availability.UNKNOWN,
        ),
        ("nvmlDeviceGetPersistenceMode", NOT_SUPPORTED, "persistence mode", Availability.ABSENT),
        (
            "nvmlDeviceGetSupportedMemoryClocks",
            NOT_SUPPORTED,
            "memory clock lock",
            Availability.ABSENT,
        ),
    ],
)
def test_a_question_that_the_driver_refuses_is_missing_and_never_zero(
    driver: FakeDriver, function: str, code: int, subject: str, status: Availability
) -> None:
    driver.fail(function, code)

    found = finding(examine(), subject)

    assert status == found.status
    assert function.partition("_")[0] in found.seen


@pytest.mark.parametrize(
    ("profile", "knob", "value", "subject", "seen"),
    [
        (
            "rtx3080ti",
            "enforced_limit_w",
            280.0,
            "enforced limit",
            "280 W enforced, below the 350 W that are set",
        ),
        (
            "a100-sxm",
            "mig_mode",
            1.0,
            "MIG",
            "on: all instances share one clock and one energy counter",
        ),
        (
            "h100-sxm",
            "scope",
            1.0,
            "scope",
            "a superchip: the counter sees the module, CPU and memory included",
        ),
    ],
)
def test_what_stands_in_the_way_is_found(
    make_driver: DriverMaker, profile: str, knob: str, value: float, subject: str, seen: str
) -> None:
    make_driver(profile).set_knob(0, knob, value)

    found = finding(examine(), subject)

    assert (Availability.LIMITED, seen) == (found.status, found.seen)


def test_other_processes_are_found(driver: FakeDriver) -> None:
    driver.set_knob(0, "other_process_count", 2.0)

    assert Availability.LIMITED == finding(examine(), "other processes").status


def test_a_lock_that_somebody_left_behind_is_suspected_under_load(driver: FakeDriver) -> None:
    driver.foreign_lock(0, at_s=driver.now_s(), min_clock_mhz=945, max_clock_mhz=945)
    runner, _, _ = open_fake_session_parts(driver, 0, WORKS)

    with runner.loop("copy", run="load") as loop:
        loop.run_for(1.0)
        found = finding(examine(), "locked by others")

    assert "runs at 945 of 2100 MHz, and no reason is given" == found.seen
    assert Availability.LIMITED == found.status


def test_a_lost_gpu_is_shown_beside_the_one_that_answers(make_driver: DriverMaker) -> None:
    make_driver(device_count=2).set_knob(1, "is_lost", 1.0)

    diagnosis = examine()

    assert [True, False] == [gpu.can_read for gpu in diagnosis.gpus]
    assert "2 simulated NVIDIA GPUs; 1 can be read" in diagnosis.verdict


def test_one_gpu_of_several_is_named_by_index_or_uuid(make_driver: DriverMaker) -> None:
    make_driver(device_count=2)
    second = examine().gpus[1].device

    assert (second,) == tuple(gpu.device for gpu in examine("nvml:1").gpus)
    assert (second,) == tuple(gpu.device for gpu in examine(second).gpus)
    with pytest.raises(InputError):
        examine("nvml:7")


@pytest.mark.parametrize(
    ("function", "code", "said"),
    [
        ("nvmlDeviceGetUUID", NOT_SUPPORTED, "nvmlDeviceGetUUID answered 'Not Supported' (NVML 3)"),
        ("nvmlDeviceGetHandleByIndex_v2", NOT_SUPPORTED, "nvmlDeviceGetHandleByIndex answered"),
        ("nvmlDeviceGetHandleByIndex_v2", FUNCTION_NOT_FOUND, "(NVML 13)"),
        ("nvmlDeviceGetHandleByIndex_v2", GPU_IS_LOST, "'GPU is lost' (NVML 15)"),
    ],
)
def test_a_gpu_that_measuring_could_not_open_is_not_called_well(
    driver: FakeDriver, function: str, code: int, said: str
) -> None:
    driver.fail(function, code)

    diagnosis = examine("nvml:0")

    assert (False, False) == (diagnosis.can_read, diagnosis.can_set)
    assert "it cannot be opened" in diagnosis.verdict
    assert said in diagnosis.verdict
    assert Availability.ABSENT == finding(diagnosis, "opening").status


def test_nothing_is_well_by_default_where_no_question_is_answered(driver: FakeDriver) -> None:
    for code in (NOT_SUPPORTED, FUNCTION_NOT_FOUND, GPU_IS_LOST):
        driver.fail("nvmlDeviceGetHandleByIndex_v2", code)

        assert "ok" not in states(examine()).values()


@pytest.mark.parametrize("code", [NOT_SUPPORTED, NO_PERMISSION, GPU_IS_LOST])
def test_gpus_that_cannot_be_counted_are_not_called_none(driver: FakeDriver, code: int) -> None:
    driver.fail("nvmlDeviceGetCount_v2", code)

    diagnosis = examine()

    assert not diagnosis.can_read
    assert "nvmlDeviceGetCount answered" in diagnosis.verdict
    assert f"(NVML {code})" in diagnosis.verdict
    assert diagnosis.machine[0].helps


def run_doctor(*arguments: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "joulewise", "doctor", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.integration
def test_a_fresh_process_finds_the_driver_and_one_that_does_not_start(
    fake_library: Path, tmp_path: Path
) -> None:
    fake = {
        "LD_LIBRARY_PATH": str(fake_library.parent),
        "FAKE_NVML_STATE": str(tmp_path / "state"),
        "FAKE_NVML_TIME": "virtual",
    }

    works = run_doctor(environment=fake)
    fails = run_doctor(environment={**fake, "FAKE_NVML_FAIL": "nvmlInitWithFlags=18"})

    assert (0, "") == (works.returncode, works.stderr)
    assert "it can be read" in works.stdout
    assert (1, "") == (fails.returncode, fails.stderr)
    assert "(NVML 18)." in " ".join(fails.stdout.split())


@pytest.mark.integration
def test_a_state_file_that_does_not_serve_is_named(fake_library: Path, tmp_path: Path) -> None:
    state = tmp_path / "foreign"
    state.write_bytes(b"somebody's letters")
    fake = {"LD_LIBRARY_PATH": str(fake_library.parent), "FAKE_NVML_STATE": str(state)}

    said = run_doctor("--json", environment=fake)

    assert 1 == said.returncode
    assert f"{state}: no state file of this version; remove it" in said.stderr
    assert str(state) in said.stdout
    assert b"somebody's letters" == state.read_bytes()
