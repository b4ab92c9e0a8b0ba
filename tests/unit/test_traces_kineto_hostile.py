"""Files that are no traces, or damaged ones: one clear sentence each, quickly and in little memory."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from pathlib import Path

import pytest
from tests.traces import training_trace

from joulewise.domain.errors import InputError
from joulewise.store.importers.traces import json_cursor, json_source
from joulewise.store.importers.traces.kineto import read_kineto

KERNEL = b'{"ph":"X","cat":"kernel","name":"k","ts":1,"dur":1,"args":{"device":0,"stream":7}}'
LIST = b'{"traceEvents":['


def refusal(path: Path, block_byte_count: int = 1 << 20) -> InputError:
    with pytest.raises(InputError) as caught:
        read_kineto(path, block_byte_count=block_byte_count)
    assert caught.value.hint
    assert caught.value.file == str(path)
    return caught.value


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "the file is empty"),
        (b" \n\t", "the file is empty"),
        (b"PK\x03\x04 not json", "the file is not JSON"),
        (b"kernel,dur\na,1\n", "the file is not JSON"),
        (b"{}", "the file has no traceEvents"),
        (b'{"a":{"traceEvents":[]}}', "the file has no traceEvents"),
        (b'{"traceEvents":{}}', "what should list the events is no list"),
        (b'{"traceEvents":[]}', "there are no GPU kernels in the file"),
        (b"[]", "there are no GPU kernels in the file"),
        (LIST + KERNEL + b",5]}", "event 2 is not an object"),
        (LIST + KERNEL + b",5," + KERNEL + b"]}", "event 2 is not an object"),
        (b"[[]]", "event 1 is not an object"),
        (b"[null]", "event 1 is not an object"),
        (LIST + KERNEL + b"," + KERNEL, "the JSON is cut off, after event 2"),
        (LIST + KERNEL + b"," + KERNEL[:-7], "the JSON is cut off, after event 1"),
        (LIST + KERNEL + b"]", "the JSON is cut off, after the events"),
        (b'{"metadata":{"a":1', "the JSON is cut off, before the events"),
        (b'{"traceEvents"', "the JSON is cut off, before the events"),
        (LIST + KERNEL + b',{"a" 1}' + b" " * 20 + b"]}", "the file is not JSON, after event 1"),
        (LIST + KERNEL + b" x" + b" " * 20 + b"]}", "'x' is not expected after event 1"),
        (LIST + KERNEL + b"]} {}", "the file goes on after its JSON has ended"),
        (b'{1:[],"traceEvents":[]}', "'1' is not expected before the events"),
        (b"[" * 100_000, "the JSON is nested too deeply, before the first event"),
        (b'{"a":' * 100_000, "the JSON is nested too deeply, before the events"),
        (LIST + b'{"args":' * 100_000, "the JSON is nested too deeply"),
        (LIST + b'{"a":' + b"9" * 100_000 + b"}]}", "there are no GPU kernels in the file"),
        (LIST + KERNEL + b",]}", "']' is not expected after event 1"),
        (b"[" + KERNEL + b"," + KERNEL + b" , ]", "']' is not expected after event 2"),
        (LIST + KERNEL + b'],"traceEvents":[' + KERNEL + b"]}", "the file has traceEvents twice"),
        (b'[{"ph":"X","cat":"kernel","name":"k","dur":1}]', "says when it began"),
    ],
)
def test_what_is_no_trace_is_refused_in_one_sentence(tmp_path: Path, raw: bytes, said: str) -> None:
    for number, form in enumerate((raw, gzip.compress(raw))):
        path = tmp_path / f"{number}.json"
        path.write_bytes(form)
        for block_byte_count in (16, 1 << 20):
            assert said in str(refusal(path, block_byte_count))


@pytest.mark.parametrize(
    "event",
    [
        b'{"ph":"X","cat":"kernel","name":"k","ts":1,"dur":1,"args":{"x":NaN,"y":-Infinity}}',
        b'{"ph":"X","cat":"kernel","name":"\xff\xfe","ts":1,"dur":1}',
        b'{"ph":"X","cat":"kernel","name":"\\ud800","ts":1,"dur":1}',
        b'{"ph":"X","cat":"kernel","name":7,"ts":1,"dur":1,"args":[]}',
        b'{"ph":"X","cat":"kernel","name":"k","ts":"1.5","dur":1,"args":null}',
        b'{"ph":"X","cat":"kernel","name":"k","ts":1,"dur":1,"args":{"device":1e400,"grid":"x"}}',
        b'{"ph":"X","cat":"kernel","name":"k","ts":1,"dur":1,"pid":{},"tid":[1],"args":{}}',
    ],
)
def test_odd_fields_cost_no_kernel(tmp_path: Path, event: bytes) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(b'{"a":NaN,"traceEvents":[' + b",".join((KERNEL, event, KERNEL)) + b"]}")
    for block_byte_count in (16, 1 << 20):
        trace = read_kineto(path, block_byte_count=block_byte_count)
        assert 3 == trace.kernel_count == len(trace.start_s)
        json.dumps([total.name for total in trace.totals], ensure_ascii=False).encode()


def test_a_packed_file_that_is_cut_off_or_damaged_is_refused(tmp_path: Path) -> None:
    packed = training_trace().write(tmp_path / "whole.json.gz").read_bytes()
    cut, damaged = tmp_path / "cut.json.gz", tmp_path / "damaged.json.gz"
    cut.write_bytes(packed[: len(packed) // 2])
    damaged.write_bytes(packed[:-8] + bytes(8))

    assert "the packed file is cut off" in str(refusal(cut))
    assert "the packed file is damaged" in str(refusal(damaged))


def test_a_folder_a_pipe_an_absent_file_and_a_locked_one_are_refused(tmp_path: Path) -> None:
    assert "this is a folder" in str(refusal(tmp_path))
    assert "there is no such file" in str(refusal(tmp_path / "absent.json"))
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.json")
        assert "this is a pipe" in str(refusal(tmp_path / "pipe.json"))
    locked = training_trace().write(tmp_path / "locked.json")
    locked.chmod(0)
    if not os.access(locked, os.R_OK):
        assert "may not be read" in str(refusal(locked))


@pytest.mark.parametrize("filling", [b" ", KERNEL + b","])
def test_a_file_that_grows_beyond_measure_is_refused_in_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, filling: bytes
) -> None:
    resource = pytest.importorskip("resource", reason="memory is measured on Unix only")
    monkeypatch.setattr(json_source, "_FREE_BYTE_COUNT", 1 << 20)
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = filling * ((1 << 20) // len(filling))
    parts = [packer.compress(b"[")] + [packer.compress(block) for _ in range(8)]
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(b"".join(parts) + packer.flush())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    assert "grows more than 200-fold" in str(refusal(path))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


def test_an_event_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_cursor, "MOST_VALUE_BYTE_COUNT", 1 << 20)
    path = tmp_path / "long.json"
    path.write_bytes(b'[{"name":"' + b"x" * (3 << 20))

    assert "a value is longer than 1 MiB, before the first event" in str(refusal(path, 1 << 16))


def test_hardly_an_event_is_read_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone: list[str] = []
    read_value = json_cursor.JsonCursor.value

    def counted(cursor: json_cursor.JsonCursor, place: str) -> object:
        alone.append(place)
        return read_value(cursor, place)

    monkeypatch.setattr(json_cursor.JsonCursor, "value", counted)
    path = training_trace(step_count=200).write(tmp_path / "trace.json")
    trace = read_kineto(path, block_byte_count=20_000)

    assert 600 == trace.kernel_count
    # Keys beside the list of events and their values, and the last event of the file.
    assert len(alone) < 20
