"""Small pipeline profiles by formula: time falls with the clock, power rises with its cube."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

CLOCKS_MHZ = (1410, 1200, 990)
HEADER = "stage,instruction,frequency,time,energy\n"


def perseus_row(stage: int, instruction: str, clock_mhz: int) -> str:
    """The later the stage the longer it takes; backward takes twice as long as forward."""
    work_s = (1.0 + 0.05 * stage) * (2.0 if instruction == "backward" else 1.0) * 0.05
    share = clock_mhz / 1410
    time_s = work_s * (0.3 + 0.7 / share)
    power_w = 100.0 + 300.0 * share**3
    return f"{stage},{instruction},{clock_mhz},{time_s!r},{time_s * power_w!r}"


def perseus_rows(stage_count: int, clocks_mhz: Sequence[int] = CLOCKS_MHZ) -> list[str]:
    """Rows of every stage, instruction and clock, without the header."""
    return [
        perseus_row(stage, instruction, clock_mhz)
        for stage in range(stage_count)
        for instruction in ("forward", "backward")
        for clock_mhz in clocks_mhz
    ]


def write_perseus(path: Path, rows: Sequence[str]) -> Path:
    """A Perseus profile of these rows."""
    path.write_text(HEADER + "\n".join(rows) + "\n", encoding="utf-8")
    return path
