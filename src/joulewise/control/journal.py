"""The journal: what a lease has touched, on disk before the device hears of it.

Its existence is the message: *these knobs were touched and not yet given back*. Clock locks
outlive the process that set them and cannot be read back, so undoing means giving every clock
back to the driver. A power limit can be read back, so it is put back to what was found before
the first touch. Doing either twice leaves the same state as doing it once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from joulewise.control.state import unusable
from joulewise.domain.errors import DeviceError
from joulewise.domain.points import KnobState, OperatingPoint
from joulewise.domain.ports import Gpu
from joulewise.store.atomic import sync_folder, write_atomically

SCHEMA_VERSION = 1
# Boards may round a power limit to whole watts.
_SAME_LIMIT_W = 0.5
KNOBS = ("sm_clock_mhz", "mem_clock_mhz", "power_limit_w")


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """Which GPU was touched, by whom, and which knobs; names as in OperatingPoint.

    `found` is what could be read back of the knobs before the first touch; `None`: not known.
    """

    device: str
    device_name: str
    uuid: str
    holder: str
    touched: tuple[str, ...] = ()
    found: KnobState | None = None
    schema_version: int = SCHEMA_VERSION


def knobs_of(point: OperatingPoint) -> frozenset[str]:
    """The knobs that this point does not leave to the driver."""
    return frozenset(knob for knob in KNOBS if getattr(point, knob) is not None)


def write_journal(path: Path, entry: JournalEntry) -> None:
    """Replace the journal in one step; it is on the disk when this returns.

    Raises:
        InputError: the file cannot be written.
    """
    text = json.dumps(
        {
            "schema_version": entry.schema_version,
            "device": entry.device,
            "device_name": entry.device_name,
            "uuid": entry.uuid,
            "holder": entry.holder,
            "touched": list(entry.touched),
            "found": None if entry.found is None else asdict(entry.found),
        },
        indent=1,
    )
    write_atomically(path, f"{text}\n".encode())


def read_journal(path: Path) -> JournalEntry | None:
    """What a lease left behind; `None` where there is no journal or it cannot be understood.

    Use `path.exists()` to ask whether something is to be undone: an unreadable journal says
    so too.
    """
    try:
        fields = json.loads(path.read_bytes())
        return JournalEntry(
            schema_version=int(fields["schema_version"]),
            device=str(fields["device"]),
            device_name=str(fields["device_name"]),
            uuid=str(fields["uuid"]),
            holder=str(fields["holder"]),
            touched=tuple(str(knob) for knob in fields["touched"]),
            found=_found(fields.get("found")),
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _found(fields: Mapping[str, float | None] | None) -> KnobState | None:
    """What was found; `None` where the journal does not say."""
    if fields is None:
        return None
    limit_w = fields["power_limit_w"]
    if limit_w is None:
        return KnobState()
    if not 0.0 < float(limit_w) < math.inf:
        raise ValueError(f"no power limit was ever {limit_w} W")
    return KnobState(power_limit_w=float(limit_w))


def delete_journal(path: Path) -> None:
    """Forget it; harmless when repeated. Raises InputError where it cannot be removed."""
    try:
        path.unlink(missing_ok=True)
        sync_folder(path.parent)
    except OSError as error:
        raise unusable(path, error) from error


def give_back(gpu: Gpu, found: KnobState | None) -> None:
    """Give every knob back, the power limit as it was found, and see that the device answers.

    There is no reading back of clock locks, so an accepted reset from a device that answers
    afterwards is all that can be known of them without load. Raises DeviceError, also where
    the power limit reads otherwise afterwards.
    """
    gpu.reset(found)
    gpu.sample()
    if found is None or found.power_limit_w is None:
        return
    left_w = gpu.knob_state().power_limit_w
    if left_w is None or abs(left_w - found.power_limit_w) > _SAME_LIMIT_W:
        left = "cannot be read" if left_w is None else f"is {left_w:g} W"
        raise DeviceError(
            f"the power limit of {gpu.identity.name} {left}, and it was {found.power_limit_w:g} W "
            "before",
            hint=f"Set it by hand: nvidia-smi -pl {found.power_limit_w:g}.",
        )


def replay(path: Path, gpu: Gpu) -> bool:
    """Undo what a dead holder left behind; whether there was anything to undo.

    Raises:
        DeviceError: the device refused; the journal stays, for the next try.
    """
    if not path.exists():
        return False
    entry = read_journal(path)
    try:
        give_back(gpu, None if entry is None else entry.found)
    except DeviceError as error:
        holder = "an earlier process" if entry is None else entry.holder
        error.add_note(f"{gpu.identity.name} was left with clocks set by {holder} ({path}).")
        raise
    delete_journal(path)
    return True
