"""From facts to findings and a verdict: nothing is read here, so that every case is a test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from joulewise.device.host import HostFacts
from joulewise.device.nvml_reply import WITHOUT_A_GPU
from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.errors import JoulewiseError
from joulewise.domain.gpu_facts import DriverFacts, GpuFacts
from joulewise.workflow.findings import Availability, Diagnosis, Finding, GpuDiagnosis
from joulewise.workflow.gpu_knobs import can_set, knob_findings
from joulewise.workflow.gpu_meters import can_read, meter_findings
from joulewise.workflow.host_findings import host_findings, may_set_clocks
from joulewise.workflow.lease_findings import NO_LEASE, LeaseTrace, lease_findings

_NO_CARD = "No NVIDIA GPU is on the PCI bus."
_FAKE = Caveat(kind=CaveatKind.SIMULATED_DEVICE, seen="fake NVIDIA driver")


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenGpu:
    """One GPU: its facts, why it does not open where it does not, and what leases left on it."""

    facts: GpuFacts
    trouble: JoulewiseError | None = None
    lease: LeaseTrace = NO_LEASE
    may_set: bool | None = None
    """Whether joulewised lets its clocks be set; `None`: it does not answer."""


def diagnose(
    driver: DriverFacts,
    gpus: Sequence[SeenGpu],
    host: HostFacts,
    *,
    state_dir: Finding | None = None,
    daemon: Finding | None = None,
) -> Diagnosis:
    """Judge what the driver, its GPUs and the machine tell of themselves.

    `state_dir` says why no lease can be taken without joulewised, where none can, and `daemon`
    what that lets this account set, where it answers.
    """
    may_set = may_set_clocks(host, is_fake=driver.is_fake) if state_dir is None else False
    judged = tuple(
        _gpu(gpu, may_set=may_set if gpu.may_set is None else gpu.may_set) for gpu in gpus
    )
    readable = [gpu for gpu in judged if gpu.can_read]
    # What the daemon does needs no right and no folder of this account.
    leases = tuple(one for one in (daemon, state_dir) if one is not None)
    machine = (_driver(driver, gpus, host), *_machine(driver, host, leases, gpus))
    return Diagnosis(
        verdict=_verdict(driver, judged, machine, _shared_trouble(gpus)),
        hint=None if readable else WITHOUT_A_GPU,
        can_read=bool(readable),
        can_set=_all_or_none([gpu.can_set for gpu in readable]) if readable else False,
        machine=machine,
        gpus=judged,
        caveats=(_FAKE,) if driver.is_fake else (),
    )


def _gpu(gpu: SeenGpu, *, may_set: bool | None) -> GpuDiagnosis:
    facts, trouble = gpu.facts, gpu.trouble
    return GpuDiagnosis(
        device=f"nvml:{facts.uuid.value or facts.index}",
        name=facts.name.value or "an NVIDIA GPU without a name",
        can_read=trouble is None and can_read(facts),
        can_set=False if trouble is not None else can_set(facts, may_set=may_set),
        findings=(
            *_trouble(trouble),
            *lease_findings(gpu.lease),
            *meter_findings(facts, gpu.lease),
            *knob_findings(facts, gpu.lease, may_set=may_set),
        ),
    )


def _trouble(trouble: JoulewiseError | None) -> tuple[Finding, ...]:
    """What every command that opens the GPU would say."""
    if trouble is None:
        return ()
    return (
        Finding(
            subject="opening",
            status=Availability.ABSENT,
            seen=trouble.message,
            why="Nothing can be measured on it.",
            helps=trouble.hint,
        ),
    )


def _shared_trouble(gpus: Sequence[SeenGpu]) -> str | None:
    """Why no GPU opens, where none does."""
    troubles = [gpu.trouble.message for gpu in gpus if gpu.trouble is not None]
    return troubles[0].rstrip(".") if troubles and len(troubles) == len(gpus) else None


def _machine(
    driver: DriverFacts, host: HostFacts, leases: tuple[Finding, ...], gpus: Sequence[SeenGpu]
) -> tuple[Finding, ...]:
    """Rights and packages matter where there is a GPU to use them on."""
    if not gpus:
        return ()
    return (*leases, *host_findings(host, is_fake=driver.is_fake))


def _driver(driver: DriverFacts, gpus: Sequence[SeenGpu], host: HostFacts) -> Finding:
    subject = "NVIDIA driver"
    if driver.problem is not None:
        known = driver.driver_version.value
        return Finding(
            subject=subject,
            status=Availability.ABSENT if known is None else Availability.LIMITED,
            seen=driver.problem if known is None else f"{known}; {driver.problem}",
            why=_what_is_there(driver, host),
            helps=_way_to_a_driver(driver, host),
        )
    version = driver.driver_version.value or "of an unknown version"
    if not gpus:
        return Finding(
            subject=subject,
            status=Availability.LIMITED,
            seen=f"{version}, and it lists no GPU",
            why=_what_is_there(driver, host),
            helps="See whether nvidia-smi lists one; in a container, whether it was given one.",
        )
    if driver.is_fake:
        seen = f"{version}, the fake one: all of its GPUs are simulated"
        return Finding(subject=subject, status=Availability.OK, seen=seen)
    nvml = f", NVML {driver.nvml_version.value}" if driver.nvml_version.value else ""
    return Finding(subject=subject, status=Availability.OK, seen=f"{version}{nvml}")


def _what_is_there(driver: DriverFacts, host: HostFacts) -> str | None:
    """Hardware and kernel module, which a missing library says nothing of."""
    if host.is_jetson:
        return (
            "This is a Jetson board, whose clocks are not NVML's: --device jetson reads its files."
        )
    # The bus does not show what these reach.
    if host.nvidia_pci_count is None or host.is_wsl or host.is_gvisor or driver.is_fake:
        return None
    if host.nvidia_pci_count == 0:
        return _NO_CARD
    cards = f"{host.nvidia_pci_count} NVIDIA GPU{'s' if host.nvidia_pci_count > 1 else ''}"
    there = f"{cards} on the PCI bus; "
    if host.kernel_module_version is None:
        return f"{there}no kernel module is loaded."
    return f"{there}kernel module {host.kernel_module_version} is loaded."


def _way_to_a_driver(driver: DriverFacts, host: HostFacts) -> str | None:
    if host.is_jetson:
        return None
    has_module = host.kernel_module_version is not None
    if host.container is not None and (host.nvidia_pci_count or has_module):
        return (
            "Start the container with its GPUs (docker run --gpus all ...), or restart it where "
            f"it had them. {driver.hint or ''}"
        ).strip()
    return None if _what_is_there(driver, host) == _NO_CARD else driver.hint


def _all_or_none(answers: Sequence[bool | None]) -> bool | None:
    """Whether it holds for any; unknown where none is sure and one may be."""
    if any(answers):
        return True
    return None if None in answers else False


def _verdict(
    driver: DriverFacts,
    gpus: Sequence[GpuDiagnosis],
    machine: Sequence[Finding],
    trouble: str | None,
) -> str:
    if not gpus:
        return _verdict_without_a_gpu(driver, machine[0])
    count = len(gpus)
    kind = "simulated NVIDIA GPU" if driver.is_fake else "NVIDIA GPU"
    gpus_text = f"{count} {kind}{'s' if count > 1 else ''}"
    readable_count = sum(gpu.can_read for gpu in gpus)
    if trouble is not None:
        which = "none can be opened" if count > 1 else "it cannot be opened"
        return f"{gpus_text}, and {which}: {trouble}."
    if not readable_count:
        return f"{gpus_text}, of which no meter tells the energy."
    read = "all can be read" if count > 1 else "it can be read"
    if readable_count < count:
        read = f"{readable_count} can be read"
    return f"{gpus_text}; {read}; {_setting(gpus, machine)}.{_limits(gpus)}"


def _verdict_without_a_gpu(driver: DriverFacts, found: Finding) -> str:
    if driver.problem is None:
        return "No NVIDIA GPU can be used here: the driver lists none."
    if found.why == _NO_CARD:
        return "There is no NVIDIA GPU in this machine, and no NVIDIA driver that answers."
    what = f" {found.why}" if found.why else ""
    return f"No NVIDIA GPU can be used here: {driver.problem.rstrip('.')}.{what}"


def _setting(gpus: Sequence[GpuDiagnosis], machine: Sequence[Finding]) -> str:
    settable_count = sum(gpu.can_set is True for gpu in gpus)
    if settable_count == len(gpus):
        return "clocks may be set"
    if settable_count:
        return f"clocks of {settable_count} may be set"
    if any(gpu.can_set is None for gpu in gpus):
        return "whether clocks may be set only trying tells"
    subjects = ("joulewised", "state of leases", "right to set clocks")
    absent = [f for f in machine if f.status is Availability.ABSENT]
    rights = next((f for f in absent if f.subject in subjects), None)
    if rights is not None:
        return f"clocks may not be set ({rights.seen})"
    return "clocks cannot be set"


def _limits(gpus: Sequence[GpuDiagnosis]) -> str:
    """What to look at, by name, so that the sentence leads to the rows."""
    limited = dict.fromkeys(
        finding.subject
        for gpu in gpus
        for finding in gpu.findings
        if finding.status is Availability.LIMITED
    )
    return f" Look at: {', '.join(limited)}." if limited else ""
