"""What NVML tells of itself and of each GPU, for people: every fact, or why there is none."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from joulewise.device.nvml import (
    LostDevice,
    NvmlDevice,
    Pause,
    call,
    code_text,
    handle_by_index,
    is_fake_library,
    require_nvml,
)
from joulewise.device.nvml_clocks import listed_mem_clocks, listed_sm_clocks
from joulewise.device.nvml_discovery import pci_reply
from joulewise.device.nvml_gpm import gpm_support
from joulewise.device.nvml_meters import GPU_SCOPE, MEMORY_SCOPE, MODULE_SCOPE, Field
from joulewise.device.nvml_processes import compute_processes
from joulewise.device.nvml_readings import (
    enforced_power_limit,
    mem_clock,
    partitioning,
    persistence,
    reasons,
    sm_clock,
    superchip,
    supported_reasons,
    temperature,
)
from joulewise.device.nvml_reply import LACKING, REFUSED, TOO_OLD, Code, Reply
from joulewise.device.nvml_values import (
    architecture,
    clock_mhz,
    duration_s,
    energy_j,
    event_reasons,
    power_w,
    temperature_c,
)
from joulewise.device.real_time import MonotonicTimer
from joulewise.domain.errors import JoulewiseError, NotPermitted
from joulewise.domain.gpu_facts import Absence, DriverFacts, Fact, GpuFacts

_VIRTUALIZATION = {
    0: "none",
    1: "passthrough",
    2: "vGPU guest",
    3: "vGPU host",
    4: "vGPU host",
}
_UNKNOWN_STATE = 32
_MEMORY_CLOCK_SWITCHES = {1: "after a driver reload", 2: "at once"}
_Facts = dict[str, Fact[Any]]


def driver_facts() -> DriverFacts:
    """The driver and its library; never raises, for `problem` says what is wrong."""
    try:
        require_nvml()
    except JoulewiseError as error:
        absent: Fact[Any] = Fact(absence=Absence.NOT_ANSWERED, reason=error.message)
        return DriverFacts(
            is_fake=is_fake_library(),
            driver_version=absent,
            nvml_version=absent,
            cuda_version=absent,
            gpu_count=absent,
            problem=error.message,
            hint=error.hint,
        )
    count = call("nvmlDeviceGetCount", pause=MonotonicTimer().sleep)
    failure = None if count.code == Code.SUCCESS else _error_of(count)
    return DriverFacts(
        is_fake=is_fake_library(),
        driver_version=fact(call("nvmlSystemGetDriverVersion"), _text),
        nvml_version=fact(call("nvmlSystemGetNVMLVersion"), _text),
        cuda_version=fact(call("nvmlSystemGetCudaDriverVersion"), _cuda_version),
        gpu_count=fact(count, int),
        problem=None if failure is None else failure.message,
        hint=None if failure is None else failure.hint,
    )


def _error_of(count: Reply[Any]) -> JoulewiseError:
    """Why the GPUs cannot even be counted."""
    if count.code == Code.NO_PERMISSION:
        return NotPermitted(
            f"NVML: {count.said}",
            hint="This account may not open the GPUs' device files; look at their owner and mode.",
        )
    return count.error("NVML")


def gpu_facts(*, pause: Pause | None = None) -> tuple[GpuFacts, ...]:
    """Every GPU that the driver lists, also one that no longer answers.

    Reads only. Empty where NVML cannot be used: see `driver_facts`.

    Args:
        pause: waits between tries of what may pass; `None` for the time of the machine.
    """
    pause = MonotonicTimer().sleep if pause is None else pause
    count = driver_facts().gpu_count.value or 0
    return tuple(_facts_of(index, pause) for index in range(count))


def _same(value: object) -> object:
    return value


def fact(reply: Reply[Any], read: Callable[[Any], object] = _same) -> Fact[Any]:
    """A fact from a reply; `read` converts it, and gives `None` for what cannot be."""
    if reply.code != Code.SUCCESS or reply.value is None:
        return Fact(absence=absence(reply.code), reason=reply.said)
    value = read(reply.value)
    if value is None:
        seen = f"{reply.call} answered {reply.value!r}, which stands for nothing"
        return Fact(absence=Absence.IMPLAUSIBLE, reason=seen)
    return Fact(value=value)


def absence(code: int) -> Absence:
    """Why a code brings no value."""
    if code in TOO_OLD:
        return Absence.DRIVER_TOO_OLD
    if code in LACKING:
        return Absence.NOT_SUPPORTED
    return Absence.NOT_PERMITTED if code in REFUSED else Absence.NOT_ANSWERED


def _facts_of(index: int, pause: Pause) -> GpuFacts:
    opened = handle_by_index(index, pause)
    device = opened.value or LostDevice(index, opened, pause)
    return GpuFacts(
        index=index, **_which(device), **_obstacles(device), **_knobs(device), **_meters(device)
    )


def _which(device: NvmlDevice) -> _Facts:
    capability = device.call("nvmlDeviceGetCudaComputeCapability")
    virtualization = device.call("nvmlDeviceGetVirtualizationMode")
    return {
        "uuid": fact(device.call("nvmlDeviceGetUUID"), _text),
        "name": fact(device.call("nvmlDeviceGetName"), _text),
        "pci": fact(pci_reply(device), str),
        "architecture": fact(device.call("nvmlDeviceGetArchitecture"), architecture),
        "compute_capability": fact(capability, lambda pair: f"{pair[0]}.{pair[1]}"),
        "virtualization": fact(virtualization, _VIRTUALIZATION.get),
    }


def _obstacles(device: NvmlDevice) -> _Facts:
    field = partial(_field, device)
    return {
        "is_persistent": fact(persistence(device)),
        "is_partitioned": fact(partitioning(device)),
        "is_superchip": fact(superchip(device)),
        "is_power_smoothed": field(Field.POWER_SMOOTHING, GPU_SCOPE, bool),
        "compute_processes": fact(compute_processes(device)),
    }


def _knobs(device: NvmlDevice) -> _Facts:
    field = partial(_field, device)
    limits = device.call("nvmlDeviceGetPowerManagementLimitConstraints")
    default = device.call("nvmlDeviceGetPowerManagementDefaultLimit")
    state = device.call("nvmlDeviceGetPerformanceState")
    return {
        "sm_clocks_mhz": fact(listed_sm_clocks(device)),
        "mem_clocks_mhz": fact(listed_mem_clocks(device)),
        "power_limit_w": fact(device.call("nvmlDeviceGetPowerManagementLimit"), power_w),
        "default_power_limit_w": fact(default, power_w),
        "least_power_limit_w": fact(limits, lambda pair: power_w(pair[0])),
        "greatest_power_limit_w": fact(limits, lambda pair: power_w(pair[1])),
        "enforced_power_limit_w": fact(enforced_power_limit(device), power_w),
        "memory_clock_switch": field(
            Field.MEMORY_CLOCK_SWITCH, GPU_SCOPE, lambda way: _MEMORY_CLOCK_SWITCHES.get(int(way))
        ),
        "memory_clock_switch_interval_s": field(
            Field.MEMORY_CLOCK_INTERVAL, GPU_SCOPE, lambda interval_ms: interval_ms / 1000
        ),
        "sm_clock_mhz": fact(sm_clock(device), clock_mhz),
        "mem_clock_mhz": fact(mem_clock(device), clock_mhz),
        "performance_state": fact(state, lambda p: f"P{p}" if p < _UNKNOWN_STATE else None),
        "temp_c": fact(temperature(device), temperature_c),
        "event_reasons": fact(reasons(device), event_reasons),
        "supported_event_reasons": fact(supported_reasons(device), event_reasons),
    }


def _meters(device: NvmlDevice) -> _Facts:
    field = partial(_field, device)
    return {
        "energy_j": fact(device.call("nvmlDeviceGetTotalEnergyConsumption"), energy_j),
        "power_w": field(Field.POWER_INSTANT, GPU_SCOPE, power_w),
        "average_power_w": field(Field.POWER_AVERAGE, GPU_SCOPE, power_w),
        "usage_power_w": fact(device.call("nvmlDeviceGetPowerUsage"), power_w),
        "module_power_w": field(Field.POWER_INSTANT, MODULE_SCOPE, power_w),
        "memory_power_w": field(Field.POWER_AVERAGE, MEMORY_SCOPE, power_w),
        "power_capped_s": field(Field.POWER_CAPPED, GPU_SCOPE, duration_s),
        "sw_thermal_s": field(Field.SW_THERMAL, GPU_SCOPE, duration_s),
        "hw_thermal_s": field(Field.HW_THERMAL, GPU_SCOPE, duration_s),
        "power_braked_s": field(Field.POWER_BRAKED, GPU_SCOPE, duration_s),
        "sync_boosted_s": field(Field.SYNC_BOOSTED, GPU_SCOPE, duration_s),
        "is_clock_accumulated": field(Field.ACCUMULATED_CLOCK, GPU_SCOPE, _is_there),
        "is_activity_accumulated": field(Field.ACCUMULATED_ACTIVITY, GPU_SCOPE, _is_there),
        "is_activity_metered": fact(gpm_support(device)),
        "mma_stall_ratio": field(Field.MMA_STALL, GPU_SCOPE, lambda percent: percent / 100),
    }


def _field(
    device: NvmlDevice, field: int, scope: int, read: Callable[[float], object]
) -> Fact[Any]:
    """One field of one scope; its own code says why there is none."""
    reply = device.fields(((field, scope),))
    if reply.value is None:
        return fact(reply)
    (got,) = reply.value
    # A field that a driver does not know at all is an invalid argument to it.
    code = Code.FUNCTION_NOT_FOUND if got.code == Code.INVALID_ARGUMENT else got.code
    name = f"field {field} of scope {scope}"
    return fact(Reply(call=name, code=code, value=got.value, text=code_text(got.code)), read)


def _is_there(_value: float) -> bool:
    """Of a field whose value alone says nothing."""
    return True


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _cuda_version(number: int) -> str:
    """13020 is 13.2 (NVML_CUDA_DRIVER_VERSION_MAJOR and _MINOR)."""
    return f"{number // 1000}.{number % 1000 // 10}"
