"""Where the GPU of a Jetson is found."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from tests.jetson_kernel import KernelFiles

from joulewise.device.jetson_files import FolderFiles
from joulewise.device.jetson_gpu import open_jetson
from joulewise.device.jetson_nodes import board_uuid, find_node, gpu_folders
from joulewise.domain.errors import DeviceError, InputError, JoulewiseError, NotSupported
from joulewise.domain.points import OperatingPoint
from joulewise.simulator.jetson_layouts import (
    layout,
    layout_names,
    read_marker,
    tree_serial,
    write_layout,
)

BOARDS = layout_names()


@pytest.mark.parametrize("name", BOARDS)
def test_the_gpu_of_every_board_is_found_by_its_node(name: str, tmp_path: Path) -> None:
    write_layout(layout(name), tmp_path)
    gpu = open_jetson(f"jetson,root={tmp_path}")

    assert gpu.clock_grid().sm_clocks_mhz == layout(name).sm_clocks_mhz
    assert gpu.identity.name == layout(name).board
    assert gpu.uuid == f"GPU-jetson-{tree_serial(layout(name), tmp_path)}"
    assert gpu.identity.is_simulated
    assert gpu.identity.spec == f"jetson,root={tmp_path}"


@pytest.mark.parametrize("name", [one for one in BOARDS if one != "thor-jp7"])
def test_the_gpu_is_found_without_the_class_folder(name: str) -> None:
    board = KernelFiles(name)
    usual = find_node(board)
    board.links = {at: to for at, to in board.links.items() if "/class/devfreq/" not in at}

    found = find_node(board)

    assert usual is not None
    assert usual.startswith("/sys/class/devfreq/")
    assert found is not None
    assert not found.startswith("/sys/class/devfreq/")
    assert board.read(f"{found}/available_frequencies") == board.at_node("available_frequencies")


def test_other_engines_with_a_node_are_not_taken_for_the_gpu() -> None:
    board = KernelFiles("agx-orin-jp6")

    assert "15340000.vic" in board.names("/sys/class/devfreq")
    assert not [folder for folder in gpu_folders(board) if ".vic" in folder]


def test_symptom_gpu_not_detected_on_thor_whose_nodes_are_gpc_and_nvd() -> None:
    # jetson_stats 885: the nodes have other names, and there is no file `load`.
    board = KernelFiles("thor-jp7")
    board.files["/sys/class/devfreq/gpu-nvd-0/max_freq"] = "1692000000"
    board.files["/sys/class/devfreq/gpu-nvd-0/available_frequencies"] = "1692000000"
    gpu = board.open()

    assert find_node(board) == "/sys/class/devfreq/gpu-gpc-0"
    assert gpu.clock_grid().sm_clocks_mhz == board.layout.sm_clocks_mhz
    assert gpu.sample().busy_ratio is None
    assert gpu.sample().sm_clock_mhz is not None


def test_symptom_no_gpu_all_session_because_its_node_came_after_the_service() -> None:
    # jetson_stats 889: JetPack 7 made the node later than the service started.
    board = KernelFiles("agx-orin-jp7")
    node = board.remove(board.node)
    gpu = board.open()
    before = gpu.sample()
    with pytest.raises(NotSupported, match="no devfreq node") as caught:
        gpu.clock_grid()
    with pytest.raises(NotSupported, match="no devfreq node"):
        gpu.knob_state()
    assert "/sys/class/devfreq" in (caught.value.hint or "")

    board.files.update(node)

    assert before.sm_clock_mhz is None
    assert before.power_w is not None
    assert gpu.clock_grid().sm_clocks_mhz == board.layout.sm_clocks_mhz
    assert gpu.sample().sm_clock_mhz == board.layout.sm_clocks_mhz[0]


def test_a_link_to_a_node_that_is_gone_is_passed_over() -> None:
    board = KernelFiles("agx-orin-jp6")
    board.links["/sys/class/devfreq/17000000.ga10b"] = "/sys/devices/17000000.ga10b/devfreq/x"

    assert find_node(board) == "/sys/class/devfreq/17000000.gpu"


def test_a_gpu_of_another_maker_is_no_jetson() -> None:
    board = KernelFiles("agx-orin-jp6")
    board.files["/proc/device-tree/compatible"] = "radxa,rock-5b\0rockchip,rk3588\0"

    with pytest.raises(NotSupported, match="no NVIDIA SoC"):
        board.open()


def test_a_machine_without_a_device_tree_is_no_jetson(tmp_path: Path) -> None:
    with pytest.raises(NotSupported, match="no NVIDIA SoC"):
        open_jetson(f"jetson,root={tmp_path}")


def test_a_root_that_is_no_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="absent is no folder") as caught:
        open_jetson(f"jetson,root={tmp_path / 'absent'}")
    assert caught.value.field == "root"


def test_boards_without_a_serial_number_are_told_apart_by_their_installation() -> None:
    board = KernelFiles("nano-jp4")
    del board.files["/proc/device-tree/serial-number"]
    board.files["/etc/machine-id"] = "0123456789abcdef0123456789abcdef"

    assert board_uuid(board) == "GPU-jetson-0123456789abcdef0123456789abcdef"


def test_trees_that_tell_nothing_of_themselves_are_told_apart_by_their_place(
    tmp_path: Path,
) -> None:
    ids = [board_uuid(FolderFiles(tmp_path / name)) for name in ("one", "other", "one")]

    assert ids[0] == ids[2] != ids[1]
    assert all(one.startswith("GPU-jetson-") for one in ids)


def test_a_serial_number_that_is_no_file_name_makes_one() -> None:
    board = KernelFiles("nano-jp4")
    board.files["/proc/device-tree/serial-number"] = " ../14/2\0"

    assert board_uuid(board) == "GPU-jetson-14-2"


def test_a_serial_number_too_long_for_a_file_name_is_shortened_and_stays_its_own() -> None:
    board = KernelFiles("nano-jp4")
    ids = []
    for end in "12":
        board.files["/proc/device-tree/serial-number"] = "1" * 3000 + end + "\0"
        ids.append(board_uuid(board))

    assert ids[0] != ids[1]
    assert max(map(len, ids)) < 64


def test_two_trees_of_one_kind_are_two_boards_and_each_stays_the_same(tmp_path: Path) -> None:
    for name in ("one", "other", "one"):
        write_layout(layout("agx-orin-jp6"), tmp_path / name)
    (tmp_path / "link").symlink_to(tmp_path / "one")
    ids = {name: board_uuid(FolderFiles(tmp_path / name)) for name in ("one", "other", "link")}

    write_layout(layout("agx-orin-jp6"), tmp_path / "link", power_mode=0)

    assert ids["one"] == ids["link"] == board_uuid(FolderFiles(tmp_path / "link")) != ids["other"]


@pytest.mark.parametrize(
    "path",
    [
        "/sys/class/devfreq/17000000.gpu/min_freq",
        "/sys/class/devfreq/17000000.gpu/available_frequencies",
        "/sys/kernel/debug/bpmp/debug/clk/emc/rate",
        "/proc/device-tree/compatible",
        "/joulewise-fake-board.json",
        "/var/lib/nvpmodel/status",
    ],
)
def test_symptom_a_pipe_in_place_of_a_file_hangs_whoever_reads_it(
    path: str, tmp_path: Path
) -> None:
    write_layout(layout("agx-orin-jp6"), tmp_path)
    place = tmp_path / path.lstrip("/")
    place.unlink()
    os.mkfifo(place)
    files = FolderFiles(tmp_path)

    assert files.read(path) is None
    with pytest.raises(DeviceError, match="could not be written"):
        files.write(path, "1")
    with contextlib.suppress(JoulewiseError):
        open_jetson(f"jetson,root={tmp_path}").request(OperatingPoint(sm_clock_mhz=816))
    with contextlib.suppress(InputError):
        read_marker(tmp_path)
    write_layout(layout("agx-orin-jp6"), tmp_path)
    assert files.read(path)
