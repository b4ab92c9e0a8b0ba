"""The desk while its policy changes or is narrow, and what its log says of leases that end."""

from __future__ import annotations

import json
from dataclasses import replace

from tests.unit.test_daemon_desk import POLICY, UUIDS, Room, in_room

from joulewise.control.daemon.client import Why
from joulewise.control.daemon.messages import (
    Answer,
    Applied,
    Apply,
    Granted,
    Refused,
    Release,
    Released,
    Take,
)


def test_however_slow_the_rate_a_point_can_be_set_and_changed() -> None:
    async def act(room: Room) -> list[Answer]:
        slow = replace(POLICY, settings=replace(POLICY.settings, max_changes_per_s=1.0))
        room.desk.adopt_policy(slow, lambda _grid: None)
        client = room.client()
        said = [await room.desk.answer(client, Take(gpu=UUIDS[0]))]
        apply = Apply(gpu=UUIDS[0], sm_clock_mhz=1200)
        return said + [await room.desk.answer(client, apply) for _ in range(12)]

    said = in_room(act)

    assert isinstance(said[0], Granted)
    assert 9 * [Applied(gpu=UUIDS[0])] == said[1:10]
    assert isinstance(said[-1], Refused)
    assert "max_changes_per_s" in (said[-1].hint or "")


def test_another_policy_holds_from_the_next_question_on_and_leases_go_on() -> None:
    async def act(room: Room) -> tuple[Answer, Answer, Answer]:
        client = room.client()
        await room.desk.answer(client, Take(gpu=UUIDS[0]))
        within = Apply(gpu=UUIDS[0], sm_clock_mhz=1200)
        before = await room.desk.answer(client, within)
        room.desk.adopt_policy(
            replace(POLICY, rules=(replace(POLICY.rules[0], max_sm_clock_mhz=600),)),
            lambda _grid: None,
        )
        after = await room.desk.answer(client, within)
        assert room.keepers[0].client is client
        return before, after, await room.desk.answer(client, Release(gpu=UUIDS[0]))

    before, after, released = in_room(act)

    assert isinstance(before, Applied)
    assert isinstance(after, Refused)
    assert "not_permitted" == after.kind
    assert isinstance(released, Released)


def test_the_log_says_why_a_lease_ended_and_whether_there_was_anything_to_give_back() -> None:
    async def act(room: Room) -> list[dict[str, str]]:
        for point in (None, 1200, 1800):
            client = room.client()
            await room.desk.answer(client, Take(gpu=UUIDS[0]))
            await room.desk.answer(client, Apply(gpu=UUIDS[0], sm_clock_mhz=point))
            await room.desk.leave(client, Why.DISCONNECTED)
        room.log.close()
        return [json.loads(line) for line in room.stream.getvalue().splitlines()]

    ended = [line for line in in_room(act) if line["event"] == "lease ended"]

    assert {"disconnected"} == {line["why"] for line in ended}
    assert ["nothing to give back", "given back", "nothing to give back"] == [
        line["result"] for line in ended
    ]
