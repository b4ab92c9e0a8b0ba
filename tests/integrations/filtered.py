"""Runs a program under the system call filter of a systemd unit.

`python filtered.py UNIT PROGRAM ARGUMENT…`: reads SystemCallFilter and MemoryDenyWriteExecute of
the unit, has `systemd-analyze` spell out the groups, installs the filter by libseccomp and
becomes the program. What is not let through fails with EPERM, as under the unit.
"""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import sys
from pathlib import Path

ALLOW = 0x7FFF0000
REFUSE = 0x00050000 | errno.EPERM
MASKED_EQUAL = 7
PROT_WRITE, PROT_EXEC = 2, 4
UNKNOWN = -1


class Comparison(ctypes.Structure):
    """`struct scmp_arg_cmp` of libseccomp."""

    _fields_ = (
        ("argument", ctypes.c_uint),
        ("operator", ctypes.c_int),
        ("mask", ctypes.c_uint64),
        ("value", ctypes.c_uint64),
    )


def settings(unit: Path, name: str) -> list[str]:
    """Every value of a setting, in order."""
    lines = unit.read_text(encoding="utf-8").splitlines()
    return [line.partition("=")[2] for line in lines if line.startswith(f"{name}=")]


def group(name: str) -> set[str]:
    """The calls of a group such as `@system-service`, or the one call of that name."""
    if not name.startswith("@"):
        return {name}
    done = subprocess.run(
        ["systemd-analyze", "syscall-filter", "--no-pager", name],
        capture_output=True,
        text=True,
        check=True,
    )
    members = [line.strip() for line in done.stdout.splitlines()[1:]]
    return {
        call
        for member in members
        if member and not member.startswith("#")
        for call in group(member)
    }


def allowed_calls(unit: Path) -> set[str]:
    """What the unit lets through: the first list allows, those with `~` take away."""
    calls: set[str] = set()
    for value in settings(unit, "SystemCallFilter"):
        named = {call for word in value.lstrip("~").split() for call in group(word)}
        calls = calls - named if value.startswith("~") else calls | named
    return calls


def install(unit: Path) -> None:
    """Put this process, and all that it starts, under the filter."""
    library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    library.seccomp_init.restype = ctypes.c_void_p
    filter_ = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(REFUSE)))
    for call in sorted(allowed_calls(unit)):
        number = library.seccomp_syscall_resolve_name(call.encode())
        if number == UNKNOWN:
            continue
        rules = _rules(call, denies_exec="yes" in settings(unit, "MemoryDenyWriteExecute"))
        for comparisons in rules:
            array = (Comparison * len(comparisons))(*comparisons)
            done = library.seccomp_rule_add_array(
                filter_, ctypes.c_uint32(ALLOW), number, len(comparisons), array
            )
            # Calls of other architectures have pseudo numbers below zero.
            if done and number >= 0:
                raise OSError(-done, f"{call}: {os.strerror(-done)}")
    if library.seccomp_load(filter_):
        raise OSError(ctypes.get_errno(), "the filter cannot be loaded")


def _rules(call: str, *, denies_exec: bool) -> list[list[Comparison]]:
    """One rule without conditions; memory that is written and run is let through in no case."""
    if not denies_exec or call not in {"mmap", "mprotect", "pkey_mprotect"}:
        return [[]]
    without = [Comparison(2, MASKED_EQUAL, PROT_EXEC, 0)]
    if call != "mmap":
        return [without]
    return [without, [Comparison(2, MASKED_EQUAL, PROT_WRITE, 0)]]


if __name__ == "__main__":
    install(Path(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606
