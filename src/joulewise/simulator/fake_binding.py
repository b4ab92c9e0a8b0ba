"""Functions and structures of tools/fake-nvml/fake_nvml.h, for `fake_driver` alone."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final


class KernelStruct(ctypes.Structure):
    """fakenvml_kernel_t."""

    _fields_ = [
        ("compute_cycle_count", ctypes.c_double),
        ("memory_bytes", ctypes.c_double),
        ("core_j", ctypes.c_double),
        ("memory_j", ctypes.c_double),
        ("set_point_ratio", ctypes.c_double),
        ("overlap_exponent_ratio", ctypes.c_double),
        ("wait_s", ctypes.c_double),
    ]


class StepStruct(ctypes.Structure):
    """fakenvml_step_t."""

    _fields_ = [("kernel", ctypes.c_uint32), ("launch_count", ctypes.c_uint32)]


class ProgressStruct(ctypes.Structure):
    """fakenvml_progress_t."""

    _fields_ = [
        ("launch_count", ctypes.c_uint64),
        ("iteration_count", ctypes.c_uint64),
        ("launch_start_ns", ctypes.c_int64),
        ("iteration_start_ns", ctypes.c_int64),
        ("launch_done_ratio", ctypes.c_double),
        ("sm_cycle_count", ctypes.c_double),
    ]


class SteadyStruct(ctypes.Structure):
    """fakenvml_steady_t."""

    _fields_ = [
        ("time_s", ctypes.c_double),
        ("power_w", ctypes.c_double),
        ("sm_clock_mhz", ctypes.c_double),
        ("is_power_capped", ctypes.c_int),
        ("is_clock_not_held", ctypes.c_int),
    ]


class LocksStruct(ctypes.Structure):
    """fakenvml_locks_t."""

    _fields_ = [
        ("sm_min_mhz", ctypes.c_uint32),
        ("sm_max_mhz", ctypes.c_uint32),
        ("memory_min_mhz", ctypes.c_uint32),
        ("memory_max_mhz", ctypes.c_uint32),
    ]


_TEXT, _DEVICE, _COUNT = ctypes.c_char_p, ctypes.c_uint, ctypes.c_uint64
_NUMBER, _MOMENT, _ID = ctypes.c_double, ctypes.c_int64, ctypes.c_uint32
_ARGUMENTS: Final[dict[str, tuple[type[Any], ...]]] = {
    "abi": (),
    "create": (_TEXT, _TEXT, ctypes.c_uint, ctypes.c_int),
    "attach": (_TEXT,),
    "profile": (_DEVICE,),
    "is_virtual_time": (),
    "now_ns": (),
    "advance_ns": (_MOMENT,),
    "add_kernel": (_DEVICE, ctypes.POINTER(KernelStruct), ctypes.POINTER(_ID)),
    "run": (_DEVICE, ctypes.POINTER(StepStruct), ctypes.c_uint32),
    "progress": (_DEVICE, ctypes.POINTER(ProgressStruct)),
    "run_launches": (_DEVICE, _COUNT),
    "run_iterations": (_DEVICE, _COUNT),
    "blur": (_DEVICE, _NUMBER, _NUMBER),
    "steady": (_DEVICE, _ID, _NUMBER, _NUMBER, _NUMBER, ctypes.POINTER(SteadyStruct)),
    "true_energy_j": (_DEVICE,),
    "true_power_w": (_DEVICE,),
    "true_sm_clock_mhz": (_DEVICE,),
    "true_locks": (_DEVICE, ctypes.POINTER(LocksStruct)),
    "set": (_DEVICE, _TEXT, _NUMBER),
    "get": (_DEVICE, _TEXT, ctypes.POINTER(_NUMBER)),
    "fail": (_TEXT, ctypes.c_int, ctypes.c_uint),
    "foreign_lock": (_DEVICE, _MOMENT, ctypes.c_uint, ctypes.c_uint),
    "reload_driver": (),
}
_RESULTS: Final[dict[str, type[object]]] = {
    "profile": _TEXT,
    "now_ns": _MOMENT,
    "true_energy_j": _NUMBER,
    "true_power_w": _NUMBER,
    "true_sm_clock_mhz": _NUMBER,
}


def harness_functions(library: ctypes.CDLL) -> dict[str, Callable[..., Any]]:
    """The functions of the harness by their names without `fakenvml_`."""
    return {name: _function(library, name) for name in _ARGUMENTS}


def _function(library: ctypes.CDLL, name: str) -> Callable[..., Any]:
    function = library[f"fakenvml_{name}"]
    function.argtypes = _ARGUMENTS[name]
    function.restype = _RESULTS.get(name, ctypes.c_int)
    return function
