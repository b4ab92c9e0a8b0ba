"""Events of a Chrome trace, in pieces of a few megabytes, at the speed of a compiled parser.

A trace is an object with a list `traceEvents` among its keys, or that list alone. Its bytes are
read block by block. A piece is cut between two events near the end of what was read; that the
cut lies there, and not in a text or a list inside an event, is proven by the piece in brackets
being valid JSON: only a list that is closed in all its parts is. Pieces that no compiled parser
takes are read event by event.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Generic, TypeVar

import msgspec

from joulewise.domain.errors import InputError
from joulewise.store.importers.traces.json_cursor import (
    JsonCursor,
    cut_off,
    too_deep,
    value_of,
)
from joulewise.store.importers.traces.json_source import JsonSource

BLOCK_BYTE_COUNT = 16 * 2**20
_EVENTS = "traceEvents"
_BETWEEN = re.compile(rb"\}[ \t\n\r]*,[ \t\n\r]*(?=\{)")
# Cuts are tried so far from the end, in parts of a block: a list of objects in an event, or
# behind the last event, looks like a list of events.
_CUTS_BEFORE_END = (0, 1 / 256, 1 / 16, 1 / 4)
# Near the end of what was read an event may be cut off; there the next block comes first.
_STOPS_BEFORE_END = 1 / 16
_MOST_BRACES_COUNT = 10_000
# Objects that a piece may hold, where events are tiny: real ones take hundreds of bytes. Each
# becomes a few hundred bytes in memory.
_MOST_OBJECTS_COUNT = 400_000
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_GIVE = "Give the trace that torch.profiler's export_chrome_trace wrote."

Event = TypeVar("Event")
Object = Mapping[str, object]


class EventStream(Generic[Event]):
    """The events of one file, once and in order, and what stands beside them in it.

    Args:
        source: The file.
        shape: What an event becomes; fields that it lacks are skipped.
        lenient: Makes an event of an object that does not have the shape.
        wanted: Keys beside `traceEvents` that are kept in `beside`.
        block_byte_count: How much is read at a time.
    """

    def __init__(
        self,
        source: JsonSource,
        shape: type[Event],
        lenient: Callable[[Object], Event],
        *,
        wanted: Collection[str] = (),
        block_byte_count: int = BLOCK_BYTE_COUNT,
    ) -> None:
        self._source = source
        self._events = msgspec.json.Decoder(list[shape])  # type: ignore[valid-type]
        self._event = msgspec.json.Decoder(shape)
        self._lenient = lenient
        self._wanted = wanted
        self._block_byte_count = block_byte_count
        self.event_count = 0
        self.beside: dict[str, object] = {}
        self._left = JsonCursor(source)

    def batches(self) -> Iterator[list[Event]]:
        """Events in order; `beside` and `event_count` are complete when they end.

        Raises:
            InputError: the file is no trace, or is damaged; it says after which event.
        """
        begun = self._source.read(self._block_byte_count)
        cursor = JsonCursor(self._source, begun.removeprefix(_BYTE_ORDER_MARK))
        is_bare = self._enter(cursor)
        if not cursor.take("]"):
            yield from self._listed(cursor.rest())
        else:
            self._left = cursor
        if not is_bare:
            self._keys(self._left, "after the events")
        if self._left.peek():
            raise InputError(
                "the file goes on after its JSON has ended", file=self._source.file, hint=_GIVE
            )

    def _enter(self, cursor: JsonCursor) -> bool:
        """Step into the list of events; says whether the list is all there is."""
        first = cursor.peek()
        if not first:
            raise InputError("the file is empty", file=self._source.file, hint=_GIVE)
        if cursor.take("["):
            return True
        if not cursor.take("{"):
            raise InputError("the file is not JSON", file=self._source.file, hint=_GIVE)
        if cursor.peek() == "}" or not self._keys_before(cursor):
            raise InputError(
                f"the file has no {_EVENTS}, so it is no trace", file=self._source.file, hint=_GIVE
            )
        if not cursor.take("["):
            raise InputError(
                "what should list the events is no list",
                file=self._source.file,
                field=_EVENTS,
                hint=_GIVE,
            )
        return False

    def _keys_before(self, cursor: JsonCursor) -> bool:
        while (key := self._key(cursor, "before the events")) != _EVENTS:
            self._keep(key, cursor.value("before the events"))
            if not cursor.take(","):
                self._close(cursor, "before the events")
                return False
        return True

    def _keys(self, cursor: JsonCursor, place: str) -> None:
        while cursor.take(","):
            key = self._key(cursor, place)
            if key == _EVENTS:
                raise InputError(
                    f"the file has {_EVENTS} twice", file=self._source.file, field=key, hint=_GIVE
                )
            self._keep(key, cursor.value(place))
        self._close(cursor, place)

    def _key(self, cursor: JsonCursor, place: str) -> str:
        key = cursor.value(place) if cursor.peek() in {'"', ""} else None
        if not isinstance(key, str) or not cursor.take(":"):
            raise self._unexpected(cursor, place)
        return key

    def _keep(self, key: str, value: object) -> None:
        if key in self._wanted:
            self.beside[key] = value

    def _close(self, cursor: JsonCursor, place: str) -> None:
        if not cursor.take("}"):
            raise self._unexpected(cursor, place)

    def _unexpected(self, cursor: JsonCursor, place: str) -> InputError:
        found = cursor.peek()
        if not found:
            return cut_off(self._source.file, place)
        return InputError(
            f"the file is not JSON: {found!r} is not expected {place}",
            file=self._source.file,
            hint=_GIVE,
        )

    def _listed(self, buffer: bytes) -> Iterator[list[Event]]:
        """Events up to the end of their list; `buffer` begins with the first of them."""
        while True:
            if len(buffer) < self._block_byte_count:
                buffer += self._source.read(self._block_byte_count)
            found = self._piece(buffer)
            if found is not None:
                events, end = found
                buffer = buffer[end:]
                self.event_count += len(events)
                yield events
            else:
                cursor = JsonCursor(self._source, buffer)
                events, is_last = self._one_by_one(cursor)
                yield events
                if is_last:
                    self._left = cursor
                    return
                buffer = cursor.rest()

    def _piece(self, buffer: bytes) -> tuple[list[Event], int] | None:
        """As many events as a compiled parser takes at once, and where they end."""
        last = None
        length = _length_of_objects(buffer)
        for part in _CUTS_BEFORE_END:
            cut = _cut_before(buffer, length - int(part * min(self._block_byte_count, length)))
            if cut is None or cut == last:
                continue
            events = self._decoded(b"".join((b"[", memoryview(buffer)[: cut[0]], b"]")))
            if events is not None:
                return events, cut[1]
            last = cut
        return None

    def _decoded(self, piece: bytes) -> list[Event] | None:
        try:
            return self._events.decode(piece)
        except RecursionError as error:
            raise too_deep(self._source.file, self._place()) from error
        except msgspec.ValidationError:
            return self._decoded_alone(piece)
        except msgspec.DecodeError:
            return None

    def _decoded_alone(self, piece: bytes) -> list[Event] | None:
        """Where an event does not have the shape, each by itself."""
        try:
            raws = msgspec.json.decode(piece, type=list[msgspec.Raw])
        except RecursionError as error:
            raise too_deep(self._source.file, self._place()) from error
        except msgspec.DecodeError:
            return None
        return [
            self._made_or_softened(raw, row) for row, raw in enumerate(raws, self.event_count + 1)
        ]

    def _made(self, raw: bytes | msgspec.Raw, row: int) -> Event | None:
        """An event of the wanted shape; `None` where it has another."""
        try:
            return self._event.decode(raw)
        except RecursionError as error:
            raise too_deep(self._source.file, f"in event {row}") from error
        except msgspec.DecodeError:
            return None

    def _made_or_softened(self, raw: msgspec.Raw, row: int) -> Event:
        made = self._made(raw, row)
        if made is not None:
            return made
        return self._softened(value_of(bytes(raw), self._source.file, f"event {row}"), row)

    def _one_by_one(self, cursor: JsonCursor) -> tuple[list[Event], bool]:
        """Most events of what was read, one at least; says whether their list ends with them."""
        byte_count = cursor.left_count()
        events: list[Event] = []
        while len(events) < _MOST_OBJECTS_COUNT:
            if cursor.peek() == "]":
                raise self._unexpected(cursor, self._place())
            value = cursor.value(self._place())
            self.event_count += 1
            made = self._made(cursor.written(), self.event_count)
            events.append(self._softened(value, self.event_count) if made is None else made)
            if not cursor.take(","):
                if not cursor.take("]"):
                    raise self._unexpected(cursor, self._place())
                return events, True
            if cursor.left_count() < byte_count * _STOPS_BEFORE_END:
                break
        return events, False

    def _softened(self, value: object, row: int) -> Event:
        if not isinstance(value, dict):
            raise InputError(
                f"event {row} is not an object",
                file=self._source.file,
                row=row,
                field=_EVENTS,
                hint=_GIVE,
            )
        return self._lenient(value)

    def _place(self) -> str:
        return f"after event {self.event_count}" if self.event_count else "before the first event"


def _length_of_objects(buffer: bytes) -> int:
    """So much of it as holds no more objects than a piece may, about."""
    object_count = buffer.count(b"{")
    if object_count <= _MOST_OBJECTS_COUNT:
        return len(buffer)
    return len(buffer) * _MOST_OBJECTS_COUNT // object_count


def _cut_before(buffer: bytes, end: int) -> tuple[int, int] | None:
    """The last place before `end` that looks like one between events: where it begins and ends."""
    for _ in range(_MOST_BRACES_COUNT):
        end = buffer.rfind(b"}", 0, max(0, end))
        if end < 0:
            return None
        found = _BETWEEN.match(buffer, end)
        if found:
            return end + 1, found.end()
    return None
