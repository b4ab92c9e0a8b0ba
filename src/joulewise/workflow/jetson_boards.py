"""The Jetson board that this machine is, or a tree of files that is like one."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from joulewise.device.jetson_files import FolderFiles
from joulewise.device.jetson_nodes import find_node, is_tegra
from joulewise.device.jetson_string import PREFIX, parse_jetson
from joulewise.domain.caveats import Caveat
from joulewise.domain.errors import JoulewiseError, NotSupported

if TYPE_CHECKING:
    from joulewise.device.jetson_gpu import JetsonGpu

# How NVML names the GPU of an SoC, if it knows it at all: "Orin (nvgpu)" and "NVIDIA Thor".
_INTEGRATED = ("(nvgpu)", "Thor")


def open_board(device: str, caveats: Sequence[Caveat] = ()) -> JetsonGpu:
    """Open a board in the time of the machine; reads only. Raises as `open_jetson` does."""
    from joulewise.device.jetson_gpu import open_jetson  # noqa: PLC0415 - only where there is one

    return open_jetson(device, caveats=caveats)


def is_board_here(environment: Mapping[str, str] | None = None) -> bool:
    """Whether the device string `jetson` names a board with a GPU here; reads only."""
    environment = os.environ if environment is None else environment
    files = FolderFiles(Path(parse_jetson(PREFIX, environment).root))
    return is_tegra(files) and find_node(files) is not None


def board_here() -> JetsonGpu | None:
    """That board; `None` where this is none, or it does not open."""
    try:
        return open_board(PREFIX) if is_board_here() else None
    except JoulewiseError:
        return None


def is_integrated(name: str | None) -> bool:
    """Whether NVML names so the GPU of an SoC, of which it tells little or nothing.

    On Orin NVML starts and answers every question with *not supported*.
    """
    return name is not None and any(part in name for part in _INTEGRATED)


def refuse_integrated(name: str) -> None:
    """See that this is no GPU that NVML merely lists.

    Raises NotSupported: an energy of nothing at all would look like a measurement.
    """
    if is_integrated(name):
        raise NotSupported(
            f"{name} is the GPU of a Jetson, of which NVML tells too little to measure or set it",
            hint="Say --device jetson, which reads and sets the files of the board.",
        )
