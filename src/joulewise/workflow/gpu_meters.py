"""What of one GPU can be read, judged from its facts alone."""

from __future__ import annotations

from typing import TypeVar

from joulewise.domain.gpu_facts import Absence, Fact, GpuFacts
from joulewise.domain.measurement import EventReason
from joulewise.workflow.findings import Availability, Finding
from joulewise.workflow.lease_findings import NO_LEASE, LeaseTrace

T = TypeVar("T")

# A GPU that nothing holds down runs near its highest clock; heat and voltage take a few steps.
_UNHELD_RATIO = 0.8
_MANY_J = 1e6
_RESTING_STATES = frozenset(f"P{state}" for state in range(5, 16))


def can_read(gpu: GpuFacts) -> bool:
    """Whether some meter tells the energy: the counter, or any power that can be added up."""
    meters = (
        gpu.energy_j,
        gpu.power_w,
        gpu.average_power_w,
        gpu.usage_power_w,
        gpu.module_power_w,
    )
    return any(meter.is_known for meter in meters)


def meter_findings(gpu: GpuFacts, lease: LeaseTrace = NO_LEASE) -> tuple[Finding, ...]:
    """Meters, counters of event reasons, activity, and what disturbs them."""
    return (
        _energy_counter(gpu),
        _power(gpu),
        _scope(gpu),
        _reason_counters(gpu),
        _activity(gpu),
        _processes(gpu),
        _held_down(gpu, lease),
        *_smoothing(gpu),
    )


def missing(
    subject: str, fact: Fact[T], *, why: str | None = None, helps: str | None = None
) -> Finding:
    """A finding for a fact that is not there; only a device without it is *absent*."""
    is_absent = fact.absence in {Absence.NOT_SUPPORTED, Absence.DRIVER_TOO_OLD}
    if fact.absence is Absence.DRIVER_TOO_OLD:
        helps = f"Install a newer driver. {helps or ''}".strip()
    return Finding(
        subject=subject,
        status=Availability.ABSENT if is_absent else Availability.UNKNOWN,
        seen=fact.reason or (fact.absence or Absence.NOT_ANSWERED).value,
        why=why,
        helps=helps,
    )


def unsaid(subject: str, fact: Fact[T]) -> tuple[Finding, ...]:
    """A row for what would be no row if it were not so, where the driver did not answer."""
    is_open = fact.absence in {
        Absence.NOT_PERMITTED,
        Absence.NOT_ANSWERED,
        Absence.IMPLAUSIBLE,
    }
    return (missing(subject, fact),) if is_open else ()


def watts(power_w: float) -> str:
    """`350 W`, `87.5 W`."""
    return f"{round(power_w, 1):g} W"


def _energy_counter(gpu: GpuFacts) -> Finding:
    subject = "energy counter"
    if gpu.energy_j.value is None:
        return missing(
            subject,
            gpu.energy_j,
            why="Power is added up instead, and misses what lies between two readings.",
            helps="Results carry EnergyFromPower; measure longer windows.",
        )
    return Finding(
        subject=subject,
        status=Availability.OK,
        seen=f"{_energy_text(gpu.energy_j.value)} since the driver was loaded",
    )


def _energy_text(energy_j: float) -> str:
    """Counters of machines that have run for weeks show more joules than can be read."""
    return f"{energy_j:.0f} J" if energy_j < _MANY_J else f"{energy_j / 1e6:.3f} MJ"


def _power(gpu: GpuFacts) -> Finding:
    subject = "power"
    if gpu.power_w.value is not None:
        kinds = ["instant"]
        kinds += ["mean"] if gpu.average_power_w.is_known else []
        kinds += ["memory"] if gpu.memory_power_w.is_known else []
        seen = f"{watts(gpu.power_w.value)} now ({', '.join(kinds)})"
        return Finding(subject=subject, status=Availability.OK, seen=seen)
    slower = gpu.average_power_w if gpu.average_power_w.is_known else gpu.usage_power_w
    if slower.value is not None:
        return Finding(
            subject=subject,
            status=Availability.LIMITED,
            seen=f"{watts(slower.value)}, with no instant reading",
            why="A mean over up to a second cannot follow short kernels.",
            helps="Rely on the energy counter, or on windows of many seconds.",
        )
    if gpu.module_power_w.value is not None:
        return Finding(
            subject=subject,
            status=Availability.LIMITED,
            seen=f"{watts(gpu.module_power_w.value)} for the module, none for the GPU alone",
            why="CPU and memory of the module are in it.",
            helps="Compare only with figures of the same scope.",
        )
    return missing(subject, gpu.power_w, helps="Energy comes from the counter alone.")


def _scope(gpu: GpuFacts) -> Finding:
    if gpu.is_superchip.value:
        return Finding(
            subject="scope",
            status=Availability.LIMITED,
            seen="a superchip: the counter sees the module, CPU and memory included",
            why="Work of the CPU is in the energy; results carry EnergyOfModule.",
            helps="Keep the CPU quiet, and compare only with figures of the same scope.",
        )
    if gpu.is_superchip.absence in {Absence.NOT_PERMITTED, Absence.NOT_ANSWERED}:
        return missing("scope", gpu.is_superchip)
    if not can_read(gpu):
        return Finding(
            subject="scope", status=Availability.UNKNOWN, seen="no meter tells whose energy it is"
        )
    return Finding(subject="scope", status=Availability.OK, seen="the GPU and its board")


def _reason_counters(gpu: GpuFacts) -> Finding:
    subject = "throttling counters"
    counters = {
        "power cap": gpu.power_capped_s,
        "heat (software)": gpu.sw_thermal_s,
        "heat (hardware)": gpu.hw_thermal_s,
        "power brake": gpu.power_braked_s,
        "sync boost": gpu.sync_boosted_s,
    }
    known = [name for name, counter in counters.items() if counter.is_known]
    if len(known) == len(counters):
        return Finding(subject=subject, status=Availability.OK, seen=", ".join(known))
    why = "Throttling that no counter tells is seen only where a sample happens to meet it."
    if not known:
        return missing(subject, gpu.power_capped_s, why=why)
    lacking = ", ".join(name for name in counters if name not in known)
    return Finding(
        subject=subject,
        status=Availability.LIMITED,
        seen=f"{', '.join(known)}; none for {lacking}",
        why=why,
    )


def _activity(gpu: GpuFacts) -> Finding:
    subject = "activity (GPM)"
    if gpu.is_activity_metered.value:
        return Finding(subject=subject, status=Availability.OK, seen="SM, tensor cores, DRAM")
    if gpu.is_activity_metered.value is False:
        return Finding(
            subject=subject,
            status=Availability.ABSENT,
            seen="this GPU has none; Hopper and later do",
        )
    return missing(subject, gpu.is_activity_metered)


def _processes(gpu: GpuFacts) -> Finding:
    subject = "other processes"
    processes = gpu.compute_processes.value
    if processes is None:
        return missing(
            subject, gpu.compute_processes, why="Another load cannot be told from our own."
        )
    if not processes:
        return Finding(subject=subject, status=Availability.OK, seen="none computes here")
    listed = ", ".join(map(str, processes[:5])) + (" ..." if len(processes) > 5 else "")  # noqa: PLR2004
    return Finding(
        subject=subject,
        status=Availability.LIMITED,
        seen=f"process {listed}" if len(processes) == 1 else f"processes {listed}",
        why="What they draw is in the energy, and their clocks change with ours.",
        helps="Stop them before measuring or setting clocks.",
    )


def _held_down(gpu: GpuFacts, lease: LeaseTrace) -> Finding:
    """NVML has no reason 'limited by a lock', so a lock shows as a low clock without a reason.

    One of joulewise itself is no riddle, and nothing to be undone by hand: its holder gives it
    back, or `joulewise restore`.
    """
    subject = "locked by others"
    clock, listed, reasons = gpu.sm_clock_mhz, gpu.sm_clocks_mhz, gpu.event_reasons
    if clock.value is None or not listed.value or reasons.value is None:
        return Finding(
            subject=subject,
            status=Availability.UNKNOWN,
            seen="clock, clock list and reasons are needed to tell",
        )
    highest_mhz = listed.value[-1]
    at = f"{clock.value} of {highest_mhz} MHz"
    if EventReason.GPU_IDLE in reasons.value or gpu.performance_state.value in _RESTING_STATES:
        return Finding(
            subject=subject,
            status=Availability.UNKNOWN,
            seen=f"idle at {at}; a lock shows only under load",
        )
    if clock.value < _UNHELD_RATIO * highest_mhz and not reasons.value:
        return _locked(subject, at, lease)
    held = ", ".join(sorted(reason.value for reason in reasons.value))
    return Finding(
        subject=subject, status=Availability.OK, seen=f"runs at {at}{f' ({held})' if held else ''}"
    )


def _locked(subject: str, at: str, lease: LeaseTrace) -> Finding:
    if lease.holder is not None:
        return Finding(
            subject=subject,
            status=Availability.OK,
            seen=f"runs at {at}, while {lease.holder} holds the lease",
        )
    if lease.left_set is not None:
        return Finding(
            subject=subject,
            status=Availability.LIMITED,
            seen=f"runs at {at}, which a dead holder left set",
            helps="Give the clocks back: joulewise restore.",
        )
    return Finding(
        subject=subject,
        status=Availability.LIMITED,
        seen=f"runs at {at}, and no reason is given",
        why="That is how a clock lock looks which somebody else set or left behind.",
        helps="Ask who set it. Where nobody needs it: nvidia-smi -rgc gives the SM clock back, "
        "nvidia-smi -rmc the memory clock.",
    )


def _smoothing(gpu: GpuFacts) -> tuple[Finding, ...]:
    if not gpu.is_power_smoothed.value:
        return unsaid("power smoothing", gpu.is_power_smoothed)
    return (
        Finding(
            subject="power smoothing",
            status=Availability.LIMITED,
            seen="a floor under the power is on",
            why="It burns what lower clocks save.",
            helps="Switch it off where the site allows: nvidia-smi power-smoothing.",
        ),
    )
