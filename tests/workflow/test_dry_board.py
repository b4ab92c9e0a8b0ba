"""What a dry run lists for a board is what a real run writes to its files, and in that order."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.jetson_trees import open_tree

from joulewise.device.jetson_files import FolderFiles
from joulewise.domain.points import OperatingPoint
from joulewise.workflow.dry_board import FileWrite, file_writes


class NotedFiles(FolderFiles):
    """A tree that notes what is written to it."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.written: list[FileWrite] = []

    def write(self, path: str, text: str) -> None:
        super().write(path, text)
        self.written.append(FileWrite(place=self.place(path), text=text))


@pytest.mark.parametrize(
    ("board", "sm_clock_mhz", "mem_clock_mhz"),
    [("agx-orin-jp6", 612, 2133), ("agx-orin-jp6", 612, None), ("nano-jp4", 230, None)],
)
def test_a_dry_run_lists_the_writes_of_a_real_one_and_makes_none(
    tmp_path: Path, board: str, sm_clock_mhz: int, mem_clock_mhz: int | None
) -> None:
    root, option = tmp_path / "board", ",memory_lock=on"
    open_tree(root, board)
    noted = NotedFiles(root)
    point = OperatingPoint(sm_clock_mhz=sm_clock_mhz, mem_clock_mhz=mem_clock_mhz)
    listed = file_writes(f"jetson,root={root}{option}", point)
    gpu = open_tree(root, None, files=noted, device_options=option).gpu
    assert noted.written == []
    gpu.request(point)
    written = tuple(noted.written)
    noted.written.clear()
    gpu.reset()

    assert listed.writes == written
    assert listed.gives_back == tuple(noted.written)
    assert len(written) >= 2
