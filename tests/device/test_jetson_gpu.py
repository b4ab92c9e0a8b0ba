"""A Jetson as a device: who it is, what it reads, which doubts go with it."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
from tests.jetson_kernel import KernelFiles

from joulewise.device.jetson_clock import is_held
from joulewise.device.jetson_gpu import open_jetson
from joulewise.device.jetson_nodes import FAKE_MARK
from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.errors import DeviceError, InputError, NotSupported
from joulewise.domain.points import OperatingPoint
from joulewise.domain.ports import AskedKeeper, Gpu, ReadBackGpu
from joulewise.simulator.jetson_layouts import layout_names

PTO = "/sys/kernel/debug/bpmp/debug/clk/nafll_gpc{}/pto_counter"


def kinds(board: KernelFiles) -> dict[CaveatKind, str]:
    return {one.kind: one.seen for one in board.open().identity.caveats}


def test_a_jetson_is_a_gpu_whose_settings_are_read_back() -> None:
    gpu: Gpu = KernelFiles("agx-orin-jp6").open()

    assert isinstance(gpu, ReadBackGpu)
    assert isinstance(gpu, AskedKeeper)
    assert not gpu.identity.is_in_process


@pytest.mark.parametrize("name", layout_names())
@pytest.mark.parametrize("account", ["root", "user"])
def test_sensors_read_with_and_without_root(name: str, account: str) -> None:
    board = KernelFiles(name, is_root=account == "root")
    board.timer.sleep(3.5)

    sample = board.open().sample()

    assert sample.time_s == 3.5
    assert sample.power_w == pytest.approx(
        math.fsum(rail.power_w for rail in sample.rails if rail.is_counted)
    )
    assert [rail.rail for rail in sample.rails] == [rail.rail for rail in board.layout.rails]
    assert sample.sm_clock_mhz == board.layout.sm_clocks_mhz[0]
    assert sample.temp_c is not None
    assert sample.busy_ratio == (None if board.layout.load_path is None else 0.0)
    assert sample.over_current_count == (0 if board.layout.has_over_current else None)
    assert (sample.energy_j, sample.power_limit_w, sample.other_process_count) == (None, None, None)


def test_there_is_no_energy_counter_and_it_says_so() -> None:
    gpu = KernelFiles("agx-orin-jp6").open()

    assert gpu.energy_counter_period_s is None
    with pytest.raises(NotSupported, match="no energy counter"):
        gpu.wait_for_energy_tick(1.0)


@pytest.mark.parametrize("duration_s", [-1.0, math.inf, math.nan])
def test_a_duration_that_nobody_can_wait_is_refused(duration_s: float) -> None:
    board = KernelFiles("agx-orin-jp6")
    with pytest.raises(InputError, match="duration"):
        board.open().wait(duration_s)
    board.open().wait(2.5)
    assert board.open().now_s() == 2.5


def test_the_doubts_of_a_board_say_whose_power_it_is() -> None:
    told = kinds(KernelFiles("agx-orin-jp6"))

    assert set(told) == {CaveatKind.SIMULATED_DEVICE, CaveatKind.ENERGY_OF_MODULE}
    seen = told[CaveatKind.ENERGY_OF_MODULE]
    assert "VDD_GPU_SOC + VDD_CPU_CV + VIN_SYS_5V0" in seen
    assert "carrier board" in seen


def test_a_power_mode_that_gates_and_caps_is_told() -> None:
    told = kinds(KernelFiles("agx-orin-jp5", power_mode=2))

    assert told[CaveatKind.TPCS_GATED] == "the power mode MODE_30W switches 4 TPCs of the GPU off"
    assert told[CaveatKind.POWER_MODE_CAPS] == (
        "the power mode MODE_30W caps the GPU clock at 624 MHz of 1300 MHz"
    )


def test_a_power_mode_that_caps_the_memory_is_told_with_what_there_is() -> None:
    board = KernelFiles("orin-nano-super-jp6", power_mode=0)
    seen = "the memory clock at 2133 MHz of 3199 MHz"
    assert seen in kinds(board)[CaveatKind.POWER_MODE_CAPS]

    # What the memory of this SoC runs at is known without debugfs, too.
    board.is_root = False
    assert seen in kinds(board)[CaveatKind.POWER_MODE_CAPS]
    board.files["/proc/device-tree/compatible"] = "nvidia,tegra999"
    told = kinds(board)[CaveatKind.POWER_MODE_CAPS]
    assert told.endswith("and the memory clock at 2133 MHz")

    assert CaveatKind.POWER_MODE_CAPS not in kinds(KernelFiles("orin-nano-super-jp6"))


def test_a_cap_that_is_as_high_as_the_memory_runs_is_none() -> None:
    # The 25 W mode of an Orin Nano Super: GPU 918 of 1020 MHz, memory 3199 of 3199.
    told = kinds(KernelFiles("orin-nano-super-jp6", power_mode=1))

    assert told[CaveatKind.POWER_MODE_CAPS] == (
        "the power mode 25W caps the GPU clock at 918 MHz of 1020 MHz"
    )


def test_a_board_is_simulated_only_where_its_tree_says_so() -> None:
    board = KernelFiles("agx-orin-jp6")
    del board.files[FAKE_MARK]

    assert not board.open().identity.is_simulated
    assert CaveatKind.SIMULATED_DEVICE not in kinds(board)


def test_doubts_of_who_opens_it_go_with_it() -> None:
    board = KernelFiles("agx-orin-jp6")
    mine = Caveat(kind=CaveatKind.UNCALIBRATED, seen="by hand")

    assert open_jetson("jetson", files=board, caveats=[mine]).identity.caveats[-1] == mine


def test_a_gpu_whose_rail_is_off_has_no_clock() -> None:
    board = KernelFiles("agx-orin-jp6")
    for cluster in (0, 1):
        board.files[PTO.format(cluster)] = "0"
    assert board.open().sample().sm_clock_mhz is None

    nano = KernelFiles("nano-jp4")
    nano.put("cur_freq", "0")
    assert nano.open().sample().sm_clock_mhz is None


def test_the_clock_that_is_counted_is_told_before_the_one_that_the_driver_believes() -> None:
    board = KernelFiles("agx-orin-jp6")
    board.put("cur_freq", "1020000000")
    board.files[PTO.format(0)] = "0"
    board.files[PTO.format(1)] = "1012345678"

    assert board.open().clocks_mhz()[0] == 1012
    board.is_root = False
    assert board.open().clocks_mhz()[0] == 1020


@pytest.mark.parametrize(
    ("asked_mhz", "measured_mhz"),
    [(1020, 990), (1020, 1019), (612, 611), (918, 897), (918, 915), (1300, 1295), (1300, 1293)],
)
def test_a_clock_measured_a_little_below_is_held(asked_mhz: int, measured_mhz: int) -> None:
    # Seen on boards: 42 logs of jetson-latency-lab, slmdvfs.
    assert is_held(measured_mhz, asked_mhz)
    assert not is_held(asked_mhz - 102, asked_mhz)


def test_a_busy_gpu_that_runs_a_little_below_is_taken_as_it_is() -> None:
    board = KernelFiles("orin-nano-super-jp6")
    board.work()
    board.is_following = False
    board.timer.tick = lambda now_s: board.run_at(990_000_000 if now_s > 0.007 else 306_000_000)
    gpu = board.open()

    gpu.request(OperatingPoint(sm_clock_mhz=1020))

    assert board.timer.now_s() < 0.02
    assert gpu.sample().sm_clock_mhz == 990


@pytest.mark.parametrize("name", ["agx-orin-jp6", "tx2-jp4"])
def test_symptom_requests_are_ignored_in_silence_after_an_over_current_event(name: str) -> None:
    # Forum, 361188: the settings read as asked for, and the hardware stays where it was.
    board = KernelFiles(name)
    board.work()
    board.is_following = False
    board.run_at(board.layout.sm_clocks_hz[2])
    gpu = board.open()
    found = gpu.knob_state()

    with pytest.raises(DeviceError, match=r"which is set, and the GPU runs at") as caught:
        gpu.request(OperatingPoint(sm_clock_mhz=board.layout.sm_clocks_mhz[-1]))

    assert "over-current" in (caught.value.hint or "")
    assert gpu.knob_state() == found
    assert gpu.sample().sm_clock_mhz == board.layout.sm_clocks_mhz[2]


def test_symptom_the_drivers_clock_says_what_was_asked_and_the_hardware_runs_slower() -> None:
    board = KernelFiles("agx-orin-jp6")
    board.work()
    board.is_following = False
    board.run_at(408_000_000)
    board.put("cur_freq", "1300500000")
    gpu = board.open()

    with pytest.raises(DeviceError, match="asked for a GPU clock of 1300 MHz"):
        gpu.request(OperatingPoint(sm_clock_mhz=1300))
    assert gpu.sample().sm_clock_mhz == 408


def test_a_gpu_that_runs_above_the_clock_asked_for_is_refused() -> None:
    board = KernelFiles("agx-orin-jp6")
    board.work()
    board.is_following = False
    board.run_at(1_300_500_000)
    board.timer.tick = lambda _now_s: board.run_at(1_122_000_000)

    with pytest.raises(DeviceError, match="runs at 1122 MHz"):
        board.open().request(OperatingPoint(sm_clock_mhz=816))


def test_a_clock_that_came_and_is_held_down_is_for_samples_to_tell() -> None:
    board = KernelFiles("agx-orin-jp6")
    board.work()
    board.is_following = False
    board.timer.tick = lambda _now_s: board.run_at(1_122_000_000)
    gpu = board.open()

    gpu.request(OperatingPoint(sm_clock_mhz=1300))

    assert gpu.sample().sm_clock_mhz == 1122


def test_the_clock_of_an_idle_gpu_need_not_move() -> None:
    board = KernelFiles("agx-orin-jp6")
    board.is_following = False

    board.open().request(OperatingPoint(sm_clock_mhz=1300))

    assert board.timer.now_s() == 0.0
    assert board.at_node("max_freq") == "1300500000"


def test_on_thor_whose_load_is_not_told_a_clock_that_does_not_come_is_for_samples_to_tell() -> None:
    board = KernelFiles("thor-jp7")
    board.is_following = False
    board.run_at(board.layout.sm_clocks_hz[0])
    gpu = board.open()

    gpu.request(OperatingPoint(sm_clock_mhz=board.layout.sm_clocks_mhz[-1]))

    assert gpu.sample().busy_ratio is None
    assert gpu.sample().sm_clock_mhz == board.layout.sm_clocks_mhz[0]


def test_symptom_every_nvml_query_is_not_supported_so_that_none_is_made() -> None:
    # HazyResearch/intelligence-per-watt 40: NVML starts, and energy is silently empty.
    code = (
        "import sys, joulewise.device.jetson_gpu; "
        "print(*[name for name in sys.modules if 'nvml' in name])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == []
    sample = KernelFiles("agx-orin-jp6").open().sample()
    assert sample.energy_j is None
    assert sample.power_w is not None
    assert sample.power_w > 0


def test_power_that_is_not_known_is_none_and_comes_back() -> None:
    board = KernelFiles("agx-orin-jp6")
    gpu = board.open()
    whole_w = gpu.sample().power_w
    folder = next(path for path in board.files if path.endswith("in1_label")).rpartition("/")[0]
    gone = board.remove(folder)

    assert gpu.sample().power_w is None
    # A driver that is loaded anew gives its folder another number.
    chip = folder.rpartition("/")[0]
    board.files.update({path.replace(folder, f"{chip}/hwmon9"): t for path, t in gone.items()})
    assert gpu.sample().power_w == pytest.approx(whole_w)


def test_a_total_that_is_gone_is_not_replaced_by_a_smaller_sum() -> None:
    # Thor's other rails make a sum as well, which lacks what only VIN carries.
    board = KernelFiles("thor-jp7")
    gpu = board.open()
    assert gpu.sample().power_w is not None
    path = next(one for one in board.files if one.endswith("power1_input"))
    board.remove(path.rpartition("/")[0])

    assert gpu.sample().power_w is None
    assert {rail.rail for rail in gpu.sample().rails} >= {"VDD_GPU", "VIN_SYS_5V0"}


def test_a_board_that_is_found_pinned_says_so() -> None:
    board = KernelFiles("agx-orin-jp6")
    assert board.open().board_state().off_stock is None

    board.pin_found(816_000_000, 816_000_000)
    state = board.open().board_state()

    assert state.off_stock == (
        "the GPU clock of NVIDIA Jetson AGX Orin Developer Kit is pinned at 816 MHz"
    )
    assert (state.sm_clock_floor_mhz, state.sm_clock_ceiling_mhz) == (306, 1300)
    assert state.stock_governor == state.governor == "nvhost_podgov"
