"""Public reports about NVIDIA's embedded boards, each with tests named after its symptom.

Numbers are those of the list that the adapter was written by. A test without a file is in this
one; a check here sees to it that all of them exist.

| # | report | symptom | tests |
|---|---|---|---|
| 1 | jetson_stats 894 | clock dropped and load pinned to 0 where two clocks are printed | device/test_tegrastats.py::test_symptom_clock_dropped_and_load_pinned_to_0_by_half_a_match |
| 2 | jetson_stats 889 | no load all session, for the node came after the service | device/test_jetson_nodes.py::test_symptom_no_gpu_all_session_because_its_node_came_after_the_service |
| 3 | intelligence-per-watt 40 | energy silently empty: NVML starts and supports nothing | device/test_jetson_gpu.py::test_symptom_every_nvml_query_is_not_supported_so_that_none_is_made, test_symptom_energy_silently_empty_is_a_doubt_of_the_device, device/test_tegrastats_log.py::test_a_log_without_rails_has_no_energy_and_says_why |
| 4 | jetson_stats 885 | GPU not detected on Thor, which has other nodes and no load | device/test_jetson_nodes.py::test_symptom_gpu_not_detected_on_thor_whose_nodes_are_gpc_and_nvd, device/test_jetson_load.py::test_symptom_thor_at_rest_all_day_for_it_has_no_load_file |
| 5 | jetson_stats 344 | "all" power of an AGX Orin was its 5 V rail alone | device/test_jetson_rails.py::test_symptom_all_power_of_an_agx_orin_was_its_5v_rail_alone, device/test_tegrastats_log.py::test_symptom_energy_silently_of_two_rails_of_four |
| 6 | jetson_stats 51 | total counts the input and the rails behind it | device/test_jetson_rails.py::test_symptom_energy_doubled_where_the_input_is_added_to_the_rails_behind_it |
| 7 | jetson_stats 900 | Thor's input missing, a USB supply counted | device/test_jetson_rails.py::test_symptom_input_of_thor_missing_and_a_usb_supply_counted_as_a_rail |
| 8 | jetson_stats 362 | two GPUs shown where there is one | device/test_tegrastats.py::test_symptom_two_gpus_shown_where_gr3d2_is_the_second_cluster_of_one |
| 9 | jetson_stats 187 | jetson_clocks "inactive" while clocks are at their highest | device/test_jetson_state.py::test_symptom_jetson_clocks_inactive_while_clocks_are_maxed_and_cores_offline |
| 10 | axol 107, 220 | MAXN never reached; mode 0 is not MAXN | device/test_jetson_modes.py::test_symptom_mode_asked_for_but_cancelled_at_the_prompt_for_a_reboot, device/test_jetson_modes.py::test_symptom_maxn_never_reached_for_mode_0_of_a_super_board_is_15_watts |
| 11 | meta-tegra 1864, 1268, 1613; jetpack-nixos 202 | a mask that cannot be written (errno 16, 19) takes the whole mode with it; no list of clocks | device/test_jetson_control.py::test_symptom_mode_without_its_clock_because_its_mask_could_not_be_written, device/test_jetson_control.py::test_symptom_errno_at_a_write_is_told_in_the_kernels_words_and_nothing_stays_set, device/test_jetson_modes.py::test_symptom_mask_of_the_mode_was_never_written_so_nothing_is_gated, test_symptom_mask_of_a_mode_that_is_no_such_device_reads_as_not_told, device/test_jetson_devfreq.py::test_symptom_no_available_frequencies_in_the_node |
| 12 | forum 361188 | the driver's clock is a wish, and requests are ignored after an over-current event | device/test_jetson_gpu.py::test_symptom_requests_are_ignored_in_silence_after_an_over_current_event, device/test_jetson_gpu.py::test_symptom_the_drivers_clock_says_what_was_asked_and_the_hardware_runs_slower |
| 13 | Jover 3 | asked for 950 MHz, got 998.4 | device/test_jetson_control.py::test_symptom_asked_for_950_mhz_and_got_998_the_nearest_that_is_listed |
| 14 | autoware_universe 11326 | no load on Orin | device/test_jetson_load.py::test_symptom_load_absent_on_orin_where_it_moved_below_platform |
| 15 | datadog-agent 29925; beszel 1631; WendyOS 1316 | parsers broke at "mW"; Thor without utilisation, with another rail and limits beside temperatures | device/test_tegrastats.py::test_symptom_parser_broke_when_milliwatts_came_and_when_they_went, device/test_tegrastats.py::test_symptom_no_utilisation_on_thor_is_not_a_gpu_at_rest, test_symptom_rail_renamed_and_limits_beside_temperatures_on_thor |
| 16 | forum 158055 | "over-current" that was a sagging supply | device/test_jetson_load.py::test_symptom_throttled_due_to_over_current_which_was_a_sagging_supply |
| 17 | forum 200883 | the parts make up far less than the input | device/test_jetson_rails.py::test_symptom_gpu_and_soc_rails_are_half_of_what_the_module_draws |
| 18 | forum 366461 | a load behind the shunt inflates Thor's input | device/test_jetson_rails.py::test_symptom_load_behind_the_shunt_of_thor_counts_and_that_is_said |
| 19 | DIGITS 1787; jetson-fan-ctl 17 | permission denied; an empty path | device/test_jetson_control.py::test_symptom_permission_denied_setting_the_gpu_clock, device/test_jetson_control.py::test_symptom_empty_path_where_a_boards_node_is_not_there |
| 20 | Isaac-GR00T 379 | first work after idle is slow, for the clock has to climb | test_symptom_first_work_after_idle_is_slow_and_in_no_window |
| 21 | code of zeus and others | rails by part of their name, a voltage as a power, memory as GPU, governor by its place in a list | test_symptom_rails_mapped_by_part_of_their_name, test_symptom_a_voltage_taken_for_a_power, test_symptom_power_of_the_memory_taken_for_the_gpus, test_symptom_governor_chosen_by_its_place_in_the_list |

jetpack-nixos 202 stands beside 1864 in the list without its own words; it has the same tests.
Nothing is left out: each of them concerns control or measurement.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path

import pytest
from tests.jetson_kernel import KernelFiles
from tests.jetson_trees import open_tree

from joulewise.device.jetson_rails import find_rails, module_power_w, rail_scope
from joulewise.device.tegrastats import parse_line
from joulewise.device.tegrastats_log import line_power_w
from joulewise.domain.caveats import CaveatKind
from joulewise.domain.measurement import LoopTiming
from joulewise.domain.points import AUTO, OperatingPoint, Touched
from joulewise.domain.ports import Gpu, KernelLoop, KernelRunner
from joulewise.domain.workload import Dtype, KernelKind, KernelWork
from joulewise.measure.cell import measure_cell
from joulewise.measure.settings import MeasureSettings
from joulewise.simulator.jetson_layout_files import rail_figures
from joulewise.simulator.jetson_layouts import layout, layout_names

TESTS = Path(__file__).resolve().parents[1]
WORK = KernelWork(
    kernel="policy",
    kind=KernelKind.OTHER,
    dtype=Dtype.FP16,
    flop_count=2e10,
    traffic_bytes=1e8,
    compute_efficiency_ratio=0.6,
    memory_efficiency_ratio=0.8,
    core_activity_ratio=0.5,
    memory_activity_ratio=0.5,
)
CLIMB_S = 0.3


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
    assert [*range(1, 22)] == sorted(reports())
    missing = [
        name
        for tests in reports().values()
        for path, _, name in (test.rpartition("::") for test in tests or ["none"])
        if name not in functions(TESTS / path if path else Path(__file__))
    ]

    assert [] == missing


@pytest.mark.parametrize("lost", ["hwmon", "in1_label"])
def test_symptom_energy_silently_empty_is_a_doubt_of_the_device(lost: str) -> None:
    # intelligence-per-watt 40: what is never read is not missing to whoever counts what is there.
    board = KernelFiles("agx-orin-jp6")
    for path in [path for path in board.files if lost in path]:
        del board.files[path]

    gpu = board.open()

    assert (gpu.sample().power_w, gpu.sample().energy_j) == (None, None)
    [doubt] = [one for one in gpu.identity.caveats if one.kind is CaveatKind.ENERGY_OF_MODULE]
    assert "tells no power of its module, and so no energy: " in doubt.seen
    assert ("VDD_GPU_SOC" in doubt.seen) == (lost == "in1_label")
    assert "/sys/class/hwmon" in doubt.helps


@pytest.mark.parametrize("name", ["agx-orin-jp6", "xavier-nx-jp5"])
def test_symptom_mask_of_a_mode_that_is_no_such_device_reads_as_not_told(name: str) -> None:
    # meta-tegra 1268: errno 19 at a mask. What the table asks for is all that is known then.
    board = KernelFiles(name)
    masks = [path for path in board.files if path.endswith("_pg_mask")]
    assert masks
    for path in masks:
        del board.files[path]
    gpu = board.open()
    gpu.request(OperatingPoint(sm_clock_mhz=board.layout.sm_clocks_mhz[0]))

    assert gpu.board_state().gated_tpc_count == 0
    assert gpu.sample().sm_clock_mhz == board.layout.sm_clocks_mhz[0]


def test_symptom_rail_renamed_and_limits_beside_temperatures_on_thor() -> None:
    # WendyOS 1316: the rail of the GPU has another name than on Orin, sensors are written in
    # lower case, and a limit may follow.
    line = parse_line(
        "RAM 1/2MB EMC_FREQ 0%@2750 GR3D_FREQ @[314,314,314] cpu@37.343C/112C gpu@38.875C/112.5C "
        "tj@38.875C VDD_GPU 1962mW/1962mW VDD_CPU_SOC_MSS 5887mW/5887mW VIN_SYS_5V0 5635mW/5635mW "
        "VIN 19780mW/19780mW"
    )

    assert {one.sensor: one.temp_c for one in line.temps} == {
        "cpu": 37.343,
        "gpu": 38.875,
        "tj": 38.875,
    }
    assert line_power_w(line, rail_scope(line.labels)) == 19.78
    assert line.gr3d is not None
    assert line.gr3d.busy_ratio is None


def test_symptom_rails_mapped_by_part_of_their_name() -> None:
    # zeus: a GPU that feeds from VDD_CPU_GPU_CV was its CPU, an AGX Orin had no total for
    # VIN_SYS_5V0 has no "_in", and Thor's VIN was none.
    for name in layout_names():
        there = [rail.rail for rail in layout(name).rails]
        assert rail_scope(there).counted == {r.rail for r in layout(name).rails if r.is_counted}
    assert rail_scope(("VDD_CPU_GPU_CV", "VDD_SOC", "VDD_IN")).counted == {"VDD_IN"}
    for other in ("VIN_SYS_5V0", "VDD_IN_2", "MVIN", "vdd_in", "GPU"):
        assert rail_scope((other,)).counted == set()


def test_symptom_a_voltage_taken_for_a_power() -> None:
    # A tool reads inN_input (mV) as a power in mW and currN_input (mA) as a voltage.
    board = KernelFiles("orin-nano-super-jp6")
    rail = next(one for one in board.layout.rails if one.rail == "VDD_IN")
    figures = rail_figures(board.layout, rail, 10.0)
    board.files |= figures
    volts, amperes = (
        int(next(text for path, text in figures.items() if path.endswith(end))) / 1000
        for end in (f"in{rail.index}_input", f"curr{rail.index}_input")
    )
    reader = find_rails(board)
    assert reader is not None

    assert module_power_w(reader.read()) == pytest.approx(volts * amperes)
    assert module_power_w(reader.read()) == pytest.approx(10.0, rel=1e-3)
    assert min(abs(volts - 10.0), abs(amperes - 10.0)) > 1.0


def test_symptom_power_of_the_memory_taken_for_the_gpus() -> None:
    # A tool takes VDDQ, the memory's, for the GPU of an Orin.
    board = KernelFiles("agx-orin-jp6")
    before_w = board.open().sample().power_w
    memory = next(one for one in board.layout.rails if one.rail.startswith("VDDQ"))
    board.files |= rail_figures(board.layout, memory, 25.0)

    sample = board.open().sample()

    assert sample.power_w == before_w
    assert {one.rail: one.is_counted for one in sample.rails}[memory.rail] is False


def test_symptom_governor_chosen_by_its_place_in_the_list() -> None:
    # GearDVFS: the second of the list was userspace on one release, simple_ondemand on another.
    for order in permutations(("nvhost_podgov", "userspace", "simple_ondemand", "performance")):
        board = KernelFiles("agx-orin-jp6")
        board.put("available_governors", " ".join(order))
        board.put("governor", "userspace")
        gpu = board.open()

        assert gpu.board_state().stock_governor == "nvhost_podgov"
        gpu.request(OperatingPoint(sm_clock_mhz=612))
        assert board.at_node("governor") == "userspace"
        # Of a dead holder who did not say what it had found.
        board.open().reset(Touched(knobs=frozenset({"sm_clock_mhz"})))
        assert board.at_node("governor") == "nvhost_podgov"


@dataclass(slots=True)
class ClimbingLoop:
    """Work that takes twice as long in its first moments, for the clock has to climb."""

    loop: KernelLoop
    loaded_s: float = 0.0
    begin_s: float = 0.0

    def begin_window(self, window: int) -> None:
        self.begin_s = self.loaded_s
        self.loop.begin_window(window)

    def run_for(self, duration_s: float) -> None:
        self.loaded_s += duration_s
        self.loop.run_for(duration_s)

    def end_window(self) -> LoopTiming:
        timing = self.loop.end_window()
        lost_s = max(0.0, min(self.loaded_s, CLIMB_S) - self.begin_s)
        return replace(timing, elapsed_s=timing.elapsed_s + lost_s)


@dataclass(frozen=True, slots=True)
class ClimbingRunner:
    runner: KernelRunner

    @property
    def kernels(self) -> tuple[str, ...]:
        return self.runner.kernels

    @contextmanager
    def loop(self, kernel: str, *, run: str) -> Iterator[ClimbingLoop]:
        with self.runner.loop(kernel, run=run) as loop:
            yield ClimbingLoop(loop)


@dataclass(frozen=True, slots=True)
class NoLease:
    gpu: Gpu

    def apply(self, point: OperatingPoint) -> None:
        self.gpu.request(point)

    def release(self) -> None:
        self.gpu.reset()


def test_symptom_first_work_after_idle_is_slow_and_in_no_window(tmp_path: Path) -> None:
    # Isaac-GR00T 379, on Thor; jetson-latency-lab: 3.88 ms back to back, 6.33 ms after a rest.
    session = open_tree(tmp_path, "thor-jp7", (WORK,))
    climbing = replace(session, runner=ClimbingRunner(session.runner))

    def at_once_s(runner: KernelRunner | ClimbingRunner) -> float:
        with runner.loop("policy", run="at once") as loop:
            loop.begin_window(0)
            loop.run_for(1.0)
            timing = loop.end_window()
        return timing.elapsed_s / timing.launch_count

    settings = MeasureSettings(window_s=1.0, window_count=1, soak_s=0.0)
    cell = measure_cell(climbing, NoLease(session.gpu), "policy", AUTO, run="r", settings=settings)

    assert at_once_s(climbing.runner) > 1.25 * at_once_s(session.runner)
    assert cell.windows[0].time_s == pytest.approx(at_once_s(session.runner), rel=1e-3)
