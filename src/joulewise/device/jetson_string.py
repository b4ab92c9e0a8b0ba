"""Device strings of Jetson boards: `jetson`, `jetson,root=/path/to/tree`, `…,memory_lock=on`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from joulewise.domain.errors import InputError

PREFIX = "jetson"

OPTIONS: Mapping[str, str] = {
    "root": "the folder below which the board's files lie, `/` on the board itself",
    "memory_lock": "`on` to let the memory clock be locked, or `off`",
}

ROOT_VARIABLE = "JOULEWISE_JETSON_ROOT"
"""Environment variable that names the root folder where the device string does not."""

# PATH_MAX of Linux is 4096; the files of a board lie up to 200 below.
_LONGEST_ROOT_COUNT = 3800

_HINT = (
    f"Write {PREFIX} on the board itself, {PREFIX},root=/path/to/tree for a tree of its files, "
    f"and {PREFIX},memory_lock=on to lock the memory clock, too."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JetsonOptions:
    """A parsed device string. `named_root` is `None` where nobody named a folder."""

    named_root: str | None = None
    is_memory_lock_allowed: bool = False

    @property
    def root(self) -> str:
        """The folder below which the board's files lie."""
        return self.named_root or "/"

    @property
    def spec(self) -> str:
        """The device string that opens this very board again, in any working folder."""
        root = "" if self.named_root is None else f",root={self.named_root}"
        return f"{PREFIX}{root}{',memory_lock=on' if self.is_memory_lock_allowed else ''}"


def is_jetson(device: str) -> bool:
    """Whether this device string names a Jetson board."""
    return re.split("[:,]", device.strip(), maxsplit=1)[0].strip() == PREFIX


def parse_jetson(device: str, environment: Mapping[str, str]) -> JetsonOptions:
    """Read a device string; the environment names the root folder where the string does not.

    Raises:
        InputError: not a Jetson board, or an option or value that is unknown.
    """
    if not is_jetson(device):
        raise InputError(f"{device!r} does not name a Jetson board", field="device", hint=_HINT)
    first, *parts = device.strip().split(",")
    if first.strip() != PREFIX:
        raise InputError(
            f"{device!r} selects a board, and there is one at most", field="device", hint=_HINT
        )
    given = _given(device, parts)
    return JetsonOptions(
        named_root=_named_root(given, environment),
        is_memory_lock_allowed=_is_memory_lock_allowed(given.get("memory_lock", "off")),
    )


def _given(device: str, parts: list[str]) -> dict[str, str]:
    given: dict[str, str] = {}
    for part in parts:
        name, _, text = (piece.strip() for piece in part.partition("="))
        if name not in OPTIONS:
            raise InputError(
                f"{device!r} has the unknown option {name!r}",
                field=name or "device",
                hint=f"Known options: {', '.join(OPTIONS)}.",
            )
        if name in given:
            raise InputError(
                f"{device!r} gives {name!r} twice", field=name, hint="Keep one of the two."
            )
        given[name] = text
    return given


def _named_root(given: Mapping[str, str], environment: Mapping[str, str]) -> str | None:
    if "root" in given:
        return _absolute(given["root"], field="root")
    in_environment = environment.get(ROOT_VARIABLE, "").strip()
    return _absolute(in_environment, field=ROOT_VARIABLE) if in_environment else None


def _absolute(text: str, *, field: str) -> str:
    if not text:
        raise InputError("the root folder is empty", field=field, hint=f"It is {OPTIONS['root']}.")
    # Such a path could not be opened again from the device string.
    if "," in text or not text.isprintable():
        raise InputError(
            f"{text!r} is no root folder that a device string can name",
            field=field,
            hint="Use a folder without commas and control characters in its path.",
        )
    if len(text) > _LONGEST_ROOT_COUNT:
        raise InputError(
            f"a root folder of {len(text)} characters is none that can be opened",
            field=field,
            hint=f"It is {OPTIONS['root']}.",
        )
    return os.path.abspath(text)  # noqa: PTH100 - links stay as they are named


def _is_memory_lock_allowed(text: str) -> bool:
    if text not in ("on", "off"):
        raise InputError(
            f"{text!r} is no value for the option 'memory_lock'",
            field="memory_lock",
            hint=f"memory_lock is {OPTIONS['memory_lock']}.",
        )
    return text == "on"
