"""The journal: what a lease has touched, on disk before the device hears of it.

Its existence is the message: *these knobs were touched and not yet given back*. Clock locks
outlive the process that set them. Where they cannot be read back, undoing means giving every clock
back to the driver, and only of the clocks that were touched; where they are files, each is put
back as found. A power limit can be read back, so it is put back to what was found before the first
touch, as long as it reads as one of those that were asked for. Doing any of it twice leaves the
same state as doing it once.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import stat
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from joulewise.control.by_hand import commands_for, knob_words, left_open_by
from joulewise.control.found_settings import settings_of
from joulewise.control.giving_back import put_back
from joulewise.control.holder import is_marked_alive
from joulewise.control.state import unusable
from joulewise.domain.errors import BusyError, DeviceError
from joulewise.domain.points import (
    CLOCK_KNOBS,
    KNOBS,
    KnobState,
    OperatingPoint,
    Touched,
)
from joulewise.domain.ports import Gpu
from joulewise.store.atomic import sync_folder, write_atomically

SCHEMA_VERSION = 1
DAMAGED_SUFFIX = ".damaged"
"""Of a journal that could not be read, until somebody has been told of it."""
_TOLD_SUFFIX = ".told"
# What a journal that nobody can read may mean. Without the limit found there is none to put back.
_ALL_CLOCKS = Touched(knobs=frozenset(CLOCK_KNOBS))
_LARGEST_BYTES = 1 << 20
# The last one comes of a number with hundreds of digits.
_UNREADABLE = (
    OSError,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    RecursionError,
    OverflowError,
)
# The journal names them all, and is written anew with each: it must not grow without end.
_MOST_LIMITS_COUNT = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """Which GPU was touched, by whom, and which knobs; names as in OperatingPoint.

    `found` is what could be read back of the knobs before the power limit was touched, and before
    any knob was whose settings are files; `None`: none was, or it is not known. `asked_limits_w`
    are all power limits that may have been set since; `None`: an older joulewise did not tell.
    `author` is the process that sets clocks, and `lock` the lock file that it holds, each told
    apart from all others: `None` where nothing tells.
    """

    device: str
    device_name: str
    uuid: str
    holder: str
    touched: tuple[str, ...] = ()
    found: KnobState | None = None
    asked_limits_w: tuple[float, ...] | None = ()
    author: str | None = None
    lock: str | None = None
    schema_version: int = SCHEMA_VERSION

    @property
    def left(self) -> Touched:
        """What is to be given back."""
        return Touched(
            knobs=frozenset(self.touched), found=self.found, asked_limits_w=self.asked_limits_w
        )


def knobs_of(point: OperatingPoint) -> frozenset[str]:
    """The knobs that this point does not leave to the driver."""
    return frozenset(knob for knob in KNOBS if getattr(point, knob) is not None)


def refuse_too_many(limit_w: float, asked_w: Collection[float]) -> None:
    """See that a lease asks for no more power limits than a journal names. Raises BusyError."""
    if limit_w not in asked_w and len(asked_w) >= _MOST_LIMITS_COUNT:
        raise BusyError(
            f"{_MOST_LIMITS_COUNT} different power limits were asked for under this lease",
            hint="Ask for whole watts, or release the GPU and take it again.",
        )


def write_journal(path: Path, entry: JournalEntry) -> None:
    """Replace the journal and its copy, each in one step; both are on the disk when this returns.

    Raises:
        InputError: a file cannot be written.
    """
    text = json.dumps(
        {
            "schema_version": entry.schema_version,
            "device": entry.device,
            "device_name": entry.device_name,
            "uuid": entry.uuid,
            "holder": entry.holder,
            "touched": list(entry.touched),
            "found": None if entry.found is None else _found_fields(entry.found),
            "asked_limits_w": None if entry.asked_limits_w is None else list(entry.asked_limits_w),
            "author": entry.author,
            "lock": entry.lock,
        },
        indent=1,
    )
    for one in _both(path):
        # Whoever could put a link here must not have other files replaced.
        write_atomically(one, f"{text}\n".encode(), follows_links=False, is_private=True)


def is_left(path: Path) -> bool:
    """Whether something is to be undone: a journal that nobody can read says so too."""
    return any(os.path.lexists(one) for one in _both(path))


def damaged_journal(path: Path) -> Path:
    """Where a journal is kept that could not be read and was undone without."""
    return path.with_name(f"{path.name}{DAMAGED_SUFFIX}")


def read_journal(path: Path) -> JournalEntry | None:
    """What a lease left behind; `None` where there is no journal or it cannot be understood.

    Use `is_left` to ask whether something is to be undone.
    """
    entries = (_read_one(one) for one in _both(path))
    return next((entry for entry in entries if entry is not None), None)


def device_told(path: Path, uuid: str) -> str | None:
    """The device string in a journal of this GPU, whatever else is wrong with it."""
    for one in _both(path):
        with contextlib.suppress(*_UNREADABLE):
            fields = json.loads(_content(one))
            if fields["uuid"] == uuid:
                return _text(fields["device"])
    return None


def _both(path: Path) -> tuple[Path, Path]:
    """The journal and its copy."""
    return path, path.with_name(f"{path.name}.copy")


def _read_one(path: Path) -> JournalEntry | None:
    try:
        return _entry(json.loads(_content(path)))
    except _UNREADABLE:
        return None


def _entry(fields: Mapping[str, object]) -> JournalEntry:
    """Raises ValueError, TypeError and their like for what no joulewise of today has written."""
    if type(fields["schema_version"]) is not int or fields["schema_version"] != SCHEMA_VERSION:
        raise ValueError("another version")
    touched, found = _knobs(fields["touched"]), _found(fields.get("found"))
    if "power_limit_w" in touched and (found is None or found.power_limit_w is None):
        raise ValueError("a power limit, and nothing to put it back to")
    return JournalEntry(
        device=_text(fields["device"]),
        device_name=_text(fields["device_name"]),
        uuid=_text(fields["uuid"]),
        holder=_text(fields["holder"]),
        touched=touched,
        found=found,
        asked_limits_w=_limits_w(fields.get("asked_limits_w")),
        author=None if fields.get("author") is None else _text(fields["author"]),
        lock=None if fields.get("lock") is None else _text(fields["lock"]),
    )


def _text(told: object) -> str:
    if not isinstance(told, str):
        raise TypeError(f"{told!r} is no text")
    return told


def _knobs(told: object) -> tuple[str, ...]:
    """A knob that is not known could not be given back, and no journal is of none."""
    if not isinstance(told, list) or not told or not set(told).issubset(KNOBS):
        raise ValueError(f"{told!r} are no knobs")
    return tuple(told)


def _content(path: Path) -> bytes:
    """All of a plain file of this account or of root, of the size of a journal.

    Raises OSError or ValueError for anything else: somebody else put it there.
    """
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    descriptor = os.open(path, flags | getattr(os, "O_BINARY", 0))
    with open(descriptor, "rb") as file:  # noqa: PTH123 - it is open already
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST_BYTES:
            raise ValueError("no journal")
        if os.name == "posix" and found.st_uid not in {0, os.geteuid()}:
            raise ValueError("somebody else's")
        return file.read(_LARGEST_BYTES)


def _found(fields: object) -> KnobState | None:
    """What was found; `None` where the journal does not say."""
    if fields is None:
        return None
    if not isinstance(fields, dict):
        raise TypeError(f"{fields!r} is nothing that was found")
    limit_w = fields["power_limit_w"]
    return KnobState(
        power_limit_w=None if limit_w is None else _limit_w(limit_w),
        settings=settings_of(fields.get("settings")),
    )


def _found_fields(found: KnobState) -> dict[str, object]:
    """Settings are told of where there are some: to others a journal stays what it was."""
    settings = [asdict(one) for one in found.settings]
    limit: dict[str, object] = {"power_limit_w": found.power_limit_w}
    return {**limit, "settings": settings} if settings else limit


def _limits_w(listed: object) -> tuple[float, ...] | None:
    if listed is None:
        return None
    if not isinstance(listed, list):
        raise TypeError(f"{listed!r} are no power limits")
    return tuple(_limit_w(one) for one in listed)


def _limit_w(limit_w: float) -> float:
    if not 0.0 < float(limit_w) < math.inf:
        raise ValueError(f"no power limit was ever {limit_w} W")
    return float(limit_w)


def delete_journal(path: Path) -> None:
    """Forget it; harmless when repeated. Raises InputError where it cannot be removed."""
    try:
        for one in reversed(_both(path)):
            if one.is_dir() and not one.is_symlink():
                one.replace(_free_name(path))
            else:
                one.unlink(missing_ok=True)
        sync_folder(path.parent)
    except FileNotFoundError:
        # With all of its folder.
        return
    except OSError as error:
        raise unusable(path, error) from error


def _free_name(path: Path) -> Path:
    """Where something is put aside that stands in the place of a journal; told of by its first."""
    first = damaged_journal(path)
    others = (first.with_name(f"{first.name}.{count}") for count in range(2, 1000))
    return next((one for one in (first, *others) if not os.path.lexists(one)), first)


def still_set(entry: JournalEntry | None, path: Path) -> str:
    """What may still be set as a journal says, which file that is, and what to type.

    `None` is a journal that cannot be read. What gives back by hand stands at the end, one command
    for each knob and without a full stop, for people copy it.
    """
    is_told = entry is not None and bool(entry.touched)
    what = knob_words(entry.touched if entry is not None else ())
    device = entry.device_name if entry is not None and is_told else "a GPU"
    commands = " && ".join(
        commands_for(path.name, None) if entry is None else commands_for(entry.uuid, entry.left)
    )
    by_hand = f"; by hand: {commands}" if commands else "."
    return (
        f"{what} of {device} may still be set, as {path} says. "
        f"joulewise restore gives back, and so does the next lease there{by_hand}"
    )


def replay(path: Path, gpu: Gpu) -> bool:
    """Undo what a dead holder left behind; whether there was a journal of one.

    Only under the GPU's lock. A journal that nobody can read, or that tells of what the device
    never takes, is kept as `damaged_journal`.

    Raises:
        DeviceError: the device refused, or the journal is of another board under this one's name;
            it stays, for the next try.
    """
    if not is_left(path):
        return False
    entry = read_journal(path)
    if entry is not None and entry.uuid != gpu.identity.uuid:
        # Somebody copied or renamed it: what it says is no matter of this GPU.
        entry = None
    left, is_believed = (_ALL_CLOCKS, False) if entry is None else (entry.left, True)
    try:
        if left.knobs:
            is_believed = put_back(gpu, left) and is_believed
    except DeviceError as error:
        holder = "an earlier process" if entry is None else entry.holder
        error.add_note(f"{gpu.identity.name} was left with clocks set by {holder} ({path}).")
        error.add_note(still_set(entry, path))
        raise
    if not is_believed and not gpu.identity.is_in_process:
        with contextlib.suppress(OSError):
            path.replace(_free_name(path))
    delete_journal(path)
    return True


def refuse_living_author(path: Path, lock: str) -> None:
    """See that whoever wrote this journal is gone, or has let go of the lock.

    Only under the GPU's lock, which is this file. Where the journal names another one, that was
    removed under its holder, who may still live and set clocks. Raises BusyError.
    """
    entry = read_journal(path)
    if entry is None or entry.author is None or entry.lock == lock:
        return
    if is_marked_alive(entry.author):
        raise BusyError(
            f"{entry.device_name} is held by {entry.holder}, whose lock file somebody removed",
            file=str(path),
            hint="Wait until it ends, or end it; one process at a time may set clocks.",
        )


def damage(path: Path) -> str | None:
    """What a journal that could not be read leaves open; `None` where there was none.

    Clocks are given back then; it is told until `tell_damage` has put the file aside.
    """
    kept = damaged_journal(path)
    if not os.path.lexists(kept):
        return None
    return left_open_by(
        path.name,
        _what_is_wrong(kept),
        f"It is kept as {kept}: joulewise restore tells this once and puts it aside.",
    )


def tell_damage(path: Path) -> str | None:
    """As `damage`, for somebody who reads it now: the file is put aside, and told of no more."""
    kept = damaged_journal(path)
    if not os.path.lexists(kept):
        return None
    told = kept.with_name(f"{kept.name}{_TOLD_SUFFIX}")
    what = _what_is_wrong(kept)
    try:
        kept.replace(told)
    except OSError:
        # Something else stands there, a folder perhaps; what is told of now is told of once.
        told = _free_name(path)
        try:
            kept.replace(told)
        except OSError:
            return damage(path)
    kept_as = f"It is kept as {told}, and nothing looks at it any more."
    return left_open_by(path.name, what, kept_as)


def _what_is_wrong(kept: Path) -> str:
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
        version = json.loads(_content(kept))["schema_version"]
        if type(version) is int and version > SCHEMA_VERSION:
            return "A journal of what was set is of a newer joulewise"
    if _read_one(kept) is not None:
        return "A journal of what was set told of another GPU, or of what this one never takes"
    return "A journal of what was set could not be read"
