"""Public reports about NVIDIA GPUs, each with tests named after its symptom.

A test without a file is in this one; a check here sees to it that all of them exist.

| # | report | symptom | tests |
|---|---|---|---|
| 1 | open-gpu-kernel-modules 1314 | clock below the minimum asked for, SUCCESS returned | nvml/test_honest_windows.py::test_clock_below_the_requested_minimum_with_success_returned, nvml/test_adapter_reports.py::test_success_that_set_nothing_is_an_error_where_it_can_be_read_back |
| 2 | open-gpu-kernel-modules 1265, 1266; LACT 1128 | a memory lock costs 16 to 32 % of the speed | nvml/test_honest_sensors.py::test_memory_lock_costs_16_percent_though_the_clock_reads_its_highest, unit/test_doctor_gpus.py::test_a_memory_lock_that_costs_a_third_of_the_speed_on_geforce_blackwell_is_warned_of |
| 3 | TileOPs 1587 | an H200 locked to 1830 MHz does not hold it at 700 W | nvml/test_honest_windows.py::test_a_locked_clock_is_not_held_at_the_power_limit |
| 4 | NBMiner 839, 661; RainbowMiner 1801; nvidia-pstated 1 | stuck at 950 MHz after the program ended | nvml/test_adapter_reports.py::test_clocks_that_are_stuck_after_the_program_ended_are_given_back_by_the_next, unit/test_doctor_gpus.py::test_a_gpu_stuck_at_950_mhz_after_a_program_ended_is_suspected |
| 5 | lium-io 1229 | caps are silently back to stock | nvml/test_honest_windows.py::test_caps_silently_back_to_stock_after_a_driver_reload, nvml/test_adapter_reports.py::test_a_cap_that_is_silently_back_to_stock_is_seen_in_the_state_of_the_knobs, unit/test_doctor_gpus.py::test_caps_that_go_back_to_stock_silently_are_explained_by_persistence_mode |
| 6 | nvidia-docker 495; gvisor 14070 | Insufficient Permissions or NOT_SUPPORTED in a container | nvml/test_adapter_reports.py::test_insufficient_permissions_in_a_container_names_the_capability_and_the_user_namespace, nvml/test_adapter_reports.py::test_not_supported_in_a_sandboxed_container_is_not_taken_for_missing_rights, unit/test_doctor_host.py::test_insufficient_permissions_in_docker_asks_for_the_capability |
| 7 | nvidia-container-toolkit 48, 251, 1227 | Unknown Error mid-run in a container | nvml/test_adapter_reports.py::test_unknown_error_in_a_container_after_daemon_reload_is_a_clear_error_and_passes |
| 8 | MangoHud 2104, 1307; open-gpu-kernel-modules 953 | stutter, for NVML holds the driver's lock | test_stutter_from_slow_questions_is_kept_out_of_windows |
| 9 | zeus 181; kokkos-tools 295 | energy counter and integrated power disagree | nvml/test_honest_sensors.py::test_energy_counter_disagrees_with_integrated_power |
| 10 | codecarbon 1316 | 0 kWh on GPUs without counter | nvml/test_honest_energy.py::test_energy_counter_absent_or_stuck_never_gives_zero, nvml/test_honest_sensors.py::test_no_energy_on_gpus_without_counter_is_no_zero, unit/test_doctor_gpus.py::test_zero_kwh_without_a_counter_is_power_added_up_and_never_zero |
| 11 | dcgm-exporter 317, 50 | the same energy in every MIG instance | nvml/test_adapter_reports.py::test_the_same_energy_in_every_mig_instance_is_refused_rather_than_told_twice, unit/test_doctor_gpus.py::test_the_same_energy_in_every_mig_instance_is_explained_and_clocks_are_left_alone |
| 12 | dcgm-exporter 464; open-gpu-kernel-modules 874 | 50 W more at idle beside an exporter; P0 at 0 % utilisation | test_50_w_more_at_idle_beside_an_exporter_are_in_the_idle_power, test_p0_at_0_percent_utilisation_is_not_what_a_locked_clock_leads_to |
| 13 | nvitop 88; gpustat 143; pynvml 43, 48 | wrong process data, FunctionNotFound | nvml/test_adapter_reports.py::test_a_binding_that_is_newer_than_the_driver_loses_only_what_is_new |
| 14 | netdata 15755 | the power metric vanished, for nvidia-smi renamed it | test_power_that_vanished_from_nvidia_smi_is_read_all_the_same |
| 15 | nvidia-pstated 13 | stuck in P8, for an undocumented function changed | test_nothing_is_asked_of_the_driver_that_is_not_documented, test_a_gpu_stuck_in_p8_is_told_and_not_measured_as_a_slow_one |
| 16 | Megatron-Bridge 5299 | not ready when all GPUs are locked at once | nvml/test_adapter_reports.py::test_not_ready_when_gpus_are_set_one_after_the_other_is_retried |
| 17 | amdsmi 38, rocm_smi_lib 180, compute-runtime 938: other vendors' | absurd, constant or wrapped counters | unit/test_measure_window.py::test_a_counter_that_runs_faster_than_the_board_can_draw_is_an_error, unit/test_measure_window.py::test_a_counter_that_always_stands_still_is_replaced_by_power_and_gives_no_zero, unit/test_measure_window.py::test_a_counter_that_goes_back_costs_a_repeat_and_no_caveat |
| 18 | zeus 109 | crash with MIG UUIDs in CUDA_VISIBLE_DEVICES | test_mig_uuids_in_cuda_visible_devices_are_refused_without_a_crash, test_cuda_visible_devices_names_the_gpu_where_the_device_string_does_not, device/test_nvml_string.py::test_a_mig_uuid_is_refused_with_the_reason_and_does_not_crash |
| 19 | kernel_tuner 86, 134, 271, 390 | NotSupported on a GTX 1070 | nvml/test_adapter_reports.py::test_settings_that_an_old_gpu_does_not_support_are_told_apart_knob_by_knob, unit/test_doctor_gpus.py::test_pascal_boards_that_support_no_lock_can_be_read_and_not_set |
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pynvml
import pytest
from tests.fake_nvml import DriverMaker, open_fake
from tests.nvml.works import WORKS

import joulewise.device
from joulewise.device.nvml_gpu import open_nvml
from joulewise.device.nvml_string import options_here, visible_selectors
from joulewise.domain.caveats import CaveatKind
from joulewise.domain.errors import InputError, NotSupported
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.measure.settings import MeasureSettings
from joulewise.measure.steady import measure_idle_power_w
from joulewise.measure.window import measure_window
from joulewise.simulator.fake_driver import FakeDriver

TESTS = Path(__file__).resolve().parents[1]
GEMM = WORKS[0].kernel
BY_ADDRESS = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def reports() -> dict[int, list[str]]:
    """Number of each report in the table above, and where its tests are."""
    rows = [
        [cell.strip() for cell in line.strip(" |").split(" | ")]
        for line in (__doc__ or "").splitlines()
        if re.match(r"\| \d", line)
    ]
    return {int(row[0]): re.findall(r"[\w/.:]*\btest_\w+\b(?!\.py)", row[3]) for row in rows}


def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_report_has_tests_that_exist() -> None:
    assert [*range(1, 20)] == sorted(reports())
    missing = [
        name
        for tests in reports().values()
        for path, _, name in (test.rpartition("::") for test in tests or ["none"])
        if name not in functions(TESTS / path if path else Path(__file__))
    ]

    assert [] == missing


def test_stutter_from_slow_questions_is_kept_out_of_windows(driver: FakeDriver) -> None:
    """A list of processes takes 4.5 ms under the lock that launches need too."""
    session = open_fake(driver, WORKS)
    asked = []
    with session.runner.loop(GEMM, run="r") as loop:
        loop.run_for(1.0)
        session.gpu.sample()
        # Whoever asks from now on gets an error where it would have stalled the work.
        driver.fail("nvmlDeviceGetComputeRunningProcesses_v3", 999)
        for _ in range(10):
            loop.run_for(0.1)
            asked.append(session.gpu.sample())

    assert 10 == len([sample for sample in asked if sample.other_process_count is not None])


def test_50_w_more_at_idle_beside_an_exporter_are_in_the_idle_power(driver: FakeDriver) -> None:
    """What idle draws is measured where the work runs, not taken from a table."""
    gpu = open_fake(driver, ()).gpu
    before_w = measure_idle_power_w(gpu, MeasureSettings())
    assert before_w is not None
    driver.blur(0, time_ratio=1.0, power_ratio=1.0 + 50.0 / before_w)

    beside_w = measure_idle_power_w(gpu, MeasureSettings())

    assert beside_w == pytest.approx(before_w + 50.0, rel=0.005)


def test_p0_at_0_percent_utilisation_is_not_what_a_locked_clock_leads_to(
    driver: FakeDriver,
) -> None:
    """A lock from the lowest clock on leaves an idle GPU free to rest."""
    session = open_fake(driver, WORKS)
    resting_w = measure_idle_power_w(session.gpu, MeasureSettings())
    session.gpu.request(OperatingPoint(sm_clock_mhz=1500))
    with session.runner.loop(GEMM, run="r") as loop:
        loop.run_for(2.0)
        working_mhz = session.gpu.sample().sm_clock_mhz

    session.gpu.wait(120.0)

    assert 1500 == working_mhz
    assert session.gpu.clock_grid().sm_clocks_mhz[0] == session.gpu.sample().sm_clock_mhz
    assert measure_idle_power_w(session.gpu, MeasureSettings()) == pytest.approx(
        resting_w, rel=0.005
    )


def test_power_that_vanished_from_nvidia_smi_is_read_all_the_same(
    driver: FakeDriver, fake_library: Path, tmp_path: Path
) -> None:
    """Its texts change with the driver; the library's numbers do not."""
    called = tmp_path / "called"
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n: > {called}\necho '<gpu_power_readings/>'\n", encoding="utf-8")
    tool.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": str(tmp_path),
        "LD_LIBRARY_PATH": str(fake_library.parent),
        "FAKE_NVML_STATE": str(driver.state_path),
    }

    done = subprocess.run(
        [sys.executable, "-m", "joulewise", "doctor", "--json", "--device", "nvml:0"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (0, "") == (done.returncode, done.stderr)
    findings = json.loads(done.stdout)["gpus"][0]["findings"]
    assert ["ok"] == [one["status"] for one in findings if one["subject"] == "power"]
    assert not called.exists()


def test_nothing_is_asked_of_the_driver_that_is_not_documented() -> None:
    """Every function named by the adapter is one of the public header, as the binding has it."""
    binding = Path(pynvml.__file__).read_text(encoding="utf-8")
    public = set(re.findall(r"\bnvml[A-Z]\w+", binding))
    asked = {
        node.value
        for path in Path(*joulewise.device.__path__).glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"nv[a-zA-Z]*[A-Z]\w+", node.value)
    }

    assert "nvmlDeviceSetPowerManagementLimit" in asked
    # What names are sorted by is the beginning of several.
    assert set() == {name for name in asked if not any(one.startswith(name) for one in public)}


def test_a_gpu_stuck_in_p8_is_told_and_not_measured_as_a_slow_one(driver: FakeDriver) -> None:
    session = open_fake(driver, WORKS)
    with session.runner.loop(GEMM, run="r") as loop:
        loop.run_for(3.0)
        reached_mhz = session.gpu.sample().sm_clock_mhz
        driver.set_knob(0, "silent_ceiling_mhz", session.gpu.clock_grid().sm_clocks_mhz[0])
        loop.run_for(0.2)
        window = measure_window(
            session.gpu, loop, AUTO, 0, MeasureSettings(repeat_count=0), reached_mhz=reached_mhz
        )

    assert CaveatKind.FOREIGN_CONTROL in {caveat.kind for caveat in window.caveats}


@pytest.mark.parametrize(
    ("visible", "selectors"),
    [
        ("", ()),
        ("0", ("0",)),
        (" 1 , 0 ", ("1", "0")),
        ("GPU-4ad1", ("GPU-4ad1",)),
        ("MIG-GPU-4ad1/1/0", ("MIG-GPU-4ad1/1/0",)),
        ("-1", ()),
        ("NoDevFiles", ()),
        ("1,-1,0", ("1",)),
    ],
)
def test_cuda_visible_devices_is_read_up_to_what_names_no_gpu(
    visible: str, selectors: tuple[str, ...]
) -> None:
    assert selectors == visible_selectors(visible)


@pytest.mark.parametrize(
    ("device", "environment", "selector"),
    [
        ("nvml", {}, None),
        ("nvml", {"CUDA_VISIBLE_DEVICES": "GPU-4ad1"}, "GPU-4ad1"),
        ("nvml,memory_lock=on", {"CUDA_VISIBLE_DEVICES": "GPU-4ad1"}, "GPU-4ad1"),
        ("nvml", {"CUDA_VISIBLE_DEVICES": "1", **BY_ADDRESS}, "1"),
        # CUDA counts by speed, NVML by address: the same number may be another GPU.
        ("nvml", {"CUDA_VISIBLE_DEVICES": "1"}, None),
        ("nvml", {"CUDA_VISIBLE_DEVICES": "0,1", **BY_ADDRESS}, None),
        ("nvml:0", {"CUDA_VISIBLE_DEVICES": "1", **BY_ADDRESS}, "0"),
        ("nvml:0", {"CUDA_VISIBLE_DEVICES": "MIG-1"}, "0"),
    ],
)
def test_cuda_visible_devices_names_the_gpu_where_the_device_string_does_not(
    device: str, environment: dict[str, str], selector: str | None
) -> None:
    options = options_here(device, environment)

    assert selector == options.selector
    assert ("memory_lock" in device) == options.is_memory_lock_allowed


@pytest.mark.parametrize("form", ["MIG-6f5c5a1e-0000-1111-2222-333344445555", "MIG-GPU-4ad1/1/0"])
def test_mig_uuids_in_cuda_visible_devices_are_refused_without_a_crash(
    driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", form)

    with pytest.raises(NotSupported, match="which CUDA_VISIBLE_DEVICES names, is a MIG instance"):
        open_nvml("nvml", timer=driver.timer)
    assert 0 == open_nvml("nvml:0", timer=driver.timer).index


def test_of_two_gpus_nvml_alone_is_the_one_that_cuda_programs_see(
    make_driver: DriverMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = make_driver(device_count=2)
    uuid = open_nvml("nvml:1", timer=driver.timer).identity.uuid
    with pytest.raises(InputError, match="there are 2"):
        open_nvml("nvml", timer=driver.timer)

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", uuid)

    assert 1 == open_nvml("nvml", timer=driver.timer).index
