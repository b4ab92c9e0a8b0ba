"""What the doctor found: one finding per ability, with why and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from joulewise.domain.caveats import Caveat


class Availability(StrEnum):
    """How much of an ability is there."""

    OK = "ok"
    LIMITED = "limited"
    ABSENT = "absent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One ability of a GPU or of the machine: what was seen, why so, and what to do."""

    subject: str
    status: Availability
    seen: str
    why: str | None = None
    helps: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuDiagnosis:
    """The findings of one GPU; `device` is the string that opens it."""

    device: str
    name: str
    can_read: bool
    can_set: bool | None
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What can be read and set here, what cannot and why.

    `can_set` is what the rights of this process let expect; `None` where only trying would
    tell. NVML has no way to ask without setting something.
    """

    verdict: str
    hint: str | None
    can_read: bool
    can_set: bool | None
    machine: tuple[Finding, ...]
    gpus: tuple[GpuDiagnosis, ...] = ()
    caveats: tuple[Caveat, ...] = ()
