"""What a driver tells of itself and of each GPU: every fact, or why there is none.

Nothing here was set to find it out. `workflow.doctor` and `scripts/first_hour.py` read these.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from joulewise.domain.measurement import EventReason

T = TypeVar("T")


class Absence(StrEnum):
    """Why a fact is missing."""

    NOT_SUPPORTED = "not supported"
    """This GPU (or this way of reaching it: vGPU, WSL) does not have it."""
    DRIVER_TOO_OLD = "driver too old"
    """The driver does not know the question."""
    NOT_PERMITTED = "not permitted"
    """This account, or this container, may not ask."""
    IMPLAUSIBLE = "implausible"
    """The driver answered with a mark for *not known*, or with what cannot be."""
    NOT_ANSWERED = "not answered"
    """The driver failed; the reason has its words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact(Generic[T]):
    """One fact: its value, or why there is none. Never both, never neither.

    `reason` is a sentence that names the call and what the driver answered.
    """

    value: T | None = None
    absence: Absence | None = None
    reason: str | None = None

    @property
    def is_known(self) -> bool:
        """Whether there is a value."""
        return self.value is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFacts:
    """The driver and its NVML library.

    `problem` says in one sentence why NVML cannot be used at all, and `hint` what to do;
    both are `None` where it can. `is_fake` says that the library is joulewise's fake driver.
    """

    is_fake: bool
    driver_version: Fact[str]
    nvml_version: Fact[str]
    cuda_version: Fact[str]
    gpu_count: Fact[int]
    problem: str | None = None
    hint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """One GPU as NVML tells of it, in SI units, everything read once.

    `index` is NVML's, by PCI address, which need not be CUDA's.
    """

    index: int

    # Which GPU it is.
    uuid: Fact[str]
    name: Fact[str]
    pci: Fact[str]
    architecture: Fact[str]
    """Such as `Ampere`."""
    compute_capability: Fact[str]
    """Such as `8.6`."""
    virtualization: Fact[str]
    """`none`, `passthrough`, `vGPU guest` or `vGPU host`."""

    # What stands in the way.
    is_persistent: Fact[bool]
    is_partitioned: Fact[bool]
    """Whether MIG is on: all instances share one clock and one energy counter."""
    is_superchip: Fact[bool]
    """Whether a chip-to-chip link ties it to a CPU, so that the counter sees the module."""
    is_power_smoothed: Fact[bool]
    """Whether power smoothing holds a floor (field 251), which eats what low clocks save."""
    compute_processes: Fact[tuple[int, ...]]
    """Process ids with a compute context, as the driver counts them (of the host)."""

    # What can be set.
    sm_clocks_mhz: Fact[tuple[int, ...]]
    """Ascending, over all memory clocks."""
    mem_clocks_mhz: Fact[tuple[int, ...]]
    power_limit_w: Fact[float]
    """As set now, by whomever."""
    default_power_limit_w: Fact[float]
    least_power_limit_w: Fact[float]
    greatest_power_limit_w: Fact[float]
    enforced_power_limit_w: Fact[float]
    """The one in force, limits from outside the driver included."""
    memory_clock_switch: Fact[str]
    """`at once`, or `after a driver reload` (field 298)."""
    memory_clock_switch_interval_s: Fact[float]
    """Least time between two changes of the memory clock (field 299); 0: no limit."""

    # How it is now.
    sm_clock_mhz: Fact[int]
    mem_clock_mhz: Fact[int]
    performance_state: Fact[str]
    """`P0` (fastest) to `P15`."""
    temp_c: Fact[float]
    event_reasons: Fact[frozenset[EventReason]]
    supported_event_reasons: Fact[frozenset[EventReason]]

    # Which meters there are, with what they read.
    energy_j: Fact[float]
    """The energy counter, since the driver was loaded."""
    power_w: Fact[float]
    """Instant power of the GPU (field 186, scope 0)."""
    average_power_w: Fact[float]
    """Mean power of the GPU (field 185, scope 0)."""
    usage_power_w: Fact[float]
    """What `nvidia-smi` shows: instant up to Turing and on GA100, else a mean over 1 s."""
    module_power_w: Fact[float]
    """Instant power of the module (field 186, scope 1)."""
    memory_power_w: Fact[float]
    """Mean power of the memory (field 185, scope 2)."""
    power_capped_s: Fact[float]
    """Time spent power-capped (field 74); the next ones are fields 269, 270, 271 and 76."""
    sw_thermal_s: Fact[float]
    hw_thermal_s: Fact[float]
    power_braked_s: Fact[float]
    sync_boosted_s: Fact[float]
    is_clock_accumulated: Fact[bool]
    """Whether the clock is added up for balancing power (field 272), as a sign of boundness."""
    is_activity_accumulated: Fact[bool]
    """Whether the activity factor is (field 273)."""
    is_activity_metered: Fact[bool]
    """Whether GPM tells SM, tensor and DRAM activity (Hopper and later)."""
    mma_stall_ratio: Fact[float]
    """Share of time that matrix units waited (field 297)."""
