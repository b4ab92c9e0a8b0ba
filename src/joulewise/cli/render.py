"""Tables and sentences for people."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import cast

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table

from joulewise.domain.caveats import Caveat, by_gravity
from joulewise.report.wording import decimal


def percent(ratio: float, digits: int = 1) -> str:
    """`0.146` as `14.6 %`."""
    return f"{decimal(100 * ratio, digits)} %"


def signed_percent(ratio: float, digits: int = 2) -> str:
    """`0.006` as `+0.60 %`."""
    return f"{decimal(100 * ratio, digits, plus='+')} %"


def seconds(time_s: float, digit_count: int = 4) -> str:
    """A time with so many digits and a fitting unit."""
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "µs")):
        if time_s * factor >= 1 or unit == "µs":
            return f"{_digits(time_s * factor, digit_count)} {unit}"
    return f"{time_s:.{digit_count}g} s"


def _digits(value: float, count: int) -> str:
    """So many digits, zeros at the end too: a column reads with one precision."""
    return f"{value:#.{count}g}".removesuffix(".")


def joules(energy_j: float, digit_count: int = 5) -> str:
    """An energy with so many digits and a fitting unit."""
    for factor, unit in ((1e-6, "MJ"), (1e-3, "kJ"), (1, "J"), (1e3, "mJ")):
        if energy_j * factor >= 1 or unit == "mJ":
            return f"{_digits(energy_j * factor, digit_count)} {unit}"
    return f"{energy_j:.{digit_count}g} J"


def joules_within(energy_j: float, uncertainty_j: float) -> str:
    """`35.2 ± 3.5 J`: one unit, and as many digits as the uncertainty leaves meaning to."""
    most_j = max(energy_j, uncertainty_j)
    units = ((1e-6, "MJ"), (1e-3, "kJ"), (1.0, "J"), (1e3, "mJ"))
    factor, unit = next((one for one in units if most_j * one[0] >= 1), units[-1])
    told = within(energy_j * factor, uncertainty_j * factor)
    return f"{told} {unit}"


def within(value: float, uncertainty: float) -> str:
    """`35.2 ± 3.5`: two digits of the uncertainty, and the value down to the same place."""
    exponent = math.floor(math.log10(uncertainty)) if uncertainty > 0 else 0
    places_count = min(6, max(0, 1 - exponent))
    return f"{decimal(value, places_count)} ± {decimal(uncertainty, places_count)}"


def visible(text: str) -> str:
    """Names come from files: what would steer a terminal is shown as its escape instead."""
    return "".join(
        letter if letter.isprintable() or letter in "\n\u00a0\u202f" else ascii(letter)[1:-1]
        for letter in text
    )


def counted(count: int, noun: str) -> str:
    """`1 kernel`, `46 kernels`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


class _Unpadded(Table):
    """A table whose lines end where their text does: rich fills them up with blanks."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        segments = (one for one in super().__rich_console__(console, options))
        for line in Segment.split_lines(cast("Iterable[Segment]", segments)):
            yield from _without_blanks_at_the_end(line)
            yield Segment.line()


def _without_blanks_at_the_end(line: list[Segment]) -> list[Segment]:
    kept = list(line)
    while kept and not kept[-1].text.strip(" "):
        kept.pop()
    if kept:
        text, style, control = kept[-1]
        kept[-1] = Segment(text.rstrip(" "), style, control)
    return kept


def table(
    title: str | None,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    left_count: int = 1,
    copied_count: int = 0,
) -> Table:
    """A plain table: the first columns to the left, numbers to the right.

    The first `copied_count` columns are never broken over lines, for people copy them.
    """
    grid = _Unpadded(
        title=title, title_justify="left", title_style="bold", box=None, pad_edge=False
    )
    for index, column in enumerate(columns):
        is_text = index < left_count
        grid.add_column(
            column,
            justify="left" if is_text else "right",
            no_wrap=not is_text or index < copied_count,
            overflow="fold",
        )
    for row in rows:
        grid.add_row(*(escape(visible(cell)) for cell in row))
    return grid


def say(console: Console, sentence: str) -> None:
    """One sentence, set apart."""
    console.print()
    for line in sentence.split("\n"):
        _print_indented(console, line, 0, style="bold")


def print_line(console: Console, line: str | None) -> None:
    """A line as it is, not wrapped, so that what it names can be copied; nothing for `None`."""
    if line is not None:
        console.print(visible(line), markup=False, soft_wrap=True)


def print_wrapped(console: Console, line: str | None) -> None:
    """A sentence in lines of the console's width; commands at its end on lines of their own.

    So it can be read, and what is to be typed can be copied: whole, and without a full stop.
    Nothing for `None`.
    """
    if line is None:
        return
    before, colon, command = line.rpartition(": ")
    if not colon or not command.startswith(_COMMANDS):
        _print_indented(console, line, 0, style=None)
        return
    _print_indented(console, f"{before}:", 0, style=None)
    lines = command.removesuffix(".").replace(" && ", " &&\n  ")
    print_line(console, f"  {lines}")


_COMMANDS = ("nvidia-smi ", "joulewise ", "sudo ")


def print_caveats(console: Console, caveats: Iterable[Caveat]) -> None:
    """Each doubt, the gravest first: what was seen, why it matters, what helps."""
    listed = by_gravity(caveats)
    if not listed:
        return
    console.print()
    console.print("Caveats", style="bold")
    for caveat in listed:
        _print_indented(console, f"{caveat.kind.value}: {caveat.seen}", 2, style=None)
        _print_indented(console, f"{caveat.why} {caveat.helps}", 4, style="dim")


def _print_indented(console: Console, text: str, indent_count: int, *, style: str | None) -> None:
    """Wrapped by hand: rich pads wrapped lines with blanks to the full width."""
    indent = " " * indent_count
    for line in wrap(
        visible(text),
        console.width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
    ):
        console.print(line, markup=False, style=style)
