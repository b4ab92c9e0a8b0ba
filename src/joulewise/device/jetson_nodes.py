"""Where a Jetson keeps what tells of its GPU: found by what is there, never by the board's name."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

from joulewise.device.jetson_files import BoardFiles
from joulewise.device.jetson_readings import names, text

FAKE_MARK = "/joulewise-fake-board.json"
"""File that says of a tree that it is no board."""

_CLASS = "/sys/class/devfreq"
_TREE = "/proc/device-tree"
_TEGRA = "nvidia,tegra"
# Folders that hold platform devices, from JetPack 4 (first) to 7 (last).
_PLATFORMS = ("/sys/devices", "/sys/devices/platform", "/sys/devices/platform/bus@0")
# `57000000.gpu` (Nano), `17000000.gp10b` (TX2), `.gv11b` (Xavier), `.ga10b` (Orin, JetPack 5),
# `17000000.gpu` (Orin, JetPack 6 and 7); `gpu-gpc-0` is Thor's, whose `gpu-nvd-0` is the clock of
# video engines (jtop, core/gpu.py and core/thor_power.py).
_PLATFORM_GPU = re.compile(r"[0-9a-f]+\.(?:gpu|g[a-z]\d\d[a-z])", re.ASCII)
_GPC = re.compile(r"gpu-gpc-\d+", re.ASCII)
# Serial numbers of these boards have 13 digits; names of files 255 characters at most.
_LONGEST_SERIAL_COUNT = 64
_NULLS = re.compile(r"\0+")


def is_tegra(files: BoardFiles) -> bool:
    """Whether this is an NVIDIA SoC: others have `*.gpu` nodes, too."""
    return _TEGRA in (_tree_text(files, f"{_TREE}/compatible") or "")


def board_name(files: BoardFiles) -> str:
    """The board as its device tree names it."""
    return _tree_text(files, f"{_TREE}/model") or "NVIDIA Jetson"


def board_uuid(files: BoardFiles) -> str:
    """`GPU-jetson-` and the board's serial number; without one, what names its installation."""
    serial = _tree_text(files, f"{_TREE}/serial-number") or _tree_text(files, "/etc/machine-id")
    if serial is None:
        # Nothing of this board differs from the next: the place of its files does.
        serial = hashlib.sha256(files.place("/").encode()).hexdigest()[:12]
    if len(serial) > _LONGEST_SERIAL_COUNT:
        # Journals are files that are called so.
        serial = hashlib.sha256(serial.encode()).hexdigest()[:32]
    return f"GPU-jetson-{re.sub(r'[^0-9A-Za-z]+', '-', serial).strip('-')}"


def is_fake(files: BoardFiles) -> bool:
    """Whether the tree says that no board is behind it."""
    return files.exists(FAKE_MARK)


def find_node(files: BoardFiles) -> str | None:
    """The devfreq folder of the GPU; `None` where there is none at present."""
    return next(gpu_folders(files), None)


def gpu_folders(files: BoardFiles) -> Iterator[str]:
    """Every folder by which the GPU's devfreq node can be reached; the first is the usual one.

    Links that lead nowhere are passed over.
    """
    for folder in _candidates(files):
        if files.exists(f"{folder}/max_freq"):
            yield folder


def looked_at() -> str:
    """Where a node was looked for, in words."""
    return f"{_CLASS} and {', '.join(_PLATFORMS)}"


def _candidates(files: BoardFiles) -> Iterator[str]:
    for name in names(files, _CLASS):
        if _is_gpu(name):
            yield f"{_CLASS}/{name}"
    for platform in _PLATFORMS:
        for device in names(files, platform):
            if device == "gpu.0" or _is_gpu(device):
                yield from _below(files, f"{platform}/{device}")


def _below(files: BoardFiles, device: str) -> Iterator[str]:
    for name in names(files, f"{device}/devfreq"):
        if _is_gpu(name):
            yield f"{device}/devfreq/{name}"
    yield f"{device}/devfreq_dev"


def _is_gpu(name: str) -> bool:
    return bool(_PLATFORM_GPU.fullmatch(name) or _GPC.fullmatch(name))


def _tree_text(files: BoardFiles, path: str) -> str | None:
    """One text of a device tree, whose strings end with a null; `None` where it does not tell."""
    return _NULLS.sub(" ", text(files, path) or "").strip() or None
