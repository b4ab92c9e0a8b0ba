"""U-curves of fine-tuning jobs in and out of JSON files: `curves.json`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from joulewise.domain.errors import InputError
from joulewise.domain.finetuning import ClockCost, ClockCurve, JobFeatures
from joulewise.store.atomic import write_atomically
from joulewise.store.files import read_bytes
from joulewise.store.json_files import shape_error
from joulewise.store.record_files import (
    LARGEST_AMOUNT,
    builtins_of,
    read_wire,
    record_document,
    unlike,
)
from joulewise.store.wire import from_wire

_LONGEST_NAME_COUNT = 200
# Far below any step; ratios of amounts from here up to the largest stay finite.
_LEAST_AMOUNT = 1e-30


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockCurves:
    """What a curve file holds: jobs at every clock that was measured."""

    curves: tuple[ClockCurve, ...]


def read_curves(path: Path) -> tuple[ClockCurve, ...]:
    """Read a curve file.

    Raises:
        InputError: anything wrong with the file, also clocks that do not ascend and amounts
            that nothing measured has; names file, curve and field.
    """
    wire, file = read_wire(path, ClockCurves), str(path)
    curves = tuple(
        _curve(part, index, file) for index, part in enumerate(getattr(wire, "curves", ()))
    )
    _check_curves(curves, file)
    return curves


def replace_curves(path: Path, curves: Sequence[ClockCurve]) -> Path | None:
    """Write a curve file where another may lie; that one is kept as `NAME.former`, or `….former2`.

    Returns:
        Where the other file is now; `None`: none was there, or the same.

    Raises:
        InputError: as `write_curves`.
    """
    content = _content(path, curves)
    former = read_bytes(path) if path.is_file() else content
    if former == content:
        write_atomically(path, content)
        return None
    kept = path.with_name(f"{path.name}.former")
    number = 1
    while kept.exists():
        number += 1
        kept = path.with_name(f"{path.name}.former{number}")
    write_atomically(kept, former)
    write_atomically(path, content)
    return kept


def write_curves(path: Path, curves: Sequence[ClockCurve]) -> None:
    """Write a curve file, whole or not at all.

    Raises:
        InputError: what could not be read back (no curves, one job twice, an amount that is
            none), or the place cannot be written to.
    """
    write_atomically(path, _content(path, curves))


def _content(path: Path, curves: Sequence[ClockCurve]) -> bytes:
    file = str(path)
    _check_curves(curves, file)
    for index, curve in enumerate(curves):
        builtins_of(curve, f"curves[{index}]", file)
    return record_document(ClockCurves(curves=tuple(curves)))


def _curve(part: object, index: int, file: str) -> ClockCurve:
    try:
        return from_wire(part, ClockCurve)
    except msgspec.ValidationError as error:
        raise shape_error(error, file, within=f"curves[{index}]") from error


def _check_curves(curves: Sequence[ClockCurve], file: str) -> None:
    if not curves:
        raise InputError(
            "there are no curves in it",
            file=file,
            field="curves",
            hint="joulewise finetune sweep measures some.",
        )
    seen: dict[tuple[str, str], int] = {}
    for index, curve in enumerate(curves):
        where = f"curves[{index}]"
        _check_name(curve.job, file, f"{where}.job")
        number = seen.setdefault((curve.job, curve.device), index)
        if number != index:
            raise InputError(
                f"curves[{number}] is of the job {curve.job!r} on {curve.device} already",
                file=file,
                field=where,
                hint="Keep one of the two.",
            )
        _check_curve(curve, where, file)


def _check_curve(curve: ClockCurve, where: str, file: str) -> None:
    _check_cost(curve.baseline, curve.job, f"{where}.baseline", file)
    for index, cost in enumerate(curve.costs):
        _check_cost(cost, curve.job, f"{where}.costs[{index}]", file)
    if curve.features is not None:
        _check_features(curve.features, curve.job, f"{where}.features", file)


def _check_name(name: str, file: str, field: str) -> None:
    if not name.strip() or not name.isprintable() or len(name) > _LONGEST_NAME_COUNT:
        raise InputError(
            f"the name of a job is 1 to {_LONGEST_NAME_COUNT} letters, digits and signs",
            file=file,
            field=field,
            hint="Give the job such a name.",
        )


def _check_cost(cost: ClockCost, job: str, where: str, file: str) -> None:
    for name in ("time_s", "energy_j"):
        if not _LEAST_AMOUNT <= getattr(cost, name) <= LARGEST_AMOUNT:
            raise unlike(_of(job, "this must be above 0 and possible"), file, f"{where}.{name}")
    for name in ("time_error_s", "energy_error_j"):
        error = getattr(cost, name)
        if error is not None and not 0 <= error <= LARGEST_AMOUNT:
            raise unlike(_of(job, "this must be 0 or more and possible"), file, f"{where}.{name}")
    for name in ("sm_clock_mhz", "mem_clock_mhz", "step_count"):
        _check_whole(getattr(cost, name), job, f"{where}.{name}", file)
    _check_share(cost.busy_ratio, job, f"{where}.busy_ratio", file)


def _check_features(features: JobFeatures, job: str, where: str, file: str) -> None:
    for name in ("layer_count", "hidden_count", "parameter_count"):
        _check_whole(getattr(features, name), job, f"{where}.{name}", file)
    if not _LEAST_AMOUNT <= features.mean_sequence_count <= LARGEST_AMOUNT:
        message = _of(job, "this must be above 0 and possible")
        raise unlike(message, file, f"{where}.mean_sequence_count")
    _check_share(features.gpu_busy_ratio, job, f"{where}.gpu_busy_ratio", file)


def _check_whole(value: int | None, job: str, field: str, file: str) -> None:
    if value is not None and value < 1:
        raise unlike(_of(job, "this must be 1 or more"), file, field)


def _check_share(value: float | None, job: str, field: str, file: str) -> None:
    if value is not None and not 0 <= value <= 1:
        raise unlike(_of(job, "a share lies between 0 and 1"), file, field)


def _of(job: str, problem: str) -> str:
    return f"in the curve of {job!r}, {problem}"
