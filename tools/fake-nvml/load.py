# ruff: noqa: INP001
"""Work for a GPU of the fake NVIDIA driver: `python tools/fake-nvml/load.py --seconds 10`.

Runs a kernel over and over, as a job on a real GPU would, and says how many launches that were:
fewer at lower clocks. With `--memory-bound` most of its time is traffic, which lower SM clocks
hardly slow. Needs the fake driver in real time, and nothing but Python.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import time
from pathlib import Path

LIBRARY = "libnvidia-ml.so.1"
BUILD = Path(__file__).resolve().parents[2] / "build" / "fake-nvml"


class Kernel(ctypes.Structure):
    """`fakenvml_kernel_t` of fake_nvml.h."""

    _fields_ = [
        ("compute_cycle_count", ctypes.c_double),
        ("memory_bytes", ctypes.c_double),
        ("core_j", ctypes.c_double),
        ("memory_j", ctypes.c_double),
        ("set_point_ratio", ctypes.c_double),
        ("overlap_exponent_ratio", ctypes.c_double),
        ("wait_s", ctypes.c_double),
    ]


class Step(ctypes.Structure):
    """`fakenvml_step_t`."""

    _fields_ = [("kernel", ctypes.c_uint32), ("launch_count", ctypes.c_uint32)]


class Progress(ctypes.Structure):
    """`fakenvml_progress_t`."""

    _fields_ = [
        ("launch_count", ctypes.c_uint64),
        ("iteration_count", ctypes.c_uint64),
        ("launch_start_ns", ctypes.c_int64),
        ("iteration_start_ns", ctypes.c_int64),
        ("launch_done_ratio", ctypes.c_double),
        ("sm_cycle_count", ctypes.c_double),
    ]


# Cycles in 1e9, bytes and joules: half a millisecond to two for a launch.
COMPUTE_BOUND = Kernel(0.001, 1e8, 0.08, 0.01, 1.0, 4.0, 0.0)
MEMORY_BOUND = Kernel(0.0003, 2e9, 0.05, 0.1, 1.0, 4.0, 0.0)


def main() -> int:
    """Load one GPU for a while; 1 where there is no fake driver in real time."""
    asked = arguments()
    library = loaded()
    if library is None:
        return fail(f"no fake NVIDIA driver is here: make fake-nvml builds {BUILD / LIBRARY}")
    code = library.nvmlInit_v2()
    if code:
        return fail(f"the fake driver answers {code} (NVML)")
    if library.fakenvml_is_virtual_time():
        return fail("time stands still on this fake driver: start it with FAKE_NVML_TIME=real")
    gpu = ctypes.c_uint(asked.gpu)
    kernel = MEMORY_BOUND if asked.is_memory_bound else COMPUTE_BOUND
    number = ctypes.c_uint32()
    code = library.fakenvml_add_kernel(gpu, ctypes.byref(kernel), ctypes.byref(number))
    code = code or library.fakenvml_run(gpu, ctypes.byref(Step(number.value, 1)), 1)
    if code:
        return fail(f"GPU {asked.gpu} takes no work (NVML {code}): is there one, and is it free?")
    time.sleep(asked.duration_s)
    progress = Progress()
    code = library.fakenvml_progress(gpu, ctypes.byref(progress))
    library.fakenvml_run(gpu, None, 0)
    if code:
        return fail(f"the work on GPU {asked.gpu} ended early (NVML {code})")
    sys.stdout.write(f"{progress.launch_count} launches in {asked.duration_s:g} s\n")
    return 0


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description="Work for a GPU of the fake NVIDIA driver.")
    parser.add_argument("--gpu", type=int, default=0, help="its number for the driver (0)")
    parser.add_argument(
        "--seconds", dest="duration_s", type=float, default=10.0, help="how long (10)"
    )
    parser.add_argument("--memory-bound", dest="is_memory_bound", action="store_true")
    return parser.parse_args()


def loaded() -> ctypes.CDLL | None:
    """The fake driver that LD_LIBRARY_PATH leads to, or else the one built here."""
    for place in (LIBRARY, os.fspath(BUILD / LIBRARY)):
        try:
            library = ctypes.CDLL(place)
        except OSError:
            continue
        if hasattr(library, "fakenvml_abi"):
            return library
    return None


def fail(why: str) -> int:
    """Say it on standard error."""
    sys.stderr.write(f"{why}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
