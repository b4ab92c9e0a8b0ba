"""nvpmodel's power mode, read without nvpmodel."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.jetson_kernel import KernelFiles

from joulewise.device.jetson_files import FolderFiles
from joulewise.device.jetson_modes import PowerMode, power_mode
from joulewise.simulator.jetson_layout import NO_CAP
from joulewise.simulator.jetson_layouts import layout, layout_names

STATUS = "var/lib/nvpmodel/status"
TABLE = "etc/nvpmodel.conf"
MODE = (
    "< POWER_MODEL ID=0 NAME=MAXN >\nTPC_POWER_GATING TPC_PG_MASK 0\nGPU MAX_FREQ -1\n"
    "< POWER_MODEL ID=2 NAME=MODE_30W >\nTPC_POWER_GATING TPC_PG_MASK 240\n"
    "GPU MIN_FREQ 0\nGPU MAX_FREQ 624750000\nEMC MAX_FREQ 2133000000\n"
)


def tree(root: Path, *, status: str | None = "pmode:0002", table: str | None = MODE) -> FolderFiles:
    """A root with what nvpmodel keeps."""
    for path, text in ((STATUS, status), (TABLE, table)):
        if text is not None:
            file = root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{text}\n", encoding="utf-8")
    return FolderFiles(root)


def test_a_mode_tells_its_name_its_caps_and_what_it_switches_off(tmp_path: Path) -> None:
    assert power_mode(tree(tmp_path)) == PowerMode(
        index=2, name="MODE_30W", gpu_cap="624750000", emc_cap="2133000000", gated_tpc_count=4
    )


@pytest.mark.parametrize("name", layout_names())
def test_every_mode_of_every_board_is_read(name: str) -> None:
    for known in layout(name).modes:
        mode = power_mode(KernelFiles(name, power_mode=known.index))

        assert mode is not None
        assert (mode.index, mode.name) == (known.index, known.name)
        assert mode.gpu_cap == (None if known.gpu_cap == NO_CAP else known.gpu_cap)


def test_symptom_maxn_never_reached_for_mode_0_of_a_super_board_is_15_watts() -> None:
    # axol 220.
    mode = power_mode(KernelFiles("orin-nano-super-jp6", power_mode=0))

    assert mode is not None
    assert ("15W", 612_000_000) == (mode.name, mode.gpu_cap_hz)
    assert mode.emc_cap_hz == 2_133_000_000


def test_symptom_mode_asked_for_but_cancelled_at_the_prompt_for_a_reboot() -> None:
    # axol 107: what counts is the state file, not the table's default and not what was asked.
    board = KernelFiles("orin-nano-super-jp6", power_mode=1)
    assert "DEFAULT=2" in (board.read("/etc/nvpmodel.conf") or "")

    mode = power_mode(board)

    assert mode is not None
    assert mode.name == "25W"


@pytest.mark.parametrize(("index", "gated"), [(0, 0), (1, 5), (2, 4), (3, 0)])
def test_30_watts_on_an_agx_orin_are_half_of_its_gpu(index: int, gated: int) -> None:
    mode = power_mode(KernelFiles("agx-orin-jp5", power_mode=index))

    assert mode is not None
    assert mode.gated_tpc_count == gated


def test_an_orin_nano_masks_tpcs_that_it_does_not_have_and_none_of_its_own() -> None:
    mode = power_mode(KernelFiles("orin-nano-super-jp6"))

    assert mode is not None
    assert mode.gated_tpc_count == 0


def test_symptom_mask_of_the_mode_was_never_written_so_nothing_is_gated() -> None:
    # meta-tegra 1864: nvpmodel failed to write tpc_pg_mask, and the mode says 240 all the same.
    board = KernelFiles("agx-orin-jp6", power_mode=2)
    masks = [path for path in board.files if path.endswith("/tpc_pg_mask")]
    for path in masks:
        board.files[path] = "0"

    mode = power_mode(board)

    assert mode is not None
    assert mode.gated_tpc_count == 0


def test_a_mask_may_read_in_hexadecimal() -> None:
    board = KernelFiles("agx-orin-jp6")
    for path in [path for path in board.files if path.endswith("/tpc_pg_mask")]:
        board.files[path] = "0xf8"

    mode = power_mode(board)

    assert mode is not None
    assert mode.gated_tpc_count == 5


def test_a_board_that_gates_nothing_by_modes_does_not_tell_how_many_are_gated() -> None:
    mode = power_mode(KernelFiles("nano-jp4"))

    assert mode is not None
    assert mode.gated_tpc_count is None


@pytest.mark.parametrize(
    ("status", "table"),
    [
        (None, MODE),
        ("", MODE),
        ("pmode:", MODE),
        ("pmode:0007", MODE),
        ("pmode:0002", None),
        ("pmode:0002", ""),
        ("pmode:0002", "< POWER_MODEL ID=two NAME=MODE >"),
        ("pmode:0002", "\x00\xff not a table <<<"),
    ],
)
def test_a_mode_that_cannot_be_told_is_none_and_no_crash(
    tmp_path: Path, status: str | None, table: str | None
) -> None:
    # jetson_stats 672 and 567.
    assert power_mode(tree(tmp_path, status=status, table=table)) is None


def test_a_table_without_a_default_and_a_cap_that_is_no_number_still_tell_the_name(
    tmp_path: Path,
) -> None:
    table = "<POWER_MODEL ID=2 NAME=X>\nGPU MAX_FREQ many\nEMC MAX_FREQ 2147483647 # all\n"

    mode = power_mode(tree(tmp_path, table=table))

    assert mode == PowerMode(index=2, name="X")


def test_the_state_file_of_jetpack_4_names_the_fan_as_well(tmp_path: Path) -> None:
    mode = power_mode(tree(tmp_path, status="pmode:0002 fmode:quiet"))

    assert mode is not None
    assert mode.index == 2


@pytest.mark.parametrize(
    "target", ["/etc/nvpmodel/nvpmodel_p3701.conf", "nvpmodel/nvpmodel_p3701.conf"]
)
def test_a_link_to_the_table_is_followed_below_the_root(tmp_path: Path, target: str) -> None:
    files = tree(tmp_path, table=None)
    real = tmp_path / "etc/nvpmodel/nvpmodel_p3701.conf"
    real.parent.mkdir(parents=True)
    real.write_text(MODE, encoding="utf-8")
    (tmp_path / TABLE).symlink_to(target)

    mode = power_mode(files)

    assert mode is not None
    assert mode.name == "MODE_30W"


def test_a_link_never_leads_out_of_the_root(tmp_path: Path) -> None:
    outside = tmp_path / "outside.conf"
    outside.write_text(MODE, encoding="utf-8")
    root = tmp_path / "root"
    files = tree(root, table=None)
    (root / "etc").mkdir()
    for target in (str(outside), "../../outside.conf"):
        (root / TABLE).unlink(missing_ok=True)
        (root / TABLE).symlink_to(target)

        assert power_mode(files) is None


def test_links_in_a_circle_lead_nowhere(tmp_path: Path) -> None:
    files = tree(tmp_path, table=None)
    (tmp_path / "etc").mkdir()
    (tmp_path / TABLE).symlink_to("/etc/nvpmodel.conf")

    assert power_mode(files) is None


@settings(max_examples=50)
@given(st.text(max_size=200), st.text(max_size=20))
def test_no_table_and_no_state_file_crash_the_reader(table: str, status: str) -> None:
    board = KernelFiles("nano-jp4")
    board.files["/etc/nvpmodel/nvpmodel_t210_jetson-nano.conf"] = MODE[:60] + table
    board.files["/var/lib/nvpmodel/status"] = f"pmode:0000{status}"

    mode = power_mode(board)

    assert mode is None or mode.index == 0 or status[:1].isdecimal()


@pytest.mark.data
def test_the_real_table_of_an_orin_nano_super_reads(measured_data: Path, tmp_path: Path) -> None:
    table = (measured_data / "jetson" / "nvpmodel.conf").read_text(encoding="utf-8")
    _, index = (measured_data / "jetson" / "nvpmodel_active.txt").read_text("utf-8").split("\n")[:2]
    caps = {}
    for mode_index in range(3):
        mode = power_mode(tree(tmp_path, status=f"pmode:{mode_index:04d}", table=table))
        assert mode is not None
        caps[mode.name] = (mode.gpu_cap_hz, mode.emc_cap_hz, mode.gated_tpc_count)

    active = power_mode(tree(tmp_path, status=f"pmode:{int(index):04d}", table=table))
    assert caps == {
        "15W": (612_000_000, 2_133_000_000, 0),
        "25W": (918_000_000, 3_199_000_000, 0),
        "MAXN_SUPER": (None, None, 0),
    }
    assert active is not None
    assert active.name == "MAXN_SUPER"
