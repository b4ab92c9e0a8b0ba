"""Setting clocks and the power limit through the real binding."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pynvml
import pytest
from tests.fake_nvml import DriverMaker

from joulewise.device.nvml_gpu import NvmlGpu, open_nvml
from joulewise.domain.errors import DeviceError, JoulewiseError, NotPermitted, NotSupported
from joulewise.domain.points import AUTO, KnobState, OperatingPoint
from joulewise.simulator.fake_driver import FakeDriver, FakeKernel

SETTERS = re.compile(r"nvmlDevice((?:Set|Reset)\w+)")
LIGHT = FakeKernel(
    compute_cycle_count=0.017,
    memory_bytes=1e9,
    core_j=0.5,
    memory_j=0.1,
    set_point_ratio=1.0,
    overlap_exponent_ratio=3.0,
)


@dataclass(slots=True)
class CallLog:
    """What the fake driver was asked to set, in order."""

    path: Path
    seen_count: int = 0

    def sets(self) -> list[str]:
        """Setters called since the last question."""
        calls = SETTERS.findall(self.path.read_text(encoding="utf-8"))
        new, self.seen_count = calls[self.seen_count :], len(calls)
        return new


@pytest.fixture
def gpu(driver: FakeDriver) -> NvmlGpu:
    return open_nvml("nvml:0,memory_lock=on", timer=driver.timer)


@pytest.fixture
def calls(gpu: NvmlGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CallLog]:
    """The fake driver reads where to log at every nvmlInit."""
    assert gpu.index == 0
    log = tmp_path / "calls.log"
    monkeypatch.setenv("FAKE_NVML_LOG", str(log))
    pynvml.nvmlInit()
    yield CallLog(log)
    monkeypatch.delenv("FAKE_NVML_LOG")
    pynvml.nvmlInit()
    pynvml.nvmlShutdown()
    pynvml.nvmlShutdown()


def test_a_lock_holds_under_load_and_a_reset_gives_the_clock_back(
    driver: FakeDriver, gpu: NvmlGpu
) -> None:
    clock = gpu.clock_grid().sm_clocks_mhz[20]
    driver.run(0, [(driver.add_kernel(0, LIGHT), 1)])
    driver.advance(1.0)
    free = gpu.sample()

    gpu.request(OperatingPoint(sm_clock_mhz=clock))
    driver.advance(1.0)
    locked = gpu.sample()
    gpu.request(AUTO)
    driver.advance(1.0)

    assert (free.sm_clock_mhz or 0) > clock
    assert clock == locked.sm_clock_mhz
    assert free.sm_clock_mhz == gpu.sample().sm_clock_mhz


def test_a_clock_is_a_maximum_from_which_an_idle_gpu_may_still_clock_down(
    driver: FakeDriver, gpu: NvmlGpu
) -> None:
    clocks = gpu.clock_grid().sm_clocks_mhz
    gpu.request(OperatingPoint(sm_clock_mhz=clocks[40]))
    driver.advance(5.0)

    assert (gpu.sample().sm_clock_mhz or 0) < clocks[40]


@pytest.mark.parametrize("profile", ["rtx3080ti", "a100-sxm", "h100-sxm", "rtx4090"])
def test_the_grid_is_what_the_driver_lists(make_driver: DriverMaker, profile: str) -> None:
    driver = make_driver(profile)
    grid = open_nvml("nvml:0,memory_lock=on", timer=driver.timer).clock_grid()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    mem = pynvml.nvmlDeviceGetSupportedMemoryClocks(handle)
    sm = {clock for m in mem for clock in pynvml.nvmlDeviceGetSupportedGraphicsClocks(handle, m)}
    least_mw, _ = pynvml.nvmlDeviceGetPowerManagementLimitConstraints(handle)
    limits = grid.power_limits

    # A100s take no lock of their memory, and H100s do so at the next load of the driver.
    takes_lock = profile not in {"a100-sxm", "h100-sxm"}
    assert (tuple(sorted(mem)) if takes_lock else ()) == grid.mem_clocks_mhz
    assert tuple(sorted(sm)) == grid.sm_clocks_mhz
    assert limits is not None
    assert least_mw / 1000 == limits.least_w
    assert pynvml.nvmlDeviceGetPowerManagementLimit(handle) / 1000 == limits.found_w


def test_without_the_opt_in_no_memory_clock_is_listed_or_taken(driver: FakeDriver) -> None:
    gpu = open_nvml("nvml:0", timer=driver.timer)

    assert () == gpu.clock_grid().mem_clocks_mhz
    with pytest.raises(NotSupported, match="locks of the memory clock are off") as caught:
        gpu.request(OperatingPoint(mem_clock_mhz=9501))
    assert "memory_lock=on" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("point", "said"),
    [
        (OperatingPoint(sm_clock_mhz=1), "lists no SM clock of 1 MHz"),
        (OperatingPoint(mem_clock_mhz=1), "lists no memory clock of 1 MHz"),
        (OperatingPoint(power_limit_w=1.0), "takes no power limit of 1 W"),
        (OperatingPoint(power_limit_w=351.0), "takes no power limit of 351 W"),
    ],
)
def test_what_is_not_in_the_grid_is_refused_before_the_driver_hears_of_it(
    gpu: NvmlGpu, calls: CallLog, point: OperatingPoint, said: str
) -> None:
    with pytest.raises(NotSupported, match=said):
        gpu.request(point)

    assert [] == calls.sets()


def test_no_limit_above_the_one_found_is_ever_set_though_the_board_takes_more(
    driver: FakeDriver,
) -> None:
    first = open_nvml("nvml:0", timer=driver.timer)
    first.request(OperatingPoint(power_limit_w=250.0))

    second = open_nvml("nvml:0", timer=driver.timer)

    limits = second.clock_grid().power_limits
    assert limits is not None
    assert 250.0 == limits.found_w
    with pytest.raises(
        NotSupported, match=re.escape("up to the limit found, 250 W")[:5] + "|300 W"
    ):
        second.request(OperatingPoint(power_limit_w=300.0))


def test_what_lowers_power_goes_first_and_what_raises_it_last(gpu: NvmlGpu, calls: CallLog) -> None:
    grid = gpu.clock_grid()
    low = OperatingPoint(
        sm_clock_mhz=grid.sm_clocks_mhz[10],
        mem_clock_mhz=grid.mem_clocks_mhz[-1],
        power_limit_w=200.0,
    )
    gpu.request(low)
    assert [
        "SetPowerManagementLimit",
        "SetGpuLockedClocks",
        "SetMemoryLockedClocks",
    ] == calls.sets()

    gpu.request(AUTO)
    assert [
        "ResetMemoryLockedClocks",
        "ResetGpuLockedClocks",
        "SetPowerManagementLimit",
    ] == calls.sets()

    gpu.request(OperatingPoint(sm_clock_mhz=grid.sm_clocks_mhz[10]))
    calls.sets()
    gpu.request(OperatingPoint(sm_clock_mhz=grid.sm_clocks_mhz[30], power_limit_w=200.0))
    assert ["SetPowerManagementLimit", "SetGpuLockedClocks"] == calls.sets()


def test_only_knobs_that_change_are_touched_and_the_same_point_is_installed_anew(
    gpu: NvmlGpu, calls: CallLog
) -> None:
    clocks = gpu.clock_grid().sm_clocks_mhz
    gpu.request(AUTO)
    assert [] == calls.sets()

    gpu.request(OperatingPoint(sm_clock_mhz=clocks[10], power_limit_w=200.0))
    calls.sets()
    gpu.request(OperatingPoint(sm_clock_mhz=clocks[11], power_limit_w=200.0))
    assert ["SetGpuLockedClocks"] == calls.sets()

    gpu.request(OperatingPoint(sm_clock_mhz=clocks[11], power_limit_w=200.0))
    assert ["SetPowerManagementLimit", "SetGpuLockedClocks"] == calls.sets()


@pytest.mark.parametrize("code", [3, 13])
def test_a_lock_that_the_gpu_cannot_have_needs_no_reset(
    driver: FakeDriver, gpu: NvmlGpu, calls: CallLog, code: int
) -> None:
    gpu.request(OperatingPoint(mem_clock_mhz=gpu.clock_grid().mem_clocks_mhz[0]))
    driver.fail("nvmlDeviceResetMemoryLockedClocks", code)
    calls.sets()

    gpu.reset()
    gpu.request(AUTO)

    assert ["ResetMemoryLockedClocks"] == calls.sets(), "tried once, and then taken for free"


@pytest.mark.parametrize(
    ("function", "knob"),
    [
        ("nvmlDeviceSetGpuLockedClocks", "sm_clock_mhz"),
        ("nvmlDeviceSetMemoryLockedClocks", "mem_clock_mhz"),
        ("nvmlDeviceSetPowerManagementLimit", "power_limit_w"),
    ],
)
@pytest.mark.parametrize(
    ("code", "error"),
    [
        (2, NotSupported),
        (3, NotSupported),
        (4, NotPermitted),
        (10, DeviceError),
        (24, NotSupported),
        (29, DeviceError),
        (999, DeviceError),
    ],
)
def test_every_refusal_of_a_knob_is_one_clear_error(
    driver: FakeDriver,
    gpu: NvmlGpu,
    function: str,
    knob: str,
    code: int,
    error: type[JoulewiseError],
) -> None:
    grid = gpu.clock_grid()
    settings = {
        "sm_clock_mhz": OperatingPoint(sm_clock_mhz=grid.sm_clocks_mhz[5]),
        "mem_clock_mhz": OperatingPoint(mem_clock_mhz=grid.mem_clocks_mhz[0]),
        "power_limit_w": OperatingPoint(power_limit_w=200.0),
    }
    driver.fail(function, code)

    with pytest.raises(JoulewiseError, match=function) as caught:
        gpu.request(settings[knob])

    assert error is type(caught.value)


@pytest.mark.parametrize(("code", "given_back"), [(20, ["ResetGpuLockedClocks"]), (4, [])])
def test_a_knob_that_failed_is_set_again_by_the_next_request_unless_all_is_as_it_was(
    driver: FakeDriver, gpu: NvmlGpu, calls: CallLog, code: int, given_back: list[str]
) -> None:
    """What an account may not set is never looked at by the driver."""
    driver.fail("nvmlDeviceSetGpuLockedClocks", code, call_count=1)
    with pytest.raises(DeviceError):
        gpu.request(OperatingPoint(sm_clock_mhz=gpu.clock_grid().sm_clocks_mhz[5]))
    calls.sets()

    gpu.request(AUTO)

    assert given_back == calls.sets()


def test_a_driver_without_the_old_limit_call_is_asked_by_the_new_one_and_believed(
    driver: FakeDriver, gpu: NvmlGpu
) -> None:
    driver.fail("nvmlDeviceSetPowerManagementLimit", 13)
    gpu.request(OperatingPoint(power_limit_w=200.0))
    assert KnobState(power_limit_w=200.0) == gpu.knob_state()

    driver.fail("nvmlDeviceSetPowerManagementLimit_v2", 4)

    with pytest.raises(NotPermitted, match="nvmlDeviceSetPowerManagementLimit_v2"):
        gpu.request(OperatingPoint(power_limit_w=250.0))


def test_a_gpu_that_lists_no_clocks_is_not_guessed(driver: FakeDriver) -> None:
    driver.fail("nvmlDeviceGetSupportedMemoryClocks", 3)
    gpu = open_nvml("nvml:0", timer=driver.timer)

    with pytest.raises(NotSupported, match="lists no clocks that could be set"):
        gpu.clock_grid()
    assert gpu.sample().energy_j is not None


def test_a_board_without_a_power_limit_has_none_to_set(driver: FakeDriver) -> None:
    driver.fail("nvmlDeviceGetPowerManagementLimitConstraints", 3)
    gpu = open_nvml("nvml:0", timer=driver.timer)

    assert gpu.clock_grid().power_limits is None
    with pytest.raises(NotSupported, match="no power limit that can be set"):
        gpu.request(OperatingPoint(power_limit_w=200.0))
