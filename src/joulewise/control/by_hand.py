"""What people type to give back what a lease left, where joulewise itself cannot."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import PurePosixPath

from joulewise.control.found_settings import command_of, compared
from joulewise.domain.points import KNOBS, FoundSetting, Touched

BOARD_UUID_START = "GPU-jetson-"
"""So the UUID begins of a GPU whose clocks are files, and which NVML does not know."""
# How a knob is called, and what gives it back to the NVIDIA driver.
_WORDS = {
    "sm_clock_mhz": ("SM clock", "-rgc"),
    "mem_clock_mhz": ("memory clock", "-rmc"),
    "power_limit_w": ("power limit", "-pl"),
}
_LEAST, _MOST = "min_freq", "max_freq"


def is_board(uuid: str) -> bool:
    """Whether this is the UUID of a GPU whose clocks are files, or a file named for it."""
    return uuid.startswith(BOARD_UUID_START)


def knob_words(touched: Collection[str]) -> str:
    """Knobs as a sentence begins with them: `SM clock, power limit`; `Clocks` for none."""
    words = ", ".join(_WORDS[knob][0] for knob in KNOBS if knob in touched) or "clocks"
    return f"{words[0].upper()}{words[1:]}"


def commands_for(uuid: str, left: Touched | None) -> Iterator[str]:
    """What to type, one command each; `None` where nobody knows what is left.

    None at all for a board of which nobody knows how it was found: what it starts with is in
    no command that could be written here.
    """
    if is_board(uuid):
        found = () if left is None or left.found is None else left.found.settings
        knobs = frozenset() if left is None else left.knobs
        yield from commands_of([one for one in found if one.knob in knobs])
        return
    if left is None or not left.knobs:
        yield from (f"nvidia-smi {option}" for option in ("-rgc", "-rmc"))
        return
    for knob in (one for one in KNOBS if one in left.knobs and one != "power_limit_w"):
        yield f"nvidia-smi -i {uuid} {_WORDS[knob][1]}"
    found_w = None if left.found is None else left.found.power_limit_w
    if "power_limit_w" in left.knobs and found_w is not None:
        yield f"nvidia-smi -i {uuid} -pl {found_w:g}"


def left_open_by(uuid: str, what: str, kept: str) -> str:
    """What a journal leaves open that nobody could read, and how to see to it."""
    if is_board(uuid):
        return (
            f"{what}. The clocks were put into the state that the board starts with; where "
            "somebody had pinned them before, that is gone: joulewise doctor shows how they are. "
            f"{kept}"
        )
    return (
        f"{what}. The clocks were given back, but a power limit may still be lowered: "
        "nvidia-smi -q -d POWER shows it, and nvidia-smi -pl WATTS "
        f"sets it. {kept}"
    )


def commands_of(settings: Sequence[FoundSetting]) -> Iterator[str]:
    """What to type to put these back, one command each and in an order that no kernel refuses.

    A least above the most is refused. What is set now is not known, so the least is let go of
    first: 0 is *do not care* (Linux, Documentation/ABI/testing/sysfs-class-devfreq).
    """
    kept = tuple(compared(settings))
    texts = {PurePosixPath(one.path): one.text for one in kept}
    for path, text in texts.items():
        least, most = path.with_name(_LEAST), path.with_name(_MOST)
        is_pair = path.name in {_LEAST, _MOST} and least in texts and most in texts
        if not is_pair:
            yield command_of(path, text)
        elif path.name == _MOST:
            yield from (
                command_of(least, "0"),
                command_of(most, text),
                command_of(least, texts[least]),
            )
