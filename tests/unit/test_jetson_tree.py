"""Control files of a fake board, taken as a kernel would take them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulewise.simulator.jetson_layouts import layout, write_layout
from joulewise.simulator.jetson_tree import Bounds, Controls, TreeControls, TreeFiles, listed_from

LISTED_HZ = (306_000_000, 408_000_000, 510_000_000, 1_300_500_000)
NODE = "/sys/class/devfreq/17000000.gpu"
EMC = "/sys/kernel/debug/bpmp/debug/clk/emc"
LOW_HZ = 204_000_000

texts = st.one_of(
    st.integers(0, 2_000_000_000).map(str),
    st.sampled_from([str(clock) for clock in LISTED_HZ]),
    st.sampled_from(["", "13", "fast", "-1", "1.5e9", "\0"]),
)


class Tree:
    """A fake AGX Orin, whose control files are read now and then."""

    def __init__(self, root: Path, name: str = "agx-orin-jp6") -> None:
        write_layout(layout(name), root)
        self.files = TreeFiles(root)
        self.controls = TreeControls(self.files, layout(name))
        self.time_s = 0.0

    def write(self, path: str, text: str) -> None:
        self.files.place(path).write_text(text, encoding="utf-8")

    def said(self, path: str) -> str | None:
        return self.files.read(path)

    def read(self, rate_hz: int = LOW_HZ) -> Controls:
        self.time_s += 0.01
        return self.controls.read(self.time_s, rate_hz)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tree")


@pytest.fixture
def tree(root: Path) -> Tree:
    """As it reads at rest, whatever the last test wrote."""
    return Tree(root)


@settings(max_examples=40)
@given(writes=st.lists(st.tuples(st.sampled_from(["min_freq", "max_freq"]), texts), max_size=12))
def test_whatever_is_written_bounds_stay_listed_and_in_order(
    writes: list[tuple[str, str]],
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for bound, clock_hz in (("min_freq", LISTED_HZ[0]), ("max_freq", LISTED_HZ[-1])):
            (folder / bound).write_text(f"{clock_hz}\n", encoding="utf-8")
        bounds = Bounds(TreeFiles(folder), "", LISTED_HZ)
        for bound, text in writes:
            (folder / bound).write_text(text, encoding="utf-8")
            before = bounds.hz
            bounds.read()
            assert bounds.hz[0] <= bounds.hz[1]
            assert set(bounds.hz) <= set(LISTED_HZ)
            if text.isdecimal():
                in_force = bounds.hz[bound == "max_freq"]
                assert (folder / bound).read_text(encoding="utf-8").strip() == str(in_force)
            else:
                assert bounds.hz == before


def test_a_clock_that_is_not_listed_becomes_the_next_one_and_reads_so(tree: Tree) -> None:
    tree.write(f"{NODE}/max_freq", "950000000")
    assert tree.read().sm_most_mhz == 1020
    assert tree.said(f"{NODE}/max_freq") == "1020000000"
    tree.write(f"{NODE}/max_freq", "1300000000")
    assert tree.read().sm_most_mhz == 1300
    assert tree.said(f"{NODE}/max_freq") == "1300500000"


def test_a_lower_bound_above_the_upper_one_is_refused_and_reads_as_before(tree: Tree) -> None:
    tree.write(f"{NODE}/max_freq", "612000000\n")
    tree.read()
    tree.write(f"{NODE}/min_freq", "816000000\n")
    controls = tree.read()
    assert (controls.sm_least_mhz, controls.sm_most_mhz) == (306, 612)
    assert tree.said(f"{NODE}/min_freq") == "306000000"


@pytest.mark.parametrize("torn", ["", "\0\0", "-1", "x"])
def test_a_torn_or_empty_file_changes_nothing(tree: Tree, torn: str) -> None:
    tree.write(f"{NODE}/min_freq", "510000000")
    before = tree.read()
    for path in (f"{NODE}/governor", f"{NODE}/max_freq", f"{EMC}/rate", f"{EMC}/mrq_rate_locked"):
        tree.write(path, torn)
    assert tree.read() == before


def test_a_governor_that_there_is_not_is_refused(tree: Tree) -> None:
    tree.write(f"{NODE}/governor", "schedutil")
    assert tree.read().governor == "nvhost_podgov"
    assert tree.said(f"{NODE}/governor") == "nvhost_podgov"


def test_set_freq_is_there_only_under_the_governor_that_listens_to_it(tree: Tree) -> None:
    asked = f"{NODE}/userspace/set_freq"
    assert tree.said(asked) is None
    tree.write(f"{NODE}/governor", "userspace\n")
    assert tree.read().sm_asked_mhz == 1300
    tree.write(asked, "600000000")
    assert tree.read().sm_asked_mhz == 612
    tree.write(f"{NODE}/governor", "performance\n")
    assert tree.read().sm_asked_mhz is None
    assert tree.said(asked) is None


def test_a_memory_clock_is_locked_at_what_was_asked_for_in_either_order(tree: Tree) -> None:
    assert tree.read().mem_locked_mhz is None
    tree.write(f"{EMC}/rate", "2133000000")
    tree.read()
    tree.write(f"{EMC}/mrq_rate_locked", "1")
    assert tree.read().mem_locked_mhz == 2133
    tree.write(f"{EMC}/rate", "665600000")
    assert tree.read(2_133_000_000).mem_locked_mhz == 665
    tree.write(f"{EMC}/mrq_rate_locked", "0")
    assert tree.read(665_600_000).mem_locked_mhz is None


def test_a_memory_clock_locked_without_a_rate_stays_where_it_is(tree: Tree) -> None:
    tree.write(f"{EMC}/mrq_rate_locked", "1")
    assert tree.read(2_133_000_000).mem_locked_mhz == 2133
    assert tree.read(3_199_000_000).mem_locked_mhz == 2133


def test_a_rate_that_is_put_back_with_the_lock_taken_off_locks_nothing(tree: Tree) -> None:
    tree.write(f"{EMC}/mrq_rate_locked", "1")
    tree.write(f"{EMC}/rate", "665600000")
    tree.read()
    tree.write(f"{EMC}/rate", "3199000000")
    tree.write(f"{EMC}/mrq_rate_locked", "0")
    assert tree.read().mem_locked_mhz is None
    tree.write(f"{EMC}/mrq_rate_locked", "1")
    assert tree.read(2_133_000_000).mem_locked_mhz == 2133


def test_an_orin_locks_its_memory_at_four_rates_only(tree: Tree) -> None:
    # dankang21/jetson-latency-lab, repro/emc_lockable_set.txt.
    locked_at_mhz = {408: 665, 1062: 2133, 1600: 2133, 1866: 2133, 2400: 3199, 3200: 3199, 200: 204}
    tree.write(f"{EMC}/mrq_rate_locked", "1")
    locked = {}
    for asked_mhz in locked_at_mhz:
        tree.write(f"{EMC}/rate", str(asked_mhz * 1_000_000))
        locked[asked_mhz] = tree.read().mem_locked_mhz
    assert locked == locked_at_mhz


def test_the_memory_of_thor_is_locked_by_the_bounds_of_its_node(tmp_path: Path) -> None:
    tree = Tree(tmp_path, "thor-jp7")
    node = "/sys/class/devfreq/emc"
    assert tree.read().mem_locked_mhz is None
    tree.write(f"{node}/min_freq", "2750000000")
    tree.write(f"{node}/max_freq", "2750000000")
    assert tree.read().mem_locked_mhz == 2750
    tree.controls.show_rate(2_750_000_000)
    assert tree.said(f"{node}/cur_freq") == "2750000000"


def test_the_memory_of_a_nano_is_locked_by_its_override(tmp_path: Path) -> None:
    tree = Tree(tmp_path, "nano-jp4")
    clock = "/sys/kernel/debug/clk/override.emc"
    tree.write(f"{clock}/clk_update_rate", "1600000000")
    tree.write(f"{clock}/clk_state", "1")
    assert tree.read().mem_locked_mhz == 1600
    tree.controls.show_rate(1_600_000_000)
    assert tree.said(f"{clock}/clk_rate") == "1600000000"
    assert tree.said(f"{clock}/clk_update_rate") == "1600000000"


def test_sensors_of_a_folder_that_is_gone_are_not_made_anew(tmp_path: Path) -> None:
    files = TreeFiles(tmp_path)
    files.show("/gone/cur_freq", "1")
    files.put_back("/gone/min_freq", "1")
    assert not list(tmp_path.iterdir())


@given(asked=st.integers(0, 2_000_000_000))
def test_rounding_goes_up_to_a_listed_clock(asked: int) -> None:
    rounded = listed_from(LISTED_HZ, asked)
    assert rounded in LISTED_HZ
    assert rounded >= asked or rounded == LISTED_HZ[-1]
    assert not any(asked <= clock < rounded for clock in LISTED_HZ)
