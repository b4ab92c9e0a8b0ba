"""A thin typed rim over nvidia-ml-py: the only module that imports `pynvml`.

Every call comes back as a `Reply`: a value or a return code, never an exception of the binding.
`needed` and `known` turn codes into the errors of this package, in one place for all calls:

* 3, 13 and their like: this GPU or driver lacks it: `None`, or NotSupported where it is needed
* 4, 17: NotPermitted
* 15, 16, 18, 28: DeviceLost
* 10, 27, 999: asked again a few times, then DeviceError

Of the functions called here the binding checks every return code itself, except for
`nvmlDeviceSetPowerManagementLimit_v2`, whose code it drops: that one is called by its pointer.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import ModuleType
from typing import Any, Final, Generic, TypeVar

from joulewise.domain.errors import (
    BusyError,
    DeviceError,
    DeviceLost,
    JoulewiseError,
    NotPermitted,
    NotSupported,
)

T = TypeVar("T")
V = TypeVar("V")
Pause = Callable[[float], None]


class Code(IntEnum):
    """Return codes of NVML that are told apart here (nvml.h, enum nvmlReturn_t)."""

    SUCCESS = 0
    UNINITIALIZED = 1
    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    NOT_FOUND = 6
    DRIVER_NOT_LOADED = 9
    TIMEOUT = 10
    LIBRARY_NOT_FOUND = 12
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    OPERATING_SYSTEM = 17
    VERSION_MISMATCH = 18
    IN_USE = 19
    NO_DATA = 21
    FREQ_NOT_SUPPORTED = 24
    ARGUMENT_VERSION_MISMATCH = 25
    DEPRECATED = 26
    NOT_READY = 27
    GPU_NOT_FOUND = 28
    UNKNOWN = 999


# What a question that this GPU or this driver has no answer to comes back with.
LACKING: Final = frozenset(
    {
        Code.NOT_SUPPORTED,
        Code.FUNCTION_NOT_FOUND,
        Code.NO_DATA,
        Code.NOT_FOUND,
        Code.ARGUMENT_VERSION_MISMATCH,
        Code.DEPRECATED,
    }
)
TOO_OLD: Final = frozenset({Code.FUNCTION_NOT_FOUND, Code.ARGUMENT_VERSION_MISMATCH})
REFUSED: Final = frozenset({Code.NO_PERMISSION, Code.OPERATING_SYSTEM})
LOST: Final = frozenset(
    {Code.GPU_IS_LOST, Code.RESET_REQUIRED, Code.VERSION_MISMATCH, Code.GPU_NOT_FOUND}
)
_PASSING: Final = frozenset({Code.TIMEOUT, Code.NOT_READY, Code.UNKNOWN})
# GPUs that are set one after the other are ready again within some ten ms.
_RETRY_PAUSES_S = (0.005, 0.05, 0.2)
_PERMISSION_HINT = (
    "Setting clocks and power limits needs CAP_SYS_ADMIN in the host's user namespace: run as "
    "root, or in Docker with --cap-add SYS_ADMIN; root of a rootless container is not enough. "
    "Reading needs no rights."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply(Generic[T]):
    """What one call of NVML came back with: a value, or a code that is not 0."""

    call: str
    code: int = 0
    value: T | None = None
    text: str = ""

    def needed(self, gpu: str = "NVML") -> T:
        """The value. Raises the error that the code stands for."""
        if self.code != Code.SUCCESS or self.value is None:
            raise self.error(gpu)
        return self.value

    def known(self, gpu: str = "NVML") -> T | None:
        """The value; `None` where the GPU or the driver lacks it or will not tell it."""
        if self.code in LACKING or self.code in REFUSED:
            return None
        return self.needed(gpu)

    def mapped(self, read: Callable[[T], V | None]) -> Reply[V]:
        """The same reply with its value, where there is one, read by `read`."""
        value = None if self.value is None else read(self.value)
        return Reply(call=self.call, code=self.code, value=value, text=self.text)

    def error(self, gpu: str) -> JoulewiseError:
        """The error that the code stands for; names the GPU, the call and the driver's words."""
        kind, hint = _KINDS.get(self.code, (DeviceError, None))
        return kind(f"{gpu}: {self.said}", hint=hint)

    @property
    def said(self) -> str:
        """The call and the driver's words."""
        return f"{self.call} answered {self.text or 'nothing'!r} (NVML {self.code})"


_KINDS: dict[int, tuple[type[JoulewiseError], str | None]] = {
    Code.INVALID_ARGUMENT: (NotSupported, "The driver takes other values; list them anew."),
    Code.NOT_SUPPORTED: (
        NotSupported,
        (
            "This GPU cannot do that, or not through vGPU, WSL or this container runtime; "
            "`joulewise doctor` shows what it can."
        ),
    ),
    Code.NOT_FOUND: (NotSupported, "`joulewise doctor` shows what this GPU can do."),
    Code.FUNCTION_NOT_FOUND: (NotSupported, "Install a newer NVIDIA driver."),
    Code.ARGUMENT_VERSION_MISMATCH: (NotSupported, "Install a newer NVIDIA driver."),
    Code.DEPRECATED: (
        NotSupported,
        "The driver dropped this function; look for a newer joulewise.",
    ),
    Code.FREQ_NOT_SUPPORTED: (NotSupported, "The driver does not take this clock now."),
    Code.NO_PERMISSION: (NotPermitted, _PERMISSION_HINT),
    Code.OPERATING_SYSTEM: (
        NotPermitted,
        "The operating system keeps this process from the GPU's device files (cgroup, container).",
    ),
    Code.DRIVER_NOT_LOADED: (
        NotSupported,
        "Install the NVIDIA driver, or load it (modprobe nvidia); nvidia-smi must work first.",
    ),
    Code.LIBRARY_NOT_FOUND: (
        NotSupported,
        (
            "Install the NVIDIA driver, which brings libnvidia-ml.so.1; start a container with "
            "--gpus all (NVIDIA Container Toolkit). Virtual GPUs need no driver: --device "
            "virtual:rtx3080ti."
        ),
    ),
    Code.GPU_IS_LOST: (DeviceLost, "Look at the kernel log (Xid), then reset the GPU or reboot."),
    Code.RESET_REQUIRED: (DeviceLost, "Reset the GPU (nvidia-smi -r) or reboot."),
    Code.VERSION_MISMATCH: (
        DeviceLost,
        "The driver was updated while loaded: reload its kernel modules or reboot.",
    ),
    Code.GPU_NOT_FOUND: (DeviceLost, "The GPU is gone; look at the kernel log."),
    Code.IN_USE: (BusyError, "Another program has the GPU to itself: wait, or end it."),
    Code.UNKNOWN: (
        DeviceError,
        (
            "In a container that lost its GPU (systemctl daemon-reload does that), start the "
            "container anew; elsewhere look at the kernel log."
        ),
    ),
}


def _binding() -> ModuleType:
    import pynvml  # noqa: PLC0415 - only those who ask for a GPU pay for it

    return pynvml  # type: ignore[no-any-return]


def call(function: str, *arguments: object, pause: Pause | None = None) -> Reply[Any]:
    """Call a function of NVML by its name in the binding.

    A code that may pass is asked again a few times, where `pause` can wait in between.
    """
    reply = _call_once(function, arguments)
    if reply.code == Code.UNINITIALIZED and function != "nvmlShutdown":
        # Somebody in this process shut NVML down once too often.
        started = _start()
        reply = started if started.code else _call_once(function, arguments)
    for pause_s in _RETRY_PAUSES_S if pause is not None else ():
        if reply.code not in _PASSING:
            break
        pause(pause_s)  # type: ignore[misc]
        reply = _call_once(function, arguments)
    return reply


def _call_once(function: str, arguments: Sequence[object]) -> Reply[Any]:
    binding = _binding()
    try:
        value = getattr(binding, function)(*arguments)
    except binding.NVMLError as error:
        return Reply(call=function, code=int(error.value), text=str(error))
    except (binding.NVMLLibraryMismatchError, AttributeError) as error:
        # The driver, or the binding, is older than the function.
        return Reply(call=function, code=Code.FUNCTION_NOT_FOUND, text=str(error))
    return Reply(call=function, value=True if value is None else value)


def code_text(code: int) -> str:
    """The driver's words for a return code."""
    return str(_binding().NVMLError(code)) if code else ""


def call_unchecked_by_binding(function: str, *arguments: object) -> Reply[bool]:
    """Call a function of the library whose return code the binding drops."""
    binding = _binding()
    try:
        code = int(binding._nvmlGetFunctionPointer(function)(*arguments))  # noqa: SLF001
        text = code_text(code)
    except binding.NVMLError as error:
        code, text = int(error.value), str(error)
    return Reply(call=function, code=code, value=True if code == Code.SUCCESS else None, text=text)


_start_lock = threading.Lock()
_started_pids: set[int] = set()


def start() -> Reply[bool]:
    """Start NVML once in this process; it is shut down when the interpreter exits."""
    with _start_lock:
        # A forked child has to start it for itself.
        if os.getpid() in _started_pids:
            return Reply(call="nvmlInit", value=True)
        reply = _start()
        if reply.code == Code.SUCCESS:
            _started_pids.add(os.getpid())
            atexit.register(_stop, os.getpid())
        return reply


def _start() -> Reply[bool]:
    return _call_once("nvmlInit", ())


def _stop(pid: int) -> None:
    if os.getpid() == pid:
        _call_once("nvmlShutdown", ())


def require_nvml() -> None:
    """Start NVML. Raises NotSupported where there is no usable driver, with what to install."""
    reply = start()
    if reply.code == Code.VERSION_MISMATCH:
        # Nothing was lost: there never was a device.
        raise NotSupported(f"NVML: {reply.said}", hint=_KINDS[Code.VERSION_MISMATCH][1])
    reply.needed()


def is_fake_library() -> bool:
    """Whether the library that NVML calls go to is joulewise's fake driver."""
    binding = _binding()
    with contextlib.suppress(binding.NVMLError):
        binding._LoadNvmlLibrary()  # noqa: SLF001 - loads, and starts nothing
    return hasattr(binding.nvmlLib, "fakenvml_abi")


class NvmlDevice:
    """One GPU as NVML knows it: calls by name, with this GPU's handle as first argument."""

    def __init__(self, handle: object, index: int, pause: Pause) -> None:
        """Use a handle of this process; `pause` waits between tries."""
        self._handle = handle
        self._pause = pause
        self.index = index
        self.title = f"GPU {index}"

    def call(self, function: str, *arguments: object) -> Reply[Any]:
        """Call `function` for this GPU, again where a failure may pass."""
        return call(function, self._handle, *arguments, pause=self._pause)

    def fields(self, ids: Sequence[tuple[int, int]]) -> Reply[tuple[Reply[float], ...]]:
        """Read many fields in one call (nvmlDeviceGetFieldValues).

        Args:
            ids: pairs (field, scope). Each field has its own return code.
        """
        reply = self.call("nvmlDeviceGetFieldValues", list(ids))
        return reply.mapped(
            lambda values: tuple(
                _field_value(field, scope, kind, code, raw)
                for field, scope, _, _, kind, code, raw in _FIELD_VALUE.iter_unpack(values)
            )
        )

    def set_power_limit(self, limit_mw: int) -> Reply[bool]:
        """Set the power limit in mW (nvmlDeviceSetPowerManagementLimit, else its _v2)."""
        reply: Reply[bool] = self.call("nvmlDeviceSetPowerManagementLimit", limit_mw)
        return self._set_power_limit_v2(limit_mw) if reply.code in TOO_OLD else reply

    def _set_power_limit_v2(self, limit_mw: int) -> Reply[bool]:
        import ctypes  # noqa: PLC0415 - hardly ever needed

        binding = _binding()
        value = binding.c_nvmlPowerValue_v2_t()
        value.version = binding.nvmlPowerValue_v2
        value.powerScope = 0
        value.powerValueMw = limit_mw
        return call_unchecked_by_binding(
            "nvmlDeviceSetPowerManagementLimit_v2", self._handle, ctypes.byref(value)
        )

    def gpm_metrics(
        self, before: object, after: object, metrics: Sequence[int]
    ) -> Reply[tuple[Reply[float], ...]]:
        """GPM metrics between two samples (nvmlGpmMetricsGet); each has its own code."""
        binding = _binding()
        asked = binding.c_nvmlGpmMetricsGet_t()
        asked.version = binding.NVML_GPM_METRICS_GET_VERSION
        asked.numMetrics = len(metrics)
        asked.sample1, asked.sample2 = before, after
        for slot, metric in enumerate(metrics):
            asked.metrics[slot].metricId = metric
        reply = call("nvmlGpmMetricsGet", asked, pause=self._pause)
        got = [asked.metrics[slot] for slot in range(len(metrics))]
        return reply.mapped(lambda _: tuple(_metric_value(metric) for metric in got))


# nvmlFieldValue_t: field, scope, timestamp, latency, type of the value, code, value. Unpacked at
# once, for the binding's structures look every attribute up in Python.
_FIELD_VALUE = struct.Struct("=IIqqIIQ")
_DOUBLE, _SIGNED_64, _SIGNED_32 = 0, 4, 5
# Bits of nvmlValue_t that count, by type (enum nvmlValueType_t).
_VALUE_BITS = (64, 32, 8 * struct.calcsize("L"), 64, 64, 32, 16)


def _field_value(field: int, scope: int, kind: int, code: int, raw: int) -> Reply[float]:
    if code == Code.SUCCESS and kind < len(_VALUE_BITS):
        return Reply(call="nvmlDeviceGetFieldValues", value=_value(kind, raw))
    code = code or Code.NOT_SUPPORTED
    return Reply(call=f"field {field} of scope {scope}", code=code, text=code_text(code))


def _value(kind: int, raw: int) -> float:
    """Read the union nvmlValue_t, whose unused bytes may hold anything."""
    if kind == _DOUBLE:
        (value,) = struct.unpack("=d", raw.to_bytes(8, sys.byteorder))
        return float(value)
    bits = _VALUE_BITS[kind]
    number = raw & ((1 << bits) - 1)
    is_negative = kind in (_SIGNED_64, _SIGNED_32) and number >> (bits - 1)
    return number - (1 << bits) if is_negative else number


def _metric_value(raw: Any) -> Reply[float]:  # noqa: ANN401 - a structure of ctypes
    code, name = int(raw.nvmlReturn), f"GPM metric {raw.metricId}"
    if code == Code.SUCCESS:
        return Reply(call=name, value=float(raw.value))
    return Reply(call=name, code=code, text=code_text(code))


def handle_by_index(index: int, pause: Pause) -> Reply[NvmlDevice]:
    """A GPU by its NVML index (nvmlDeviceGetHandleByIndex_v2)."""
    reply = call("nvmlDeviceGetHandleByIndex", index, pause=pause)
    return reply.mapped(lambda handle: NvmlDevice(handle, index, pause))


class LostDevice(NvmlDevice):
    """A GPU that gave no handle: it answers every question as it answered that one."""

    def __init__(self, index: int, reply: Reply[NvmlDevice], pause: Pause) -> None:
        """Answer with the code of `reply`."""
        super().__init__(None, index, pause)
        self._reply = reply

    def call(self, function: str, *arguments: object) -> Reply[Any]:  # noqa: ARG002 - never asked
        """The code of the handle that there is not, under its own name."""
        return Reply(call=self._reply.call, code=self._reply.code, text=self._reply.text)
