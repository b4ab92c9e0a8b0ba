"""Fields of many events as columns of whole numbers, with one step of Python for many.

Values of the usual form are converted together; where one of a batch has another, each is
converted by itself, by the functions of `kineto_events`, which give the same.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from joulewise.store.importers.traces.kineto_events import (
    MOST_IDENTIFIER,
    Identifier,
    Number,
    identifier,
    nanoseconds,
    span_nanoseconds,
)

IntColumn = NDArray[np.int64]
BoolColumn = NDArray[np.bool_]

_NS_PER_US = 1000
_DECIMALS = 3
# Whole microseconds of so many digits, with three more, are fewer than 2**62 nanoseconds; of
# one digit more where the first is at most 3.
_SAFE_DIGITS = 15
_LARGEST_FIRST_DIGIT = ord("3")
_LINE_END, _DOT, _ZERO, _NINE = b"\n.09"
# Floats hold whole numbers, and their thousandfold, exactly up to here.
_SAFE_DURATION_US = 2.0**40
_HALF = 0.5


def time_column(times: Sequence[msgspec.Raw]) -> tuple[IntColumn, BoolColumn]:
    """`nanoseconds` of each written time, 0 for none, and which of them are times."""
    regular = _regular_times(times)
    if regular is not None:
        return regular, np.ones(len(times), dtype=np.bool_)
    return _with_absent([nanoseconds(time) for time in times])


def _regular_times(times: Sequence[msgspec.Raw]) -> IntColumn | None:
    """Where all are digits with up to three decimals; else nothing."""
    text = b"\n".join(times) + b"\n"
    signs = np.frombuffer(text, dtype=np.uint8)
    ends, dots = np.flatnonzero(signs == _LINE_END), np.flatnonzero(signs == _DOT)
    digit_count = np.count_nonzero((signs >= _ZERO) & (signs <= _NINE))
    if len(ends) != len(times) or digit_count + len(ends) + len(dots) != len(signs):
        return None
    line_of_dot = np.searchsorted(ends, dots)
    if np.any(np.diff(line_of_dot) == 0):
        return None
    starts = np.append(0, ends[:-1] + 1)
    whole_ends = ends.copy()
    whole_ends[line_of_dot] = dots
    whole_count = whole_ends - starts
    decimal_count = np.maximum(ends - whole_ends - 1, 0)
    is_safe = (whole_count <= _SAFE_DIGITS) | (
        (whole_count == _SAFE_DIGITS + 1) & (signs[starts] <= _LARGEST_FIRST_DIGIT)
    )
    if not np.all(is_safe & (whole_count > 0) & (decimal_count <= _DECIMALS)):
        return None
    digits = np.fromstring(text.replace(b".", b""), dtype=np.int64, sep="\n")
    found: IntColumn = digits * 10 ** (_DECIMALS - decimal_count)
    return found


def span_column(durations: Sequence[Number]) -> tuple[IntColumn, BoolColumn]:
    """`span_nanoseconds` of each duration, 0 for none, and which of them are durations."""
    try:
        column = np.array(durations, dtype=np.float64)  # None becomes NaN
    except OverflowError:
        return _with_absent([span_nanoseconds(duration) for duration in durations])
    is_long = column > _SAFE_DURATION_US
    if np.any(is_long):
        return _with_absent([span_nanoseconds(duration) for duration in durations])
    is_span = column >= 0
    number = np.where(is_span, column, 0.0) * _NS_PER_US
    whole = number.astype(np.int64)
    return whole + (number - whole >= _HALF), is_span


def identifier_column(values: Sequence[Identifier | float], absent: int = -1) -> IntColumn:
    """`identifier` of each value."""
    count = len(values)
    if values.count(None) == count:
        return np.full(count, absent, dtype=np.int64)
    cells = array("q")
    try:
        cells.extend([absent if value is None else value for value in values])  # type: ignore[misc]
    except (TypeError, OverflowError):
        return np.array([identifier(value, absent) for value in values], dtype=np.int64)
    column = np.frombuffer(cells, dtype=np.int64)
    return np.where((column >= 0) & (column <= MOST_IDENTIFIER), column, absent)


def _with_absent(found: Sequence[int | None]) -> tuple[IntColumn, BoolColumn]:
    is_present = np.array([value is not None for value in found], dtype=np.bool_)
    return np.array([value or 0 for value in found], dtype=np.int64), is_present
