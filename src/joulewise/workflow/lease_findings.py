"""What leases have left on this machine, and whether one can be taken: read, and judged."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from joulewise.control.journal import JournalEntry, damage, is_left, read_journal, still_set
from joulewise.control.lock import Kind, NamedHolder, holder_at
from joulewise.control.state import (
    STATE_DIR_VARIABLE,
    default_state_dir,
    former_state_dirs,
    journal_file,
    lock_file,
)
from joulewise.domain.errors import InputError
from joulewise.domain.ports import GpuIdentity
from joulewise.workflow.findings import Availability, Finding

T = TypeVar("T")

# So long a guard process tries where the driver refuses.
_GUARD_TRIES_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTrace:
    """Traces of leases on one GPU.

    `named` has the GPU: a holder, or a guard process that gives back for one. `journal` is the
    file that says what a lease touched, `None` where there is none, and `entry` what stands in
    it, where it can be read. `damage` says what a journal that could not be read leaves open, and
    `until_s`, in seconds since 1970, how long a guard process that gives back goes on trying.
    """

    named: NamedHolder | None = None
    journal: Path | None = None
    entry: JournalEntry | None = None
    damage: str | None = None
    until_s: float | None = None

    @property
    def holder(self) -> str | None:
        """Who holds it, in words; `None` where nobody does, or no holder any longer."""
        return None if self.named is None or self.named.is_giving_back else self.named.text

    @property
    def left_set(self) -> str | None:
        """What is left set that its holder can give back no more; `None` where nothing is."""
        if self.journal is None or self.holder is not None:
            return None
        left = still_set(self.entry, self.journal)
        giver = self.giver
        return left if giver is None else f"Being given back by {giver}. {left}"

    @property
    def giver(self) -> str | None:
        """Who gives back what is left, and how long it tries; `None` where nobody does."""
        if self.named is None or not self.named.is_giving_back:
            return None
        pid = self.named.giver_pid
        is_named = "" if pid is None else f" (process {pid})"
        if self.until_s is None:
            return f"{self.named.text}{is_named}"
        until = datetime.fromtimestamp(self.until_s, tz=UTC).astimezone()
        return f"{self.named.text}{is_named}, which tries until {until:%H:%M:%S}"


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
    """Traces of leases on the GPU with this UUID; changes nothing.

    Those in folders that an older joulewise used count where the folder of today has none.
    """
    try:
        folder = default_state_dir(environment)
    except InputError:
        return NO_LEASE
    identity = GpuIdentity(spec="", name="", uuid=uuid, is_simulated=False)
    trace = _trace(identity, folder)
    if trace == NO_LEASE:
        former = (_trace(identity, one) for one in former_state_dirs(folder, environment))
        return next((one for one in former if one != NO_LEASE), NO_LEASE)
    return trace


def _trace(identity: GpuIdentity, folder: Path) -> LeaseTrace:
    journal = journal_file(identity, folder)
    named = holder_at(lock_file(identity, folder))
    left_open = _looked(lambda: damage(journal))
    if not _looked(lambda: is_left(journal)):
        return LeaseTrace(named=named, damage=left_open)
    is_trying = named is not None and named.kind is Kind.GUARD
    return LeaseTrace(
        named=named,
        journal=journal,
        entry=read_journal(journal),
        damage=left_open,
        until_s=_until_s(lock_file(identity, folder)) if is_trying else None,
    )


def _until_s(lock: Path) -> float | None:
    """When a guard process gives up, which wrote its name there as it began."""
    begun_s = _looked(lambda: lock.stat().st_mtime)
    return None if begun_s is None else begun_s + _GUARD_TRIES_S


def lease_findings(trace: LeaseTrace) -> tuple[Finding, ...]:
    """Who has set clocks here, or left them set."""
    return (*_state_findings(trace), *_damage_findings(trace))


def _damage_findings(trace: LeaseTrace) -> tuple[Finding, ...]:
    if trace.damage is None:
        return ()
    return (
        Finding(
            subject="lease",
            status=Availability.LIMITED,
            seen="a damaged journal, undone as far as could be told",
            why="A power limit that was lowered and not put back slows everything here."
            if "power limit" in trace.damage
            else "Nobody knows how the clocks were found.",
            helps=trace.damage,
        ),
    )


def _state_findings(trace: LeaseTrace) -> tuple[Finding, ...]:
    if trace.holder is not None:
        touched = () if trace.entry is None else trace.entry.touched
        return (
            Finding(
                subject="lease",
                status=Availability.LIMITED,
                seen=f"held by {trace.holder}{_listed(touched)}",
                why="One process at a time may set clocks; what it sets is in every reading.",
                helps=_way_to_have_it(trace),
            ),
        )
    if trace.journal is None:
        return ()
    left = "an earlier process" if trace.entry is None else trace.entry.holder
    touched = () if trace.entry is None else trace.entry.touched
    giver = trace.giver
    by = "given back by the next lease" if giver is None else f"being given back by {giver}"
    return (
        Finding(
            subject="lease",
            status=Availability.LIMITED,
            seen=f"left set by {left}{_listed(touched)}, {by}",
            why="It ended before it could give them back.",
            helps=still_set(trace.entry, trace.journal),
        ),
    )


def _way_to_have_it(trace: LeaseTrace) -> str:
    holder = None if trace.named is None else trace.named.holder
    if holder is not None and holder.is_idle_policy:
        return "It gives the clocks back at once, where load is seen or somebody takes the GPU."
    return "Wait until it ends, or end it."


_KNOB_NAMES = {
    "sm_clock_mhz": "SM clock",
    "mem_clock_mhz": "memory clock",
    "power_limit_w": "power limit",
}


def knob_names(touched: Collection[str]) -> str:
    """Knobs as people call them: `SM clock, power limit`."""
    return ", ".join(name for knob, name in _KNOB_NAMES.items() if knob in touched)


def _listed(touched: tuple[str, ...]) -> str:
    names = knob_names(touched)
    return f" ({names})" if names else ""


def _looked(look: Callable[[], T]) -> T | None:
    """What is seen; `None` where this account may not look."""
    try:
        return look()
    except OSError:
        return None


def _no_state_dir(seen: str, helps: str | None) -> Finding:
    return Finding(
        subject="state of leases",
        status=Availability.ABSENT,
        seen=seen,
        why="Before clocks are set, a lock and a journal are written there; so measuring needs it.",
        helps=helps,
    )
