"""A real GPU that a command leaves alone because no device was named."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from joulewise.device.nvml_discovery import gpu_count, seen_gpus
from joulewise.device.real_time import MonotonicTimer
from joulewise.domain.errors import JoulewiseError

_LIBRARY = "libnvidia-ml.so.1"
_WSL_LIBRARY = Path("usr/lib/wsl/lib", _LIBRARY)
_GPUS = Path("proc/driver/nvidia/gpus")


def passed_over() -> str | None:
    """The first NVIDIA GPU here as `nvml:0 NAME`; `None` where there is none to see.

    NVML is loaded only where a file says that a driver is there.
    """
    if not is_driver_at_hand():
        return None
    pause = MonotonicTimer().sleep
    try:
        found, _ = seen_gpus(gpu_count(pause), pause)
    except JoulewiseError:
        # What is wrong with it, says `joulewise doctor`.
        return None
    return f"nvml:{found[0].device.index} {found[0].name}" if found else None


def is_driver_at_hand(
    root: Path = Path("/"), environment: Mapping[str, str] | None = None, system: str = sys.platform
) -> bool:
    """Whether files say that an NVIDIA driver is there: some look-ups, and nothing is loaded."""
    environment = os.environ if environment is None else environment
    if system == "win32":
        windows = environment.get("SYSTEMROOT", "")
        return bool(windows) and (Path(windows) / "System32" / "nvml.dll").exists()
    return any((root / _GPUS).glob("*")) or any(
        path.exists() for path in _libraries(root, environment)
    )


def _libraries(root: Path, environment: Mapping[str, str]) -> Iterator[Path]:
    yield root / _WSL_LIBRARY
    for folder in environment.get("LD_LIBRARY_PATH", "").split(os.pathsep):
        if folder:
            yield Path(folder, _LIBRARY)
