"""Columns of a Kineto trace, converted many at once: each value is what it is by itself."""

from __future__ import annotations

from pathlib import Path

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from joulewise.store.importers.traces.kineto import read_kineto
from joulewise.store.importers.traces.kineto_batches import (
    identifier_column,
    span_column,
    time_column,
)
from joulewise.store.importers.traces.kineto_events import (
    identifier,
    nanoseconds,
    span_nanoseconds,
)

DIGITS = st.text("0123456789", min_size=1, max_size=19)
# As profilers write them: whole microseconds, with up to three decimals.
USUAL_TIMES = st.builds(
    "{}{}".format,
    st.integers(0, 4 * 10**15).map(str),
    st.sampled_from(["", ".0", ".5", ".12", ".999", ".0005", ".1235"]),
)
ODD_TIMES = st.sampled_from(
    ["", "null", '"12.5"', "[1.5]", "-0.5", "-12", "1e3", "NaN", "0.0005", "1.", ".5", "1..2", "\n"]
)
DURATIONS = st.none() | st.integers(-5, 2**70) | st.floats() | st.floats(0, 1e5)
IDENTIFIERS = (
    st.none()
    | st.integers(-(2**64), 2**64)
    | st.integers(0, 9)
    | st.sampled_from(["", "7", " 7", "-7", "x", "1_0"])
    | st.floats(0, 5)
)


def raws(times: list[str]) -> list[msgspec.Raw]:
    return [msgspec.Raw(time.encode()) for time in times]


@given(st.lists(USUAL_TIMES) | st.lists(USUAL_TIMES | ODD_TIMES | DIGITS))
@example(["4611686018427387.904"])
@example(["4611686018427387.905"])
@example(["3999999999999999.999", "9999999999999999"])
@example(["1.2.3", "4"])
@example(["1\n2"])
def test_times_are_those_of_each_by_itself(times: list[str]) -> None:
    column, is_time = time_column(raws(times))

    alone = [nanoseconds(time) for time in raws(times)]
    assert is_time.tolist() == [time is not None for time in alone]
    assert column.tolist() == [time or 0 for time in alone]


@given(st.lists(DURATIONS) | st.lists(st.floats(0, 1e9)))
@example([0.0005, 1.0005, 2.4995, 2.0**40, 2.0**61, 10**400])
def test_durations_are_those_of_each_by_itself(durations: list[float | None]) -> None:
    column, is_span = span_column(durations)

    alone = [span_nanoseconds(duration) for duration in durations]
    assert is_span.tolist() == [duration is not None for duration in alone]
    assert column.tolist() == [duration or 0 for duration in alone]


@given(
    st.lists(IDENTIFIERS) | st.lists(st.none() | st.integers(-3, 2**63)), st.sampled_from([-1, 0])
)
def test_identifiers_are_those_of_each_by_itself(
    values: list[int | str | float | None], absent: int
) -> None:
    assert identifier_column(values, absent).tolist() == [
        identifier(value, absent) for value in values
    ]


def test_days_of_many_kernels_sum_exactly_beyond_eight_bytes(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    kernel = b'{"ph":"X","cat":"kernel","name":"k","ts":1,"dur":86400000000}'
    path.write_bytes(b"[" + b",".join([kernel] * 110_000) + b"]")

    trace = read_kineto(path)

    assert 110_000 * 86_400 > 2**63 / 10**9
    assert (110_000, 110_000.0 * 86_400) == (trace.kernel_count, trace.kernel_time_s)
    assert 110_000.0 * 86_400 == trace.totals[0].time_s
