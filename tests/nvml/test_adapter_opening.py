"""Opening a GPU through the real binding: which one, what it is, and that nothing is touched."""

from __future__ import annotations

import re
from pathlib import Path

import pynvml
import pytest
from tests.fake_nvml import DriverMaker

from joulewise.device.nvml_gpu import NvmlGpu, open_nvml
from joulewise.domain.caveats import CaveatKind
from joulewise.domain.errors import (
    DeviceError,
    DeviceLost,
    InputError,
    JoulewiseError,
    NotPermitted,
    NotSupported,
)
from joulewise.simulator.fake_driver import FakeDriver

PROFILES = ["rtx3080ti", "a100-sxm", "h100-sxm", "rtx4090"]


def opened(driver: FakeDriver, device: str = "nvml:0") -> NvmlGpu:
    return open_nvml(device, timer=driver.timer)


def kinds(gpu: NvmlGpu) -> set[CaveatKind]:
    return {caveat.kind for caveat in gpu.identity.caveats}


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_opens_as_a_simulated_device_that_processes_share(
    make_driver: DriverMaker, profile: str
) -> None:
    identity = opened(make_driver(profile)).identity

    assert identity.is_simulated
    assert not identity.is_in_process
    assert re.fullmatch(r"nvml:GPU-[0-9a-f-]{36}", identity.spec)
    assert identity.name.startswith("NVIDIA ")
    assert ["fake NVIDIA driver"] == [
        caveat.seen for caveat in identity.caveats if caveat.kind is CaveatKind.SIMULATED_DEVICE
    ]


def test_index_uuid_its_beginning_and_pci_id_find_the_same_gpu(make_driver: DriverMaker) -> None:
    driver = make_driver(device_count=3)
    uuids = [opened(driver, f"nvml:{index}").uuid for index in range(3)]
    pci = pynvml.nvmlDeviceGetPciInfo(pynvml.nvmlDeviceGetHandleByIndex(1)).busId
    assert 3 == len(set(uuids))

    for selector in (
        "1",
        uuids[1],
        uuids[1].upper().replace("GPU-", "gpu-"),
        pci,
        pci[4:],
        pci[9:],
    ):
        gpu = opened(driver, f"nvml:{selector}")
        assert (1, uuids[1], f"nvml:{uuids[1]}") == (gpu.index, gpu.uuid, gpu.identity.spec)


def test_the_canonical_string_keeps_the_options(driver: FakeDriver) -> None:
    gpu = opened(driver, "nvml,memory_lock=on")

    assert f"nvml:{gpu.uuid},memory_lock=on" == gpu.identity.spec
    assert gpu.identity.spec == opened(driver, gpu.identity.spec).identity.spec


@pytest.mark.parametrize(
    ("device", "said"),
    [
        ("nvml:5", "no GPU is called '5'"),
        ("nvml:GPU-ffffffff", "no GPU is called 'GPU-ffffffff'"),
        ("nvml:fe:00.0", "no GPU is called 'fe:00.0'"),
        ("nvml:GPU-", "'GPU-' fits 2 GPUs"),
        ("nvml", "nvml names no GPU, and there are 2"),
    ],
)
def test_a_string_that_fits_no_single_gpu_lists_those_that_there_are(
    make_driver: DriverMaker, device: str, said: str
) -> None:
    driver = make_driver(device_count=2)

    with pytest.raises(InputError, match=re.escape(said)) as caught:
        opened(driver, device)

    hint = caught.value.hint or ""
    assert all(opened(driver, f"nvml:{index}").uuid in hint for index in (0, 1))


@pytest.mark.parametrize("code", [15, 16, 18])
def test_a_lost_gpu_hides_no_other(make_driver: DriverMaker, code: int) -> None:
    driver = make_driver(device_count=2)
    uuid = opened(driver, "nvml:1").uuid
    driver.fail("nvmlDeviceGetUUID", code, call_count=1)

    assert 1 == opened(driver, f"nvml:{uuid}").index


@pytest.mark.parametrize("code", [4, 17, 19, 999])
def test_a_gpu_that_this_account_may_not_open_hides_no_other(
    make_driver: DriverMaker, code: int
) -> None:
    driver = make_driver(device_count=2)
    uuid = opened(driver, "nvml:1").uuid
    # Those that may pass are asked four times.
    tries = 4 if code == 999 else 1
    for selector in (f"nvml:{uuid}", "nvml"):
        driver.fail("nvmlDeviceGetHandleByIndex_v2", code, call_count=tries)
        assert 1 == opened(driver, selector).index


def test_a_gpu_that_does_not_answer_is_named_where_nothing_fits(make_driver: DriverMaker) -> None:
    driver = make_driver(device_count=3)
    driver.fail("nvmlDeviceGetHandleByIndex_v2", 4, call_count=1)

    with pytest.raises(InputError, match="there are 2") as caught:
        opened(driver, "nvml")

    assert "nvml:0 does not answer (GPU 0: nvmlDeviceGetHandleByIndex" in (caught.value.hint or "")


def test_where_no_gpu_may_be_opened_that_is_the_error(make_driver: DriverMaker) -> None:
    driver = make_driver(device_count=2)
    driver.fail("nvmlDeviceGetHandleByIndex_v2", 4)

    with pytest.raises(NotPermitted, match="NVML 4") as caught:
        opened(driver, "nvml")

    assert "/dev/nvidia0" in (caught.value.hint or "")


def test_mig_is_a_caveat_of_the_whole_gpu(make_driver: DriverMaker) -> None:
    driver = make_driver("a100-sxm")
    assert CaveatKind.GPU_PARTITIONED not in kinds(opened(driver))
    driver.set_knob(0, "mig_mode", 1)

    assert CaveatKind.GPU_PARTITIONED in kinds(opened(driver))


def test_persistence_mode_that_is_off_is_a_caveat(driver: FakeDriver) -> None:
    assert 0 == opened(driver).index
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    pynvml.nvmlDeviceSetPersistenceMode(handle, 1)
    assert CaveatKind.PERSISTENCE_OFF not in kinds(opened(driver))

    pynvml.nvmlDeviceSetPersistenceMode(handle, 0)

    assert CaveatKind.PERSISTENCE_OFF in kinds(opened(driver))


@pytest.mark.parametrize(
    ("scope", "seen", "extra_w"),
    [(1, "whose energy it tells", 0.0), (2, "whose energy and power it tells", 60.0)],
)
def test_energy_of_a_superchip_is_labelled_as_the_modules(
    make_driver: DriverMaker, scope: int, seen: str, extra_w: float
) -> None:
    driver = make_driver("h100-sxm")
    assert CaveatKind.ENERGY_OF_MODULE not in kinds(opened(driver))
    driver.set_knob(0, "scope", scope)

    gpu = opened(driver)

    (caveat,) = (c for c in gpu.identity.caveats if c.kind is CaveatKind.ENERGY_OF_MODULE)
    assert caveat.seen.endswith(seen)
    assert driver.true_power_w(0) + extra_w == pytest.approx(gpu.sample().power_w, abs=0.01)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (2, NotSupported),
        (3, NotSupported),
        (4, NotPermitted),
        (6, NotSupported),
        (9, NotSupported),
        (10, DeviceError),
        (12, NotSupported),
        (13, NotSupported),
        (15, DeviceLost),
        (16, DeviceLost),
        (17, NotPermitted),
        (18, DeviceLost),
        # No lease of somebody else, who would be left alone.
        (19, DeviceError),
        (20, DeviceError),
        (23, DeviceError),
        (25, NotSupported),
        (26, NotSupported),
        (27, DeviceError),
        (28, DeviceLost),
        (29, DeviceError),
        (999, DeviceError),
    ],
)
def test_every_code_of_a_handle_becomes_one_clear_error(
    driver: FakeDriver, code: int, error: type[JoulewiseError]
) -> None:
    driver.fail("nvmlDeviceGetHandleByIndex_v2", code)

    with pytest.raises(JoulewiseError) as caught:
        opened(driver)

    assert error is type(caught.value)
    assert "nvmlDeviceGetHandleByIndex answered" in caught.value.message
    assert f"(NVML {code})" in caught.value.message


def test_opening_and_reading_call_nothing_that_sets(
    driver: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "calls.log"
    monkeypatch.setenv("FAKE_NVML_LOG", str(log))
    opened(driver)
    pynvml.nvmlInit()
    try:
        gpu = opened(driver, "nvml:0,memory_lock=on")
        gpu.clock_grid()
        gpu.knob_state()
        assert gpu.energy_counter_period_s
        gpu.wait_for_energy_tick(1.0)
        gpu.sample()
    finally:
        monkeypatch.delenv("FAKE_NVML_LOG")
        pynvml.nvmlInit()
        pynvml.nvmlShutdown()
        pynvml.nvmlShutdown()
    called = set(re.findall(r"nvml\w+", log.read_text(encoding="utf-8")))

    assert {"nvmlDeviceGetFieldValues", "nvmlDeviceGetSupportedMemoryClocks"} <= called
    assert set() == {name for name in called if re.search(r"Device(Set|Reset|Clear)", name)}
