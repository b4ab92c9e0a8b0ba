"""Which GPU a device number of an export means, and what it is called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from joulewise.store.importers.traces.nsys_database import NsysDatabase
from joulewise.store.importers.traces.nsys_kernels import KernelColumns

_GPUS = ("TARGET_INFO_GPU", "TARGET_INFO_CUDA_GPU")
_DEVICES = "TARGET_INFO_CUDA_DEVICE"
_PID_BITS = 24
_MOST_GPUS_COUNT = 10**6
_PID_MASK = 2**24 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTable:
    """GPU by launch, and names of GPUs where the export has them."""

    gpu: list[int]
    names: Mapping[int, str] = field(default_factory=dict)


def read_gpus(database: NsysDatabase, launches: KernelColumns) -> GpuTable:
    """The GPU of every launch.

    CUDA numbers the GPUs that a process may see, so that device 0 of two processes can be two
    GPUs; the table of CUDA devices tells, where the export has it. Where it lacks a device, the
    numbers are taken as CUDA's.
    """
    names = _names(database)
    gpu_of_device = (
        {
            (pid, device): gpu
            for pid, device, gpu in database.rows(_DEVICES, ("pid", "cudaId", "gpuId"))
            if isinstance(device, int) and isinstance(gpu, int) and 0 <= gpu < _MOST_GPUS_COUNT
        }
        if {"pid", "cudaId", "gpuId"} <= set(database.columns(_DEVICES))
        else {}
    )
    devices = list(zip(launches.process, launches.device, strict=True))
    known = {
        (process, device): gpu_of_device.get((process >> _PID_BITS & _PID_MASK, device))
        for process, device in set(devices)
    }
    gpus = {key: gpu for key, gpu in known.items() if gpu is not None}
    if len(gpus) < len(known):
        return GpuTable(gpu=list(launches.device), names=names)
    return GpuTable(gpu=[gpus[key] for key in devices], names=names)


def _names(database: NsysDatabase) -> dict[int, str]:
    for table in _GPUS:
        if {"id", "name"} <= set(database.columns(table)):
            return {
                gpu: name
                for gpu, name in database.rows(table, ("id", "name"))
                if isinstance(gpu, int) and isinstance(name, str) and name.isprintable() and name
            }
    return {}
