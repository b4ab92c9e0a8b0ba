"""Profiles of pipeline stages as Perseus writes them."""

from __future__ import annotations

from pathlib import Path

from joulewise.domain.sweep import Sweep, SweepSource
from joulewise.store.columns import CLOCK, POSITIVE, Field, names, numbers, numbers_or_auto
from joulewise.store.delimited import column, read_text_table
from joulewise.store.files import read_bytes
from joulewise.store.importers.repeats import merge_repeats
from joulewise.store.sweep_rows import SweepRows, operating_points, sweep_from_rows

PERSEUS_DEVICE = "perseus"
"""What the source of an imported profile calls its device."""


def import_perseus(path: Path) -> Sweep:
    """Read `stage,instruction,frequency,time,energy`: MHz, s and J of one instruction.

    Each instruction of a stage becomes the kernel `stageN/INSTRUCTION`. Source of the format:
    the artifact of Perseus (SOSP 2024), branch kronos of ml-energy/zeus.

    Raises:
        InputError: anything wrong with the file; names row and field.
    """
    table = read_text_table(read_bytes(path), str(path))
    texts = {
        name: column(table, name)
        for name in ("stage", "instruction", "frequency", "time", "energy")
    }
    fields = {name: Field(file=table.file, name=name) for name in texts}
    kernels = [
        f"stage{stage.strip()}/{instruction}"
        for stage, instruction in zip(
            names(texts["stage"], fields["stage"]),
            names(texts["instruction"], fields["instruction"]),
            strict=True,
        )
    ]
    clocks = numbers_or_auto(texts["frequency"], CLOCK, fields["frequency"])
    nothing = [None] * table.row_count
    rows = SweepRows(
        file=table.file,
        cells=list(zip(kernels, operating_points(clocks, nothing, nothing), strict=True)),
        time_s=numbers(texts["time"], POSITIVE, fields["time"]),
        energy_j=numbers(texts["energy"], POSITIVE, fields["energy"]),
    )
    # A file name need not be Unicode on Unix; text in a sweep must.
    device_name = path.stem.encode("utf-8", "backslashreplace").decode()
    source = SweepSource(
        device=PERSEUS_DEVICE, device_name=device_name, tool="joulewise import perseus"
    )
    return sweep_from_rows(merge_repeats(rows), source)
