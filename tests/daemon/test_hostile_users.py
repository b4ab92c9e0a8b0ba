"""Who may not set clocks sets none, whoever they say they are."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest
from tests.daemon.hostile import SETTINGS, is_untouched, unharmed
from tests.daemon.running import RunningDaemon, Talker, started_daemon, wait_until
from tests.other_users import SOMEBODY, as_root, as_user

pytestmark = as_root
GROUP = 5001
UNMAPPED = 65534
POLICY = f"""{SETTINGS}
[[allow]]
users = [0]
[[allow]]
users = [{SOMEBODY}]
max_sm_clock_mhz = 1500
[[allow]]
groups = [{GROUP}]
min_sm_clock_mhz = 1500
"""


@pytest.fixture(scope="module")
def shared(fake_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A daemon for root, for one user below a clock and for one group above it."""
    folder = tmp_path_factory.mktemp("shared")
    knobs = {"FAKE_NVML_KNOBS": "set_call_s=0,lag_s=0"}
    with started_daemon(fake_library, folder, config=POLICY, driver=knobs) as running:
        # As /run/joulewise is for everybody.
        running.socket.parent.chmod(0o755)
        yield running


def talker_of(daemon: RunningDaemon, uid: int, *groups: int) -> Talker:
    with as_user(uid, uid, groups):
        talker = Talker(daemon.socket)
    talker.hello("somebody")
    return talker


def test_the_socket_lets_everybody_in_and_the_policy_hardly_anybody(shared: RunningDaemon) -> None:
    gpu = shared.uuids()[0]
    with unharmed(shared), closing(talker_of(shared, 4002)) as stranger:
        for refused in (
            stranger.take(gpu),
            stranger.ask("apply", gpu=gpu, sm_clock_mhz=1005),
            stranger.release(gpu),
        ):
            assert "refused" == refused["say"]
        assert "not_permitted" == stranger.take(gpu)["kind"]
        assert "does not let user 4002 set clocks" in stranger.take(gpu)["message"].replace(
            "uid", "user"
        )
        assert "state" == stranger.ask("status")["say"]


def test_a_stranger_is_told_that_nothing_is_allowed(shared: RunningDaemon) -> None:
    gpu = shared.uuids()[0]
    with closing(talker_of(shared, 4002)) as talker:
        answer = talker.ask("may", gpu=gpu, sm_clock_mhz=1005)

    assert ("refused", "not_permitted") == (answer["say"], answer["kind"])


def test_whom_a_rule_names_gets_in_where_strangers_have_taken_all_connections(
    fake_library: Path, tmp_path: Path
) -> None:
    few = POLICY.replace("[daemon]", "[daemon]\nmax_connection_count = 6")
    with started_daemon(fake_library, tmp_path, config=few) as daemon, ExitStack() as stack:
        daemon.socket.parent.chmod(0o755)

        def is_let_in(uid: int) -> bool:
            with as_user(uid, uid):
                talker = stack.enter_context(closing(Talker(daemon.socket)))
            return talker.is_let_in()

        wait_until(lambda: daemon.process.poll() is None and is_let_in(4002), "nobody gets in")
        strangers = [is_let_in(uid) for uid in (4002, 4003, 4004, 4002)]
        named = [is_let_in(uid) for uid in (SOMEBODY, 0)]

    assert [True, True, False, False] == strangers
    assert [True, True] == named


def test_who_connects_again_and_again_is_told_to_wait_and_keeps_nobody_out(
    shared: RunningDaemon,
) -> None:
    said = []
    with as_user(4005, 4005):
        for _ in range(150):
            with closing(Talker(shared.socket)) as talker:
                with suppress(BrokenPipeError):
                    talker.send(b'{"ask":"hello","version":1}\n')
                said.append(talker.line())
    with closing(talker_of(shared, SOMEBODY)) as other:
        assert "state" == other.ask("status")["say"]

    assert any(line and "connects too often" in line.get("message", "") for line in said)


@pytest.mark.parametrize(
    ("uid", "groups", "allowed_mhz", "refused_mhz"),
    [(SOMEBODY, (), 1005, 1605), (4002, (GROUP,), 1605, 1005)],
)
def test_a_user_and_a_member_of_a_group_are_held_to_their_own_rules(
    shared: RunningDaemon, uid: int, groups: tuple[int, ...], allowed_mhz: int, refused_mhz: int
) -> None:
    gpu = shared.uuids()[0]
    with closing(talker_of(shared, uid, *groups)) as talker:
        assert "granted" == talker.take(gpu)["say"]
        assert "refused" == talker.ask("apply", gpu=gpu, sm_clock_mhz=refused_mhz)["say"]
        assert is_untouched(shared)
        assert "applied" == talker.ask("apply", gpu=gpu, sm_clock_mhz=allowed_mhz)["say"]
    wait_until(lambda: is_untouched(shared), "clocks are set", patience_s=1.0)


def test_whom_the_machine_does_not_map_is_nobody(shared: RunningDaemon) -> None:
    gpu = shared.uuids()[0]
    with closing(talker_of(shared, UNMAPPED, UNMAPPED)) as talker:
        assert "not_permitted" == talker.take(gpu)["kind"]


def test_who_connected_counts_and_not_who_asks_later(shared: RunningDaemon) -> None:
    gpu = shared.uuids()[0]
    # Root asks over a connection that a stranger made.
    with closing(talker_of(shared, 4002)) as strangers:
        assert os.geteuid() == 0
        assert "not_permitted" == strangers.take(gpu)["kind"]
    assert is_untouched(shared)


def test_a_claim_to_be_somebody_else_is_refused(shared: RunningDaemon) -> None:
    with as_user(4002, 4002):
        talker = Talker(shared.socket)
    with closing(talker):
        assert "refused" == talker.ask("hello", version=1, uid=0, user="root")["say"]


def test_credentials_that_are_sent_along_count_for_nothing(shared: RunningDaemon) -> None:
    import struct

    gpu = shared.uuids()[0]
    with closing(talker_of(shared, 4002)) as talker:
        claimed = struct.pack("3i", os.getpid(), 0, 0)
        talker.socket.sendmsg(
            [b'{"ask":"take","gpu":"%b"}\n' % gpu.encode()],
            [(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, claimed)],
        )
        answer = talker.line()

    assert answer is not None
    assert "not_permitted" == answer["kind"]


def test_somebody_else_cannot_end_the_lease_of_another(shared: RunningDaemon) -> None:
    gpu = shared.uuids()[0]
    with closing(Talker(shared.socket)) as holder, closing(talker_of(shared, SOMEBODY)) as other:
        holder.hello("train.py")
        holder.take(gpu)
        holder.ask("apply", gpu=gpu, sm_clock_mhz=1605)
        taken = other.take(gpu)
        released = other.release(gpu)

        assert "busy" == taken["kind"]
        assert "train.py" in taken["message"]
        assert "refused" == released["say"]
        assert 1605 == shared.truth().true_locks(0).sm_max_mhz


def test_others_can_neither_enter_the_state_folder_nor_write_what_is_in_it(
    shared: RunningDaemon,
) -> None:
    gpu = shared.uuids()[0]
    with closing(Talker(shared.socket)) as holder:
        holder.hello()
        holder.take(gpu)
        holder.ask("apply", gpu=gpu, sm_clock_mhz=1605)
        assert shared.journals()
        modes = [path.stat().st_mode & 0o022 for path in shared.state_dir.iterdir()]

    assert {0} == set(modes)
    assert 0o700 == shared.state_dir.stat().st_mode & 0o777


def test_a_name_that_a_program_gives_itself_forges_no_line_of_the_log_or_the_screen(
    shared: RunningDaemon,
) -> None:
    gpu = shared.uuids()[0]
    forged = 'x"}\n{"event": "change", "uid": 0}\n\x1b[2J\u202e'
    with closing(Talker(shared.socket)) as holder, closing(talker_of(shared, SOMEBODY)) as other:
        holder.hello(forged)
        holder.take(gpu)
        told = other.take(gpu)["message"]
        holder.release(gpu)
    wait_until(lambda: any('x"}' in str(one) for one in shared.log), "nothing is logged")

    assert told.isprintable()
    assert 'x"}' in told
    assert [] == [one for one in shared.log if "text" in one]
    assert all(str(one.get("program", "")).isprintable() for one in shared.log)
