"""The log of changes: every line a JSON object, floods summed up, and nobody waits for it."""

from __future__ import annotations

import io
import json
import os
from dataclasses import replace
from typing import Any

from joulewise.control.daemon.changes_log import ChangesLog, Refusals
from joulewise.control.daemon.client import Client
from joulewise.control.daemon.peer import Peer

PEER = Peer(pid=4242, uid=1000, gids=frozenset({1000}), user="alice")


def lines_of(stream: io.StringIO) -> list[dict[str, Any]]:
    """What was logged."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def client() -> Client:
    """Somebody who asks."""
    one = Client(PEER, lambda _answer: None)
    one.program = 'train.py "\n{}'
    return one


def test_a_line_says_who_asked_for_what_and_what_came_of_it() -> None:
    stream = io.StringIO()
    log = ChangesLog(stream)
    log.write("change", client=client(), gpu="GPU-1", asked="1200/auto", result="set")
    log.write("stopped")
    log.close()
    change, stopped = lines_of(stream)

    assert change.pop("time").endswith("+00:00")
    assert {
        "event": "change",
        "gpu": "GPU-1",
        "pid": 4242,
        "uid": 1000,
        "user": "alice",
        "program": 'train.py "\n{}',
        "asked": "1200/auto",
        "result": "set",
    } == change
    assert {"time", "event"} == set(stopped)


def test_a_name_that_is_no_text_ends_no_log() -> None:
    stream = io.StringIO()
    log = ChangesLog(stream)
    named = Client(replace(PEER, user="al\udce9e"), lambda _answer: None)
    log.write("change", client=named, asked="1200/auto", result="set")
    log.write("stopped")

    assert log.close()
    assert ["al?e", None] == [line.get("user") for line in lines_of(stream)]


def test_refusals_of_one_user_that_come_in_a_flood_are_summed_up() -> None:
    stream, now_s = io.StringIO(), [0.0]
    log = ChangesLog(stream)
    refusals = Refusals(log, lambda: now_s[0])
    for _ in range(1000):
        refusals.note(client(), gpu=None, asked="take", result="no")
    refusals.sum_up()
    refusals.sum_up()
    now_s[0] = 10.0
    refusals.note(client(), gpu=None, asked="take", result="no")
    log.close()
    lines = lines_of(stream)
    written = [line for line in lines if line["event"] == "refused"]
    summed = [line for line in lines if line["event"] == "refused more"]

    assert len(written) == 21
    assert [(1000, 980)] == [(line["uid"], line["count"]) for line in summed]


def test_a_reader_that_stalls_stops_nobody_and_is_told_what_it_missed() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading) as reader, os.fdopen(writing, "w") as writer:
        log = ChangesLog(writer)
        for _ in range(40_000):
            log.write("change", client=client(), asked="1200/auto", result="set")
        log.write("one more")
        said: list[dict[str, Any]] = []
        while not said or said[-1]["event"] != "lines lost":
            said.append(json.loads(reader.readline()))
        log.close()

    assert said[-1]["count"] > 1000


def test_a_log_that_nobody_reads_any_more_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    log = ChangesLog(os.fdopen(os.dup(writing), "w", closefd=False))
    log.write("started")
    is_at_its_end = log.close()
    os.close(writing)

    assert is_at_its_end
