"""`joulewise restore`: giving back what dead holders left set."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from joulewise.control.restoring import Restored, restore_all, restored
from joulewise.control.state import (
    ROOT_STATE_DIR,
    STATE_DIR_VARIABLE,
    default_state_dir,
    former_state_dirs,
    journal_file,
    make_state_dir,
)
from joulewise.device.jetson_string import is_jetson
from joulewise.device.nvml_gpu import open_nvml
from joulewise.domain.ports import Gpu
from joulewise.workflow.jetson_boards import open_board
from joulewise.workflow.machine_time import machine_timer


def restore(device: str | None = None) -> tuple[Restored, ...]:
    """Give back what dead holders left, on every GPU with a journal or on one.

    What a living process holds is left alone. Doing it again changes nothing.

    Raises:
        InputError: no such GPU, or the state folder cannot be used.
        NotSupported: there is no such GPU to name.
    """
    folders = _folders()
    if device is None:
        return tuple(one for folder in folders for one in restore_all(folder, _open))
    gpu = _open(device)
    done = (_restore_one(gpu, folder) for folder in folders if folder.exists())
    return tuple(one for one in done if one is not None)


def _restore_one(gpu: Gpu, folder: Path) -> Restored | None:
    make_state_dir(folder)
    return restored(journal_file(gpu.identity, folder), lambda _device: gpu)


def _open(device: str) -> Gpu:
    if is_jetson(device):
        return open_board(device)
    return open_nvml(device, timer=machine_timer())


def hidden_state_dir(folder: Path = ROOT_STATE_DIR) -> Path | None:
    """The folder of whoever may set clocks on this machine, where this account may not look there.

    Where somebody has named another folder, that one counts alone.
    """
    if sys.platform != "linux" or STATE_DIR_VARIABLE in os.environ:
        return None
    try:
        is_there = folder.exists()
    except OSError:
        is_there = True
    is_open = os.access(folder, os.R_OK | os.X_OK)
    return folder if is_there and not is_open else None


def where() -> str:
    """The folders whose journals are looked at."""
    return " and ".join(map(str, _folders()))


def _folders() -> tuple[Path, ...]:
    state_dir = default_state_dir()
    return state_dir, *former_state_dirs(state_dir)
