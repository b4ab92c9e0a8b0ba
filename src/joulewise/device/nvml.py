"""A thin typed rim over nvidia-ml-py: the only module that imports `pynvml`.

Every call comes back as a `Reply`: a value or a return code, never an exception of the binding.
Of the functions called through the binding, the binding checks every return code. The others are
called by their pointers and checked here: `nvmlDeviceSetPowerManagementLimit_v2`, whose code the
binding drops, and what is read ten times a second, for the binding takes its time over that.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from joulewise.device.nvml_reply import ERRORS, PASSING, TOO_OLD, Code, Reply
from joulewise.domain.errors import InputError, NotPermitted, NotSupported

V = TypeVar("V")
Pause = Callable[[float], None]


# GPUs that are set one after the other are ready again within some ten ms.
_RETRY_PAUSES_S = (0.005, 0.05, 0.2)


@cache
def _binding() -> ModuleType:
    import pynvml  # noqa: PLC0415 - only those who ask for a GPU pay for it

    return pynvml  # type: ignore[no-any-return]


def call(function: str, *arguments: object, pause: Pause | None = None) -> Reply[Any]:
    """Call a function of NVML by its name in the binding.

    A code that may pass is asked again a few times, where `pause` can wait in between.
    """
    reply = _call_once(function, arguments)
    if reply.code == Code.SUCCESS:
        return reply
    return _persist(reply, lambda: _call_once(function, arguments), pause)


def _persist(reply: Reply[V], ask: Callable[[], Reply[V]], pause: Pause | None) -> Reply[V]:
    """Ask again after `reply` where that may help."""
    if reply.code == Code.UNINITIALIZED:
        # Somebody in this process shut NVML down once too often.
        started = _start()
        reply = ask() if started.code == Code.SUCCESS else reply
    if pause is None:
        return reply
    for pause_s in _RETRY_PAUSES_S:
        if reply.code not in PASSING:
            break
        pause(pause_s)
        reply = ask()
    return reply


def _call_once(function: str, arguments: Sequence[object]) -> Reply[Any]:
    binding = _binding()
    wrapper = getattr(binding, function, None)
    if wrapper is None:
        return Reply(call=function, code=Code.FUNCTION_NOT_FOUND, text="nvidia-ml-py is too old")
    try:
        value = wrapper(*arguments)
    except binding.NVMLError as error:
        return Reply(call=function, code=int(error.value), text=str(error))
    except binding.NVMLLibraryMismatchError as error:
        # No NVMLError, though it says that the driver is older than the function.
        return Reply(call=function, code=Code.FUNCTION_NOT_FOUND, text=str(error))
    return Reply(call=function, value=True if value is None else value)


def code_text(code: int) -> str:
    """The driver's words for a return code."""
    return str(_binding().NVMLError(code)) if code else ""


def _call_pointer(function: str, arguments: Sequence[object]) -> int:
    """The code of a function of the library itself, called past the binding."""
    binding = _binding()
    try:
        return int(binding._nvmlGetFunctionPointer(function)(*arguments))  # noqa: SLF001
    except binding.NVMLError as error:
        return int(error.value)


def _failure(function: str, arguments: Sequence[object], pause: Pause) -> Reply[Any] | None:
    """Call past the binding, again where that may help; `None` for success."""
    code = _call_pointer(function, arguments)
    if code == Code.SUCCESS:
        return None

    def ask() -> Reply[Any]:
        code = _call_pointer(function, arguments)
        return Reply(call=function, code=code, text=code_text(code))

    reply = _persist(Reply(call=function, code=code, text=code_text(code)), ask, pause)
    return None if reply.code == Code.SUCCESS else reply


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
            atexit.register(stop)
        return reply


def stop() -> None:
    """Shut NVML down where this process has started it; whoever starts it later does so anew."""
    with _start_lock:
        if os.getpid() in _started_pids:
            _started_pids.remove(os.getpid())
            atexit.unregister(stop)
            _call_once("nvmlShutdown", ())


def _start() -> Reply[bool]:
    return _call_once("nvmlInit", ())


def require_nvml() -> None:
    """Start NVML. Raises NotSupported where there is no usable driver, with what to install."""
    reply = start()
    if reply.code == Code.VERSION_MISMATCH:
        # Nothing was lost: there never was a device.
        raise NotSupported(f"NVML: {reply.said}", hint=ERRORS[Code.VERSION_MISMATCH][1])
    if reply.code == Code.NO_PERMISSION:
        raise NotPermitted(
            f"NVML: {reply.said}",
            hint="This account may not open /dev/nvidiactl and /dev/nvidia0; look at their owner "
            "and mode, or at the device rules of the container.",
        )
    reply.needed()


_LIBRARY_NAME = "libnvidia-ml.so.1"


def use_library(path: Path) -> None:
    """Load this NVML library before the binding looks for one; every call goes to it then.

    Raises InputError where it is no NVML library, or another one is loaded already.
    """
    try:
        library = ctypes.CDLL(str(path.absolute()))
    except OSError as error:
        raise InputError(
            f"this library cannot be loaded: {error}", file=str(path), hint=_LIBRARY_HINT
        ) from error
    if not hasattr(library, "nvmlInitWithFlags"):
        raise InputError("this is no NVML library", file=str(path), hint=_LIBRARY_HINT)
    if _handle_by_name() != library._handle:  # noqa: SLF001 - what tells two libraries apart
        raise InputError(
            f"the binding finds another {_LIBRARY_NAME}, or none, in its place",
            file=str(path),
            hint="Name it before anything asks for a GPU, and only a library of this very name.",
        )


def _handle_by_name() -> int | None:
    """What the binding gets: the library of this name that is loaded, else the system's."""
    with contextlib.suppress(OSError):
        return int(ctypes.CDLL(_LIBRARY_NAME)._handle)  # noqa: SLF001
    return None


_LIBRARY_HINT = f"Name the {_LIBRARY_NAME} of the NVIDIA driver, or of joulewise's fake one."


def loaded_library() -> Path | None:
    """The NVML library that this process has loaded; `None` where it has none, or not on Linux."""
    try:
        maps = Path("/proc/self/maps").read_bytes()
    except OSError:
        return None
    for line in maps.splitlines():
        fields = line.split(maxsplit=5)
        place = Path(os.fsdecode(fields[5])) if fields[5:] else Path()
        if place.name.startswith("libnvidia-ml.so") and place.is_file():
            return place
    return None


def is_fake_library() -> bool:
    """Whether the library that NVML calls go to is joulewise's fake driver."""
    binding = _binding()
    with contextlib.suppress(binding.NVMLError):
        binding._LoadNvmlLibrary()  # noqa: SLF001 - loads, and starts nothing
    return hasattr(binding.nvmlLib, "fakenvml_abi")


class FieldValue(NamedTuple):
    """One field value or GPM metric: its own return code, and the number where that is 0."""

    code: int
    value: float | None


def _no_pause(_duration_s: float) -> None:
    """Go on at once."""


class NvmlDevice:
    """One GPU as NVML knows it: calls by name, with this GPU's handle as first argument."""

    def __init__(self, handle: object, index: int, pause: Pause) -> None:
        """Use a handle of this process; `pause` waits between tries."""
        self._handle = handle
        self.pause = pause
        self.index = index
        self.title = f"GPU {index}"

    def hasty(self) -> NvmlDevice:
        """The same GPU, asked again at once or not at all, never after a pause."""
        hasty = NvmlDevice(self._handle, self.index, _no_pause)
        hasty.title = self.title
        return hasty

    def call(self, function: str, *arguments: object) -> Reply[Any]:
        """Call `function` for this GPU, again where a failure may pass."""
        return call(function, self._handle, *arguments, pause=self.pause)

    def failure(self, function: str, *arguments: object) -> Reply[Any] | None:
        """Call a function of the library for this GPU past the binding; `None` for success.

        Whoever calls this looks at the code; the binding's own functions are slower by far.
        """
        return _failure(function, (self._handle, *arguments), self.pause)

    def number(self, function: str, *arguments: int) -> Reply[int]:
        """Call a getter whose last argument points to one unsigned number, of 32 or 64 bits."""
        out = ctypes.c_uint64()
        failure = self.failure(function, *arguments, ctypes.byref(out))
        # The low half comes first on every machine that NVML runs on.
        return Reply(call=function, value=out.value) if failure is None else failure

    def fields(self, ids: tuple[tuple[int, int], ...]) -> Reply[tuple[FieldValue, ...]]:
        """Read many fields in one call (nvmlDeviceGetFieldValues).

        Args:
            ids: pairs (field, scope). Each field has its own return code.
        """
        packed = _packed(ids)
        buffer = ctypes.create_string_buffer(packed, len(packed))
        failure = self.failure("nvmlDeviceGetFieldValues", ctypes.c_int(len(ids)), buffer)
        if failure is not None:
            return failure
        values = tuple(
            FieldValue(code, _value(kind, raw) if code == Code.SUCCESS else None)
            for _, _, _, _, kind, code, raw in _FIELD_VALUE.iter_unpack(buffer.raw)
        )
        return Reply(call="nvmlDeviceGetFieldValues", value=values)

    def temperature(self) -> Reply[int]:
        """Temperature in °C (nvmlDeviceGetTemperatureV, sensor NVML_TEMPERATURE_GPU)."""
        buffer = ctypes.create_string_buffer(_TEMPERATURE.pack(_TEMPERATURE_V1, 0, 0), 12)
        failure = self.failure("nvmlDeviceGetTemperatureV", buffer)
        if failure is not None:
            return failure
        _, _, value = _TEMPERATURE.unpack(buffer.raw)
        return Reply(call="nvmlDeviceGetTemperatureV", value=value)

    def set_power_limit(self, limit_mw: int) -> Reply[bool]:
        """Set the power limit in mW (nvmlDeviceSetPowerManagementLimit, else its _v2)."""
        reply: Reply[bool] = self.call("nvmlDeviceSetPowerManagementLimit", limit_mw)
        return self._set_power_limit_v2(limit_mw) if reply.code in TOO_OLD else reply

    def _set_power_limit_v2(self, limit_mw: int) -> Reply[bool]:
        binding = _binding()
        value = binding.c_nvmlPowerValue_v2_t()
        value.version = binding.nvmlPowerValue_v2
        value.powerScope = 0
        value.powerValueMw = limit_mw
        function = "nvmlDeviceSetPowerManagementLimit_v2"
        return self.failure(function, ctypes.byref(value)) or Reply(call=function, value=True)


class GpmRequest:
    """Asks for the same GPM metrics again and again (nvmlGpmMetricsGet). Not for many threads.

    The structure takes 19 kB and is filled once.
    """

    def __init__(self, metrics: Sequence[int]) -> None:
        """Ask for these (nvmlGpmMetricId_t)."""
        binding = _binding()
        self._count = len(metrics)
        self._raw = binding.c_nvmlGpmMetricsGet_t()
        kind = type(self._raw)
        # Past the binding's own way to set attributes.
        self._set_samples = (kind.sample1.__set__, kind.sample2.__set__)
        self._first = kind.metrics.offset
        self._raw.version = binding.NVML_GPM_METRICS_GET_VERSION
        self._raw.numMetrics = self._count
        for slot, metric in enumerate(metrics):
            self._raw.metrics[slot].metricId = metric

    def between(self, before: object, after: object, pause: Pause) -> Reply[tuple[FieldValue, ...]]:
        """The metrics between two samples; each has its own code."""
        self._set_samples[0](self._raw, before)
        self._set_samples[1](self._raw, after)
        failure = _failure("nvmlGpmMetricsGet", (ctypes.byref(self._raw),), pause)
        if failure is not None:
            return failure
        values = tuple(
            FieldValue(*_METRIC.unpack_from(self._raw, self._first + slot * _METRIC.size))
            for slot in range(self._count)
        )
        return Reply(call="nvmlGpmMetricsGet", value=values)


# nvmlGpmMetric_t: id, code, value, three pointers to names.
_METRIC = struct.Struct("@4xId24x")
# nvmlTemperature_t: version, sensor, °C.
_TEMPERATURE = struct.Struct("=IIi")
_TEMPERATURE_V1 = 0x100000C
# nvmlFieldValue_t: field, scope, timestamp, latency, type of the value, code, value. Unpacked at
# once, for the binding's structures look every attribute up in Python.
_FIELD_VALUE = struct.Struct("=IIqqIIQ")
_DOUBLE, _SIGNED_64, _SIGNED_32 = 0, 4, 5
# Bits of nvmlValue_t that count, by type (enum nvmlValueType_t).
_VALUE_BITS = (64, 32, 8 * struct.calcsize("L"), 64, 64, 32, 16)


@lru_cache(maxsize=64)
def _packed(ids: tuple[tuple[int, int], ...]) -> bytes:
    return b"".join(_FIELD_VALUE.pack(field, scope, 0, 0, 0, 0, 0) for field, scope in ids)


def _value(kind: int, raw: int) -> float | None:
    """Read the union nvmlValue_t, whose unused bytes may hold anything.

    `None` for a type that is newer than this code.
    """
    if kind >= len(_VALUE_BITS):
        return None
    if kind == _DOUBLE:
        (value,) = struct.unpack("=d", raw.to_bytes(8, sys.byteorder))
        return float(value)
    bits = _VALUE_BITS[kind]
    number = raw & ((1 << bits) - 1)
    is_negative = kind in (_SIGNED_64, _SIGNED_32) and number >> (bits - 1)
    return number - (1 << bits) if is_negative else number


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

    def failure(self, function: str, *arguments: object) -> Reply[Any] | None:
        """The same: without a handle the driver must not be called."""
        return self.call(function, *arguments)
