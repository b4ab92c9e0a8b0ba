"""Who holds a lease: this process in words, and whether a named one still lives."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from joulewise.domain.control import Holder

_LONGEST_WORD_COUNT = 40


def this_process() -> Holder:
    """This process, its account and its program."""
    return Holder(pid=os.getpid(), user=_account(), command=_program())


def is_alive(pid: int) -> bool:
    """Whether a process with this number runs here; one that only waits to be reaped does not.

    Where the system cannot be asked without harm, every process counts as alive.
    """
    if os.name != "posix":
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[:1]
    except OSError:
        return sys.platform != "linux"
    return state not in ([b"Z"], [b"X"])


def has_open(pid: int, file: Path) -> bool:
    """Whether this process has the file open, as far as this account may see."""
    try:
        found = file.stat()
        return any(os.path.samestat(found, one.stat()) for one in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


def mark_of(pid: int) -> str | None:
    """What tells this process from every other, whatever its number; `None`: nothing does.

    Numbers are given out again, from the beginning when the machine starts, and each container
    has its own.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        space = Path("/proc/self/ns/pid").readlink()
        start = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19].decode()
    except (OSError, ValueError, IndexError):
        return None
    return f"{boot} {space} {start} {pid}"


def is_marked_alive(mark: str) -> bool:
    """Whether the process lives here that `mark_of` told apart so."""
    pid = mark.rpartition(" ")[2]
    return pid.isdecimal() and mark_of(int(pid)) == mark and is_alive(int(pid))


def _account() -> str | None:
    if os.name != "posix":
        return _word(os.environ.get("USERNAME"))
    import pwd  # noqa: PLC0415 - Unix only

    with contextlib.suppress(KeyError):
        return _word(pwd.getpwuid(os.geteuid()).pw_name)
    return str(os.geteuid())


def _program() -> str | None:
    """The script or module that runs, without its folders and arguments."""
    named = Path(sys.argv[0]) if sys.argv and sys.argv[0] not in {"", "-c", "-m"} else None
    if named is not None and named.name == "__main__.py":
        named = named.parent
    return _word((named or Path(sys.executable)).name)


def _word(text: str | None) -> str | None:
    """For people, on one line and not too long, whatever the name of a file may hold."""
    kept = "".join(letter for letter in text or "" if letter.isprintable())
    return kept[:_LONGEST_WORD_COUNT] or None
