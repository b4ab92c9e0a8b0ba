"""JSON value by value, from a text of which only a part is in memory.

Slower than whole pieces at a time, but it takes what Python's profilers write (NaN, Infinity,
half a surrogate, bytes that are no UTF-8), and knows where it stands.
"""

from __future__ import annotations

import codecs
import json
import re
from typing import Self

from joulewise.domain.errors import InputError
from joulewise.store.importers.traces.json_source import JsonSource

# Events take a few kilobytes. Python holds a value in up to 30 times as many bytes as it is
# written in, so that more than this would not fit into the memory that an import may take.
MOST_VALUE_BYTE_COUNT = 8 * 2**20
_FIRST_READ_BYTE_COUNT = 2**16
# A token that is cut off (-Infinity, an escape) fails this near to the end, if not at it.
_LONGEST_TOKEN = 16
_LONGEST_INTEGER = 1_000
_AFTER_NUMBER = frozenset(" \t\n\r,]}")
_SPACE = re.compile(r"[ \t\n\r]*")


class WrittenFloat(float):
    """A float that remembers how it was written: times have more digits than a float holds."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> Self:
        """Read a number of a JSON file."""
        number = super().__new__(cls, text)
        number.text = text
        return number


def _integer(text: str) -> int | WrittenFloat:
    """Python takes no integers of thousands of digits; JSON does, and nobody needs them here."""
    return int(text) if len(text) <= _LONGEST_INTEGER else WrittenFloat(text)


_DECODER = json.JSONDecoder(parse_float=WrittenFloat, parse_int=_integer)


class JsonCursor:
    """Stands before the next token; `begun` is what was read of the source before.

    Of that, too, only as much becomes text as the next value needs.
    """

    def __init__(self, source: JsonSource, begun: bytes = b"") -> None:
        self._source = source
        self._begun = memoryview(begun)
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = ""
        self._at = 0
        self._value_at = 0
        self._is_over = False

    def peek(self) -> str:
        """The next character that is no white space; empty at the end of the file."""
        while True:
            found = _SPACE.match(self._text, self._at)
            self._at = found.end() if found else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._read_more(_FIRST_READ_BYTE_COUNT):
                return ""

    def take(self, token: str) -> bool:
        """Step over the token if it comes next."""
        if self.peek() != token:
            return False
        self._at += 1
        return True

    def value(self, place: str) -> object:
        """The next value, as `json.load` gives it; floats as `WrittenFloat`.

        Raises:
            InputError: it is no JSON, cut off, too long or too deep; `place` says where.
        """
        self.peek()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except RecursionError as error:
                raise too_deep(self._source.file, place) from error
            except ValueError as error:
                self._more_or_fail(error, place)
                continue
            if self._may_go_on(value, end) and self._read_more(_FIRST_READ_BYTE_COUNT):
                continue
            self._value_at, self._at = self._at, end
            return value

    def written(self) -> bytes:
        """The value that was given last, as it is written in the file."""
        return self._text[self._value_at : self._at].encode("utf-8", "replace")

    def rest(self) -> bytes:
        """What was read and not yet stepped over; the cursor is of no use afterwards."""
        unfinished, _ = self._utf8.getstate()
        text = self._text[self._at :].encode("utf-8", "replace")
        return b"".join((text, unfinished, self._begun))

    def left_count(self) -> int:
        """About how many bytes in memory were not yet stepped over."""
        return len(self._text) - self._at + len(self._begun)

    def _may_go_on(self, value: object, end: int) -> bool:
        """Whether a number's last digits may not have been read yet."""
        return isinstance(value, int | float) and self._text[end : end + 1] not in _AFTER_NUMBER

    def _more_or_fail(self, error: ValueError, place: str) -> None:
        """Read on where the value may go on in what was not read yet."""
        if not _may_be_cut_off(error, len(self._text)):
            raise _no_json(self._source.file, place) from error
        length = len(self._text) - self._at
        if length > MOST_VALUE_BYTE_COUNT:
            raise too_long(self._source.file, place) from error
        # As much again, so that the work stays in proportion to the length of the value.
        if not self._read_more(max(_FIRST_READ_BYTE_COUNT, length)):
            raise cut_off(self._source.file, place) from error

    def _read_more(self, byte_count: int) -> bool:
        if self._is_over:
            return False
        length = len(self._text) - self._at
        byte_count = min(byte_count, max(1, MOST_VALUE_BYTE_COUNT + 1 - length))
        block = bytes(self._begun[:byte_count])
        self._begun = self._begun[byte_count:]
        block = block or self._source.read(byte_count)
        self._is_over = not block
        more = self._utf8.decode(block, final=self._is_over)
        self._text = self._text[self._at :] + more
        self._at = 0
        return not self._is_over or bool(more)


def value_of(raw: bytes, file: str, place: str) -> object:
    """A whole value, as `json.load` gives it; bytes that are no UTF-8 are replaced.

    Raises:
        InputError: it is no JSON, too long or too deep; `place` says where.
    """
    if len(raw) > MOST_VALUE_BYTE_COUNT:
        raise too_long(file, place)
    try:
        return _DECODER.decode(raw.decode("utf-8", "replace"))
    except RecursionError as error:
        raise too_deep(file, place) from error
    except ValueError as error:
        raise _no_json(file, place) from error


def cut_off(file: str, place: str) -> InputError:
    """A file that ends in the middle."""
    return InputError(
        f"the JSON is cut off, {place}",
        file=file,
        hint="Copy the file again, or profile again and let the profiler end before the program.",
    )


def too_long(file: str, place: str) -> InputError:
    """A value that nobody's profiler writes."""
    return InputError(
        f"a value is longer than {MOST_VALUE_BYTE_COUNT // 2**20} MiB, {place}",
        file=file,
        hint="Give a profile: its events are short.",
    )


def too_deep(file: str, place: str) -> InputError:
    """JSON with more brackets in one another than any profiler writes."""
    return InputError(
        f"the JSON is nested too deeply, {place}", file=file, hint="Give a profiler's trace."
    )


def _no_json(file: str, place: str) -> InputError:
    return InputError(
        f"the file is not JSON, {place}",
        file=file,
        hint="Give the .json or .json.gz file that the profiler wrote.",
    )


def _may_be_cut_off(error: ValueError, length: int) -> bool:
    if not isinstance(error, json.JSONDecodeError):
        return False  # a number of thousands of digits
    is_open_text = error.msg.startswith("Unterminated string")
    return is_open_text or error.pos >= length - _LONGEST_TOKEN
