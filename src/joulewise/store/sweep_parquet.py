"""Sweeps as Parquet: one row a measured cell, everything else in the file's metadata."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

import msgspec
import numpy as np

from joulewise.domain.caveats import Caveat
from joulewise.domain.errors import InputError
from joulewise.domain.points import OperatingPoint
from joulewise.domain.sweep import Sweep, SweepSource
from joulewise.store.json_files import decode_document, require_version
from joulewise.store.seal import BLANK, SEAL_KEY, require_seal, seal
from joulewise.store.sweep_rows import Placement, operating_points, require_table_size

if TYPE_CHECKING:
    import polars as pl

SCHEMA_VERSION = 1
METADATA_KEY = "joulewise"
_FLOAT_TABLES = (
    "time_std_s",
    "energy_std_j",
    "energy_above_idle_j",
    "sm_clock_held_mhz",
    "temp_c",
)


class CellCaveats(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Caveats of one cell."""

    kernel: str
    point: OperatingPoint
    caveats: tuple[Caveat, ...]


class SweepHeader(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the Parquet metadata entry `joulewise` holds, as JSON: all but the cells."""

    schema_version: int
    kernels: tuple[str, ...]
    points: tuple[OperatingPoint, ...]
    baseline: OperatingPoint
    source: SweepSource
    caveats: tuple[Caveat, ...]
    cell_caveats: tuple[CellCaveats, ...]


def sweep_parquet(sweep: Sweep) -> bytes:
    """Write a sweep as Parquet, losing nothing."""
    import polars as pl  # noqa: PLC0415 - slow to import

    rows, columns = np.nonzero(sweep.is_present)
    points = [sweep.points[p] for p in columns]
    data: dict[str, pl.Series] = {
        "kernel": pl.Series([sweep.kernels[k] for k in rows], dtype=pl.String),
        "sm_clock_mhz": pl.Series([point.sm_clock_mhz for point in points], dtype=pl.Int64),
        "mem_clock_mhz": pl.Series([point.mem_clock_mhz for point in points], dtype=pl.Int64),
        "power_limit_w": pl.Series([point.power_limit_w for point in points], dtype=pl.Float64),
        "time_s": pl.Series(sweep.time_s[rows, columns]),
        "energy_j": pl.Series(sweep.energy_j[rows, columns]),
    }
    for name in (*_FLOAT_TABLES, "window_count"):
        table = getattr(sweep, name)
        if table is not None:
            data[name] = pl.Series(table[rows, columns])
    buffer = io.BytesIO()
    metadata = {METADATA_KEY: _header(sweep).decode(), SEAL_KEY: BLANK}
    pl.DataFrame(data).write_parquet(buffer, metadata=metadata)
    return seal(buffer.getvalue())


def sweep_from_parquet(raw: bytes, file: str) -> Sweep:
    """Read a sweep that `sweep_parquet` wrote.

    Raises:
        InputError: not Parquet, cut off, damaged, not a sweep, or of an unknown version.
    """
    import polars as pl  # noqa: PLC0415 - slow to import

    require_seal(raw, file)
    try:
        metadata = pl.read_parquet_metadata(io.BytesIO(raw))
        header = _read_header(metadata.get(METADATA_KEY, ""), file)
        require_table_size(header.kernels, header.points, file)
        return _sweep(header, pl.read_parquet(io.BytesIO(raw)))
    except (pl.exceptions.PolarsError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"the Parquet file is not a sweep of schema version {SCHEMA_VERSION}",
            file=file,
            hint="Write it anew.",
        ) from error


def _header(sweep: Sweep) -> bytes:
    cell_caveats = tuple(
        CellCaveats(kernel=kernel, point=point, caveats=caveats)
        for (kernel, point), caveats in sweep.cell_caveats.items()
    )
    header = SweepHeader(
        schema_version=SCHEMA_VERSION,
        kernels=sweep.kernels,
        points=sweep.points,
        baseline=sweep.baseline,
        source=sweep.source,
        caveats=sweep.caveats,
        cell_caveats=cell_caveats,
    )
    return msgspec.json.encode(header)


def _read_header(text: str, file: str) -> SweepHeader:
    raw = text.encode()
    require_version(raw, file)
    return decode_document(raw, SweepHeader, file)


def _sweep(header: SweepHeader, frame: pl.DataFrame) -> Sweep:
    columns: Mapping[str, Sequence[float | None]] = frame.to_dict(as_series=False)
    kernels = cast("Sequence[str]", columns["kernel"])
    points = operating_points(
        columns["sm_clock_mhz"], columns["mem_clock_mhz"], columns["power_limit_w"]
    )
    place = Placement(header.kernels, header.points, list(zip(kernels, points, strict=True)))
    floats = {name: cast("Sequence[float] | None", columns.get(name)) for name in _FLOAT_TABLES}
    return Sweep(
        kernels=header.kernels,
        points=header.points,
        baseline=header.baseline,
        source=header.source,
        is_present=place.present(),
        time_s=place.floats(cast("Sequence[float]", columns["time_s"]), absent=math.inf),
        energy_j=place.floats(cast("Sequence[float]", columns["energy_j"]), absent=math.inf),
        time_std_s=place.optional(floats["time_std_s"]),
        energy_std_j=place.optional(floats["energy_std_j"]),
        window_count=place.counts(cast("Sequence[int] | None", columns.get("window_count"))),
        energy_above_idle_j=place.optional(floats["energy_above_idle_j"]),
        sm_clock_held_mhz=place.optional(floats["sm_clock_held_mhz"]),
        temp_c=place.optional(floats["temp_c"]),
        cell_caveats={(item.kernel, item.point): item.caveats for item in header.cell_caveats},
        caveats=header.caveats,
    )
