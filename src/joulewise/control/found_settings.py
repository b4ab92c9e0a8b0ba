"""Clock settings that can be read back: kept in the journal, compared, and put back by hand.

An embedded board sets its clocks by files, so that what was found there is put back as found,
whoever had set it: never to the top, and never to a guess.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from joulewise.domain.errors import DeviceError
from joulewise.domain.points import KNOBS, FoundSetting, KnobState
from joulewise.domain.ports import Gpu

# A board has a handful of such files, and paths as long as the kernel takes them.
_MOST_SETTINGS_COUNT = 32
_LONGEST_PATH_COUNT = 4096
_LONGEST_TEXT_COUNT = 256
_HZ_PER_KHZ, _LEAST_HZ = 1000, 1_000_000
_MEMORY, _UNLOCKED = "mem_clock_mhz", "0"


def settings_of(fields: object) -> tuple[FoundSetting, ...]:
    """What a journal says was found; none where it says nothing.

    Raises ValueError, TypeError or KeyError for what no joulewise has written: text that could
    not be that of a setting is never put into a file.
    """
    if fields is None:
        return ()
    if not isinstance(fields, list) or len(fields) > _MOST_SETTINGS_COUNT:
        raise ValueError("no list of settings")
    settings = tuple(_setting(one) for one in fields)
    if len({one.path for one in settings}) != len(settings):
        raise ValueError("two settings of one file")
    return settings


def _setting(fields: object) -> FoundSetting:
    if not isinstance(fields, dict):
        raise TypeError(f"{fields!r} is no setting")
    knob, path, text = fields["knob"], fields["path"], fields["text"]
    if not isinstance(knob, str) or knob not in KNOBS:
        raise ValueError(f"{knob!r} is no knob")
    if not _is_line(path, _LONGEST_PATH_COUNT) or not path.startswith("/"):
        raise ValueError(f"{path!r} is no file")
    if not _is_line(text, _LONGEST_TEXT_COUNT):
        raise ValueError(f"{text!r} is no setting")
    return FoundSetting(knob=knob, path=path, text=text)


def _is_line(told: object, longest_count: int) -> bool:
    return isinstance(told, str) and 0 < len(told) <= longest_count and told.isprintable()


def found_before(known: KnobState | None, now: KnobState, touched: Collection[str]) -> KnobState:
    """How all was found: touched knobs as known, others as they are now.

    A knob that somebody else set since, before we touch it, is theirs, and so put back to that.
    """
    kept = () if known is None else known.settings
    return KnobState(
        power_limit_w=now.power_limit_w if known is None else known.power_limit_w,
        settings=(
            *(one for one in kept if one.knob in touched),
            *(one for one in now.settings if one.knob not in touched),
        ),
    )


def check_settings(
    gpu: Gpu,
    found: KnobState,
    knobs: Collection[str],
    ours: Sequence[FoundSetting] | None = None,
) -> None:
    """See that the files of these knobs read as they were found.

    Files that this GPU does not name as its own count for nothing: a journal may be of before an
    update that moved them. Raises DeviceError.

    Args:
        gpu: The device.
        found: How it was found.
        knobs: Those that were to be given back.
        ours: Its files as they read after our own last request: one that reads neither so nor as
            found was set by somebody else since, and stays theirs. `None`: not known, so that
            each has to read as found.
    """
    wanted = [one for one in compared(found.settings) if one.knob in knobs]
    now_at = {one.path: one.text for one in gpu.knob_state().settings} if wanted else {}
    ours_at = now_at if ours is None else {one.path: one.text for one in ours}
    for one in wanted:
        now = now_at.get(one.path)
        if now is None or is_same(now, one.text) or now != ours_at.get(one.path):
            continue
        if ours is None and not one.text.isdecimal():
            # A governor that the kernel no longer has; whoever replays this could never go on.
            continue
        raise DeviceError(
            f"{one.path} of {gpu.identity.name} reads {now}, and it was {one.text} before",
            hint=f"Set it by hand, as root: echo {one.text} > {one.path}",
        )


def compared(settings: Sequence[FoundSetting]) -> Iterator[FoundSetting]:
    """All of them but the rate of a memory clock that nobody has locked: it moves by itself.

    Such a lock is a flag beside the rate, and no rate is 0.
    """
    is_floating = any(one.knob == _MEMORY and one.text == _UNLOCKED for one in settings)
    for one in settings:
        if one.knob != _MEMORY or one.text == _UNLOCKED or not is_floating:
            yield one


def is_same(now: str, found: str) -> bool:
    """Whether two texts set the same: frequencies in Hz are kept in whole kHz by the kernel."""
    if now.isdecimal() and found.isdecimal():
        is_hz = min(int(now), int(found)) >= _LEAST_HZ
        return abs(int(now) - int(found)) < (_HZ_PER_KHZ if is_hz else 1)
    return now == found
