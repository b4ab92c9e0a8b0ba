"""What is refused says why and whose fault it is, sets nothing, and ends no connection."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest
from tests.daemon.running import (
    RunningDaemon,
    Talker,
    held,
    started_daemon,
    wait_until,
    wait_until_free,
)

from joulewise.domain.points import OperatingPoint

LOW = OperatingPoint(sm_clock_mhz=1200)
NARROW = """
[daemon]
max_changes_per_s = 5

[[allow]]
users = [{uid}]
gpus = ["*"]
min_sm_clock_mhz = 1005
max_sm_clock_mhz = 1500
"""


def test_a_second_client_is_told_who_holds_the_gpu_and_goes_on(daemon: RunningDaemon) -> None:
    first, second = daemon.uuids()
    with closing(held(daemon, first, LOW)), closing(Talker(daemon.socket)) as other:
        other.hello("other.py")
        refused = other.take(first)
        assert "granted" == other.take(second)["say"]
    wait_until_free(daemon)

    assert ("refused", "busy") == (refused["say"], refused["kind"])
    assert "(root: test) through joulewised" in refused["message"]
    assert f"process {daemon.pid}" in refused["message"]


def test_names_that_clients_give_themselves_do_not_steer_terminals(daemon: RunningDaemon) -> None:
    gpu = daemon.uuids()[0]
    with closing(Talker(daemon.socket)) as first, closing(Talker(daemon.socket)) as second:
        first.hello("\x1b[2Jtrain\n.py")
        first.take(gpu)
        second.hello()
        message = second.take(gpu)["message"]
    wait_until_free(daemon)

    assert "?[2Jtrain?.py" in message


def test_a_gpu_without_a_lease_is_not_set_whoever_asks(daemon: RunningDaemon) -> None:
    first, second = daemon.uuids()
    with closing(held(daemon, first, LOW)) as holder, closing(Talker(daemon.socket)) as other:
        other.hello()
        refused = [other.apply(first, LOW), other.release(first), holder.apply(second, LOW)]
        unknown = other.take("GPU-00000000")
        twice = holder.take(first)
        assert "applied" == holder.apply(first, LOW)["say"]
    wait_until_free(daemon)

    assert 3 * [("refused", "device")] == [(line["say"], line["kind"]) for line in refused]
    assert ("refused", "input") == (unknown["say"], unknown["kind"])
    assert ("refused", "input") == (twice["say"], twice["kind"])


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        ({"ask": "apply", "gpu": "{gpu}", "sm_clock_mhz": 1201}, "not_supported"),
        ({"ask": "apply", "gpu": "{gpu}", "power_limit_w": 5000.0}, "not_supported"),
        ({"ask": "apply", "gpu": "{gpu}", "mem_clock_mhz": 1}, "not_supported"),
    ],
)
def test_what_the_gpu_does_not_take_is_refused_and_the_point_stays(
    daemon: RunningDaemon, question: dict[str, object], kind: str
) -> None:
    gpu = daemon.uuids()[0]
    with closing(held(daemon, gpu, LOW)) as talker:
        wait_until(lambda: daemon.truth().true_locks(0).sm_max_mhz == 1200, "not locked")
        talker.send(json.dumps(question).replace("{gpu}", gpu).encode() + b"\n")
        refused = talker.line()
        assert 1200 == daemon.truth().true_locks(0).sm_max_mhz
        assert "alive" == talker.ask("beat")["say"]
    wait_until_free(daemon)

    assert refused is not None
    assert ("refused", kind) == (refused["say"], refused["kind"])


@pytest.mark.parametrize(
    "raw",
    [
        b"no json\n",
        b'{"ask":"take"}\n',
        b'{"ask":"status","more":1}\n',
        b'{"ask":"hello","version":1}\n',
        b"\n",
        b"\xff\xfe\n",
        b'{"ask":"apply","gpu":"GPU-1","sm_clock_mhz":-1}\n',
        b"x" * 5000,
        b'{"ask":"hello","version":1,"program":"' + b"x" * 5000 + b'"}\n',
    ],
)
def test_a_broken_protocol_gets_one_line_and_the_clocks_are_given_back(
    daemon: RunningDaemon, raw: bytes
) -> None:
    gpu = daemon.uuids()[0]
    with closing(held(daemon, gpu, LOW)) as talker:
        talker.send(raw)
        said = []
        while (line := talker.line()) is not None:
            said.append(line["say"])
        wait_until_free(daemon)

    assert "refused" == said[0]
    assert said.count("refused") == 1


@pytest.mark.parametrize(
    "question", [{"ask": "status"}, {"ask": "take", "gpu": "GPU-1234"}, {"ask": "beat"}]
)
def test_hello_comes_first(daemon: RunningDaemon, question: dict[str, object]) -> None:
    with closing(Talker(daemon.socket)) as talker:
        talker.send(json.dumps(question).encode() + b"\n")
        refused, end = talker.line(), talker.line()

    assert refused is not None
    assert "hello" in refused["message"]
    assert end is None


def test_another_version_of_the_protocol_is_named_and_let_go(daemon: RunningDaemon) -> None:
    with closing(Talker(daemon.socket)) as talker:
        refused = talker.ask("hello", version=99)
        end = talker.line()

    assert "version 1" in refused["message"]
    assert end is None


def test_bounds_and_rates_of_the_policy_hold(fake_library: Path, tmp_path: Path) -> None:
    with started_daemon(fake_library, tmp_path, config=NARROW) as daemon:
        with closing(Talker(daemon.socket)) as talker:
            talker.hello()
            gpu = talker.ask("status")["gpus"][0]["gpu"]
            may = talker.ask("may", gpu=gpu, sm_clock_mhz=1500)
            may_not = talker.ask("may", gpu=gpu, sm_clock_mhz=1515)
            assert "granted" == talker.take(gpu)["say"]
            below = talker.apply(gpu, OperatingPoint(sm_clock_mhz=210))
            memory = talker.apply(gpu, OperatingPoint(mem_clock_mhz=5001))
            within = talker.apply(gpu, LOW)
            often = [talker.apply(gpu, LOW) for _ in range(60)]
        wait_until_free(daemon)
        daemon.wait_for_event("refused more")
        written = len(daemon.events("refused"))

    assert "allowed" == may["say"]
    assert "not_permitted" == may_not["kind"]
    assert "not_permitted" == below["kind"]
    assert "not_permitted" == memory["kind"]
    assert "applied" == within["say"]
    refused = [line for line in often if line["say"] == "refused"]
    assert len(refused) >= 50
    assert {"busy"} == {line["kind"] for line in refused}
    assert written <= 30


def test_a_change_and_a_refusal_are_logged_with_who_asked_what(daemon: RunningDaemon) -> None:
    gpu = daemon.uuids()[1]
    with closing(Talker(daemon.socket)) as talker:
        talker.hello("logged.py")
        talker.take(gpu)
        talker.apply(gpu, LOW)
        talker.apply(gpu, OperatingPoint(sm_clock_mhz=1201))
    wait_until(
        lambda: any(line.get("program") == "logged.py" for line in daemon.events("lease ended")),
        "the end is not logged",
    )
    lines = [line for line in daemon.log if line.get("program") == "logged.py"]

    assert ["lease taken", "change", "refused", "lease ended"] == [one["event"] for one in lines]
    assert 4 * [(gpu, "root", 0)] == [(one["gpu"], one["user"], one["uid"]) for one in lines]
    assert ("1200/auto", "set") == (lines[1]["asked"], lines[1]["result"])
    assert "1201/auto" == lines[2]["asked"]
    assert "1201" in lines[2]["result"]
    assert ("disconnected", "given back") == (lines[3]["why"], lines[3]["result"])
    assert all("T" in one["time"] for one in lines)
