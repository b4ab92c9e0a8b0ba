"""`import`: tables that others measured, turned into sweeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from joulewise.domain.sweep import Sweep
from joulewise.store.atomic import require_place
from joulewise.store.importers import import_csv, import_kernel_tuner, import_perseus
from joulewise.store.sweeps import replace_sweep


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvColumns:
    """Which column holds what, as `COLUMN` or `COLUMN:UNIT`."""

    kernel: str
    time: str
    sm_clock: str | None = None
    mem_clock: str | None = None
    power_limit: str | None = None
    energy: str | None = None
    power: str | None = None
    time_std: str | None = None
    energy_std: str | None = None
    window_count: str | None = None


def import_csv_to_file(file: Path, columns: CsvColumns, out: Path) -> Sweep:
    """Import any CSV by its column names. Raises InputError."""
    require_place(out, sources=(file,))
    return _written(
        import_csv(
            file,
            kernel=columns.kernel,
            time=columns.time,
            sm_clock=columns.sm_clock,
            mem_clock=columns.mem_clock,
            power_limit=columns.power_limit,
            energy=columns.energy,
            power=columns.power,
            time_std=columns.time_std,
            energy_std=columns.energy_std,
            window_count=columns.window_count,
        ),
        out,
    )


def import_kernel_tuner_to_file(files: Sequence[Path], out: Path) -> Sweep:
    """Import Kernel Tuner caches. Raises InputError."""
    require_place(out, sources=files)
    return _written(import_kernel_tuner(files), out)


def import_perseus_to_file(file: Path, out: Path) -> Sweep:
    """Import a Perseus profile. Raises InputError."""
    require_place(out, sources=(file,))
    return _written(import_perseus(file), out)


def _written(sweep: Sweep, out: Path) -> Sweep:
    replace_sweep(sweep, out)
    return sweep
