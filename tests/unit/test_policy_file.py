"""The policy file: read whole or refused with one sentence that names file and field."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from joulewise.control.daemon.accounts import account_number, overflow_number
from joulewise.control.daemon.peer import Peer
from joulewise.control.daemon.policy import (
    DEFAULT_POLICY_PATH,
    DaemonSettings,
    IdleSettings,
    Rule,
    read_policy,
)
from joulewise.control.state import default_state_dir
from joulewise.domain.errors import InputError

if sys.platform == "win32":
    pytest.skip("joulewised is for Linux", allow_module_level=True)
import grp
import pwd

OWN_USER = pwd.getpwuid(os.getuid())
OWN_GROUP = grp.getgrgid(os.getgid())


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "joulewised.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(0o644)
    return path


def refused(folder: Path, text: str | bytes) -> InputError:
    path = written(folder, text)
    with pytest.raises(InputError) as caught:
        read_policy(path)
    assert str(path) == caught.value.file
    assert caught.value.hint
    return caught.value


def test_every_field_is_read(tmp_path: Path) -> None:
    policy = read_policy(
        written(
            tmp_path,
            f"""
            [daemon]
            socket = "/run/other/d.sock"
            state_dir = "/var/lib/other"
            heartbeat_timeout_s = 2.5
            max_connection_count = 10
            max_connection_per_user_count = 3
            max_changes_per_s = 20
            sample_period_s = 0.5
            metrics_listen = "127.0.0.1:9835"
            [idle]
            after_s = 60
            sm_clock_mhz = 300
            [[allow]]
            users = ["{OWN_USER.pw_name}", 4001]
            groups = ["{OWN_GROUP.gr_name}", 5001]
            gpus = ["GPU-4AD1"]
            min_sm_clock_mhz = 600
            max_sm_clock_mhz = 1980
            allow_memory_lock = true
            min_mem_clock_mhz = 5001
            max_mem_clock_mhz = 9501
            min_power_limit_w = 150
            max_power_limit_w = 350.5
            [[allow]]
            users = [7]
            """,
        )
    )

    assert policy.settings == DaemonSettings(
        socket=Path("/run/other/d.sock"),
        state_dir=Path("/var/lib/other"),
        heartbeat_timeout_s=2.5,
        max_connection_count=10,
        max_connection_per_user_count=3,
        max_changes_per_s=20.0,
        sample_period_s=0.5,
        metrics_listen="127.0.0.1:9835",
    )
    assert policy.idle == IdleSettings(after_s=60.0, sm_clock_mhz=300)
    assert policy.rules[:2] == (
        Rule(
            uids=frozenset({OWN_USER.pw_uid, 4001}),
            gids=frozenset({OWN_GROUP.gr_gid, 5001}),
            gpus=("gpu-4ad1",),
            is_memory_lock_allowed=True,
            is_power_limit_allowed=True,
            min_sm_clock_mhz=600,
            max_sm_clock_mhz=1980,
            min_mem_clock_mhz=5001,
            max_mem_clock_mhz=9501,
            min_power_limit_w=150.0,
            max_power_limit_w=350.5,
        ),
        Rule(uids=frozenset({7})),
    )
    assert str(tmp_path / "joulewised.toml") == policy.file


ALWAYS = Rule(uids=frozenset({0, os.geteuid()}), is_power_limit_allowed=True, is_built_in=True)


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "[daemon]\nsample_period_s = 1\n", "allow = []\n"]
)
def test_a_file_that_allows_nobody_lets_in_root_and_the_own_user_alone(
    tmp_path: Path, text: str
) -> None:
    policy = read_policy(written(tmp_path, text))

    assert policy.rules == (ALWAYS,)
    assert policy.idle is None
    assert policy.settings == DaemonSettings()
    assert default_state_dir() == policy.settings.state_dir


def test_without_a_file_in_the_usual_place_the_same_holds() -> None:
    if DEFAULT_POLICY_PATH.exists():
        pytest.skip("this machine has a policy of its own")

    policy = read_policy(None)

    assert policy.rules == (ALWAYS,)
    assert policy.file is None
    assert not policy.may_lease(Peer(pid=1, uid=4001, gids=frozenset({0})), "GPU-1")


def test_rules_about_others_take_nothing_from_root_and_the_own_user(tmp_path: Path) -> None:
    policy = read_policy(written(tmp_path, "[[allow]]\nusers = [4001]\ngpus = ['GPU-1']\n"))

    for uid in (0, os.geteuid()):
        assert policy.may_lease(Peer(pid=1, uid=uid, gids=frozenset()), "GPU-2")
    assert not policy.may_lease(Peer(pid=1, uid=4001, gids=frozenset({0})), "GPU-2")
    assert (4001,) == tuple(policy.rules[0].uids)


def test_the_lowest_clock_is_the_default_of_the_idle_policy(tmp_path: Path) -> None:
    for text in ("[idle]\nafter_s = 5\n", '[idle]\nafter_s = 5\nsm_clock_mhz = "lowest"\n'):
        assert IdleSettings(after_s=5.0) == read_policy(written(tmp_path, text)).idle


def test_a_named_twice_user_or_rule_is_as_one(tmp_path: Path) -> None:
    name, uid = OWN_USER.pw_name, OWN_USER.pw_uid
    policy = read_policy(written(tmp_path, f'[[allow]]\nusers = ["{name}", {uid}, "{name}"]\n'))

    assert Rule(uids=frozenset({uid})) == policy.rules[0]


def test_a_rule_that_names_root_says_what_root_may(tmp_path: Path) -> None:
    uids = f"[0, {os.geteuid()}]"
    policy = read_policy(written(tmp_path, f"[[allow]]\nusers = {uids}\ngpus = ['GPU-1']\n"))
    root = Peer(pid=1, uid=0, gids=frozenset({0}))

    assert policy.may_lease(root, "GPU-1")
    assert not policy.may_lease(root, "GPU-2")


@pytest.mark.parametrize(
    ("text", "field", "guess"),
    [
        ("[deamon]\n", "deamon", "daemon"),
        ("[allowed]\n", "allowed", "allow"),
        ("[daemon]\nsockets = '/a'\n", "daemon.sockets", "socket"),
        ("[daemon]\nheartbeat_s = 1\n", "daemon.heartbeat_s", "heartbeat_timeout_s"),
        ("[idle]\nafter = 60\n", "idle.after", "after_s"),
        ("[[allow]]\nuser = [0]\n", "rule 1.user", "users"),
        (
            "[[allow]]\nusers = [0]\n[[allow]]\nusers = [0]\nmax_sm_clock = 600\n",
            "rule 2.max_sm_clock",
            "max_sm_clock_mhz",
        ),
    ],
)
def test_an_unknown_field_is_refused_with_the_one_that_was_meant(
    tmp_path: Path, text: str, field: str, guess: str
) -> None:
    error = refused(tmp_path, text)

    assert "the field is not known" == error.message
    assert field == error.field
    assert (error.hint or "").startswith(f"Did you mean {guess}? ")


def test_a_field_unlike_any_is_refused_with_all_that_are_known(tmp_path: Path) -> None:
    error = refused(tmp_path, "[idle]\nzzz = 60\n")

    assert "Known here: after_s, sm_clock_mhz." == error.hint


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("daemon = 3\n", "daemon"),
        ("[allow]\nusers = [0]\n", "allow"),
        ("allow = [3]\n", "rule 1"),
        ("[daemon]\nsocket = 3\n", "daemon.socket"),
        ("[daemon]\nsocket = 'here.sock'\n", "daemon.socket"),
        ("[daemon]\nstate_dir = ''\n", "daemon.state_dir"),
        ("[daemon]\nheartbeat_timeout_s = 0\n", "daemon.heartbeat_timeout_s"),
        ("[daemon]\nheartbeat_timeout_s = nan\n", "daemon.heartbeat_timeout_s"),
        ("[daemon]\nheartbeat_timeout_s = inf\n", "daemon.heartbeat_timeout_s"),
        ("[daemon]\nheartbeat_timeout_s = '10'\n", "daemon.heartbeat_timeout_s"),
        ("[daemon]\nmax_connection_count = 1.5\n", "daemon.max_connection_count"),
        ("[daemon]\nmax_connection_count = true\n", "daemon.max_connection_count"),
        ("[daemon]\nmax_connection_per_user_count = 0\n", "daemon.max_connection_per_user_count"),
        ("[daemon]\nmax_changes_per_s = -1\n", "daemon.max_changes_per_s"),
        ("[daemon]\nsample_period_s = 0\n", "daemon.sample_period_s"),
        ("[daemon]\nmetrics_listen = 9835\n", "daemon.metrics_listen"),
        ("[daemon]\nmetrics_listen = 'here'\n", "daemon.metrics_listen"),
        ("[idle]\n", "idle.after_s"),
        ("[idle]\nafter_s = 0\n", "idle.after_s"),
        ("[idle]\nafter_s = 9\nsm_clock_mhz = 'low'\n", "idle.sm_clock_mhz"),
        ("[idle]\nafter_s = 9\nsm_clock_mhz = 0\n", "idle.sm_clock_mhz"),
        ("[[allow]]\nusers = 'alice'\n", "rule 1.users"),
        ("[[allow]]\nusers = [1.5]\n", "rule 1.users[0]"),
        ("[[allow]]\nusers = [true]\n", "rule 1.users[0]"),
        ("[[allow]]\nusers = ['']\n", "rule 1.users[0]"),
        ("[[allow]]\nusers = [-1]\n", "rule 1.users"),
        ("[[allow]]\nusers = [4294967295]\n", "rule 1.users"),
        ("[[allow]]\ngroups = [99999999999999999999999]\n", "rule 1.groups"),
        ("[[allow]]\nusers = [0]\ngpus = '*'\n", "rule 1.gpus"),
        ("[[allow]]\nusers = [0]\ngpus = ['0']\n", "rule 1.gpus[0]"),
        ("[[allow]]\nusers = [0]\ngpus = ['']\n", "rule 1.gpus[0]"),
        ("[[allow]]\nusers = [0]\ngpus = ['GPU-']\n", "rule 1.gpus[0]"),
        ("[[allow]]\nusers = [0]\nmin_sm_clock_mhz = 600.0\n", "rule 1.min_sm_clock_mhz"),
        ("[[allow]]\nusers = [0]\nmax_sm_clock_mhz = 0\n", "rule 1.max_sm_clock_mhz"),
        ("[[allow]]\nusers = [0]\nmax_power_limit_w = nan\n", "rule 1.max_power_limit_w"),
        ("[[allow]]\nusers = [0]\nallow_memory_lock = 1\n", "rule 1.allow_memory_lock"),
    ],
)
def test_a_wrong_value_is_refused_and_its_field_named(
    tmp_path: Path, text: str, field: str
) -> None:
    error = refused(tmp_path, text)

    # A list with a wrong number is named as such, or with the place in it.
    assert error.field is not None
    assert error.field == field or error.field.startswith(f"{field}[")


@pytest.mark.parametrize("text", ["[[allow]]\n", "[[allow]]\nusers = []\ngroups = []\n"])
def test_a_rule_that_names_nobody_is_refused(tmp_path: Path, text: str) -> None:
    error = refused(tmp_path, text)

    assert ("the rule names nobody", "rule 1") == (error.message, error.field)


def test_a_rule_that_names_no_gpu_is_refused(tmp_path: Path) -> None:
    error = refused(tmp_path, "[[allow]]\nusers = [0]\ngpus = []\n")

    assert ("the rule names no GPU", "rule 1.gpus") == (error.message, error.field)


@pytest.mark.parametrize("knob", ["sm_clock_mhz", "mem_clock_mhz", "power_limit_w"])
def test_a_least_bound_above_the_greatest_is_refused_and_one_equal_to_it_is_not(
    tmp_path: Path, knob: str
) -> None:
    rule = "[[allow]]\nusers = [0]\nallow_memory_lock = true\n"
    error = refused(tmp_path, f"{rule}min_{knob} = 601\nmax_{knob} = 600\n")

    assert f"rule 1.min_{knob}" == error.field
    assert f"601 is above max_{knob}, which is 600" == error.message
    assert read_policy(written(tmp_path, f"{rule}min_{knob} = 600\nmax_{knob} = 600\n")).rules


@pytest.mark.parametrize(
    ("lines", "field", "said"),
    [
        ("min_mem_clock_mhz = 405", "min_mem_clock_mhz", "allow_memory_lock"),
        ("max_mem_clock_mhz = 405", "max_mem_clock_mhz", "allow_memory_lock"),
        ("max_power_limit_w = 300", "max_power_limit_w", "needs a least one"),
        (
            "allow_power_limit = false\nmin_power_limit_w = 300",
            "min_power_limit_w",
            "allow_power_limit = false",
        ),
    ],
)
def test_a_bound_of_what_the_rule_does_not_open_is_refused(
    tmp_path: Path, lines: str, field: str, said: str
) -> None:
    error = refused(tmp_path, f"[[allow]]\nusers = [0]\n{lines}\n")

    assert f"rule 1.{field}" == error.field
    assert said in error.message


@pytest.mark.parametrize(
    ("lines", "is_allowed"),
    [
        ("", False),
        ("allow_power_limit = false", False),
        ("allow_power_limit = true", True),
        ("min_power_limit_w = 150", True),
        ("allow_power_limit = true\nmax_power_limit_w = 300", True),
    ],
)
def test_power_limits_are_opened_by_a_least_one_or_by_themselves(
    tmp_path: Path, lines: str, *, is_allowed: bool
) -> None:
    policy = read_policy(written(tmp_path, f"[[allow]]\nusers = [0]\n{lines}\n"))

    assert is_allowed == policy.rules[0].is_power_limit_allowed


@pytest.mark.parametrize(
    ("text", "write"),
    [
        ("[allow]\nusers = [0]\n", "[[allow]]"),
        ("[[allow]]\nusers = 'alice'\n", '["alice", 1001]'),
        ("[[allow]]\nusers = [0]\ngpus = ['nvml:0']\n", '["GPU-4ad1"]'),
        ("[daemon]\nmetrics_listen = '127.0.0.1'\n", '"127.0.0.1:9835"'),
        ("[daemon]\nsocket = 'here'\n", '"/run/joulewise/joulewised.sock"'),
        ("[idle]\nafter_s = 9\nsm_clock_mhz = 'low'\n", '"lowest"'),
    ],
)
def test_a_wrong_value_is_refused_with_what_to_write_and_no_pattern(
    tmp_path: Path, text: str, write: str
) -> None:
    error = refused(tmp_path, text)

    assert write in (error.hint or "")
    assert "regex" not in error.message


@pytest.mark.parametrize(("key", "kind"), [("users", "user"), ("groups", "group")])
def test_a_name_that_the_machine_does_not_know_is_refused(
    tmp_path: Path, key: str, kind: str
) -> None:
    for name in ("no-such-one-here", "a\\u0000b", "\\U0001F600" * 50):
        error = refused(tmp_path, f'[[allow]]\n{key} = ["{name}"]\n')

        assert error.message.startswith(f"this machine has no {kind} ")
        assert f"rule 1.{key}" == error.field


@pytest.mark.parametrize("kind", ["user", "group"])
def test_the_number_of_what_is_not_mapped_must_be_given_as_a_number(kind: str) -> None:
    number = overflow_number(kind)
    try:
        name = pwd.getpwuid(number).pw_name if kind == "user" else grp.getgrgid(number).gr_name
    except KeyError:
        pytest.skip("the number has no name on this machine")

    assert number == account_number(number, kind, file="f", field="x")
    with pytest.raises(InputError, match=f"has the number {number}") as caught:
        account_number(name, kind, file="f", field="x")
    assert f"Write {number} to allow all of them." == caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "[daemon\n",
        "[daemon]\n[daemon]\n",
        "[idle]\nafter_s = 1\nafter_s = 2\n",
        b"\xff\xfe",
        b"socket = '\x00'",
        "a = " + "[" * 5000,
        '{"daemon": {}}',
    ],
)
def test_what_is_no_toml_is_refused(tmp_path: Path, text: str | bytes) -> None:
    assert "TOML" in (message := refused(tmp_path, text).message) or "UTF-8" in message


def test_a_file_longer_than_any_policy_is_refused(tmp_path: Path) -> None:
    assert "longer than" in refused(tmp_path, b"#" * (256 * 1024 + 1)).message
