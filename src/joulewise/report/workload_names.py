"""Names of kernels in little room, so that kernels still read differently."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from joulewise.report.wording import shortened

_REGION = re.compile(r"region of \d+: ")
_SHAPE = re.compile(r"\[[\dx]+\]")
_LEAST_KERNEL_COUNT = 8  # letters of a kernel's name behind its operation
_HEAD_RATIOS = (0.25, 0.4, 0.55)  # of the room, for what names have in common; assumed


def names_told_apart(names: Sequence[str], longest_count: int) -> tuple[str, ...]:
    """The names with at most so many letters each, an ellipsis in the place of the others.

    A name keeps its beginning and its end, its operation and shape where they leave room
    (`mm[512x256x1024] amp…64`); regions name operations alone. Where names would read alike,
    what they have in common is cut instead, so that the part shows in which they differ.

    Args:
        names: In any order; a name may come twice.
        longest_count: At least 8.
    """
    plain = {name: _shortened(name, longest_count) for name in names}
    tried = [plain]
    if _alike(plain):
        tried += [_apart(plain, longest_count, int(r * longest_count)) for r in _HEAD_RATIOS]
    made = min(tried, key=lambda texts: sum(map(len, _alike(texts))))
    return tuple(made[name] for name in names)


def _apart(plain: Mapping[str, str], longest_count: int, head_count: int) -> dict[str, str]:
    made = dict(plain)
    for group in _alike(plain):
        made |= _told_apart(group, longest_count, head_count)
    return made


def _shortened(name: str, longest_count: int) -> str:
    if len(name) <= longest_count:
        return name
    if _REGION.match(name):
        plain = _SHAPE.sub("", name)
        return plain if len(plain) <= longest_count else f"{plain[: longest_count - 1]}…"
    operation, is_shaped, kernel = name.partition("] ")
    room = longest_count - len(operation) - len(is_shaped)
    if is_shaped and room >= _LEAST_KERNEL_COUNT:
        return operation + is_shaped + shortened(kernel, room)
    return shortened(name, longest_count)


def _told_apart(names: Sequence[str], longest_count: int, most_head_count: int) -> dict[str, str]:
    common_count = _common_count(names)
    head_count = min(most_head_count, common_count)
    rest_count = longest_count - head_count - 1
    made = {
        name: name
        if len(name) <= longest_count
        else f"{name[:head_count]}…{shortened(name[common_count:], rest_count)}"
        for name in names
    }
    for group in _alike(made):
        if len(group) < len(names):
            made |= _told_apart(group, longest_count, most_head_count)
    return made


def _common_count(names: Sequence[str]) -> int:
    """Letters at the beginning that all of them have."""
    first, last = min(names), max(names)
    pairs = enumerate(zip(first, last, strict=False))
    return next((place for place, (one, other) in pairs if one != other), len(first))


def _alike(made: Mapping[str, str]) -> list[list[str]]:
    """Names that would read alike, several together."""
    by_text: dict[str, list[str]] = defaultdict(list)
    for name, text in made.items():
        by_text[text].append(name)
    return [group for group in by_text.values() if len(group) > 1]
