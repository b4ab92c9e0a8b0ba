"""What a GPU takes: its own lists of clocks, never computed, and its power limits."""

from __future__ import annotations

from joulewise.device.nvml import NvmlDevice
from joulewise.device.nvml_reply import Code, Reply
from joulewise.device.nvml_values import clock_mhz, power_w
from joulewise.domain.errors import NotSupported
from joulewise.domain.points import PowerLimitRange


def listed_mem_clocks(device: NvmlDevice) -> Reply[tuple[int, ...]]:
    """Memory clocks in MHz, ascending (nvmlDeviceGetSupportedMemoryClocks)."""
    return _ascending(device.call("nvmlDeviceGetSupportedMemoryClocks"))


def listed_sm_clocks(device: NvmlDevice) -> Reply[tuple[int, ...]]:
    """SM clocks in MHz over all memory clocks, ascending (nvmlDeviceGetSupportedGraphicsClocks).

    The list of one memory clock need not be that of another: at the lowest ones few are left.
    """
    mem = listed_mem_clocks(device)
    if mem.value is None:
        return mem
    clocks: set[int] = set()
    for clock in mem.value:
        reply = _ascending(device.call("nvmlDeviceGetSupportedGraphicsClocks", clock))
        if reply.value is None and reply.code != Code.NOT_FOUND:
            return reply
        clocks.update(reply.value or ())
    return _ascending(Reply(call="nvmlDeviceGetSupportedGraphicsClocks", value=list(clocks)))


def _ascending(reply: Reply[list[int]]) -> Reply[tuple[int, ...]]:
    clocks = {clock for raw in reply.value or () if (clock := clock_mhz(raw)) is not None}
    if clocks:
        return Reply(call=reply.call, value=tuple(sorted(clocks)))
    # An empty list is how a driver says that there is none.
    code = reply.code or Code.NOT_SUPPORTED
    return Reply(call=reply.call, code=code, text=reply.text or "an empty list")


def needed_clocks(device: NvmlDevice, listed: Reply[tuple[int, ...]]) -> tuple[int, ...]:
    """A list without which no clock can be asked for. Raises NotSupported, DeviceLost."""
    if listed.known(device.title) is None:
        raise NotSupported(
            f"{device.title} lists no clocks that could be set: {listed.said}",
            hint="Clocks are never guessed. GPUs before Volta, vGPU and WSL list none; energy "
            "can still be read.",
        )
    return listed.needed(device.title)


def current_power_limit_w(device: NvmlDevice) -> float | None:
    """The power limit that is set (nvmlDeviceGetPowerManagementLimit); `None`: none is told."""
    return power_w(device.call("nvmlDeviceGetPowerManagementLimit").known(device.title))


def greatest_power_limit_w(device: NvmlDevice) -> float | None:
    """The highest power limit of the board (nvmlDeviceGetPowerManagementLimitConstraints)."""
    limits_mw = device.call("nvmlDeviceGetPowerManagementLimitConstraints").known(device.title)
    return None if limits_mw is None else power_w(limits_mw[1])


def power_limit_range(device: NvmlDevice, found_w: float | None) -> PowerLimitRange | None:
    """Limits that may be set: the board's least up to the one found, never above it.

    `None` where the board has no limit that can be set.
    """
    limits_mw = device.call("nvmlDeviceGetPowerManagementLimitConstraints").known(device.title)
    least_w = None if limits_mw is None else power_w(limits_mw[0])
    if found_w is None or least_w is None or least_w > found_w:
        return None
    return PowerLimitRange(least_w=least_w, found_w=found_w)
