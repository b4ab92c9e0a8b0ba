"""Sweeps in and out of files."""

from __future__ import annotations

from pathlib import Path

from joulewise.domain.sweep import Sweep
from joulewise.store.atomic import write_atomically
from joulewise.store.document_kinds import refuse_other_kind
from joulewise.store.files import read_bytes
from joulewise.store.fingerprint import sweep_sha256
from joulewise.store.sweep_csv import sweep_csv, sweep_from_csv
from joulewise.store.sweep_parquet import sweep_from_parquet, sweep_parquet

__all__ = ["read_sweep", "replace_sweep", "sweep_sha256", "write_sweep_csv", "write_sweep_parquet"]


def read_sweep(path: Path) -> Sweep:
    """Read a sweep from native CSV or Parquet, told apart by content, then by suffix.

    Raises:
        InputError: anything wrong with the file; names file, row and field.
    """
    raw = read_bytes(path)
    refuse_other_kind(raw, "Sweep", str(path))
    if raw.startswith(b"PAR1") or path.suffix == ".parquet":
        return sweep_from_parquet(raw, str(path))
    return sweep_from_csv(raw, str(path))


def write_sweep_parquet(sweep: Sweep, path: Path) -> None:
    """Write a sweep as Parquet, whole or not at all.

    Raises:
        InputError: the place cannot be written to.
    """
    write_atomically(path, sweep_parquet(sweep))


def replace_sweep(sweep: Sweep, path: Path) -> None:
    """Write a sweep where another may lie; that one is kept as `NAME.former`.

    A sweep takes days on hardware, and giving one command twice must not lose it.

    Raises:
        InputError: the place cannot be written to.
    """
    content = sweep_parquet(sweep)
    if path.is_file():
        former = read_bytes(path)
        if former != content:
            write_atomically(path.with_name(f"{path.name}.former"), former)
    write_atomically(path, content)


def write_sweep_csv(sweep: Sweep, path: Path) -> None:
    """Write a sweep as native CSV, whole or not at all; source and caveats are left behind.

    Raises:
        InputError: the place cannot be written to, or the baseline is none that CSV can say.
    """
    write_atomically(path, sweep_csv(sweep).encode())
