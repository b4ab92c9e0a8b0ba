"""What doctor is told, through the real binding."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest
from tests.fake_nvml import DriverMaker

from joulewise.device.nvml import is_fake_library
from joulewise.device.nvml_facts import driver_facts, gpu_facts
from joulewise.device.nvml_gpu import open_nvml
from joulewise.domain.gpu_facts import Absence, Fact, GpuFacts
from joulewise.simulator.fake_driver import FakeDriver

PROFILES = ["rtx3080ti", "a100-sxm", "h100-sxm", "rtx4090"]
FACTS = [field.name for field in dataclasses.fields(GpuFacts) if field.name != "index"]


def facts_of(gpu: GpuFacts) -> dict[str, Fact[object]]:
    return {name: getattr(gpu, name) for name in FACTS}


@pytest.mark.parametrize("profile", PROFILES)
def test_every_fact_has_a_value_or_a_reason_and_never_both(
    make_driver: DriverMaker, profile: str
) -> None:
    make_driver(profile)
    (gpu,) = gpu_facts()

    for name, fact in facts_of(gpu).items():
        assert fact.is_known == (fact.absence is None) == (fact.reason is None), name
    lacking = {name for name, fact in facts_of(gpu).items() if not fact.is_known}
    assert lacking <= {
        "average_power_w",
        "is_activity_accumulated",
        "is_clock_accumulated",
        "is_partitioned",
        "is_power_smoothed",
        "is_superchip",
        "memory_clock_switch",
        "memory_power_w",
        "mma_stall_ratio",
        "module_power_w",
        "virtualization",
    }


def test_facts_agree_with_what_the_opened_gpu_does(driver: FakeDriver) -> None:
    gpu = open_nvml("nvml:0,memory_lock=on", timer=driver.timer)
    (facts,) = gpu_facts()
    grid, sample = gpu.clock_grid(), gpu.sample()

    assert grid.sm_clocks_mhz == facts.sm_clocks_mhz.value
    assert grid.mem_clocks_mhz == facts.mem_clocks_mhz.value
    assert gpu.uuid == facts.uuid.value
    assert gpu.knob_state().power_limit_w == facts.power_limit_w.value
    assert sample.power_w == facts.power_w.value
    assert sample.energy_j == facts.energy_j.value
    assert sample.event_reasons == facts.event_reasons.value
    assert "8.6" == facts.compute_capability.value
    assert "Ampere" == facts.architecture.value


def test_the_driver_tells_its_versions_and_that_it_is_the_fake_one(driver: FakeDriver) -> None:
    assert driver.is_virtual_time
    facts = driver_facts()

    assert facts.is_fake
    assert is_fake_library()
    assert facts.problem is None
    assert "595.45.04" == facts.driver_version.value
    assert (facts.nvml_version.value or "").endswith("595.45.04")
    assert 1 == facts.gpu_count.value
    assert (facts.cuda_version.value or "").count(".") == 1


@pytest.mark.parametrize(
    ("code", "absence"),
    [
        (3, Absence.NOT_SUPPORTED),
        (4, Absence.NOT_PERMITTED),
        (13, Absence.DRIVER_TOO_OLD),
        (15, Absence.NOT_ANSWERED),
        (999, Absence.NOT_ANSWERED),
    ],
)
def test_every_code_says_why_a_fact_is_missing(
    driver: FakeDriver, code: int, absence: Absence
) -> None:
    driver.fail("nvmlDeviceGetTotalEnergyConsumption", code)

    (facts,) = gpu_facts(pause=driver.timer.sleep)

    assert absence is facts.energy_j.absence
    assert facts.energy_j.reason is not None
    assert "nvmlDeviceGetTotalEnergyConsumption" in facts.energy_j.reason
    assert facts.power_w.is_known


def test_a_gpu_that_gives_no_handle_has_every_fact_missing_with_its_reason(
    driver: FakeDriver,
) -> None:
    driver.fail("nvmlDeviceGetHandleByIndex_v2", 15)

    (facts,) = gpu_facts()

    assert {(Absence.NOT_ANSWERED, True)} == {
        (fact.absence, "GPU is lost" in (fact.reason or "")) for fact in facts_of(facts).values()
    }


NO_DRIVER = """
from joulewise.device.nvml_facts import driver_facts, gpu_facts
from joulewise.device.nvml_gpu import open_nvml
facts = driver_facts()
print(facts.problem, facts.hint, facts.is_fake, gpu_facts())
try:
    open_nvml("nvml:0")
except Exception as error:
    print(type(error).__name__, error.hint)
"""


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("4", "may not open /dev/nvidiactl"),
        ("9", "Install the NVIDIA driver, or load it"),
        ("18", "reload its kernel modules or reboot"),
    ],
)
def test_a_driver_that_cannot_be_used_is_a_problem_with_a_hint(
    driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, code: str, said: str
) -> None:
    from tests.fake_nvml import BUILD

    assert driver.state_path is not None
    monkeypatch.setenv("LD_LIBRARY_PATH", str(BUILD))
    monkeypatch.setenv("FAKE_NVML_STATE", str(driver.state_path))
    monkeypatch.setenv("FAKE_NVML_FAIL", f"nvmlInitWithFlags={code}")

    done = subprocess.run(
        [sys.executable, "-c", NO_DRIVER], capture_output=True, text=True, check=True
    )

    first, second = done.stdout.splitlines()
    assert f"(NVML {code})" in first
    assert said in first
    assert first.endswith("True ()")
    assert second.startswith("NotPermitted " if code == "4" else "NotSupported ")
    assert said in second


def test_without_any_driver_the_hint_says_what_to_install_and_what_needs_none() -> None:
    import ctypes.util

    if ctypes.util.find_library("nvidia-ml"):
        pytest.skip("this machine has an NVIDIA driver")

    done = subprocess.run(
        [sys.executable, "-c", NO_DRIVER], capture_output=True, text=True, check=True
    )

    first, second = done.stdout.splitlines()
    assert "(NVML 12)" in first
    assert "libnvidia-ml.so.1" in first
    assert "virtual:rtx3080ti" in first
    assert first.endswith("False ()")
    assert second.startswith("NotSupported ")
