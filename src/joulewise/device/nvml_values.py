"""From NVML's units and marks to SI values; what cannot be is `None`, never 0.

NVML writes *not known* as a word of all ones in many places, and drivers have been seen to
answer powers of megawatts and counters that jump (reports: amdsmi 38, compute-runtime 938).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from joulewise.domain.measurement import EventReason

_NOT_KNOWN = frozenset({0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF, 0x7FFFFFFF, 0x7FFFFFFFFFFFFFFF, -1})
# For moments boards draw about twice their limit; no meter sees three times the greatest one.
_ABSURD_LIMIT_COUNT = 3.0
_HIGHEST_W = 20_000.0
_HIGHEST_MHZ = 100_000
_COLDEST_C, _HOTTEST_C = -60.0, 200.0

# nvml.h, nvmlClocksEventReason*. Bits that are not named here are UNKNOWN.
_REASONS: Mapping[int, EventReason] = {
    0x1: EventReason.GPU_IDLE,
    0x2: EventReason.APPLICATION_CLOCKS,
    0x4: EventReason.POWER_CAP,
    0x8: EventReason.HW_SLOWDOWN,
    0x10: EventReason.SYNC_BOOST,
    0x20: EventReason.SW_THERMAL,
    0x40: EventReason.HW_THERMAL,
    0x80: EventReason.POWER_BRAKE,
    0x100: EventReason.DISPLAY_CLOCK,
}

# nvml.h, NVML_DEVICE_ARCH_*.
_ARCHITECTURES: Mapping[int, str] = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada",
    9: "Hopper",
    10: "Blackwell",
    13: "Rubin",
}


def power_w(power_mw: float | None, greatest_limit_w: float | None = None) -> float | None:
    """Power in W from mW; `None` for a mark, a negative value or more than the board can draw.

    Args:
        power_mw: as NVML gives it.
        greatest_limit_w: the highest power limit of the board; three times as much is absurd.
    """
    if power_mw is None or power_mw in _NOT_KNOWN or power_mw < 0:
        return None
    highest_w = _HIGHEST_W if greatest_limit_w is None else _ABSURD_LIMIT_COUNT * greatest_limit_w
    value_w = power_mw / 1000.0
    return value_w if value_w <= highest_w else None


def energy_j(energy_mj: float | None) -> float | None:
    """Energy in J from mJ; a counter at 0 is a counter, and whether it moves is seen later."""
    return None if energy_mj is None or energy_mj in _NOT_KNOWN else energy_mj / 1000.0


def duration_s(duration_ns: float | None) -> float | None:
    """A counter of time in s from ns."""
    if duration_ns is None or duration_ns in _NOT_KNOWN or duration_ns < 0:
        return None
    return duration_ns / 1e9


def clock_mhz(value_mhz: float | None) -> int | None:
    """A clock; a domain that does not tick (0) has none."""
    if value_mhz is None or not 0 < value_mhz <= _HIGHEST_MHZ:
        return None
    return int(value_mhz)


def temperature_c(value_c: float | None) -> float | None:
    """A temperature in °C."""
    if value_c is None or not _COLDEST_C < value_c < _HOTTEST_C:
        return None
    return float(value_c)


@lru_cache(maxsize=1024)
def event_reasons(bits: int | None) -> frozenset[EventReason] | None:
    """Reasons for a lower clock from NVML's bit mask; empty where nothing holds it down."""
    if bits is None:
        return None
    reasons = {reason for bit, reason in _REASONS.items() if bits & bit}
    if bits & ~sum(_REASONS):
        reasons.add(EventReason.UNKNOWN)
    return frozenset(reasons)


def architecture(number: int | None) -> str | None:
    """Name of an architecture (nvmlDeviceGetArchitecture)."""
    if number is None or number in _NOT_KNOWN:
        return None
    return _ARCHITECTURES.get(number, f"architecture {number}")
