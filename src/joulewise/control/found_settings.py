"""Clock settings that can be read back: kept in the journal, compared, and put back by hand.

An embedded board sets its clocks by files, so that what was found there is put back as found,
whoever had set it: never to the top, and never to a guess.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from shlex import quote

from joulewise.domain.errors import DeviceError
from joulewise.domain.points import KNOBS, ClockGrid, FoundSetting, KnobState, Touched
from joulewise.domain.ports import Gpu

# A board has a handful of such files, and paths as long as the kernel takes them.
_MOST_SETTINGS_COUNT = 32
_LONGEST_PATH_COUNT = 4096
_LONGEST_TEXT_COUNT = 256
# The kernel keeps frequencies in an unsigned long.
_LONGEST_NUMBER_COUNT = len(str(2**64 - 1))
_HZ_PER_KHZ, _HZ_PER_MHZ = 1000, 1_000_000
_MEMORY, _UNLOCKED = "mem_clock_mhz", "0"
_FLAGS = ("0", "1")
_LEAST, _MOST = "min_freq", "max_freq"
# Somebody may set both bounds while they are read.
_TORN_COUNT, _TORN_S = 3, 0.05


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
    _check(settings)
    return settings


def _setting(fields: object) -> FoundSetting:
    if not isinstance(fields, dict):
        raise TypeError(f"{fields!r} is no setting")
    knob, path, text = fields["knob"], fields["path"], fields["text"]
    if not isinstance(knob, str) or knob not in KNOBS:
        raise ValueError(f"{knob!r} is no knob")
    if not isinstance(path, str) or not isinstance(text, str):
        raise TypeError(f"{fields!r} is no setting")
    return FoundSetting(knob=knob, path=path, text=text)


def _check(settings: Sequence[FoundSetting]) -> None:
    """Raises ValueError for what is never put into files: no kernel shows it."""
    if len({one.path for one in settings}) != len(settings):
        raise ValueError("two settings of one file")
    for one in settings:
        if not _is_line(one.path, _LONGEST_PATH_COUNT) or not one.path.startswith("/"):
            raise ValueError("a path that is none")
        if not _is_line(one.text, _LONGEST_TEXT_COUNT) or not one.text.isascii():
            raise ValueError(f"{one.path} reads what is no setting")
        if one.text.isdecimal() and len(one.text) > _LONGEST_NUMBER_COUNT:
            raise ValueError(f"{one.path} reads a number that is too long")
    for least, most in _bounds(settings):
        if int(least.text) > int(most.text):
            raise ValueError(f"{least.path} reads {least.text}, above the {most.text} of {_MOST}")


def _is_line(told: str, longest_count: int) -> bool:
    return 0 < len(told) <= longest_count and told.isprintable()


def _bounds(settings: Sequence[FoundSetting]) -> Iterator[tuple[FoundSetting, FoundSetting]]:
    """The least and the most of each folder that tells both as numbers."""
    at = {PurePosixPath(one.path): one for one in settings if one.text.isdecimal()}
    for path, least in at.items():
        most = at.get(path.with_name(_MOST)) if path.name == _LEAST else None
        if most is not None:
            yield least, most


def found_now(
    gpu: Gpu, known: KnobState | None, touched: Collection[str], new: Collection[str]
) -> KnobState:
    """As `found_before`, of a GPU that is about to be touched: how it reads now.

    Args:
        gpu: The device.
        known: How it was found before, where it was touched.
        touched: Knobs that were.
        new: Knobs that are to be. Others of which a journal could not tell are left out.

    Raises:
        DeviceError: it could not be put back as it reads, so that it must not be set.
    """
    why = ""
    for count in range(_TORN_COUNT):
        if count:
            gpu.wait(_TORN_S)
        found = found_before(known, gpu.knob_state(), touched)
        kept = [one for one in found.settings if one.knob in {*touched, *new}]
        others = [one for one in found.settings if one.knob not in {*touched, *new}]
        try:
            _check(kept)
        except ValueError as error:
            why = str(error)
            continue
        if len(found.settings) > _MOST_SETTINGS_COUNT or not _is_sound([*kept, *others]):
            found = replace(found, settings=tuple(kept))
        if len(found.settings) <= _MOST_SETTINGS_COUNT:
            return found
        why = f"{len(kept)} files set its clocks"
    raise DeviceError(
        f"how {gpu.identity.name} is set could not be put back: {why}",
        hint="Nothing was set. Set it by hand to what its kernel lists, and try again.",
    )


def _is_sound(settings: Sequence[FoundSetting]) -> bool:
    try:
        _check(settings)
    except ValueError:
        return False
    return True


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

    A single file that this GPU does not name as its own counts for nothing; where it names none of
    a knob's, they are of another board. Raises DeviceError.

    Args:
        gpu: The device.
        found: How it was found.
        knobs: Those that were to be given back.
        ours: Its files as they read after our own last request: one that reads neither so nor as
            found was set by somebody else since, and stays theirs. `None`: not known, so that
            each has to read as found.
    """
    wanted = [one for one in compared(found.settings) if one.knob in knobs]
    now_at = refuse_foreign(gpu, found, knobs)
    ours_at = now_at if ours is None else _texts(ours)
    for one in wanted:
        file = _file(one.path)
        now = now_at.get(file)
        if now is None or is_same(now, one.text) or now != ours_at.get(file):
            continue
        if ours is None and not one.text.isdecimal():
            # A governor that the kernel no longer has; whoever replays this could never go on.
            continue
        raise DeviceError(
            f"{one.path} of {gpu.identity.name} reads {now}, and it was {one.text} before",
            hint=f"Set it by hand, as root: {command_of(one.path, one.text)}",
        )


def refuse_foreign(
    gpu: Gpu, found: KnobState, knobs: Collection[str]
) -> Mapping[str | tuple[int, int], str]:
    """See that what was found is of this GPU; what its files read now, each by its identity.

    The same board may be reached by another path: what counts is which file that is. Raises
    DeviceError where it has none of the files that one of these knobs was found by.
    """
    wanted = [one for one in found.settings if one.knob in knobs]
    now_at = _texts(gpu.knob_state().settings) if wanted else {}
    for knob in KNOBS:
        its = [one for one in wanted if one.knob == knob]
        if its and not any(_file(one.path) in now_at for one in its):
            raise DeviceError(
                f"{its[0].path}, which set a clock, is no file of {gpu.identity.name} as it was "
                "opened",
                hint="Open the board by the path that it was leased by. Where its files have "
                "moved, as after an update, remove the journal once its clocks are as they "
                "should be.",
            )
    return now_at


def _texts(settings: Sequence[FoundSetting]) -> Mapping[str | tuple[int, int], str]:
    return {_file(one.path): one.text for one in settings}


def _file(path: str) -> str | tuple[int, int]:
    """Which file this is, by whatever path; the path where it cannot be looked at."""
    try:
        found = Path(path).stat()
    except (OSError, ValueError):
        return path
    return found.st_dev, found.st_ino


def out_of_reach(gpu: Gpu, left: Touched) -> frozenset[str]:
    """Touched knobs that were found at what this GPU never takes, if a journal is to be believed.

    That is a clock beyond those that it lists, or a flag that is none. Raises DeviceError.
    """
    found = () if left.found is None else left.found.settings
    if not found:
        return frozenset()
    grid = gpu.clock_grid()
    return frozenset(
        one.knob for one in found if one.knob in left.knobs and _is_out_of_reach(one, grid)
    )


def _is_out_of_reach(one: FoundSetting, grid: ClockGrid) -> bool:
    if not one.text.isdecimal():
        return False
    is_memory = one.knob == _MEMORY
    if PurePosixPath(one.path).name not in {_LEAST, _MOST} and int(one.text) < _HZ_PER_MHZ:
        return is_memory and one.text not in _FLAGS
    listed_mhz = grid.known_mem_clocks_mhz if is_memory else grid.sm_clocks_mhz
    clock_mhz = int(one.text) // _HZ_PER_MHZ
    return bool(listed_mhz) and not min(listed_mhz) <= clock_mhz <= max(listed_mhz)


def command_of(path: str | PurePosixPath, text: str) -> str:
    """What to type to set this; nothing in a path or a text is taken for a command."""
    return f"echo {quote(text)} > {quote(str(path))}"


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
    if now != found and _is_number(now) and _is_number(found):
        is_hz = min(int(now), int(found)) >= _HZ_PER_MHZ
        return abs(int(now) - int(found)) < (_HZ_PER_KHZ if is_hz else 1)
    return now == found


def _is_number(text: str) -> bool:
    """Whether this is a number as a kernel writes it, and no longer."""
    return text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER_COUNT
