"""The guard process of leases on GPUs, as a program of its own.

`workflow.leasing` starts it. It imports little, for it has to be there fast and stays small.
"""

from __future__ import annotations

import sys
from pathlib import Path

from joulewise.control.guard_loop import run_guard
from joulewise.device.jetson_string import is_jetson
from joulewise.device.nvml import use_library
from joulewise.device.nvml_gpu import open_nvml
from joulewise.domain.ports import Gpu

_LIBRARY_OPTION = "--nvml-library"


def main() -> None:
    """Guard the client that the last three arguments name."""
    arguments = sys.argv[1:]
    library: Path | None = None
    if arguments[:1] == [_LIBRARY_OPTION]:
        library, arguments = Path(arguments[1]), arguments[2:]

    def open_gpu(device: str) -> Gpu:
        if is_jetson(device):
            from joulewise.device.jetson_gpu import (  # noqa: PLC0415 - only on such a board
                open_jetson,
            )

            return open_jetson(device)
        if library is not None:
            use_library(library)
        return open_nvml(device)

    run_guard(arguments, open_gpu)


if __name__ == "__main__":
    main()
