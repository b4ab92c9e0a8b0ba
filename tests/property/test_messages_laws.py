"""Laws of the lines that joulewised and its clients exchange, and of lines that are none."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from joulewise.control.daemon.messages import (
    LONGEST_LINE_BYTES,
    Alive,
    Allowed,
    AnyAnswer,
    AnyQuestion,
    Applied,
    Apply,
    AskedPoint,
    Beat,
    Ended,
    GpuState,
    Granted,
    Hello,
    May,
    Refused,
    Release,
    Released,
    SeenCaveat,
    State,
    Status,
    Take,
    Welcome,
    encode,
    error_of,
    parse_answer,
    parse_question,
    refusal,
    shown,
)
from joulewise.domain.errors import DeviceError, InputError, JoulewiseError

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
uuids = st.from_regex(r"GPU-[0-9A-Za-z-]{1,76}", fullmatch=True)
clocks = st.none() | st.integers(1, 100_000)
watts = st.none() | st.floats(1e-6, 1e5)
counts = st.integers(0, 2**31)
questions: st.SearchStrategy[AnyQuestion] = st.one_of(
    st.builds(Hello, version=st.integers(0, 1_000_000), program=st.none() | texts),
    st.builds(Take, gpu=uuids),
    st.builds(Apply, gpu=uuids, sm_clock_mhz=clocks, mem_clock_mhz=clocks, power_limit_w=watts),
    st.builds(May, gpu=uuids, sm_clock_mhz=clocks, mem_clock_mhz=clocks, power_limit_w=watts),
    st.builds(Release, gpu=uuids),
    st.just(Beat()),
    st.just(Status()),
)
states = st.builds(
    GpuState,
    gpu=uuids,
    name=texts,
    device=texts,
    is_simulated=st.booleans(),
    holder=st.none() | texts,
    asked=st.none()
    | st.builds(AskedPoint, sm_clock_mhz=clocks, mem_clock_mhz=clocks, power_limit_w=watts),
    caveats=st.lists(st.builds(SeenCaveat, kind=texts, seen=texts), max_size=3).map(tuple),
    left_open=st.none() | texts,
    is_answering=st.booleans(),
    is_lowered_idle=st.booleans(),
    power_w=watts,
)
answers: st.SearchStrategy[AnyAnswer] = st.one_of(
    st.builds(Welcome, version=counts, pid=counts, beat_s=st.floats(1e-6, 3600.0)),
    st.builds(Granted, gpu=uuids, found_limit_w=watts),
    st.builds(Applied, gpu=uuids),
    st.builds(Allowed, gpu=uuids),
    st.builds(Released, gpu=uuids),
    st.just(Alive()),
    st.builds(
        State,
        pid=counts,
        gpus=st.lists(states, max_size=2).map(tuple),
        problems=st.lists(texts, max_size=2).map(tuple),
    ),
    st.builds(Refused, kind=texts, message=texts, hint=st.none() | texts),
    st.builds(Ended, gpu=uuids, why=texts, is_given_back=st.none() | st.booleans()),
)
# JSON of any shape, with the names of real fields often enough.
names = st.sampled_from(("ask", "gpu", "version", "program", "sm_clock_mhz", "power_limit_w"))
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.sampled_from(("hello", "take", "apply", "release", "beat", "status", "GPU-1", "\ud800"))
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(names | st.text(), inner, max_size=4)
    ),
    max_leaves=8,
)


def is_question(line: bytes) -> bool:
    """Whether it is one; anything but the promised error goes through."""
    try:
        parse_question(line)
    except InputError as error:
        json.dumps(str(error)).encode()
        encode(refusal(error))
        return False
    return True


@given(questions)
def test_a_question_is_read_as_it_was_written(question: AnyQuestion) -> None:
    line = encode(question)

    assert line.endswith(b"\n")
    assert 1 == line.count(b"\n")
    assert question == parse_question(line)


@given(answers)
def test_an_answer_is_read_as_it_was_written(answer: AnyAnswer) -> None:
    line = encode(answer)

    assert 1 == line.count(b"\n")
    assert answer == parse_answer(line)


@given(questions, st.data())
def test_a_question_cut_anywhere_is_none(question: AnyQuestion, data: st.DataObject) -> None:
    whole = encode(question).rstrip()
    cut = data.draw(st.integers(0, len(whole) - 1))

    assert not is_question(whole[:cut])


@given(questions, st.data())
def test_a_question_with_one_byte_changed_is_read_or_refused_within_bounds(
    question: AnyQuestion, data: st.DataObject
) -> None:
    line = bytearray(encode(question))
    place = data.draw(st.integers(0, len(line) - 1))
    line[place] = data.draw(st.integers(0, 255))

    if is_question(bytes(line)):
        read = parse_question(bytes(line))
        if isinstance(read, Apply | May):
            assert all(
                setting is None or 0 < setting <= 100_000
                for setting in (read.sm_clock_mhz, read.mem_clock_mhz, read.power_limit_w)
            )


@given(st.binary(max_size=300))
@example(b"")
@example(b"null")
@example(b"\x00" * 50)
@example(b"[" * LONGEST_LINE_BYTES)
@example(b'{"ask":' * 500)
@example(b'{"ask":"hello","version":' + b"9" * 3000 + b"}")
@example(b'{"ask":"apply","gpu":"GPU-1","power_limit_w":1e999}')
@example(b'{"ask":"apply","gpu":"GPU-1","power_limit_w":NaN}')
@example(b'{"ask":"hello","version":1,"\\ud800":1}')
@example(b'{"ask":"\\udfff"}')
@example(b'{"ask":"hello","version":1,"program":"\xed\xa0\x80"}')
def test_arbitrary_bytes_are_refused_in_words(line: bytes) -> None:
    assert not is_question(line)
    with pytest.raises(DeviceError):
        parse_answer(line)


@given(values)
def test_any_json_is_read_or_refused_in_words(value: object) -> None:
    is_question(json.dumps(value).encode())


def test_a_line_of_the_greatest_length_is_read_and_a_longer_one_is_not() -> None:
    line = encode(Beat()).rstrip()
    fits = line + b" " * (LONGEST_LINE_BYTES - len(line))

    assert is_question(fits)
    assert not is_question(fits + b" ")


@pytest.mark.parametrize(
    "line",
    [
        b'{"ask":"take","gpu":"GPU-1","more":1}',
        b'{"ask":"take","gpu":"GPU-1\\n"}',
        b'{"ask":"take","gpu":"../../etc/passwd"}',
        b'{"ask":"take","gpu":"GPU-../../x"}',
        b'{"ask":"take","gpu":["GPU-1"]}',
        b'{"ask":"apply","gpu":"GPU-1","sm_clock_mhz":0}',
        b'{"ask":"apply","gpu":"GPU-1","sm_clock_mhz":-5}',
        b'{"ask":"apply","gpu":"GPU-1","sm_clock_mhz":true}',
        b'{"ask":"apply","gpu":"GPU-1","sm_clock_mhz":"1005"}',
        b'{"ask":"apply","gpu":"GPU-1","sm_clock_mhz":1005.5}',
        b'{"ask":"apply","gpu":"GPU-1","sm_clock_mhz":4294967296}',
        b'{"ask":"apply","gpu":"GPU-1","power_limit_w":0}',
        b'{"ask":"hello","version":1,"program":{"$ref":1}}',
        b'{"ask":"run","command":"reboot"}',
        b'{"say":"granted","gpu":"GPU-1"}',
        b'{"gpu":"GPU-1"}',
        b'{"ask":"beat"}{"ask":"beat"}',
    ],
)
def test_what_is_almost_a_question_is_none(line: bytes) -> None:
    assert not is_question(line)


@given(st.sampled_from(("input", "busy", "not_permitted", "device_lost", "other", "")), texts)
def test_a_refusal_becomes_an_error_of_ours_whatever_it_says(kind: str, message: str) -> None:
    error = error_of(Refused(kind=kind, message=message))

    assert isinstance(error, JoulewiseError)
    assert message == refusal(error).message


@given(st.text(max_size=50))
def test_what_is_shown_of_a_program_moves_no_cursor_and_can_be_written(program: str) -> None:
    assert all(one.isprintable() for one in shown(program))
    shown(program).encode()
