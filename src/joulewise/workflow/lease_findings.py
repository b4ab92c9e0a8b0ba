"""What leases have left on this machine, and whether one can be taken: read, and judged."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from joulewise.control.journal import JournalEntry, read_journal, still_set
from joulewise.control.state import STATE_DIR_VARIABLE, default_state_dir, state_file
from joulewise.domain.errors import InputError
from joulewise.domain.ports import GpuIdentity
from joulewise.store.lock import lock_exclusively
from joulewise.workflow.findings import Availability, Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTrace:
    """Traces of leases on one GPU.

    `holder` names a living process that holds one; `journal` is the file that says what a lease
    touched, `None` where there is none, and `entry` what stands in it, where it can be read.
    """

    holder: str | None = None
    journal: Path | None = None
    entry: JournalEntry | None = None


NO_LEASE = LeaseTrace()


def state_dir_finding(environment: Mapping[str, str] | None = None) -> Finding | None:
    """Why no lease can be taken here, where that is so: its folder cannot be written."""
    try:
        folder = default_state_dir(environment)
    except InputError as error:
        return _no_state_dir(error.message, error.hint)
    there = folder
    while not there.exists() and there != there.parent:
        there = there.parent
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return None
    return _no_state_dir(
        f"{folder} cannot be written", f"Name a folder you may write to in {STATE_DIR_VARIABLE}."
    )


def lease_trace(uuid: str, environment: Mapping[str, str] | None = None) -> LeaseTrace:
    """Traces of leases on the GPU with this UUID; changes nothing."""
    try:
        folder = default_state_dir(environment)
    except InputError:
        return LeaseTrace()
    identity = GpuIdentity(spec="", name="", uuid=uuid, is_simulated=False)
    journal = state_file(identity, folder, ".journal.json")
    holder = _holder(state_file(identity, folder, ".lock"))
    if not _exists(journal):
        return LeaseTrace(holder=holder)
    return LeaseTrace(holder=holder, journal=journal, entry=read_journal(journal))


def lease_findings(trace: LeaseTrace) -> tuple[Finding, ...]:
    """Who has set clocks here, or left them set."""
    if trace.holder is not None:
        touched = () if trace.entry is None else trace.entry.touched
        return (
            Finding(
                subject="lease",
                status=Availability.LIMITED,
                seen=f"held by {trace.holder}{_listed(touched)}",
                why="One process at a time may set clocks; what it sets is in every reading.",
                helps="Wait until it ends, or end it.",
            ),
        )
    if trace.journal is None:
        return ()
    left = "an earlier process" if trace.entry is None else trace.entry.holder
    touched = () if trace.entry is None else trace.entry.touched
    return (
        Finding(
            subject="lease",
            status=Availability.LIMITED,
            seen=f"left set by {left}{_listed(touched)}, given back by the next lease",
            why="It ended before it could give them back.",
            helps=still_set(trace.entry, trace.journal),
        ),
    )


_KNOB_NAMES = {
    "sm_clock_mhz": "SM clock",
    "mem_clock_mhz": "memory clock",
    "power_limit_w": "power limit",
}


def _listed(touched: tuple[str, ...]) -> str:
    names = [name for knob, name in _KNOB_NAMES.items() if knob in touched]
    return f" ({', '.join(names)})" if names else ""


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


def _holder(lock: Path) -> str | None:
    """The living process that holds a lock; a dead one's name may still stand in the file.

    Only a file that names somebody is tried, so nobody who takes a free lock is in the way.
    """
    try:
        descriptor = os.open(lock, os.O_RDWR)
    except OSError:
        return None
    try:
        name = os.read(descriptor, 64).decode("ascii", "replace").strip()
        return f"process {name}" if name and not lock_exclusively(descriptor) else None
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _no_state_dir(seen: str, helps: str | None) -> Finding:
    return Finding(
        subject="state of leases",
        status=Availability.ABSENT,
        seen=seen,
        why="Before clocks are set, a lock and a journal are written there; so measuring needs it.",
        helps=helps,
    )
