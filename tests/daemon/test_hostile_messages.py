"""No message of a client breaks joulewised, or sets what the client may not set."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from tests.daemon.hostile import (
    BOUNDED,
    NOBODY,
    Dice,
    connected,
    hello,
    is_untouched,
    line,
    needs_honest_lease,
    said_until_closed,
    settled,
    tell_and_hear,
    tell_hear_and_leave,
    unharmed,
    vitals,
)
from tests.daemon.running import RunningDaemon, Talker, started_daemon, wait_until

FAKE = {"FAKE_NVML_DEVICES": "2", "FAKE_NVML_KNOBS": "set_call_s=0,lag_s=0"}
SET = {"granted", "applied", "released"}


@pytest.fixture(scope="module")
def closed(fake_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A daemon that lets nobody set anything."""
    folder = tmp_path_factory.mktemp("closed")
    with started_daemon(fake_library, folder, config=NOBODY, driver=FAKE) as running:
        yield running


@pytest.fixture(scope="module")
def bounded(
    fake_library: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningDaemon]:
    """A daemon that lets us set SM clocks of 600 to 1500 MHz and power limits up to 300 W."""
    folder = tmp_path_factory.mktemp("bounded")
    with started_daemon(fake_library, folder, config=BOUNDED, driver=FAKE) as running:
        # The guard process is started for the first lease, and stays.
        needs_honest_lease(running, running.uuids()[0], 1005)
        yield running


@pytest.mark.parametrize(
    "raw",
    [
        b"\n",
        b"{}\n",
        b"null\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x80\x04\x95\n",
        b"\x00" * 4000 + b"\n",
        b"[" * 4000 + b"\n",
        b"\xff" * 100 + b"\n",
        line(ask="beat"),
        line(ask="status"),
        line(ask="hello"),
        line(ask="hello", version=10**300),
        line(ask="hello", version=1, program="x" * 201),
        hello() + hello(),
        hello() + line(ask="shutdown"),
        hello() + b'{"ask":"beat"} {"ask":"beat"}\n',
    ],
)
def test_what_breaks_the_protocol_is_told_once_and_the_connection_ends(
    closed: RunningDaemon, raw: bytes
) -> None:
    said = tell_and_hear(closed.socket, raw)

    assert {"say": "refused", "kind": "input"}.items() <= said[-1].items()
    assert 1 == sum(answer["say"] == "refused" for answer in said)


def test_a_line_without_end_is_refused_before_it_is_all_there(closed: RunningDaemon) -> None:
    with unharmed(closed), closing(connected(closed.socket)) as endless:
        sent_bytes = 0
        with suppress(ConnectionError, TimeoutError):
            while sent_bytes < 50 * 2**20:
                sent_bytes += endless.send(b"x" * 65536)
        said = []
        with suppress(ConnectionError):
            said = said_until_closed(endless)

    # What the kernel holds for a socket is a few hundred kilobytes.
    assert sent_bytes < 4 * 2**20
    # Where the connection broke under what was still being sent, the answer may be lost.
    assert ["refused"] * len(said) == [answer["say"] for answer in said]
    whole = tell_and_hear(closed.socket, b"x" * 5000)
    assert ["refused"] == [answer["say"] for answer in whole]
    assert "at most 4096 bytes" in whole[0]["message"]


def test_a_conversation_cut_at_any_byte_leaves_nothing_set(bounded: RunningDaemon) -> None:
    gpu = bounded.uuids()[0]
    whole = hello() + line(ask="take", gpu=gpu)
    whole += line(ask="apply", gpu=gpu, sm_clock_mhz=1005)
    with unharmed(bounded):
        for cut in range(len(whole)):
            raw = connected(bounded.socket)
            raw.sendall(whole[:cut])
            # Half of them say that it was all, and half are just gone.
            if cut % 2:
                raw.shutdown(socket.SHUT_WR)
                said_until_closed(raw)
            raw.close()


def test_questions_all_at_once_are_answered_one_by_one_in_order(bounded: RunningDaemon) -> None:
    gpu = bounded.uuids()[0]
    asked = [line(ask="take", gpu=gpu), line(ask="apply", gpu=gpu, sm_clock_mhz=1005)]
    asked += [line(ask="release", gpu=gpu), line(ask="beat")]
    with unharmed(bounded):
        said = tell_hear_and_leave(bounded.socket, hello() + b"".join(asked * 25))

    kinds = [answer["say"] for answer in said]
    assert ["welcome", *["granted", "applied", "released", "alive"] * 25] == kinds


def test_a_holder_that_asks_more_and_more_before_it_is_answered_loses_its_lease(
    bounded: RunningDaemon,
) -> None:
    """Behind a full buffer nobody would see that it has gone."""
    gpu = bounded.uuids()[0]
    more = line(ask="apply", gpu=gpu, sm_clock_mhz=1005) * 4000
    with unharmed(bounded):
        said = tell_and_hear(bounded.socket, hello() + line(ask="take", gpu=gpu) + more)

    assert any("waits for an answer" in answer.get("message", "") for answer in said)
    assert len(said) < 200


def test_a_conversation_of_before_that_is_replayed_gains_nothing(bounded: RunningDaemon) -> None:
    gpu = bounded.uuids()[0]
    with unharmed(bounded), closing(Talker(bounded.socket)) as honest:
        honest.hello()
        honest.take(gpu)
        honest.ask("apply", gpu=gpu, sm_clock_mhz=1005)
        replayed = hello() + line(ask="apply", gpu=gpu, sm_clock_mhz=600)
        replayed += line(ask="release", gpu=gpu)
        said = tell_and_hear(bounded.socket, replayed)
        lock_mhz = bounded.truth().true_locks(0).sm_max_mhz

    assert ["welcome", "refused", "refused"] == [answer["say"] for answer in said]
    assert 1005 == lock_mhz


@pytest.mark.parametrize(
    "knobs",
    [
        {"sm_clock_mhz": 585},
        {"sm_clock_mhz": 1515},
        {"sm_clock_mhz": 1001},
        {"sm_clock_mhz": 1005, "mem_clock_mhz": 5001},
        {"power_limit_w": 301.0},
        {"power_limit_w": 1.0},
        {"sm_clock_mhz": 1005, "power_limit_w": 5000.0},
    ],
)
def test_what_is_out_of_bounds_is_refused_and_nothing_of_it_is_set(
    bounded: RunningDaemon, knobs: dict[str, object]
) -> None:
    gpu = bounded.uuids()[0]
    with closing(Talker(bounded.socket)) as talker:
        talker.hello()
        talker.take(gpu)
        refused = talker.ask("apply", gpu=gpu, **knobs)

        assert "refused" == refused["say"]
        assert refused["kind"] in {"not_permitted", "not_supported"}
        assert refused["hint"]
        assert is_untouched(bounded)
        # The lease is still there for what is within.
        assert "applied" == talker.ask("apply", gpu=gpu, sm_clock_mhz=600)["say"]
    wait_until(lambda: is_untouched(bounded), "clocks are set", patience_s=1.0)


def storm(daemon: RunningDaemon, *, seed: int, message_count: int) -> set[str]:
    """Odd and broken messages over many connections, at least so many; what was answered."""
    truth = daemon.truth()
    dice = Dice(seed, daemon.uuids())
    kinds: set[str] = set()
    sent_count = 0
    while sent_count < message_count:
        asked = [dice.question() for _ in range(5)]
        raw = hello() + b"".join(asked) + dice.broken()
        said = tell_hear_and_leave(daemon.socket, raw)
        assert said[0]["say"] == "welcome", said
        kinds.update(answer["say"] for answer in said)
        sent_count += len(asked) + 2
        for index in range(2):
            locks = truth.true_locks(index)
            assert locks.sm_max_mhz is None or 600 <= locks.sm_max_mhz <= 1500
            assert locks.memory_max_mhz is None
    return kinds


def test_a_few_thousand_odd_messages_of_a_stranger_set_nothing(closed: RunningDaemon) -> None:
    storm(closed, seed=1, message_count=500)
    with unharmed(closed):
        kinds = storm(closed, seed=2, message_count=3000)

    assert not kinds & SET


def test_a_few_hundred_odd_messages_of_one_who_may_stay_within_bounds(
    bounded: RunningDaemon,
) -> None:
    storm(bounded, seed=3, message_count=200)
    with unharmed(bounded):
        kinds = storm(bounded, seed=4, message_count=600)

    assert kinds >= SET
    needs_honest_lease(bounded, bounded.uuids()[0], 1005)


@pytest.mark.integration
def test_a_hundred_and_fifty_thousand_odd_messages_set_nothing_and_memory_stays_flat(
    closed: RunningDaemon,
) -> None:
    storm(closed, seed=5, message_count=10_000)
    with unharmed(closed):
        kinds = storm(closed, seed=6, message_count=150_000)

    assert not kinds & SET


@pytest.mark.integration
def test_twenty_five_thousand_odd_messages_of_one_who_may_stay_within_bounds(
    bounded: RunningDaemon,
) -> None:
    storm(bounded, seed=7, message_count=3_000)
    with unharmed(bounded):
        kinds = storm(bounded, seed=8, message_count=25_000)

    assert kinds >= SET
    needs_honest_lease(bounded, bounded.uuids()[0], 1005)


@pytest.mark.integration
def test_a_client_that_trickles_is_ended_and_keeps_nobody_waiting(closed: RunningDaemon) -> None:
    with unharmed(closed):
        slow = [connected(closed.socket) for _ in range(20)]
        began_s = time.monotonic()
        for byte in hello().rstrip():
            for raw in slow:
                with suppress(BrokenPipeError):
                    raw.sendall(bytes([byte]))
            with closing(Talker(closed.socket)) as honest:
                asked_s = time.monotonic()
                assert "welcome" == honest.hello()["say"]
                assert time.monotonic() - asked_s < 1.0
            time.sleep(0.15)
        said = [said_until_closed(raw)[-1]["say"] for raw in slow]
        for raw in slow:
            raw.close()

    assert ["refused"] * 20 == said
    assert time.monotonic() - began_s < 15.0


@pytest.mark.integration
def test_a_client_that_never_reads_is_dropped_and_memory_stays_flat(closed: RunningDaemon) -> None:
    flood = line(ask="status") * 1000

    def flooded() -> None:
        raw = connected(closed.socket)
        raw.settimeout(0.5)
        raw.sendall(hello())
        began_s = time.monotonic()
        with closing(raw), suppress(ConnectionError):
            while time.monotonic() - began_s < 15.0:
                with suppress(TimeoutError):
                    raw.sendall(flood)
            pytest.fail("the daemon goes on with whoever does not read")

    flooded()
    with unharmed(closed):
        before = settled(closed)
        flooded()
        assert vitals(closed).resident_bytes - before.resident_bytes < 5 * 2**20
