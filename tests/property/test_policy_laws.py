"""Laws of the policy: what passes is within one rule and the device, and strangers get nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.control.daemon.peer import Peer
from joulewise.control.daemon.policy import Policy, Rule, read_policy
from joulewise.domain.errors import DeviceError, InputError, NotPermitted
from joulewise.domain.points import KNOBS, ClockGrid, OperatingPoint, PowerLimitRange

GPUS = ("GPU-aaaa1111", "GPU-aaaa2222", "GPU-bbbb")
SM_CLOCKS = (210, 600, 1005, 1410)
MEM_CLOCKS = (405, 5001)
GRID = ClockGrid(
    sm_clocks_mhz=SM_CLOCKS,
    mem_clocks_mhz=MEM_CLOCKS,
    power_limits=PowerLimitRange(least_w=100.0, found_w=350.0),
)
# Few enough that rules and peers often meet.
IDS = st.sampled_from((0, 1001, 1002, 65534))
SOME_IDS = st.frozensets(IDS, max_size=2)
CLOCKS = st.one_of(st.none(), st.sampled_from((*SM_CLOCKS, *MEM_CLOCKS, 1, 700)))
LIMITS = st.one_of(st.none(), st.sampled_from((50.0, 100.0, 200.0, 350.0, 400.0)))
peers = st.builds(Peer, pid=st.just(1), uid=IDS, gids=SOME_IDS)
points = st.builds(OperatingPoint, sm_clock_mhz=CLOCKS, mem_clock_mhz=CLOCKS, power_limit_w=LIMITS)
rules = st.builds(
    Rule,
    uids=SOME_IDS,
    gids=SOME_IDS,
    gpus=st.sampled_from((("",), ("gpu-aaaa",), ("gpu-aaaa1", "gpu-bbbb"))),
    is_memory_lock_allowed=st.booleans(),
    is_power_limit_allowed=st.booleans(),
    min_sm_clock_mhz=CLOCKS,
    max_sm_clock_mhz=CLOCKS,
    min_mem_clock_mhz=CLOCKS,
    max_mem_clock_mhz=CLOCKS,
    min_power_limit_w=LIMITS,
    max_power_limit_w=LIMITS,
)
policies = st.builds(Policy, rules=st.lists(rules, max_size=4).map(tuple))


def is_let_through(policy: Policy, peer: Peer, gpu: str, point: OperatingPoint) -> bool:
    try:
        policy.check(peer, gpu, point, GRID)
    except DeviceError:
        return False
    return True


def is_named(rule: Rule, peer: Peer, gpu: str) -> bool:
    return (peer.uid in rule.uids or any(gid in rule.gids for gid in peer.gids)) and any(
        gpu.lower()[: len(begin)] == begin for begin in rule.gpus
    )


def is_within(rule: Rule, point: OperatingPoint) -> bool:
    for knob in KNOBS:
        setting = getattr(point, knob)
        if setting is None:
            continue
        least, greatest = getattr(rule, f"min_{knob}"), getattr(rule, f"max_{knob}")
        if (
            not (0 if least is None else least)
            <= setting
            <= (1e9 if greatest is None else greatest)
        ):
            return False
    is_memory_open = point.mem_clock_mhz is None or rule.is_memory_lock_allowed
    return is_memory_open and (point.power_limit_w is None or rule.is_power_limit_allowed)


def is_taken(point: OperatingPoint) -> bool:
    return (
        point.sm_clock_mhz in (None, *SM_CLOCKS)
        and point.mem_clock_mhz in (None, *MEM_CLOCKS)
        and (point.power_limit_w is None or 100.0 <= point.power_limit_w <= 350.0)
    )


@given(policies, peers, st.sampled_from(GPUS), points)
def test_a_point_passes_just_where_one_rule_allows_it_whole_and_the_device_takes_it(
    policy: Policy, peer: Peer, gpu: str, point: OperatingPoint
) -> None:
    allowing = [r for r in policy.rules if is_named(r, peer, gpu) and is_within(r, point)]

    assert is_let_through(policy, peer, gpu, point) == (bool(allowing) and is_taken(point))


@given(policies, st.sampled_from(GPUS), points)
def test_nothing_that_a_stranger_asks_is_allowed(
    policy: Policy, gpu: str, point: OperatingPoint
) -> None:
    stranger = Peer(pid=1, uid=1003, gids=frozenset({1003, 1004}))

    assert not policy.may_lease(stranger, gpu)
    with pytest.raises(NotPermitted):
        policy.check(stranger, gpu, point, GRID)


@given(policies, rules, peers, st.sampled_from(GPUS), points)
def test_one_more_rule_never_takes_anything_away(
    policy: Policy, rule: Rule, peer: Peer, gpu: str, point: OperatingPoint
) -> None:
    wider = Policy(rules=(*policy.rules, rule))

    assert is_let_through(wider, peer, gpu, point) >= is_let_through(policy, peer, gpu, point)


WHOLE = b"""
[daemon]
socket = "/run/joulewise/joulewised.sock"
heartbeat_timeout_s = 10
max_changes_per_s = 500
metrics_listen = "127.0.0.1:9835"
[idle]
after_s = 60
sm_clock_mhz = "lowest"
[[allow]]
users = ["root", 1001]
groups = [2000]
gpus = ["*", "GPU-4ad1"]
min_sm_clock_mhz = 600
min_power_limit_w = 150
max_power_limit_w = 350.5
allow_memory_lock = false
"""
ODD = st.sampled_from(
    (b"nan", b"-1", b"1e400", b"2026-12-01", b"[[]]", b"{}", b"true", b"'\\u0000'", b"", b"\n[")
)


@given(st.data())
def test_a_damaged_policy_is_read_or_refused_in_words(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    raw = bytearray(WHOLE)
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(raw)))
        end = data.draw(st.integers(start, min(len(raw), start + 20)))
        raw[start:end] = data.draw(ODD | st.binary(max_size=8))
    path = tmp_path_factory.getbasetemp() / "damaged.toml"
    path.write_bytes(raw)

    policy, refused = Policy(), InputError("none")
    try:
        policy = read_policy(path)
    except InputError as error:
        refused = error

    is_refused_in_words = bool(refused.hint) and str(path) == refused.file
    # Whatever it says now, it names whom it lets in.
    assert is_refused_in_words or all(rule.uids or rule.gids for rule in policy.rules)
    assert is_refused_in_words != (policy.file == str(path))
