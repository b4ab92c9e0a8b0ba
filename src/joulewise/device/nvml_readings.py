"""Single readings of one GPU, by the newest call of NVML that the driver has."""

from __future__ import annotations

from joulewise.device.nvml import NvmlDevice
from joulewise.device.nvml_meters import GPU_SCOPE, MODULE_SCOPE, Field
from joulewise.device.nvml_reply import LACKING, Reply
from joulewise.device.nvml_values import power_w

# nvml.h, nvmlTemperatureSensors_t.
_GPU_SENSOR = 0


def sm_clock(device: NvmlDevice) -> Reply[int]:
    """SM clock in MHz as it is now (nvmlDeviceGetClockInfo, NVML_CLOCK_SM)."""
    return device.number("nvmlDeviceGetClockInfo", 1)


def mem_clock(device: NvmlDevice) -> Reply[int]:
    """Memory clock in MHz as it is now (nvmlDeviceGetClockInfo, NVML_CLOCK_MEM)."""
    return device.number("nvmlDeviceGetClockInfo", 2)


def temperature(device: NvmlDevice) -> Reply[int]:
    """Temperature in °C (nvmlDeviceGetTemperatureV, before CUDA 12.9 nvmlDeviceGetTemperature)."""
    reply = device.temperature()
    if reply.code in LACKING:
        reply = device.number("nvmlDeviceGetTemperature", _GPU_SENSOR)
    return reply


def reasons(device: NvmlDevice) -> Reply[int]:
    """Bit mask of why the clock is not at its highest (nvmlDeviceGetCurrentClocksEventReasons)."""
    reply = device.number("nvmlDeviceGetCurrentClocksEventReasons")
    if reply.code in LACKING:
        reply = device.number("nvmlDeviceGetCurrentClocksThrottleReasons")
    return reply


def supported_reasons(device: NvmlDevice) -> Reply[int]:
    """Bit mask of the reasons that this GPU can give."""
    reply = device.number("nvmlDeviceGetSupportedClocksEventReasons")
    if reply.code in LACKING:
        reply = device.number("nvmlDeviceGetSupportedClocksThrottleReasons")
    return reply


def enforced_power_limit(device: NvmlDevice) -> Reply[int]:
    """Power limit in force in mW, whoever set it (nvmlDeviceGetEnforcedPowerLimit)."""
    return device.number("nvmlDeviceGetEnforcedPowerLimit")


def superchip(device: NvmlDevice) -> Reply[bool]:
    """Whether a chip-to-chip link ties the GPU to a CPU (nvmlDeviceGetC2cModeInfoV)."""
    return device.call("nvmlDeviceGetC2cModeInfoV").mapped(lambda info: bool(info.isC2cEnabled))


def persistence(device: NvmlDevice) -> Reply[bool]:
    """Whether persistence mode is on (nvmlDeviceGetPersistenceMode; Windows has none)."""
    return device.call("nvmlDeviceGetPersistenceMode").mapped(bool)


def partitioning(device: NvmlDevice) -> Reply[bool]:
    """Whether MIG is on now (nvmlDeviceGetMigMode)."""
    return device.call("nvmlDeviceGetMigMode").mapped(lambda modes: bool(modes[0]))


def power_scope(device: NvmlDevice, *, is_superchip: bool) -> int:
    """Scope of powers: the GPU's own, or the module's where a superchip tells only that.

    Raises:
        DeviceLost: the GPU no longer answers.
    """
    if not is_superchip:
        return GPU_SCOPE
    reply = device.fields(((Field.POWER_INSTANT, GPU_SCOPE), (Field.POWER_INSTANT, MODULE_SCOPE)))
    own, of_module = reply.known(device.title) or (None, None)
    if own is None or of_module is None:
        return GPU_SCOPE
    is_module_only = power_w(own.value) is None and power_w(of_module.value) is not None
    return MODULE_SCOPE if is_module_only else GPU_SCOPE
