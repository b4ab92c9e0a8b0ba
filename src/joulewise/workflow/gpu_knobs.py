"""What of one GPU can be set, judged from its facts and the rights of this process alone."""

from __future__ import annotations

from joulewise.domain.gpu_facts import Fact, GpuFacts
from joulewise.workflow.findings import Availability, Finding
from joulewise.workflow.gpu_meters import missing, unsaid, watts
from joulewise.workflow.lease_findings import NO_LEASE, LeaseTrace

_VOLTA, _AMPERE = (7, 0), (8, 0)
_GUEST = "vGPU guest"
_SAME_W = 0.5  # the driver rounds what it enforces


def knob_findings(
    gpu: GpuFacts, lease: LeaseTrace = NO_LEASE, *, may_set: bool | None
) -> tuple[Finding, ...]:
    """Clock lists, locks, limits, and the modes that decide whether settings last."""
    return (
        _clock_lists(gpu),
        _allowed(_sm_lock(gpu), may_set=may_set),
        _allowed(_memory_lock(gpu), may_set=may_set),
        _allowed(_power_limit(gpu, lease), may_set=may_set),
        *_enforced_limit(gpu),
        _persistence(gpu),
        *_partitions(gpu),
        *_virtualization(gpu),
    )


def can_set(gpu: GpuFacts, *, may_set: bool | None) -> bool | None:
    """Whether the SM clock can be locked here; `None` where only trying tells."""
    if not may_set:
        return may_set
    is_possible = {Availability.OK: True, Availability.LIMITED: True, Availability.UNKNOWN: None}
    if gpu.is_partitioned.value:
        return False
    if unsaid("MIG", gpu.is_partitioned):
        return None
    return is_possible.get(_sm_lock(gpu).status, False)


def _allowed(finding: Finding, *, may_set: bool | None) -> Finding:
    """The same knob, without the right to turn it."""
    if may_set or finding.status in {Availability.ABSENT, Availability.UNKNOWN}:
        return finding
    return Finding(
        subject=finding.subject,
        status=Availability.ABSENT if may_set is False else Availability.UNKNOWN,
        seen=(
            f"{'not permitted' if may_set is False else 'perhaps not permitted'}; "
            f"with rights: {finding.seen}"
        ),
        why=finding.why,
        helps="See the right to set clocks.",
    )


def _clocks(listed: tuple[int, ...]) -> str:
    if len(listed) == 1:
        return f"{listed[0]} MHz"
    return f"{listed[0]} to {listed[-1]} MHz ({len(listed)})"


def _clock_lists(gpu: GpuFacts) -> Finding:
    subject = "clock lists"
    if not gpu.sm_clocks_mhz.value:
        return missing(
            subject,
            gpu.sm_clocks_mhz,
            why="joulewise asks only for clocks that the device lists.",
            helps="Reading works, as in probe sensors --idle; measuring needs the list.",
        )
    memory = gpu.mem_clocks_mhz.value
    return Finding(
        subject=subject,
        status=Availability.OK if memory else Availability.LIMITED,
        seen=f"SM {_clocks(gpu.sm_clocks_mhz.value)}; "
        + (f"memory {_clocks(memory)}" if memory else "no memory clocks"),
    )


def _compute_capability(gpu: GpuFacts) -> tuple[int, int] | None:
    major, dot, minor = (gpu.compute_capability.value or "").partition(".")
    return (int(major), int(minor)) if dot and major.isdigit() and minor.isdigit() else None


def _sm_lock(gpu: GpuFacts) -> Finding:
    subject = "SM clock lock"
    capability = _compute_capability(gpu)
    barred = _barred(subject, gpu)
    if barred is not None:
        return barred
    if capability is not None and capability < _VOLTA:
        return _before(subject, "Volta", gpu.architecture)
    if not gpu.sm_clocks_mhz.value:
        return missing(subject, gpu.sm_clocks_mhz, why="Without a list there is nothing to lock.")
    if capability is None:
        return Finding(
            subject=subject, status=Availability.UNKNOWN, seen="the architecture is not known"
        )
    return Finding(
        subject=subject,
        status=Availability.OK,
        seen="each listed clock, as a maximum",
    )


def _barred(subject: str, gpu: GpuFacts) -> Finding | None:
    """Why no knob of this GPU may be turned, whatever it is."""
    if gpu.virtualization.value == _GUEST:
        return _not_in_a_guest(subject)
    return _not_beside_instances(subject) if gpu.is_partitioned.value else None


def _not_in_a_guest(subject: str) -> Finding:
    return Finding(
        subject=subject,
        status=Availability.ABSENT,
        seen="this is a vGPU guest",
        why="Clocks and limits belong to the host.",
        helps="Set them on the host.",
    )


def _not_beside_instances(subject: str) -> Finding:
    return Finding(
        subject=subject,
        status=Availability.ABSENT,
        seen="MIG is on, and joulewise sets nothing then",
        why="All instances share one clock and one power limit.",
        helps="See MIG.",
    )


def _before(subject: str, first: str, architecture: Fact[str]) -> Finding:
    return Finding(
        subject=subject,
        status=Availability.ABSENT,
        seen=f"{architecture.value or 'this GPU'} is older than {first}",
        why=f"NVML locks this clock on {first} and later.",
    )


def _memory_lock(gpu: GpuFacts) -> Finding:
    subject = "memory clock lock"
    listed, capability = gpu.mem_clocks_mhz.value, _compute_capability(gpu)
    barred = _barred(subject, gpu)
    if barred is not None:
        return barred
    if capability is not None and capability < _AMPERE:
        return _before(subject, "Ampere", gpu.architecture)
    if not listed:
        return missing(subject, gpu.mem_clocks_mhz)
    if len(listed) == 1:
        return Finding(
            subject=subject,
            status=Availability.ABSENT,
            seen=f"{listed[0]} MHz is its only memory clock: nothing to choose",
        )
    if gpu.memory_clock_switch.value == "after a driver reload":
        return Finding(
            subject=subject,
            status=Availability.ABSENT,
            seen="a change waits for a driver reload",
            why="A point that takes effect after the run cannot be measured.",
            helps="Leave the memory clock at auto.",
        )
    return _usable_memory_lock(subject, gpu, listed)


def _usable_memory_lock(subject: str, gpu: GpuFacts, listed: tuple[int, ...]) -> Finding:
    opt_in = "only where the device string says memory_lock=on"
    if "blackwell" in (gpu.architecture.value or "").lower() and "GeForce" in (
        gpu.name.value or ""
    ):
        return Finding(
            subject=subject,
            status=Availability.LIMITED,
            seen=f"{len(listed)} clocks; {opt_in}",
            why=(
                "Any lock of the memory clock has been reported to cost 16 to 32 % of the speed "
                "on GeForce Blackwell, also at the highest clock."
            ),
            helps="Leave the memory clock at auto; joulewise checks before and after if told to.",
        )
    interval_s = gpu.memory_clock_switch_interval_s.value
    if interval_s:
        return Finding(
            subject=subject,
            status=Availability.LIMITED,
            seen=f"{len(listed)} clocks, at least {interval_s:g} s apart; {opt_in}",
            why="The driver wants time between two changes of the memory clock.",
            helps="Use one memory clock for whole iterations.",
        )
    return Finding(subject=subject, status=Availability.OK, seen=f"{len(listed)} clocks; {opt_in}")


def _power_limit(gpu: GpuFacts, lease: LeaseTrace) -> Finding:
    subject = "power limit"
    found, least = gpu.power_limit_w, gpu.least_power_limit_w
    lowered = _lowered(gpu, lease)
    if lowered is not None:
        return lowered
    barred = _barred(subject, gpu)
    if barred is not None:
        return barred
    if found.value is None or least.value is None:
        return missing(subject, found if found.value is None else least)
    if found.value <= least.value:
        return Finding(
            subject=subject,
            status=Availability.LIMITED,
            seen=f"{watts(found.value)}, the least there is",
            why="joulewise never raises a limit above the one found.",
        )
    return Finding(
        subject=subject,
        status=Availability.OK,
        seen=f"{watts(least.value)} to the {watts(found.value)} found",
    )


def _lowered(gpu: GpuFacts, lease: LeaseTrace) -> Finding | None:
    """A limit that a lease of joulewise has lowered is not the one to be found afterwards."""
    entry, now_w, least_w = lease.entry, gpu.power_limit_w.value, gpu.least_power_limit_w.value
    found_w = None if entry is None or entry.found is None else entry.found.power_limit_w
    if found_w is None or now_w is None or now_w >= found_w - _SAME_W:
        return None
    whose = "a dead holder left it" if lease.holder is None else f"{lease.holder} has set it"
    takes = "" if least_w is None else f"{watts(least_w)} to the {watts(found_w)} found; "
    return Finding(
        subject="power limit",
        status=Availability.LIMITED if lease.holder is None else Availability.OK,
        seen=f"{takes}{watts(now_w)} now, as {whose}",
        helps=None if lease.holder is not None else "Put it back: joulewise restore.",
    )


def _enforced_limit(gpu: GpuFacts) -> tuple[Finding, ...]:
    found_w, enforced_w = gpu.power_limit_w.value, gpu.enforced_power_limit_w.value
    if enforced_w is None:
        return unsaid("enforced limit", gpu.enforced_power_limit_w)
    if found_w is None or enforced_w >= found_w - _SAME_W:
        return ()
    return (
        Finding(
            subject="enforced limit",
            status=Availability.LIMITED,
            seen=f"{watts(enforced_w)} enforced, below the {watts(found_w)} that are set",
            why="Somebody outside the driver (the machine's management, Dynamic Boost) limits it.",
            helps="Ask for its limit to be fixed; figures hold for that limit only.",
        ),
    )


def _persistence(gpu: GpuFacts) -> Finding:
    subject = "persistence mode"
    if gpu.is_persistent.value is None:
        return missing(subject, gpu.is_persistent)
    if gpu.is_persistent.value:
        return Finding(subject=subject, status=Availability.OK, seen="on")
    return Finding(
        subject=subject,
        status=Availability.LIMITED,
        seen="off",
        why="The driver unloads when its last user leaves, and forgets locks and limits then.",
        helps="Switch it on: nvidia-smi -pm 1.",
    )


def _partitions(gpu: GpuFacts) -> tuple[Finding, ...]:
    if not gpu.is_partitioned.value:
        return unsaid("MIG", gpu.is_partitioned)
    return (
        Finding(
            subject="MIG",
            status=Availability.LIMITED,
            seen="on: all instances share one clock and one energy counter",
            why="Setting clocks for one tenant sets them for all; joules belong to all of them.",
            helps="Disable MIG for tuning: nvidia-smi -mig 0.",
        ),
    )


def _virtualization(gpu: GpuFacts) -> tuple[Finding, ...]:
    if gpu.virtualization.value != _GUEST:
        return unsaid("virtualization", gpu.virtualization)
    return (
        Finding(
            subject="virtualization",
            status=Availability.LIMITED,
            seen="a vGPU guest: what can be read depends on the host",
        ),
    )
