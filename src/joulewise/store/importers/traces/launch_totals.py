"""Sums over the launches of a file, exact to the nanosecond."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from joulewise.domain.errors import InputError
from joulewise.domain.trace import KernelTotal

NS_PER_S = 10**9
# No kernel runs for a day; what says so is damaged, and sums of it would overflow.
LONGEST_LAUNCH_NS = 24 * 3600 * NS_PER_S
# Assumed: an iteration has thousands of launches, and a profile hundreds of iterations at most.
MOST_LAUNCHES_COUNT = 4_000_000
# Files without a timeline say with a few bytes how many launches there are, and all of them
# are taken for one iteration.
MOST_LISTED_COUNT = 1_000_000
# Assumed: templates make names of some kilobytes.
LONGEST_NAME_COUNT = 65_536
# No profiler records for so long; what says so is damaged.
LONGEST_SPAN_NS = 366 * 24 * 3600 * NS_PER_S


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
        InputError: it is empty, longer than any compiler makes them, or holds control characters.
    """
    name = text.strip()
    if len(name) > LONGEST_NAME_COUNT:
        raise InputError(
            f"the kernel's name is longer than {LONGEST_NAME_COUNT} characters",
            file=file,
            row=row,
            field=field,
            hint="The file is damaged: export it again.",
        )
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


def refuse_long_span(start_ns: Sequence[int], file: str, field: str) -> None:
    """Refuse launches that lie years apart.

    Raises:
        InputError: they do; names the field.
    """
    span_ns = max(start_ns) - min(start_ns)
    if span_ns > LONGEST_SPAN_NS:
        raise InputError(
            f"kernels start {span_ns // LONGEST_LAUNCH_NS} days apart",
            file=file,
            field=field,
            hint="The file is damaged: export it again.",
        )


def too_many_launches(file: str, most_count: int = MOST_LAUNCHES_COUNT) -> InputError:
    """What to say of a file with more launches than any iteration needs."""
    return InputError(
        f"the file holds more than {most_count} kernel launches",
        file=file,
        hint="Profile a few iterations only.",
    )
