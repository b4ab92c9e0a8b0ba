"""Events in pieces are the events of the whole, however the file is written and read."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from hypothesis import example, given, settings
from hypothesis import strategies as st

from joulewise.domain.ports import no_progress
from joulewise.store.importers.traces.json_source import JsonSource
from joulewise.store.importers.traces.json_stream import EventStream

Event = dict[str, object]

# Texts that look like the places where events end and lists begin.
TEXTS = st.text(max_size=6) | st.sampled_from(
    ['},{"', "}, {", "]}]}", '"traceEvents":[', '\\"traceEvents\\":[{', "\\", "{", "€ü\U0001f600"]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=True, allow_infinity=True)
    | TEXTS
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
EVENTS = st.lists(st.dictionaries(TEXTS, VALUES, max_size=4), max_size=12)
BESIDE = st.dictionaries(
    st.text(max_size=4).filter(lambda key: key != "traceEvents"), VALUES, max_size=3
)
SPACES = st.sampled_from(["", " ", "\n  ", "\r\n\t"])


def streamed(raw: bytes, block_byte_count: int) -> tuple[list[Event], dict[str, object]]:
    """Events and what stands beside them, every key of it."""
    source = JsonSource(io.BytesIO(raw), Path("trace.json"), no_progress)
    stream = EventStream(
        source,
        dict,
        dict,
        wanted=_Everything(),
        block_byte_count=block_byte_count,
    )
    events = [cast("Event", event) for batch in stream.batches() for event in batch]
    assert stream.event_count == len(events)
    return events, stream.beside


class _Everything(frozenset[str]):
    def __contains__(self, key: object) -> bool:
        return True


def written(document: object, space: str, *, is_ascii: bool) -> bytes:
    """The document with white space of one kind between its tokens."""
    text = json.dumps(document, ensure_ascii=is_ascii, separators=(f"{space},{space}", f":{space}"))
    return f"{space}{text}{space}".encode("utf-8", "surrogatepass")


@given(
    head=BESIDE,
    events=EVENTS,
    tail=BESIDE,
    space=SPACES,
    is_ascii=st.booleans(),
    is_packed=st.booleans(),
    block_byte_count=st.integers(min_value=1, max_value=400),
)
@example(
    head={}, events=[{"a": [{}, {"b": 1}, {}, {}]}, {}, {}], tail={"d": [{}, {}]}, space="",
    is_ascii=True, is_packed=False, block_byte_count=8,
)  # fmt: skip
@settings(deadline=None, max_examples=30)
def test_a_stream_gives_what_json_load_gives(  # noqa: PLR0913, PLR0917 - what a file varies in
    head: Mapping[str, object],
    events: list[Event],
    tail: Mapping[str, object],
    space: str,
    is_ascii: bool,  # noqa: FBT001 - drawn
    is_packed: bool,  # noqa: FBT001 - drawn
    block_byte_count: int,
) -> None:
    raw = written({**head, "traceEvents": events, **tail}, space, is_ascii=is_ascii)
    whole = json.loads(raw)
    own, beside = streamed(gzip.compress(raw, 1) if is_packed else raw, block_byte_count)

    assert repr(own) == repr(whole.pop("traceEvents"))
    assert repr(sorted(beside.items())) == repr(sorted(whole.items()))


@given(events=EVENTS, space=SPACES, block_byte_count=st.integers(min_value=1, max_value=400))
@settings(deadline=None, max_examples=30)
def test_a_bare_list_gives_the_same_events(
    events: list[Event], space: str, block_byte_count: int
) -> None:
    raw = written(events, space, is_ascii=True)

    assert repr(streamed(raw, block_byte_count)) == repr((json.loads(raw), {}))
