"""What shows of a GPU beside this daemon's own leases: of other holders, and of errors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.control import Holder


@dataclass(frozen=True, slots=True, kw_only=True)
class Others:
    """What shows of leases that are not this daemon's: a living holder, or what a dead one left.

    `left_set` is a sentence on the latter, and `left_open` one on what a journal leaves open that
    could not be read.
    """

    holder: Holder | None = None
    is_left: bool = False
    left_set: str | None = None
    left_open: str | None = None


def no_others() -> Others:
    """Where there is nobody else."""
    return Others()


def left_by(error: Exception) -> str:
    """What an error says of clocks that are still set."""
    notes = getattr(error, "__notes__", ())
    return str(notes[-1] if notes else error)


def lasting(caveats: Iterable[Caveat]) -> Iterator[Caveat]:
    """Of the doubts seen when the GPU was opened those that last: not whose limit was in force."""
    return (one for one in caveats if one.kind is not CaveatKind.FOREIGN_CONTROL)


def note_nothing(_event: str, _what: str | None) -> None:
    """Where nobody keeps a log."""
