"""Trees of files of nine boards: what public material says of each, and what adapters trip over."""

from __future__ import annotations

import functools
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from joulewise.domain.errors import InputError
from joulewise.simulator.jetson_layout import EmcControl, RailSensor
from joulewise.simulator.jetson_layout_files import layout_links, rail_folder
from joulewise.simulator.jetson_layouts import (
    TreeMarker,
    layout,
    layout_names,
    read_marker,
    tree_layout,
    write_layout,
    write_marker,
)

# Labels as tegrastats prints them.
SM_CLOCKS_MHZ = {
    "nano-jp4": (76, 153, 230, 307, 384, 460, 537, 614, 691, 768, 844, 921),
    "tx2-jp4": (114, 216, 318, 420, 522, 624, 726, 854, 930, 1032, 1122, 1236, 1300),
    "agx-xavier-jp5": (114, 216, 318, 420, 522, 624, 675, 828, 905, 1032, 1198, 1236, 1338, 1377),
    "agx-orin-jp5": (114, 216, 318, 420, 522, 624, 726, 828, 930, 1032, 1134, 1236, 1300),
    "agx-orin-jp6": (306, 408, 510, 612, 714, 816, 918, 1020, 1122, 1224, 1300),
    "agx-orin-jp7": (306, 408, 510, 612, 714, 816, 918, 1020, 1122, 1224, 1300),
    "orin-nano-super-jp6": (306, 408, 510, 612, 714, 816, 918, 1020),
}
NODES = {
    "nano-jp4": "/sys/devices/gpu.0/devfreq/57000000.gpu",
    "tx2-jp4": "/sys/devices/gpu.0/devfreq/17000000.gp10b",
    "xavier-nx-jp5": "/sys/devices/gpu.0/devfreq/17000000.gv11b",
    "agx-xavier-jp5": "/sys/devices/17000000.gv11b/devfreq/17000000.gv11b",
    "agx-orin-jp5": "/sys/devices/17000000.ga10b/devfreq_dev",
    "agx-orin-jp6": "/sys/devices/platform/17000000.gpu/devfreq_dev",
    "agx-orin-jp7": "/sys/devices/platform/bus@0/17000000.gpu/devfreq_dev",
    "orin-nano-super-jp6": "/sys/devices/platform/17000000.gpu/devfreq/17000000.gpu",
    "thor-jp7": "/sys/class/devfreq/gpu-gpc-0",
}


Trees = Callable[[str], Path]


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Trees:
    """One tree of each board, for tests that only look."""

    @functools.cache
    def tree(name: str) -> Path:
        root = tmp_path_factory.mktemp(name)
        write_layout(layout(name), root)
        return root

    return tree


def _said(root: Path, path: str) -> str:
    return (root / path.lstrip("/")).read_text(encoding="utf-8").strip("\0\n")


def test_there_are_nine_boards_and_jetpacks() -> None:
    assert layout_names() == (
        *("nano-jp4", "tx2-jp4", "xavier-nx-jp5", "agx-xavier-jp5", "agx-orin-jp5"),
        *("agx-orin-jp6", "agx-orin-jp7", "orin-nano-super-jp6", "thor-jp7"),
    )
    assert {layout(name).name for name in layout_names()} == set(layout_names())


def test_lists_that_were_published_are_those_and_others_say_that_they_are_filled_in() -> None:
    assert {
        name: layout(name).sm_clocks_mhz
        for name in layout_names()
        if layout(name).is_list_published
    } == SM_CLOCKS_MHZ


@pytest.mark.parametrize("name", layout_names())
def test_the_node_is_where_public_code_finds_it_and_its_class_leads_there(
    name: str, trees: Trees
) -> None:
    root, board = trees(name), layout(name)
    node = root / NODES[name].lstrip("/")
    by_class = root / "sys/class/devfreq" / Path(board.devfreq_folder).name
    assert node.resolve() == by_class.resolve()
    listed = _said(root, f"{NODES[name]}/available_frequencies").split()
    assert tuple(map(int, listed)) == board.sm_clocks_hz
    assert _said(root, f"{NODES[name]}/governor") == board.stock_governor
    assert board.stock_governor in _said(root, f"{NODES[name]}/available_governors").split()


@pytest.mark.parametrize("name", layout_names())
def test_every_link_leads_into_the_tree(name: str, trees: Trees) -> None:
    root = trees(name)
    for path in layout_links(layout(name)):
        link = root / path.lstrip("/")
        # Relative, so that a tree may be moved.
        assert not link.readlink().is_absolute()
        assert link.resolve().exists(), path
        assert link.resolve().is_relative_to(root.resolve()), path


@pytest.mark.parametrize("name", layout_names())
def test_rails_that_are_counted_make_up_the_module_once(name: str, trees: Trees) -> None:
    board = layout(name)
    assert math.fsum(r.share_ratio for r in board.rails if r.is_counted) == pytest.approx(1.0)
    root = trees(name)
    for rail in board.rails:
        folder = rail_folder(board, rail)
        label = {
            RailSensor.INA3221: f"in{rail.index}_label",
            RailSensor.INA3221_IIO: f"rail_name_{rail.index}",
            RailSensor.INA238: "label",
        }[rail.sensor]
        assert _said(root, f"{folder}/{label}") == rail.rail


def test_an_ina3221_has_shunts_and_a_sum_beside_its_rails_and_no_power(trees: Trees) -> None:
    root, board = trees("agx-orin-jp6"), layout("agx-orin-jp6")
    folder = rail_folder(board, board.rails[0])
    assert _said(root, f"{folder}/in7_label") == "sum of shunt voltages"
    assert int(_said(root, f"{folder}/in4_input")) > 0
    assert not list((root / folder.lstrip("/")).glob("power*"))


def test_thor_tells_its_input_in_microwatts_and_its_usb_supply_is_no_rail(trees: Trees) -> None:
    root = trees("thor-jp7")
    names = {
        _said(root, f"/sys/class/hwmon/{folder.name}/name"): folder.name
        for folder in (root / "sys/class/hwmon").iterdir()
    }
    assert "ucsi_source_psy_ucsi_ccg1" in names
    assert int(_said(root, f"/sys/class/hwmon/{names['ina238']}/power1_input")) == 6_000_000


def test_hwmon_numbers_differ_between_boards() -> None:
    boards = [layout(name) for name in ("agx-orin-jp5", "agx-orin-jp6", "agx-orin-jp7")]
    numbers = {rail_folder(board, board.rails[0]).rpartition("hwmon")[2] for board in boards}
    assert len(numbers) == 3


@pytest.mark.parametrize("name", layout_names())
def test_one_thermal_zone_of_every_board_is_dead_and_the_gpus_is_not(
    name: str, trees: Trees
) -> None:
    root, board = trees(name), layout(name)
    zones = {
        _said(root, f"/sys/class/thermal/{zone.name}/type"): _said(
            root, f"/sys/class/thermal/{zone.name}/temp"
        )
        for zone in (root / "sys/class/thermal").iterdir()
    }
    assert "-256000" in zones.values()
    assert int(zones[board.gpu_zone]) > 0


def test_the_load_is_told_where_each_board_has_it_and_thor_has_none(trees: Trees) -> None:
    xavier, orin, thor = map(trees, ("agx-xavier-jp5", "agx-orin-jp7", "thor-jp7"))
    assert _said(xavier, "/sys/devices/gpu.0/load") == "0"
    assert not (orin / "sys/devices/gpu.0").exists()
    assert _said(orin, "/sys/devices/platform/gpu.0/load") == "0"
    assert not list(thor.rglob("load"))
    assert not list(thor.rglob("tpc_pg_mask"))


@pytest.mark.parametrize(
    ("mode", "cap", "mask", "emc_cap"),
    [(0, "612000000", "240", "2133000000"), (2, "1020000000", "240", "3199000000")],
)
def test_mode_zero_of_a_super_board_is_its_smallest(
    tmp_path: Path, mode: int, cap: str, mask: str, emc_cap: str
) -> None:
    write_layout(layout("orin-nano-super-jp6"), root := tmp_path, power_mode=mode)
    assert _said(root, "/var/lib/nvpmodel/status") == f"pmode:000{mode}"
    assert _said(root, "/sys/class/devfreq/17000000.gpu/max_freq") == cap
    assert _said(root, "/sys/devices/platform/gpu.0/tpc_pg_mask") == mask
    assert _said(root, "/sys/kernel/nvpmodel_clk_cap/emc") == emc_cap
    assert "< PM_CONFIG DEFAULT=2 >" in _said(root, "/etc/nvpmodel.conf")


def test_a_memory_clock_is_set_in_three_ways() -> None:
    assert {layout(name).emc.control for name in layout_names()} == set(EmcControl)


def test_unknown_boards_and_modes_are_refused_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="agx-orin-jp8") as caught:
        layout("agx-orin-jp8")
    assert "agx-orin-jp7" in (caught.value.hint or "")
    with pytest.raises(InputError, match="power mode 7") as caught:
        write_layout(layout("agx-orin-jp6"), tmp_path, power_mode=7)
    assert "0, 1, 2, 3" in (caught.value.hint or "")
    assert not list(tmp_path.iterdir())


def test_a_tree_that_is_written_again_is_as_it_was_at_first(tmp_path: Path) -> None:
    board = layout("agx-orin-jp6")
    write_layout(board, tmp_path)
    node = tmp_path / board.devfreq_folder.lstrip("/")
    (node / "min_freq").write_text("1020000000\n", encoding="utf-8")
    shutil.rmtree(tmp_path / "sys/class/devfreq")
    write_layout(board, tmp_path, power_mode=2)
    assert _said(tmp_path, "/sys/class/devfreq/17000000.gpu/min_freq") == "306000000"
    assert _said(tmp_path, "/sys/class/devfreq/17000000.gpu/max_freq") == "612000000"


def test_a_tree_is_never_written_over_the_machine_itself() -> None:
    with pytest.raises(InputError, match="machine"):
        write_layout(layout("agx-orin-jp6"), Path("/"))


def test_a_tree_says_what_it_is_and_who_moves_it(tmp_path: Path) -> None:
    assert read_marker(tmp_path) is None
    assert tree_layout(tmp_path) is None
    write_layout(layout("thor-jp7"), tmp_path)
    assert read_marker(tmp_path) == TreeMarker(board="thor-jp7", time="virtual", pid=None)
    assert tree_layout(tmp_path) == layout("thor-jp7")
    write_marker(tmp_path, TreeMarker(board="thor-jp7", time="real", pid=7))
    assert read_marker(tmp_path) == TreeMarker(board="thor-jp7", time="real", pid=7)
    (tmp_path / "joulewise-fake-board.json").write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match=r"joulewise-fake-board\.json"):
        tree_layout(tmp_path)
