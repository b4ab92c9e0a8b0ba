"""A virtual board behind a tree of files: written files set it, and others tell what it does."""

from __future__ import annotations

import statistics
from itertools import pairwise
from pathlib import Path

import pytest
from tests.jetson_trees import UsersFiles, open_tree

from joulewise.domain.errors import DeviceLost, InputError, NotPermitted
from joulewise.domain.points import OperatingPoint
from joulewise.domain.workload import Dtype, KernelKind, KernelWork
from joulewise.simulator.jetson_layouts import layout, write_layout
from joulewise.simulator.jetson_session import TreeSession, open_tree_session
from joulewise.simulator.jetson_spec import spec_of
from joulewise.simulator.virtual import open_virtual

BOARD = "agx-orin-jp6"
NODE = "sys/class/devfreq/17000000.gpu"
EMC = "sys/kernel/debug/bpmp/debug/clk/emc"
GPU_SOC = "sys/bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon3"
SETTLED_S = 200.0


def _work(kernel: str, flop_count: float, traffic_bytes: float, wait_s: float = 0.0) -> KernelWork:
    return KernelWork(
        kernel=kernel,
        kind=KernelKind.OTHER,
        dtype=Dtype.FP32,
        flop_count=flop_count,
        traffic_bytes=traffic_bytes,
        compute_efficiency_ratio=0.6,
        memory_efficiency_ratio=0.8,
        core_activity_ratio=0.8,
        memory_activity_ratio=0.8,
        wait_s=wait_s,
    )


WORKS = (_work("compute", 2e10, 1e8), _work("memory", 1e8, 2e8), _work("host", 1e9, 1e6, 0.02))


class Tree:
    """A fake AGX Orin with its files at hand."""

    def __init__(self, root: Path, options: str = "noise=0") -> None:
        self.root = root
        self.session: TreeSession = open_tree_session(root, BOARD, WORKS, options=options)
        self.timer = self.session.timer
        self.runner = self.session.runner

    def write(self, path: str, text: str) -> None:
        (self.root / path).write_text(f"{text}\n", encoding="utf-8")

    def pin(self, clock_hz: int) -> None:
        self.write(f"{NODE}/min_freq", str(306_000_000))
        self.write(f"{NODE}/max_freq", str(clock_hz))
        self.write(f"{NODE}/min_freq", str(clock_hz))

    def said(self, path: str) -> int:
        return int((self.root / path).read_text(encoding="utf-8"))

    def clock_mhz(self) -> int:
        return self.said(f"{NODE}/cur_freq") // 1_000_000

    def loaded_clock_mhz(self, kernel: str = "compute") -> int:
        with self.runner.loop(kernel, run="test") as loop:
            loop.run_for(1.0)
            return self.clock_mhz()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tree")


@pytest.fixture
def tree(root: Path) -> Tree:
    """As it reads at rest, whatever the last test wrote."""
    write_layout(layout(BOARD), root)
    return Tree(root)


def test_a_new_clock_shows_after_the_lag_of_the_gpu_and_the_memorys_after_its_own(
    tree: Tree,
) -> None:
    with tree.runner.loop("compute", run="test") as loop:
        loop.run_for(1.0)
        tree.pin(612_000_000)
        loop.run_for(0.005)
        assert tree.clock_mhz() == 1300
        loop.run_for(0.001)
        assert tree.clock_mhz() == 612
        tree.write(f"{EMC}/mrq_rate_locked", "1")
        tree.write(f"{EMC}/rate", "2133000000")
        loop.run_for(0.008)
        assert tree.said(f"{EMC}/rate") == 3_199_000_000
        loop.run_for(0.002)
        assert tree.said(f"{EMC}/rate") == 2_133_000_000


def test_a_loop_sees_what_is_written_while_it_runs(tree: Tree) -> None:
    with tree.runner.loop("compute", run="test") as loop:
        times_s = []
        for clock_hz in (1_300_500_000, 306_000_000):
            tree.pin(clock_hz)
            loop.run_for(0.5)
            loop.begin_window(0)
            loop.run_for(1.0)
            timing = loop.end_window()
            times_s.append(timing.elapsed_s / timing.launch_count)
    assert times_s[1] > 3 * times_s[0]


@pytest.mark.parametrize("clock_mhz", [306, 714, 1300])
def test_the_tree_of_a_calibrated_board_is_its_virtual_device_to_the_last_launch(
    tree: Tree, clock_mhz: int
) -> None:
    virtual = open_virtual("virtual:agx-orin,noise=0", WORKS)
    virtual.gpu.request(OperatingPoint(sm_clock_mhz=clock_mhz))
    listed = dict(zip(layout(BOARD).sm_clocks_mhz, layout(BOARD).sm_clocks_hz, strict=True))
    tree.pin(listed[clock_mhz])
    times_s, powers_w = [], []
    for session in (virtual, tree.session):
        with session.runner.loop("compute", run="test") as loop:
            loop.run_for(SETTLED_S)
            loop.begin_window(0)
            loop.run_for(1.0)
            timing = loop.end_window()
            times_s.append(timing.elapsed_s / timing.launch_count)
            loop.run_for(1.0)
            if session is virtual:
                powers_w.append(virtual.gpu.sample().power_w or 0.0)
            else:
                powers_w.append(_module_w(tree))
    assert times_s[0] == pytest.approx(times_s[1], rel=1e-9)
    # Files tell whole millivolts and milliamperes.
    assert powers_w[0] == pytest.approx(powers_w[1], rel=2e-3)


def _module_w(tree: Tree) -> float:
    rails = (1, 2, 3)
    millis = ((f"{GPU_SOC}/in{one}_input", f"{GPU_SOC}/curr{one}_input") for one in rails)
    return sum(tree.said(volts) * tree.said(amperes) for volts, amperes in millis) * 1e-6


def test_rails_of_a_steady_load_repeat_as_often_as_a_slow_sensor_has_them(tree: Tree) -> None:
    with tree.runner.loop("compute", run="test") as loop:
        readings = []
        for number in range(60):
            # The load changes all the time, so that every new reading is another one.
            tree.pin((306_000_000, 1_300_500_000)[number % 3 == 0])
            loop.run_for(0.1)
            readings.append(tree.said(f"{GPU_SOC}/curr1_input"))
    repeats = sum(one == other for one, other in pairwise(readings)) / len(readings)
    # 26 to 54 % of tegrastats lines 0.1 s apart (dankang21/jetson-latency-lab).
    assert 0.26 <= repeats <= 0.54


def test_the_mean_of_rail_readings_is_the_power_that_was_drawn(tree: Tree) -> None:
    counter = tree.timer.virtual.counter
    with tree.runner.loop("compute", run="test") as loop:
        loop.run_for(SETTLED_S)
        start_j, readings_w = counter.energy_j, []
        for number in range(240):
            if number % 30 == 0:
                tree.pin((306_000_000, 1_300_500_000)[number % 60 == 0])
            loop.run_for(0.05)
            readings_w.append(_module_w(tree))
        drawn_w = (counter.energy_j - start_j) / 12.0
    assert statistics.fmean(readings_w) == pytest.approx(drawn_w, rel=0.02)


def test_governors_hold_the_clock_that_they_are_known_for(tree: Tree) -> None:
    tree.write(f"{NODE}/governor", "performance")
    tree.timer.sleep(0.1)
    assert tree.clock_mhz() == 1300
    tree.write(f"{NODE}/governor", "userspace")
    tree.timer.sleep(0.1)
    tree.write(f"{NODE}/userspace/set_freq", "816000000")
    assert tree.loaded_clock_mhz() == 816
    tree.write(f"{NODE}/governor", "nvhost_podgov")
    assert tree.loaded_clock_mhz() == 1300
    assert tree.loaded_clock_mhz("host") < 1300
    tree.timer.sleep(0.1)
    assert tree.clock_mhz() == 306


def test_a_governor_stays_within_bounds_that_somebody_set(tree: Tree) -> None:
    tree.write(f"{NODE}/max_freq", "816000000")
    assert tree.loaded_clock_mhz() == 816
    tree.write(f"{NODE}/min_freq", "510000000")
    tree.timer.sleep(0.1)
    assert tree.clock_mhz() == 510


def test_a_baseline_script_that_rewrites_the_governor_alone_stays_pinned(tree: Tree) -> None:
    tree.pin(816_000_000)
    tree.timer.sleep(0.1)
    tree.write(f"{NODE}/governor", "nvhost_podgov")
    assert tree.loaded_clock_mhz() == 816


def test_a_board_that_was_pinned_before_is_found_so(tmp_path: Path) -> None:
    write_layout(layout(BOARD), tmp_path)
    for bound in ("min_freq", "max_freq"):
        (tmp_path / NODE / bound).write_text("714000000\n", encoding="utf-8")
    tree = Tree(tmp_path)
    assert tree.clock_mhz() == 714
    assert tree.said(f"{NODE}/min_freq") == 714_000_000


def test_the_cap_of_a_power_mode_holds_clock_and_memory(tmp_path: Path) -> None:
    write_layout(layout(BOARD), tmp_path, power_mode=1)
    tree = Tree(tmp_path)
    with tree.runner.loop("memory", run="test") as loop:
        loop.run_for(1.0)
        assert tree.clock_mhz() == 408
        assert tree.said(f"{EMC}/rate") == 2_133_000_000


def test_load_heat_and_the_counted_clock_are_told(tree: Tree) -> None:
    load, zone = "sys/devices/platform/gpu.0/load", "sys/class/thermal/thermal_zone1/temp"
    counted = "sys/kernel/debug/bpmp/debug/clk/nafll_gpc0/pto_counter"
    assert tree.said(load) == 0
    cold = tree.said(zone)
    with tree.runner.loop("compute", run="test") as loop:
        loop.run_for(SETTLED_S)
        assert 900 <= tree.said(load) <= 1000
        assert tree.said(zone) > cold + 5000
        assert 0.97 * 1_300_500_000 <= tree.said(counted) < 1_300_500_000


def test_a_lost_board_leaves_its_tree_and_time_goes_on(tmp_path: Path) -> None:
    tree = Tree(tmp_path, "noise=0,lost_after=10")
    tree.timer.sleep(4.0)
    assert (tmp_path / NODE).exists()
    tree.timer.sleep(8.0)
    assert not (tmp_path / NODE).exists()
    assert tree.timer.now_s() == pytest.approx(12.0)
    tree.timer.sleep(1.0)
    assert tree.timer.now_s() == pytest.approx(13.0)
    with pytest.raises(DeviceLost), tree.runner.loop("compute", run="test"):
        pass


def test_noise_goes_by_its_seed(tmp_path: Path) -> None:
    times_s = []
    for number, options in enumerate(("seed=1", "seed=1", "seed=2", "noise=0")):
        tree = Tree(tmp_path / str(number), options)
        with tree.runner.loop("compute", run="test") as loop:
            loop.begin_window(0)
            loop.run_for(1.0)
            timing = loop.end_window()
        times_s.append(timing.elapsed_s / timing.launch_count)
    assert times_s[0] == times_s[1]
    assert len(set(times_s)) == 3


def test_a_board_without_physics_of_its_own_is_an_orin_stretched_to_its_clocks() -> None:
    orin, nano = spec_of(layout(BOARD)), spec_of(layout("nano-jp4"))
    assert nano.grid.sm_clocks_mhz == layout("nano-jp4").sm_clocks_mhz
    assert not nano.is_calibrated
    assert nano.memory_states[-1].bandwidth_bytes_per_s == pytest.approx(
        orin.memory_states[-1].bandwidth_bytes_per_s
    )
    tops = [
        spec.peak_rate(Dtype.FP32).flop_count_per_cycle * spec.grid.sm_clocks_mhz[-1]
        for spec in (orin, nano)
    ]
    assert tops[0] == pytest.approx(tops[1])


def test_what_a_user_may_not_do_is_refused_and_debugfs_is_not_there_for_him(
    tmp_path: Path,
) -> None:
    gpu = open_tree(tmp_path, BOARD, WORKS, files=UsersFiles(tmp_path)).gpu
    assert gpu.sample().mem_clock_mhz is None
    assert gpu.sample().power_w is not None
    with pytest.raises(NotPermitted):
        gpu.request(OperatingPoint(sm_clock_mhz=612))
    assert (tmp_path / NODE / "max_freq").read_text(encoding="utf-8") == "1300500000\n"


def test_a_folder_without_a_board_and_another_board_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no fake board"):
        open_tree_session(tmp_path)
    open_tree_session(tmp_path, BOARD)
    assert open_tree_session(tmp_path).timer.layout.name == BOARD
    with pytest.raises(InputError, match="agx-orin-jp6"):
        open_tree_session(tmp_path, "thor-jp7")


def test_a_power_mode_that_switches_tpcs_off_is_more_than_a_cap_of_the_clock(
    tmp_path: Path,
) -> None:
    times_s = []
    for mode in (0, 2):
        write_layout(layout(BOARD), tmp_path / str(mode), power_mode=mode)
        tree = Tree(tmp_path / str(mode))
        tree.pin(408_000_000)
        with tree.runner.loop("compute", run="test") as loop:
            loop.run_for(1.0)
            loop.begin_window(0)
            loop.run_for(1.0)
            timing = loop.end_window()
        times_s.append(timing.elapsed_s / timing.launch_count)
    # Half of the TPCs.
    assert times_s[1] / times_s[0] == pytest.approx(2.0, rel=0.05)


def test_the_mask_of_an_orin_nano_is_that_of_its_whole_gpu() -> None:
    assert layout("orin-nano-super-jp6").living_tpc_ratio(240) == 1.0
    assert layout(BOARD).living_tpc_ratio(240) == 0.5
    assert layout("nano-jp4").living_tpc_ratio(0) == 1.0
