"""Sums over the launches of a file, exact to the nanosecond."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from joulewise.domain.errors import InputError
from joulewise.domain.trace import KernelTotal

NS_PER_S = 10**9
# No kernel runs for a day; what says so is damaged, and sums of it would overflow.
LONGEST_LAUNCH_NS = 24 * 3600 * NS_PER_S
MOST_LAUNCHES_COUNT = 10_000_000


def kernel_totals(
    names: Sequence[str], launches: Iterable[tuple[int, int]]
) -> tuple[tuple[KernelTotal, ...], int]:
    """Launches and time by kernel name, longest first, and the time of all in nanoseconds.

    `launches` are pairs of an index into `names` and a duration in whole nanoseconds.
    """
    counts: dict[str, int] = {}
    times_ns: dict[str, int] = {}
    for index, duration_ns in launches:
        name = names[index]
        counts[name] = counts.get(name, 0) + 1
        times_ns[name] = times_ns.get(name, 0) + duration_ns
    return longest_first(counts, times_ns), sum(times_ns.values())


def longest_first(
    counts: Mapping[str, int], times_ns: Mapping[str, int]
) -> tuple[KernelTotal, ...]:
    """Totals by name, longest first; equally long ones by name."""
    order = sorted(counts, key=lambda name: (-times_ns[name], name))
    return tuple(
        KernelTotal(name=name, launch_count=counts[name], time_s=times_ns[name] / NS_PER_S)
        for name in order
    )


def kernel_name(text: str, file: str, row: int, field: str) -> str:
    """A kernel's name as it stands in a file, without blanks around it.

    Raises:
        InputError: it is empty or holds control characters.
    """
    name = text.strip()
    if not name:
        raise InputError(
            "the kernel's name is empty", file=file, row=row, field=field, hint="Export it again."
        )
    if not name.isprintable():
        raise InputError(
            f"the kernel's name {name[:60]!r} holds a control character",
            file=file,
            row=row,
            field=field,
            hint="The file is damaged: export it again.",
        )
    return name


def too_many_launches(file: str) -> InputError:
    """What to say of a file with more launches than any iteration needs."""
    return InputError(
        f"the file holds more than {MOST_LAUNCHES_COUNT} kernel launches",
        file=file,
        hint="Profile a few iterations only.",
    )
