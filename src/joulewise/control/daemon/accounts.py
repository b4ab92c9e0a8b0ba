"""Numbers of users and groups that a policy names."""

from __future__ import annotations

from pathlib import Path

from joulewise.domain.errors import InputError

_LARGEST = 2**32 - 2
"""One more is what the system says where it does not know."""
_OVERFLOW = 65534
_OVERFLOW_FILES = {
    "user": Path("/proc/sys/kernel/overflowuid"),
    "group": Path("/proc/sys/kernel/overflowgid"),
}


def account_number(named: str | int, kind: str, *, file: str, field: str) -> int:
    """The number of a user or a group; `kind` says which of the two.

    A name that this machine does not know is refused, for a policy with a slip of the pen would
    keep out who was meant and say nothing. So is a name of the number by which the system shows
    everybody in a container whose users it does not map: only that number itself lets them in.

    Raises:
        InputError: names file and field.
    """
    if isinstance(named, int):
        if 0 <= named <= _LARGEST:
            return named
        raise InputError(
            f"{named} is no number of a {kind}",
            file=file,
            field=field,
            hint=f"Numbers go from 0 to {_LARGEST}.",
        )
    number = _looked_up(named, kind)
    if number is None:
        raise InputError(
            f"this machine has no {kind} {named!r}",
            file=file,
            field=field,
            hint="Check the name, take it out, or give the number.",
        )
    if number == overflow_number(kind):
        raise InputError(
            f"{named!r} has the number {number}, by which every {kind} shows of a container that "
            "this machine does not map",
            file=file,
            field=field,
            hint=f"Write {number} to allow all of them.",
        )
    return number


def overflow_number(kind: str) -> int:
    """The number that stands for all users, or groups, that have none on this machine."""
    try:
        return int(_OVERFLOW_FILES[kind].read_text(encoding="ascii"))
    except (OSError, ValueError):
        return _OVERFLOW


def _looked_up(name: str, kind: str) -> int | None:
    import grp  # noqa: PLC0415 - Unix only
    import pwd  # noqa: PLC0415 - Unix only

    try:
        return pwd.getpwnam(name).pw_uid if kind == "user" else grp.getgrnam(name).gr_gid
    except (KeyError, ValueError):
        # A name with a NUL or a lone surrogate is a ValueError, and nobody's either.
        return None
