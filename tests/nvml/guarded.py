"""A process that holds a GPU of the fake driver as any command of joulewise does: `lease_on`.

Run as a program: `guarded.py LIBRARY WAY`. With `by hand` as LIBRARY the environment names it.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import sys
import time
from pathlib import Path

LOW_MHZ, LOW_W = 1200, 200.0


def main(library: str, way: str) -> None:
    if library == "preloaded":
        ctypes.CDLL(os.environ["PRELOADED"])
    elif library != "by hand":
        from joulewise.device.nvml import use_library

        use_library(Path(library))
    from joulewise.device.nvml_gpu import open_nvml
    from joulewise.domain.points import OperatingPoint
    from joulewise.workflow.leasing import lease_on

    with lease_on(open_nvml("nvml:0,memory_lock=on")) as lease:
        lease.apply(OperatingPoint(sm_clock_mhz=LOW_MHZ, mem_clock_mhz=5001, power_limit_w=LOW_W))
        if way == "workers":
            start_workers()
        sys.stdout.write("holding\n")
        sys.stdout.flush()
        if way != "end":
            time.sleep(30.0)


def start_workers() -> None:
    """Some that end, one that is ended, one that ends as programs do, and one that stays."""
    fork = multiprocessing.get_context("fork")
    workers = [fork.Process(target=time.sleep, args=(s,)) for s in (0.0, 0.0, 30.0, 5.0)]
    for worker in workers:
        worker.start()
    workers[2].terminate()
    for worker in workers[:3]:
        worker.join()
    child = os.fork()
    if child == 0:
        sys.exit(0)
    os.waitpid(child, 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
