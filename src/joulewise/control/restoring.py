"""Giving back what dead holders left set, on every GPU that has a journal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from joulewise.control.holder import this_process
from joulewise.control.journal import JournalEntry, damage, is_left, read_journal, replay, still_set
from joulewise.control.lock import FileLock
from joulewise.control.state import (
    is_of_a_process,
    make_state_dir,
    remove_abandoned,
    unusable,
)
from joulewise.domain.errors import BusyError, InputError, JoulewiseError
from joulewise.domain.ports import Gpu

_SUFFIX = ".journal.json"


class Outcome(StrEnum):
    """What became of one journal."""

    GIVEN_BACK = "given back"
    BUSY = "busy"
    NOT_GIVEN_BACK = "not given back"


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """One GPU that had a journal, and what became of it.

    `entry` is what the journal said, `None` where it could not be read. `why` is a sentence on
    why the clocks were not given back, or what is left open although they were; `hint` says
    what to do then.
    """

    uuid: str
    journal: Path
    entry: JournalEntry | None
    outcome: Outcome
    why: str | None = None
    hint: str | None = None


def restore_all(state_dir: Path, open_gpu: Callable[[str], Gpu]) -> tuple[Restored, ...]:
    """Replay every journal in a folder of leases whose GPU nobody holds.

    A GPU that somebody holds is left alone: its journal is the holder's. Doing it again, or
    while others do it, is harmless.

    Args:
        state_dir: The folder; one that is not there has no journals.
        open_gpu: Opens a GPU by its device string.

    Raises:
        InputError: the folder cannot be read, or others could change what is written there.
    """
    if not state_dir.exists():
        return ()
    make_state_dir(state_dir)
    journals = sorted(_journals(state_dir))
    remove_abandoned(state_dir)
    done = (_restored(journal, open_gpu) for journal in journals if not is_of_a_process(journal))
    return tuple(one for one in done if one is not None)


def _journals(state_dir: Path) -> set[Path]:
    """Places of journals; of some only the copy is left."""
    try:
        names = [path.name for path in state_dir.iterdir()]
    except OSError as error:
        raise unusable(state_dir, error) from error
    return {
        state_dir / name.removesuffix(".copy")
        for name in names
        if name.endswith((_SUFFIX, f"{_SUFFIX}.copy")) and not name.startswith(".")
    }


def _restored(journal: Path, open_gpu: Callable[[str], Gpu]) -> Restored | None:
    """Replay one journal; `None` where its holder deleted it meanwhile."""
    uuid = journal.name.removesuffix(_SUFFIX)
    lock = FileLock(journal.with_name(f"{uuid}.lock"))
    entry, outcome = read_journal(journal), Outcome.NOT_GIVEN_BACK
    why: str | None
    hint: str | None
    name = f"the GPU {uuid}" if entry is None else entry.device_name
    try:
        lock.acquire(name, this_process())
        try:
            entry = read_journal(journal)
            if not is_left(journal):
                return None
            replay(journal, _opened(uuid, entry, open_gpu))
        finally:
            lock.release()
    except BusyError as error:
        outcome, why, hint = Outcome.BUSY, error.message, error.hint
    except JoulewiseError as error:
        left = still_set(entry, journal)
        why, hint = error.message, f"{error.hint} {left}" if error.hint else left
    else:
        outcome, why, hint = Outcome.GIVEN_BACK, damage(journal), None
    return Restored(uuid=uuid, journal=journal, entry=entry, outcome=outcome, why=why, hint=hint)


def _opened(uuid: str, entry: JournalEntry | None, open_gpu: Callable[[str], Gpu]) -> Gpu:
    """The GPU that the file is named for, whatever a damaged journal says."""
    gpu = open_gpu(f"nvml:{uuid}" if entry is None else entry.device)
    if gpu.identity.uuid != uuid:
        raise InputError(
            f"the journal of {uuid} names {gpu.identity.uuid}",
            hint="Somebody renamed or copied it; remove it once that GPU is as it should be.",
        )
    return gpu
