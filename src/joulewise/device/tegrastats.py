"""One line of tegrastats, of any JetPack, read into numbers; pure.

Formats differ: `GR3D_FREQ 35%`, `10%@1300`, `0%@[1012]`, `12%@[1300,1300]`, `@[314,314,314]`;
power as `1155/1155`, `2390mW/2390mW`, `5139mW/5139mW/5139mW`; `gpu@47.6C`, `GPU@28C`,
`cpu@52.9C/52.9C`. A field counts only where all of it is understood: half of one once made a
busy GPU idle (jetson_stats 894).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache

from joulewise.device.jetson_readings import HIGHEST_W
from joulewise.device.jetson_thermal import living_temp_c
from joulewise.domain.tegrastats import EngineLoad, RailReading, SensorTemp, TegrastatsLine

_BEGIN, _END = r"(?<!\S)", r"(?!\S)"
_STAMP = re.compile(r"\s*(\d\d)-(\d\d)-(\d{4}) (\d\d):(\d\d):(\d\d)\s", re.ASCII)
_AMOUNT = r"(\d{1,9})/(\d{1,9})([kKMG]?)B"
# Literals come first where there are any: text is passed over by them at once.
_RAM = re.compile(rf"RAM(?<!\SRAM) {_AMOUNT}", re.ASCII)
_SWAP = re.compile(rf"SWAP(?<!\SSWAP) {_AMOUNT}", re.ASCII)
# TX1 and early releases print one clock for all cores behind the list.
_CORES = re.compile(rf"{_BEGIN}(?:CPU|cpu) \[([^\]]*)\](?:@(\d{{1,6}}))?{_END}", re.ASCII)
_CORE = re.compile(r"(\d{1,3})%(?:@(\d{1,6}))?", re.ASCII)
_LOAD = r"(?:(\d{1,3})%)?(?:@(?:\[([\d,]{0,100})\]|(\d{1,6})))?"
_EMC = re.compile(rf"EMC(?<!\SEMC)(?:_FREQ)? {_LOAD}{_END}", re.ASCII)
# GR3D2 is the second cluster of one GPU, not a second GPU (jetson_stats 362).
_GR3D = re.compile(rf"GR3D(?<!\SGR3D)\d?(?:_FREQ)? {_LOAD}{_END}", re.ASCII)
_TEMP = re.compile(
    rf"{_BEGIN}([A-Za-z][\w.-]*)@(-?\d{{1,4}}(?:\.\d{{1,6}})?)C(?:/-?[\d.]{{1,9}}C)?{_END}",
    re.ASCII,
)
# AGX Xavier has rails that are called GPU and CPU; memory is a rail's like where it was cut off.
_RAIL = re.compile(
    rf"{_BEGIN}(?!I?RAM |SWAP )([A-Za-z][\w.+-]*) "
    r"(\d{1,7})(?:mW)?/(\d{1,7})(?:mW)?(?:/\d{1,7}(?:mW)?)?"
    rf"{_END}",
    re.ASCII,
)
_BYTES = {"": 1, "k": 1 << 10, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_MILLI_COUNT = 1000
_PERCENT = 100
# Logs are long, and their cores and engines say the same few things.
_KEPT_COUNT = 4096


def parse_line(text: str) -> TegrastatsLine:
    """What a line says. Never raises: what is not understood is `None`, or left out.

    Of a power's numbers the first is the instant one; the second is the mean since tegrastats
    was started (162 of 162 lines of a log agree with that).
    """
    ram_used, ram_total = _amount(_RAM, text)
    swap_used, swap_total = _amount(_SWAP, text)
    told = tuple(
        RailReading(
            rail=match[1],
            power_w=int(match[2]) / _MILLI_COUNT,
            running_mean_w=int(match[3]) / _MILLI_COUNT,
        )
        for match in _RAIL.finditer(text)
    )
    rails = tuple(one for one in told if one.power_w <= HIGHEST_W)
    return TegrastatsLine(
        stamp=_stamp(text),
        ram_used_bytes=ram_used,
        ram_total_bytes=ram_total,
        swap_used_bytes=swap_used,
        swap_total_bytes=swap_total,
        cores=_cores(text),
        emc=_load(_EMC, text),
        gr3d=_load(_GR3D, text),
        temps=tuple(_temps(text)),
        rails=rails,
        impossible_count=len(told) - len(rails),
    )


def _stamp(text: str) -> datetime | None:
    match = _STAMP.match(text)
    if match is None:
        return None
    month, day, year, hour, minute, second = map(int, match.groups())
    try:
        # Local time of a board whose zone is not told: only differences are used.
        return datetime(year, month, day, hour, minute, second)  # noqa: DTZ001
    except ValueError:
        return None


def _amount(pattern: re.Pattern[str], text: str) -> tuple[int | None, int | None]:
    match = pattern.search(text)
    if match is None:
        return None, None
    factor = _BYTES[match[3]]
    return int(match[1]) * factor, int(match[2]) * factor


def _cores(text: str) -> tuple[EngineLoad | None, ...]:
    match = _CORES.search(text)
    if match is None:
        return ()
    return tuple(_core(word.strip(), match[2]) for word in match[1].split(","))


@lru_cache(maxsize=_KEPT_COUNT)
def _core(word: str, shared_clock: str | None) -> EngineLoad | None:
    match = _CORE.fullmatch(word)
    if match is None:
        return None
    return EngineLoad(busy_ratio=_ratio(match[1]), clocks_mhz=_clocks(match[2] or shared_clock))


def _load(pattern: re.Pattern[str], text: str) -> EngineLoad | None:
    """Load of one engine, whose clusters may stand in several fields: busy as the busiest."""
    fields = tuple(groups for groups in pattern.findall(text) if any(groups))
    return _engine(fields) if fields else None


@lru_cache(maxsize=_KEPT_COUNT)
def _engine(fields: tuple[tuple[str, str, str], ...]) -> EngineLoad:
    ratios = [ratio for percent, _, _ in fields if (ratio := _ratio(percent)) is not None]
    clocks = (clock for _, listed, single in fields for clock in _clocks(listed or single))
    return EngineLoad(busy_ratio=max(ratios, default=None), clocks_mhz=tuple(clocks))


def _ratio(percent: str) -> float | None:
    return None if not percent or int(percent) > _PERCENT else int(percent) / _PERCENT


def _clocks(listed: str | None) -> tuple[int, ...]:
    """Clocks of those clusters that have one: a rail that is off reads 0."""
    return tuple(int(clock) for clock in (listed or "").split(",") if clock and int(clock) > 0)


def _temps(text: str) -> Iterator[SensorTemp]:
    for match in _TEMP.finditer(text):
        temp = _temp(match[1], match[2])
        if temp is not None:
            yield temp


@lru_cache(maxsize=_KEPT_COUNT)
def _temp(sensor: str, told_c: str) -> SensorTemp | None:
    is_alive = living_temp_c(float(told_c) * _MILLI_COUNT) is not None
    return SensorTemp(sensor=sensor, temp_c=float(told_c)) if is_alive else None
