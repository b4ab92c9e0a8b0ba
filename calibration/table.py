"""The table that `make calibrate` prints."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from calibration.evaluation import Figure

_HEAD = ("figure", "paper", "median", "shipped", "wanted", "median is")


def render(fits: Sequence[Sequence[Figure]], shipped: Sequence[Figure]) -> str:
    """One line a figure: the paper, the median over fits, the shipped fit, the verdict.

    Misses, of the median and of the shipped fit, are repeated below the table.
    """
    rows = [_HEAD]
    misses = []
    for index, line in enumerate(shipped):
        middle = median(fit[index].value for fit in fits)
        verdict = line.is_met(middle)
        rows.append(
            (
                line.name,
                "" if line.paper is None else f"{line.paper:.2f}",
                f"{middle:.3f}",
                f"{line.value:.3f}",
                _wanted(line),
                {None: "not judged", True: "met", False: "MISSED"}[verdict],
            )
        )
        if verdict is False:
            misses.append(f"missed: {line.name}, median {middle:.3f}, wanted {_wanted(line)}")
        if line.is_met(line.value) is False:
            misses.append(
                f"the shipped fit misses: {line.name}, {line.value:.3f}, wanted {_wanted(line)}"
            )
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = [
        "  ".join(
            cell.ljust(width) if column in (0, 4, 5) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return "\n".join([*lines, "", *(misses or ["no misses"])])


def _wanted(line: Figure) -> str:
    if line.least is None or line.greatest is None:
        return ""
    if line.least == 0:
        return f"<= {line.greatest:g}"
    return f"{line.least:.2f} .. {line.greatest:.2f}"
