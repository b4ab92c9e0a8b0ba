"""A damaged trace is read or refused in one sentence; it neither crashes nor hangs the reader."""

from __future__ import annotations

import gzip
import json
import tempfile
from datetime import timedelta
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.traces import training_trace

from joulewise.domain.errors import InputError
from joulewise.domain.trace import ProfilerTrace
from joulewise.store.importers.traces.kineto import read_kineto

PLAIN = json.dumps(training_trace(step_count=1, rank_count=2).document()).encode()
DAMAGE = st.lists(
    st.tuples(st.floats(min_value=0.0, max_value=1.0, exclude_max=True), st.binary(max_size=3)),
    max_size=4,
)


def read(raw: bytes) -> ProfilerTrace | None:
    """The trace, or none where it was refused as it should be."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        path.write_bytes(raw)
        try:
            return read_kineto(path, block_byte_count=512)
        except InputError as error:
            refusal = error
    assert refusal.hint
    assert str(refusal).startswith(str(path))
    return None


@given(length=st.integers(min_value=0, max_value=len(PLAIN) - 1))
@settings(deadline=timedelta(seconds=2))
def test_every_trace_that_is_cut_off_is_refused(length: int) -> None:
    assert read(PLAIN[:length]) is None


@given(damage=DAMAGE, is_packed=st.booleans())
@settings(deadline=timedelta(seconds=2))
def test_flipped_bytes_are_read_or_refused(
    damage: list[tuple[float, bytes]],
    is_packed: bool,  # noqa: FBT001 - drawn
) -> None:
    raw = bytearray(gzip.compress(PLAIN, mtime=0) if is_packed else PLAIN)
    for place, put in damage:
        start = int(place * len(raw))
        raw[start : start + len(put)] = put
    trace = read(bytes(raw))

    if trace is not None:
        assert trace.kernel_count >= len(trace.start_s) == len(trace.passes) > 0
        assert trace.kernel_count == sum(total.launch_count for total in trace.totals)
        json.dumps([total.name for total in trace.totals], ensure_ascii=False).encode()
