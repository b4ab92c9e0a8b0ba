"""Whether a built workload fits into the memory of a board."""

from __future__ import annotations

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.errors import InputError
from joulewise.domain.gpu_peaks import gpu_peaks
from joulewise.domain.workload import Workload
from joulewise.workload.transformer.memory import memory_bytes
from joulewise.workload.transformer.options import choice_of_text, default_setup
from joulewise.workload.transformer.presets import (
    default_sequence_count,
    preset_model,
    preset_names,
)

GIB = 2**30
# Memory that the board is sold with, which drivers count in GiB, by its name in `gpu_peaks`. From
# NVIDIA's specification of the RTX 3080 Ti, the A100 datasheet (June 2021), the H100 datasheet, and
# the Ada GPU architecture whitepaper, appendix A, for the RTX 4090; modules by their names, which
# their CPU shares.
_BOARD_MEMORY_BYTES = {
    "GeForce RTX 3080 Ti": 12 * GIB,
    "A100 SXM 40 GB": 40 * GIB,
    "A100 SXM 80 GB": 80 * GIB,
    "H100 SXM": 80 * GIB,
    "GeForce RTX 4090": 24 * GIB,
    "Jetson AGX Orin 64 GB": 64 * GIB,
    "Jetson Orin Nano Super": 8 * GIB,
}


def memory_exceeded(workload: Workload, device_name: str) -> tuple[Caveat, ...]:
    """MemoryExceeded where the memory that a built workload is estimated to take is not there.

    Nothing is said of other workloads, nor of boards that the table does not have.
    """
    peaks, needed_bytes = gpu_peaks(device_name), _needed_bytes(workload)
    board_bytes = None if peaks is None else _BOARD_MEMORY_BYTES.get(peaks.name)
    if board_bytes is None or needed_bytes is None or needed_bytes <= board_bytes:
        return ()
    return (
        Caveat(
            kind=CaveatKind.MEMORY_EXCEEDED,
            seen=f"the workload is estimated to take {needed_bytes / GIB:.3g} GiB, and "
            f"{device_name} has {board_bytes / GIB:.3g} GiB",
        ),
    )


def _needed_bytes(workload: Workload) -> float | None:
    """By its name, which tells all of a preset with options; `None` for all others."""
    name, _, options = workload.name.partition(",")
    if workload.trace is not None or name not in preset_names():
        return None
    model = preset_model(name)
    try:
        choice = choice_of_text(model, options, default_setup(model, default_sequence_count(name)))
        return memory_bytes(choice.model, choice.setup)
    except InputError:
        # A file may call itself anything.
        return None
