"""Who may set what: every kind of rule, unions of rules, and bounds at their edges."""

from __future__ import annotations

import os

import pytest

from joulewise.control.daemon.peer import Peer
from joulewise.control.daemon.policy import Policy, Rule
from joulewise.domain.errors import NotPermitted, NotSupported
from joulewise.domain.points import AUTO, ClockGrid, OperatingPoint, PowerLimitRange

GPU = "GPU-4ad17c2e-0000-1111-2222-333344445555"
OTHER_GPU = "GPU-77777777-0000-1111-2222-333344445555"
GRID = ClockGrid(
    sm_clocks_mhz=(210, 600, 1005, 1410, 1980),
    mem_clocks_mhz=(405, 5001, 9501),
    power_limits=PowerLimitRange(least_w=100.0, found_w=350.0),
)
ALICE = Peer(pid=4242, uid=1001, gids=frozenset({1001, 2000}), user="alice")
STRANGER = Peer(pid=4243, uid=1002, gids=frozenset({1002}))
UNMAPPED = Peer(pid=0, uid=65534, gids=frozenset({65534}))


def allows(
    policy: Policy,
    point: OperatingPoint,
    peer: Peer = ALICE,
    gpu: str = GPU,
    grid: ClockGrid = GRID,
) -> bool:
    try:
        policy.check(peer, gpu, point, grid)
    except NotPermitted:
        return False
    return True


def one(rule: Rule) -> Policy:
    return Policy(rules=(rule,), file="/etc/joulewise/joulewised.toml")


def sm(clock_mhz: int) -> OperatingPoint:
    return OperatingPoint(sm_clock_mhz=clock_mhz)


@pytest.mark.parametrize(
    "rule",
    [Rule(uids=frozenset({1001})), Rule(gids=frozenset({2000})), Rule(gids=frozenset({1001}))],
)
def test_a_rule_lets_in_whom_it_names_as_a_user_or_by_a_group(rule: Rule) -> None:
    policy = one(rule)

    assert policy.may_lease(ALICE, GPU)
    assert allows(policy, sm(1005))
    assert not policy.may_lease(STRANGER, GPU)
    assert not allows(policy, AUTO, STRANGER)


def test_the_number_of_a_user_is_not_that_of_a_group() -> None:
    policy = Policy(rules=(Rule(uids=frozenset({2000})), Rule(gids=frozenset({1002}))))

    assert not policy.may_lease(ALICE, GPU)
    assert policy.may_lease(STRANGER, GPU)


def test_without_rules_nobody_may_do_anything_not_even_root() -> None:
    root = Peer(pid=1, uid=0, gids=frozenset({0}), user="root")

    assert not Policy().may_lease(root, GPU)
    with pytest.raises(NotPermitted, match=r"does not let root \(user 0\) set clocks on GPU-4ad1"):
        Policy().check(root, GPU, AUTO, GRID)


def test_users_that_the_machine_does_not_map_are_nobody_unless_their_number_is_named() -> None:
    root_and_alice = one(Rule(uids=frozenset({0, 1001}), gids=frozenset({2000})))

    assert not root_and_alice.may_lease(UNMAPPED, GPU)
    assert one(Rule(uids=frozenset({65534}))).may_lease(UNMAPPED, GPU)


@pytest.mark.parametrize(
    ("gpus", "is_let_in"),
    [
        (("",), True),
        (("gpu-4ad1",), True),
        ((GPU.lower(),), True),
        (("gpu-4ad2",), False),
        (("gpu-4ad1", "gpu-7777"), True),
        ((f"{GPU.lower()}-",), False),
    ],
)
def test_a_rule_is_about_the_gpus_whose_uuid_begins_so(
    gpus: tuple[str, ...], *, is_let_in: bool
) -> None:
    policy = one(Rule(uids=frozenset({1001}), gpus=gpus))

    assert is_let_in == policy.may_lease(ALICE, GPU)
    assert is_let_in == allows(policy, sm(1005))


def test_upper_case_in_a_uuid_changes_nothing() -> None:
    assert one(Rule(uids=frozenset({1001}), gpus=("gpu-4ad1",))).may_lease(ALICE, GPU.upper())


@pytest.mark.parametrize(("clock_mhz", "is_allowed"), [(210, False), (600, True), (1980, True)])
def test_the_least_sm_clock_is_within(clock_mhz: int, *, is_allowed: bool) -> None:
    policy = one(Rule(uids=frozenset({1001}), min_sm_clock_mhz=600))

    assert is_allowed == allows(policy, sm(clock_mhz))


@pytest.mark.parametrize(("clock_mhz", "is_allowed"), [(210, True), (1410, True), (1980, False)])
def test_the_greatest_sm_clock_is_within(clock_mhz: int, *, is_allowed: bool) -> None:
    policy = one(Rule(uids=frozenset({1001}), max_sm_clock_mhz=1410))

    assert is_allowed == allows(policy, sm(clock_mhz))


@pytest.mark.parametrize(
    ("limit_w", "is_allowed"), [(149.9, False), (150.0, True), (300.0, True), (300.1, False)]
)
def test_power_limits_have_both_bounds(limit_w: float, *, is_allowed: bool) -> None:
    policy = one(
        Rule(
            uids=frozenset({1001}),
            is_power_limit_allowed=True,
            min_power_limit_w=150.0,
            max_power_limit_w=300.0,
        )
    )

    assert is_allowed == allows(policy, OperatingPoint(power_limit_w=limit_w))


@pytest.mark.parametrize(("clock_mhz", "is_allowed"), [(405, False), (5001, True), (9501, False)])
def test_memory_clocks_have_both_bounds(clock_mhz: int, *, is_allowed: bool) -> None:
    rule = Rule(
        uids=frozenset({1001}),
        is_memory_lock_allowed=True,
        min_mem_clock_mhz=5001,
        max_mem_clock_mhz=5001,
    )

    assert is_allowed == allows(one(rule), OperatingPoint(mem_clock_mhz=clock_mhz))


def test_a_memory_clock_needs_a_rule_that_allows_memory_locks() -> None:
    policy = one(Rule(uids=frozenset({1001}), min_mem_clock_mhz=405))

    with pytest.raises(NotPermitted, match="rule 1 has allow_memory_lock = false"):
        policy.check(ALICE, GPU, OperatingPoint(mem_clock_mhz=5001), GRID)


def test_what_is_left_to_the_driver_needs_no_permission_beyond_the_gpu() -> None:
    narrow = Rule(
        uids=frozenset({1001}),
        min_sm_clock_mhz=1005,
        max_sm_clock_mhz=1005,
        is_power_limit_allowed=True,
        min_power_limit_w=200.0,
        max_power_limit_w=200.0,
    )

    assert allows(one(narrow), AUTO)
    assert allows(one(narrow), OperatingPoint(power_limit_w=200.0))


def test_rules_are_a_union_and_each_is_judged_as_a_whole() -> None:
    low_clocks = Rule(
        uids=frozenset({1001}),
        is_power_limit_allowed=True,
        max_sm_clock_mhz=600,
        max_power_limit_w=150.0,
    )
    high_clocks = Rule(
        gids=frozenset({2000}),
        is_power_limit_allowed=True,
        min_sm_clock_mhz=1410,
        min_power_limit_w=300.0,
    )
    policy = Policy(rules=(low_clocks, high_clocks))

    assert allows(policy, OperatingPoint(sm_clock_mhz=600, power_limit_w=150.0))
    assert allows(policy, OperatingPoint(sm_clock_mhz=1410, power_limit_w=300.0))
    assert not allows(policy, sm(1005))
    # Each half is allowed by one of them, and both together by none.
    assert not allows(policy, OperatingPoint(sm_clock_mhz=600, power_limit_w=300.0))


def test_a_rule_about_another_gpu_or_another_user_adds_nothing() -> None:
    policy = Policy(
        rules=(
            Rule(uids=frozenset({1001}), max_sm_clock_mhz=600),
            Rule(uids=frozenset({1001}), gpus=("gpu-7777",)),
            Rule(uids=frozenset({1002})),
        )
    )

    assert not allows(policy, sm(1410))
    assert allows(policy, sm(1410), gpu=OTHER_GPU)
    assert allows(policy, sm(1410), STRANGER)


def test_a_refusal_names_the_bound_the_rule_and_the_file() -> None:
    policy = Policy(
        rules=(
            Rule(uids=frozenset({9})),
            Rule(uids=frozenset({1001}), min_sm_clock_mhz=600),
            Rule(gids=frozenset({2000}), max_power_limit_w=200.0, min_sm_clock_mhz=1005),
        ),
        file="/etc/joulewise/joulewised.toml",
    )

    with pytest.raises(NotPermitted) as caught:
        policy.check(ALICE, GPU, sm(210), GRID)

    assert (
        "joulewised does not allow 210/auto here: "
        "rule 2 has min_sm_clock_mhz = 600; rule 3 has min_sm_clock_mhz = 1005"
    ) == str(caught.value)
    assert caught.value.hint == (
        "Whoever runs joulewised can allow it in /etc/joulewise/joulewised.toml."
    )


def test_a_refusal_by_the_rule_of_no_file_names_no_number_in_it() -> None:
    always = Rule(uids=frozenset({1001}), is_built_in=True)
    policy = Policy(rules=(Rule(uids=frozenset({9})), always))

    with pytest.raises(NotPermitted, match="here: what always holds for root has allow_memory"):
        policy.check(ALICE, GPU, OperatingPoint(mem_clock_mhz=5001), GRID)


def test_a_clock_that_the_device_does_not_list_is_refused_with_its_neighbours() -> None:
    with pytest.raises(NotSupported, match="SM clock 1000 MHz") as caught:
        one(Rule(uids=frozenset({1001}))).check(ALICE, GPU, sm(1000), GRID)

    assert caught.value.hint == "Near it: 600, 1005 MHz."


@pytest.mark.parametrize(("clock_mhz", "near"), [(1, "210"), (99_999, "1980")])
def test_a_clock_beyond_all_listed_ones_is_refused_with_the_last(clock_mhz: int, near: str) -> None:
    with pytest.raises(NotSupported) as caught:
        one(Rule(uids=frozenset({1001}))).check(ALICE, GPU, sm(clock_mhz), GRID)

    assert caught.value.hint == f"Near it: {near} MHz."


def test_a_power_limit_needs_a_rule_that_allows_power_limits() -> None:
    policy = one(Rule(uids=frozenset({1001}), min_sm_clock_mhz=600))

    with pytest.raises(NotPermitted, match="rule 1 has no min_power_limit_w and no allow_power"):
        policy.check(ALICE, GPU, OperatingPoint(power_limit_w=200.0), GRID)


def test_a_limit_just_beyond_what_the_device_takes_is_not_shown_as_within() -> None:
    always = Rule(uids=frozenset({1001}), is_power_limit_allowed=True)

    with pytest.raises(NotSupported, match=r"a power limit of 99\.99999 W is not one"):
        one(always).check(ALICE, GPU, OperatingPoint(power_limit_w=99.99999), GRID)


@pytest.mark.parametrize("limit_w", [99.9, 350.1, 5000.0, float("nan")])
def test_a_rule_with_wider_power_bounds_than_the_board_widens_nothing(limit_w: float) -> None:
    generous = Rule(
        uids=frozenset({1001}),
        is_power_limit_allowed=True,
        min_power_limit_w=1.0,
        max_power_limit_w=10_000.0,
    )
    point = OperatingPoint(power_limit_w=100.0)
    object.__setattr__(point, "power_limit_w", limit_w)  # past the record's own check

    with pytest.raises((NotSupported, NotPermitted)):
        one(generous).check(ALICE, GPU, point, GRID)


def test_a_device_without_power_limits_or_memory_clocks_takes_none() -> None:
    bare = ClockGrid(sm_clocks_mhz=(600,), mem_clocks_mhz=())
    policy = one(
        Rule(uids=frozenset({1001}), is_memory_lock_allowed=True, is_power_limit_allowed=True)
    )

    with pytest.raises(NotSupported, match="takes no power limit"):
        policy.check(ALICE, GPU, OperatingPoint(power_limit_w=200.0), bare)
    with pytest.raises(NotSupported, match="memory clock 5001 MHz"):
        policy.check(ALICE, GPU, OperatingPoint(mem_clock_mhz=5001), bare)


def test_memory_locks_are_opened_where_any_rule_about_the_gpu_allows_them() -> None:
    policy = Policy(
        rules=(
            Rule(uids=frozenset({1001})),
            Rule(uids=frozenset({os.getuid()}), gpus=("gpu-7777",), is_memory_lock_allowed=True),
        )
    )

    assert policy.may_lock_memory(OTHER_GPU)
    assert not policy.may_lock_memory(GPU)
