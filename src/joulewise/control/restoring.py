"""Giving back what dead holders left set, on every GPU that has a journal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from joulewise.control.by_hand import is_board
from joulewise.control.holder import this_process
from joulewise.control.journal import (
    DAMAGED_SUFFIX,
    JournalEntry,
    device_told,
    is_left,
    read_journal,
    refuse_living_author,
    replay,
    still_set,
    tell_damage,
)
from joulewise.control.lock import FileLock, holder_at
from joulewise.control.state import (
    JOURNAL_SUFFIX,
    LOCK_SUFFIX,
    is_of_a_process,
    journal_file,
    lock_file,
    make_state_dir,
    remove_abandoned,
    unusable,
)
from joulewise.domain.errors import BusyError, DeviceError, InputError, JoulewiseError
from joulewise.domain.ports import Gpu


class Outcome(StrEnum):
    """What became of one journal."""

    GIVEN_BACK = "given back"
    BUSY = "busy"
    NOT_GIVEN_BACK = "not given back"
    UNSEEN = "not to be seen"
    LEFT_OPEN = "given back, but for a power limit that is not known"


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

    A GPU that somebody holds is left alone: its journal is the holder's. One that a guard process
    gives back is waited for, for some seconds. What damaged journals leave open is told once, and
    their files are put aside. Doing it again, or while others do it, is harmless.

    Args:
        state_dir: The folder; one that is not there has no journals.
        open_gpu: Opens a GPU by its device string.

    Raises:
        InputError: the folder cannot be read, or others could change what is written there.
    """
    if not state_dir.exists():
        return ()
    make_state_dir(state_dir)
    places = sorted(_places(state_dir))
    remove_abandoned(state_dir)
    done = (restored(place, open_gpu) for place in places if not is_of_a_process(place))
    return tuple(one for one in done if one is not None)


def _places(state_dir: Path) -> set[Path]:
    """Places of journals; of some only the copy is left, or the damaged file."""
    try:
        names = [path.name for path in state_dir.iterdir()]
    except OSError as error:
        raise unusable(state_dir, error) from error
    ends = [f"{JOURNAL_SUFFIX}{end}" for end in ("", ".copy", DAMAGED_SUFFIX)]
    return {
        state_dir / f"{name.removesuffix(end)}{JOURNAL_SUFFIX}"
        for name in names
        for end in ends
        if name.endswith(end) and not name.startswith(".")
    }


def replay_former(gpu: Gpu, folders: Iterable[Path]) -> None:
    """Undo what an older joulewise left of this GPU in folders that are used no more.

    Only under the GPU's lock in the folder of today. Where the older one still holds it, or
    others could have written there, it is left alone. Raises DeviceError as `replay`.
    """
    for folder in folders:
        journal = journal_file(gpu.identity, folder)
        with contextlib.suppress(InputError, BusyError, OSError):
            if is_left(journal):
                make_state_dir(folder)
                with _locked(lock_file(gpu.identity, folder), gpu.identity.name, journal):
                    replay(journal, gpu)


@contextlib.contextmanager
def _locked(path: Path, name: str, journal: Path) -> Iterator[None]:
    """Raises BusyError where somebody holds the GPU, and for nothing that is done inside."""
    lock = FileLock(path)
    lock.acquire(name, this_process())
    try:
        refuse_living_author(journal, lock.mark)
        try:
            yield
        except BusyError as error:
            raise DeviceError(error.message, hint=error.hint) from error
    finally:
        lock.release()


def restored(journal: Path, open_gpu: Callable[[str], Gpu]) -> Restored | None:
    """Replay the journal at this place; `None` where there is nothing to tell of."""
    uuid = journal.name.removesuffix(JOURNAL_SUFFIX)
    lock = journal.with_name(f"{uuid}{LOCK_SUFFIX}")
    entry, outcome = read_journal(journal), Outcome.NOT_GIVEN_BACK
    why: str | None
    hint: str | None = None
    name = f"the GPU {uuid}" if entry is None else entry.device_name
    try:
        if not is_left(journal):
            return _damaged(uuid, journal)
        with _locked(lock, name, journal):
            entry = read_journal(journal)
            if not is_left(journal):
                # Its holder gave everything back meanwhile.
                return _damaged(uuid, journal)
            replay(journal, _opened(uuid, journal, entry, open_gpu))
    except BusyError as error:
        named = holder_at(lock)
        is_giving_back = named is not None and named.is_giving_back
        outcome = Outcome.NOT_GIVEN_BACK if is_giving_back else Outcome.BUSY
        why, hint = error.message, error.hint
    except JoulewiseError as error:
        if isinstance(error.__cause__, PermissionError):
            outcome, why, hint = Outcome.UNSEEN, *_unseen(journal)
        else:
            left = still_set(entry, journal)
            why, hint = error.message, f"{error.hint} {left}" if error.hint else left
    else:
        outcome, why = Outcome.GIVEN_BACK, tell_damage(journal)
    return Restored(uuid=uuid, journal=journal, entry=entry, outcome=outcome, why=why, hint=hint)


def _unseen(journal: Path) -> tuple[str, str]:
    return (
        f"this account may not look at what is kept in {journal.parent}",
        "A living process may hold it, or a dead one have left clocks set: try as root.",
    )


def _damaged(uuid: str, journal: Path) -> Restored | None:
    """What a journal leaves open that was damaged, and undone as far as could be told."""
    why = tell_damage(journal)
    if why is None:
        return None
    return Restored(uuid=uuid, journal=journal, entry=None, outcome=Outcome.LEFT_OPEN, why=why)


def _opened(
    uuid: str, journal: Path, entry: JournalEntry | None, open_gpu: Callable[[str], Gpu]
) -> Gpu:
    """The GPU that the file is named for, whatever a damaged journal says."""
    # What somebody copied or renamed counts as damaged.
    is_of_it = entry is not None and entry.uuid == uuid
    usual = f"nvml:{uuid}"
    if is_board(uuid):
        # Its files may lie elsewhere than usual, which nothing else tells.
        usual = device_told(journal, uuid) or "jetson"
    gpu = open_gpu(entry.device if entry is not None and is_of_it else usual)
    if gpu.identity.uuid != uuid:
        raise InputError(
            f"the journal of {uuid} opens {gpu.identity.uuid}",
            hint="Somebody renamed or changed it; remove it once that GPU is as it should be.",
        )
    return gpu
