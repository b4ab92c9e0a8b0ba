"""How busy and how hot a Jetson's GPU is, and what its supply went through."""

from __future__ import annotations

import pytest
from tests.jetson_kernel import KernelFiles

from joulewise.device.jetson_load import busy_ratio
from joulewise.device.jetson_nodes import find_node
from joulewise.device.jetson_thermal import gpu_temp_c, over_current_count
from joulewise.simulator.jetson_layout_files import over_current_folder, zone_folder
from joulewise.simulator.jetson_layouts import layout_names


def told_load(board: KernelFiles, text: str) -> float | None:
    for path in [path for path in board.files if path.endswith("/load")]:
        board.files[path] = text
    return busy_ratio(board)


@pytest.mark.parametrize("name", [name for name in layout_names() if name != "thor-jp7"])
def test_every_board_but_thor_tells_its_load_in_thousandths(name: str) -> None:
    assert told_load(KernelFiles(name), "990") == pytest.approx(0.99)


def test_symptom_thor_at_rest_all_day_for_it_has_no_load_file() -> None:
    # WendyOS 1316, jetson_stats 885: no utilisation is not a utilisation of 0.
    assert busy_ratio(KernelFiles("thor-jp7")) is None


def test_symptom_load_absent_on_orin_where_it_moved_below_platform() -> None:
    # autoware_universe 11326.
    board = KernelFiles("agx-orin-jp6")
    assert board.read("/sys/devices/gpu.0/load") is None

    assert told_load(board, "250") == pytest.approx(0.25)


def test_the_node_of_the_gpu_tells_where_the_usual_places_do_not() -> None:
    board = KernelFiles("agx-orin-jp6")
    board.links = {at: to for at, to in board.links.items() if not at.endswith("gpu.0")}
    node = find_node(board)
    gpu = board.layout.gpu_folder
    board.files[f"{gpu}/load"] = "420"

    assert busy_ratio(board) is None
    assert busy_ratio(board, node) == pytest.approx(0.42)


@pytest.mark.parametrize("text", ["", "-1", "1001", "busy", "99.5"])
def test_a_load_that_cannot_be_is_none_and_not_zero(text: str) -> None:
    assert told_load(KernelFiles("agx-orin-jp6"), text) is None


@pytest.mark.parametrize("name", layout_names())
def test_every_board_tells_the_heat_of_its_gpu(name: str) -> None:
    board = KernelFiles(name)
    board.files[f"{zone_folder(board.layout, board.layout.gpu_zone)}/temp"] = "47625"

    assert gpu_temp_c(board) == pytest.approx(47.625)


@pytest.mark.parametrize("text", ["-256000", "", "300000", "warm"])
def test_a_dead_sensor_has_no_temperature(text: str) -> None:
    board = KernelFiles("agx-orin-jp6")
    board.files[f"{zone_folder(board.layout, board.layout.gpu_zone)}/temp"] = text

    assert gpu_temp_c(board) is None


def test_a_board_without_a_zone_for_its_gpu_tells_none() -> None:
    board = KernelFiles("agx-orin-jp6")
    board.remove(zone_folder(board.layout, board.layout.gpu_zone))

    assert gpu_temp_c(board) is None


def test_symptom_throttled_due_to_over_current_which_was_a_sagging_supply() -> None:
    # Forum, 158055 and 361188: events are counted in three files, and any of them counts.
    board = KernelFiles("agx-orin-jp6")
    folder = over_current_folder(board.layout)
    assert over_current_count(board) == 0

    board.files[f"{folder}/oc1_event_cnt"] = "2"
    board.files[f"{folder}/oc3_event_cnt"] = "5"

    assert over_current_count(board) == 7


def test_counters_of_which_one_does_not_read_are_not_summed() -> None:
    board = KernelFiles("agx-orin-jp6")
    board.files[f"{over_current_folder(board.layout)}/oc2_event_cnt"] = ""

    assert over_current_count(board) is None


def test_a_board_that_counts_no_over_current_says_none() -> None:
    assert over_current_count(KernelFiles("nano-jp4")) is None
