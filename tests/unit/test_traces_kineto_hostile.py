"""Files that are no traces, or damaged ones: one clear sentence each, quickly and in little memory."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from tests.peak_memory import PRINT_PEAK_KIB
from tests.traces import training_trace

from joulewise.domain.errors import InputError
from joulewise.domain.ports import no_progress
from joulewise.store.importers.traces import json_cursor, json_source, json_stream, kineto
from joulewise.store.importers.traces.kineto import read_kineto
from joulewise.store.importers.traces.kineto_events import KinetoEvent, lenient_event

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
        (b'[{"ph":"X","cat":"kernel","name":"k","dur":1}]', "says when it began and how long"),
        (
            b"[" + KERNEL + b',{"ph":"X","cat":"kernel","name":"k","ts":1.7e15,"dur":1}]',
            "kernels start 19675 days apart",
        ),
        (
            b'[{"ph":"X","cat":"kernel","name":"' + b"x" * 65_537 + b'","ts":1,"dur":1}]',
            "the name of a kernel is longer than 65536 characters",
        ),
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


def test_a_long_value_is_refused_also_where_all_of_it_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_cursor, "MOST_VALUE_BYTE_COUNT", 1 << 16)
    path = tmp_path / "long.json"
    empty = b"{}," * (1 << 16) + b"{}"
    for raw in (b'[{"a":[' + empty + b"]}]", b'{"a":[' + empty + b'],"traceEvents":[' + KERNEL):
        path.write_bytes(raw)
        assert "a value is longer than 0 MiB" in str(refusal(path))


def test_tiny_events_are_read_in_smaller_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_stream, "_MOST_OBJECTS_COUNT", 1_000)
    path = tmp_path / "tiny.json"
    path.write_bytes(b"[" + b"{}," * 50_000 + KERNEL + b"]")
    with json_source.opened_source(path, no_progress) as source:
        stream = json_stream.EventStream(source, KinetoEvent, lenient_event)
        counts = [len(batch) for batch in stream.batches()]

    assert 50_001 == sum(counts) == stream.event_count
    assert max(counts) < 1_100


def test_a_file_with_more_events_than_fit_into_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kineto, "_MOST_ROWS_COUNT", 10)
    path = training_trace().write(tmp_path / "trace.json")

    assert "more than 10 kernels, launches and operations" in str(refusal(path))
    monkeypatch.setattr(kineto, "_MOST_KERNELS_COUNT", 2)
    assert "more than 2 kernel launches" in str(refusal(path))


# What is packed well and would take gigabytes: what is written, how often, and what is around it.
HOSTILE = {
    "objects in an event": (b'[{"x":1},{"a":[', b"{},", 40_000_000, b"{}]}]"),
    "objects before the events": (b'{"a":[', b"{},", 40_000_000, b'{}],"traceEvents":[]}'),
    "devices": (b'{"deviceProperties":[', b"{},", 2_500_000, b'{}],"traceEvents":[]}'),
    "empty events": (b"[", b"{},", 20_000_000, KERNEL + b"]"),
    "events without arguments": (b"[", b'{"args":{}},', 5_000_000, KERNEL + b"]"),
    "numbers that are none": (b'[{"a":[NaN,', b"1e1,", 2_000_000, '"\U0001f600"]}]'.encode()),
    "one long text": (b'[{"a":"', b"xxxxxxxx", 20_000_000, b'"}]'),
    "operations": (b"[", b'{"ph":"X","cat":"cpu_op","ts":1,"dur":1},', 5_900_000, KERNEL + b"]"),
    "kernels": (b"[", KERNEL + b",", 4_900_000, KERNEL + b"]"),
}
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the peak so")
READ = (
    """
import sys
from pathlib import Path
from joulewise.domain.errors import InputError
from joulewise.store.importers.traces.kineto import read_kineto
try:
    read_kineto(Path(sys.argv[1]))
except InputError:
    pass
"""
    + PRINT_PEAK_KIB
)
PACK = """
import sys, zlib
path, head, filling, count, tail = sys.argv[1:]
packer = zlib.compressobj(1, zlib.DEFLATED, 31)
block = bytes.fromhex(filling) * 100_000
with open(path, "wb") as file:
    file.write(packer.compress(bytes.fromhex(head)))
    for _ in range(int(count) // 100_000):
        file.write(packer.compress(block))
    file.write(packer.compress(bytes.fromhex(tail)) + packer.flush())
"""


@LINUX
@pytest.mark.integration
@pytest.mark.parametrize("name", HOSTILE)
def test_no_small_file_takes_much_memory(tmp_path: Path, name: str) -> None:
    head, filling, count, tail = HOSTILE[name]
    path = str(tmp_path / "hostile.json.gz")
    packing = [path, head.hex(), filling.hex(), str(count), tail.hex()]
    subprocess.run([sys.executable, "-c", PACK, *packing], check=True)
    done = subprocess.run(
        [sys.executable, "-c", READ, path], capture_output=True, text=True, check=True, timeout=120
    )

    assert int(done.stdout) < 1300 * 1024


@LINUX
@pytest.mark.integration
def test_a_trace_of_40_mb_is_read_within_400_mb(tmp_path: Path) -> None:
    trace = training_trace(step_count=1)
    path = tmp_path / "trace.json"
    one = json.dumps(trace.events).encode()[1:-1]
    path.write_bytes(LIST + b",".join([one] * (40_000_000 // len(one))) + b"]}")
    done = subprocess.run(
        [sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True
    )

    assert int(done.stdout) < 400 * 1024


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
