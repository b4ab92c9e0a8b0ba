"""The name of a sweep: a hash of what it says, not of the file that holds it."""

from __future__ import annotations

import hashlib

import msgspec

from joulewise.domain.points import OperatingPoint
from joulewise.domain.sweep import Sweep


def sweep_sha256(sweep: Sweep) -> str:
    """Hash of the measured cells and the baseline, as hexadecimal text.

    It covers kernels, points, times, energies, their standard deviations, window counts and
    the baseline, all exactly; not the order of rows, the source or the caveats. The same
    content has the same hash from CSV and from Parquet.
    """
    tables = (
        sweep.time_s,
        sweep.energy_j,
        sweep.time_std_s,
        sweep.energy_std_j,
        sweep.window_count,
    )
    columns = [None if table is None else table[sweep.is_present].tolist() for table in tables]
    cells = [
        (kernel, *_knobs(point))
        for k, kernel in enumerate(sweep.kernels)
        for p, point in enumerate(sweep.points)
        if sweep.is_present[k, p]
    ]
    order = sorted(range(len(cells)), key=lambda row: _sortable(cells[row]))
    content = {
        "baseline": _knobs(sweep.baseline),
        "cells": [cells[row] for row in order],
        "columns": [
            None if column is None else [column[row] for row in order] for column in columns
        ],
    }
    return hashlib.sha256(msgspec.json.encode(content)).hexdigest()


def _knobs(point: OperatingPoint) -> tuple[int | None, int | None, float | None]:
    limit = point.power_limit_w
    return point.sm_clock_mhz, point.mem_clock_mhz, None if limit is None else float(limit)


def _sortable(
    cell: tuple[str, int | None, int | None, float | None],
) -> tuple[str, int, int, float]:
    kernel, sm, mem, limit = cell
    return kernel, sm or 0, mem or 0, limit or 0.0
