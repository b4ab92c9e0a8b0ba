"""NVIDIA GPUs by device string: listed, opened, and what is measured on them by default."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fake_nvml import DriverMaker
from tests.nvml.works import WORKS

from joulewise.domain.caveats import CaveatKind
from joulewise.domain.errors import InputError, NotSupported
from joulewise.domain.ports import no_progress
from joulewise.domain.workload import Launch, Workload
from joulewise.simulator.fake_driver import FakeDriver
from joulewise.store.documents import write_workload
from joulewise.store.sweeps import read_sweep
from joulewise.workflow.devices import (
    AskedPowerLimit,
    device_lines,
    open_session,
    points_of_device,
)
from joulewise.workflow.measuring import MeasureJob, measure_to_file

COPY = Workload(name="copy", launches=(Launch(kernel="copy"),), works=(WORKS[1],))


def _job(folder: Path, device: str) -> MeasureJob:
    write_workload(COPY, folder / "copy.json")
    return MeasureJob(
        device=device,
        workload=str(folder / "copy.json"),
        sm_clocks_mhz=(None,),
        mem_clocks_mhz=(None, 9501),
        out=folder / "sweep.parquet",
        is_resumed=False,
    )


@pytest.fixture(autouse=True)
def _with_rights(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FAKE_NVML_PRIV", "1")
    monkeypatch.setenv("JOULEWISE_STATE_DIR", str(tmp_path / "state"))


def test_gpus_of_the_driver_are_listed_with_what_opens_them(make_driver: DriverMaker) -> None:
    make_driver("h100-sxm", device_count=2)
    lines = [line for line in device_lines() if line.device.startswith("nvml")]

    assert ["nvml:0", "nvml:1"] == [line.device for line in lines]
    assert {(119, 1, None, True)} == {
        (line.sm_clock_count, line.mem_clock_count, line.lag_s, line.is_simulated) for line in lines
    }
    for line in lines:
        gpu = open_session(f"nvml:{line.uuid}", COPY).gpu
        assert (line.uuid, line.name) == (gpu.identity.uuid, gpu.identity.name)


def test_without_a_gpu_the_virtual_ones_are_listed_and_nvml_says_why_not(
    make_driver: DriverMaker,
) -> None:
    make_driver(device_count=0)

    assert {"virtual"} == {line.device.partition(":")[0] for line in device_lines()}
    with pytest.raises(NotSupported):
        open_session("nvml:0", COPY)


def test_the_memory_clock_stays_with_the_driver_unless_the_device_string_says_so(
    driver: FakeDriver,
) -> None:
    assert driver.is_virtual_time
    plain = open_session("nvml", COPY).gpu
    locking = open_session("nvml,memory_lock=on", COPY).gpu
    with pytest.raises(InputError, match="left to the driver") as caught:
        points_of_device(plain, None, (None, 9501), None)

    assert {None} == {point.mem_clock_mhz for point in points_of_device(plain, None, (None,), None)}
    assert {None} == {point.mem_clock_mhz for point in points_of_device(plain, None, None, None)}
    assert 6 == len({point.mem_clock_mhz for point in points_of_device(locking, None, None, None)})
    assert f"{plain.identity.spec},memory_lock=on" in str(caught.value.hint)


def test_percent_are_of_the_limit_found(driver: FakeDriver) -> None:
    assert driver.is_virtual_time
    open_session("nvml:0", COPY).gpu.request(
        points_of_device(
            open_session("nvml:0", COPY).gpu,
            (None,),
            None,
            (AskedPowerLimit(limit_w=300.0),),
        )[0]
    )
    points = points_of_device(
        open_session("nvml:0", COPY).gpu, (None,), None, (None, AskedPowerLimit(found_ratio=0.5))
    )

    assert [None, 150.0] == [point.power_limit_w for point in points]


@pytest.mark.parametrize("slowdown_ratio", [0.0, 0.2])
def test_a_memory_lock_that_slows_is_a_doubt_of_the_sweep_and_one_that_does_not_is_none(
    driver: FakeDriver, tmp_path: Path, slowdown_ratio: float
) -> None:
    driver.set_knob(0, "memory_lock_slowdown_ratio", slowdown_ratio)
    job = _job(tmp_path, "nvml:0,memory_lock=on")
    sweep = measure_to_file(job, no_progress)
    kinds = {caveat.kind for caveat in read_sweep(job.out).caveats}

    assert (CaveatKind.MEMORY_LOCK_SLOWS in kinds) == (slowdown_ratio > 0)
    assert kinds == {caveat.kind for caveat in sweep.caveats}
    assert sweep.source.is_simulated
    assert sweep.source.device.endswith(",memory_lock=on")
