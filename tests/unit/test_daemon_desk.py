"""The desk alone, without sockets: whose GPU it is, whatever is asked in whichever order."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from joulewise.control.daemon.absent import AbsentGpu
from joulewise.control.daemon.changes_log import ChangesLog
from joulewise.control.daemon.client import Client, Why
from joulewise.control.daemon.desk import LeaseDesk
from joulewise.control.daemon.keeper import GpuKeeper
from joulewise.control.daemon.messages import (
    Allowed,
    Answer,
    AnyQuestion,
    Applied,
    Apply,
    Beat,
    Ended,
    Granted,
    Hello,
    May,
    Refused,
    Release,
    Released,
    State,
    Status,
    Take,
    Welcome,
)
from joulewise.control.daemon.peer import Peer
from joulewise.control.daemon.policy import DaemonSettings, Policy, Rule
from joulewise.control.guard import NoGuard
from joulewise.control.lease import GpuLease, take_lease
from joulewise.domain.control import ControlledGpu, Holder
from joulewise.domain.errors import DeviceLost
from joulewise.domain.points import OperatingPoint, Touched
from joulewise.domain.ports import Gpu, GpuIdentity
from joulewise.simulator.virtual import open_virtual

R = TypeVar("R")
ALICE = Peer(pid=100, uid=1000, gids=frozenset({1000}), user="alice")
STRANGER = Peer(pid=200, uid=2000, gids=frozenset({2000}), user="mallory")
UUIDS = ("GPU-0000", "GPU-0001")
POLICY = Policy(
    settings=DaemonSettings(max_changes_per_s=1e6, state_dir=Path("/nowhere")),
    rules=(Rule(uids=frozenset({1000}), max_sm_clock_mhz=1500, is_memory_lock_allowed=True),),
)


class NotedGpu:
    """A virtual GPU that notes what is set, and refuses where a test wants it to."""

    def __init__(self, uuid: str) -> None:
        self._gpu: Gpu = open_virtual("virtual:rtx3080ti", ()).gpu
        inner = self._gpu.identity
        self.identity = GpuIdentity(
            spec=inner.spec, name=inner.name, uuid=uuid, is_simulated=True, is_in_process=True
        )
        self.point: OperatingPoint | None = None
        self.is_refusing_reset = False
        self.is_refusing_request = False
        self.energy_counter_period_s = self._gpu.energy_counter_period_s
        self.clock_grid = self._gpu.clock_grid
        self.knob_state = self._gpu.knob_state
        self.sample = self._gpu.sample
        self.now_s = self._gpu.now_s
        self.clocks_mhz = self._gpu.clocks_mhz
        self.wait_for_energy_tick = self._gpu.wait_for_energy_tick
        self.wait = self._gpu.wait

    def request(self, point: OperatingPoint) -> None:
        if self.is_refusing_request:
            raise DeviceLost("it is gone")
        self._gpu.request(point)
        # All left to the driver is as if nobody had asked.
        self.point = None if point.is_auto else point

    def reset(self, touched: Touched | None = None) -> None:
        if self.is_refusing_reset:
            raise DeviceLost(f"{self.identity.uuid} is lost")
        self._gpu.reset(touched)
        self.point = None


class Room:
    """A desk with two GPUs, and what its clients heard."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.gpus = [NotedGpu(uuid) for uuid in UUIDS]
        self.stream = io.StringIO()
        self.log = ChangesLog(self.stream)
        self.heard: list[Answer] = []
        self.keepers = [GpuKeeper(gpu, self.take) for gpu in self.gpus]
        self.desk = LeaseDesk(self.keepers, POLICY, self.log)

    def take(self, gpu: Gpu, holder: Holder) -> GpuLease:
        return take_lease(gpu, state_dir=self.folder, guard=NoGuard(), holder=holder)

    def client(self, peer: Peer = ALICE) -> Client:
        return Client(peer, self.heard.append)


def in_room(act: Callable[[Room], Coroutine[object, object, R]]) -> R:
    """Run this in a fresh room on an event loop of its own."""

    async def run(folder: Path) -> R:
        room = Room(folder)
        try:
            return await act(room)
        finally:
            await room.desk.close()
            room.log.close()

    with TemporaryDirectory() as name:
        return asyncio.run(run(Path(name)))


def test_whether_a_point_would_be_allowed_is_told_without_a_lease() -> None:
    async def act(room: Room) -> list[Answer]:
        within = May(gpu=UUIDS[0], sm_clock_mhz=1200)
        said = [
            await room.desk.answer(room.client(), Hello(version=1, program="a.py")),
            await room.desk.answer(room.client(), within),
            await room.desk.answer(room.client(), May(gpu=UUIDS[0], sm_clock_mhz=1800)),
            await room.desk.answer(room.client(STRANGER), within),
        ]
        assert [None, None] == [keeper.client for keeper in room.keepers]
        assert [None, None] == [gpu.point for gpu in room.gpus]
        return said

    hello, within, beyond, stranger = in_room(act)

    assert isinstance(hello, Welcome)
    assert 2.5 == hello.beat_s
    assert Allowed(gpu=UUIDS[0]) == within
    assert isinstance(beyond, Refused)
    assert "max_sm_clock_mhz = 1500" in beyond.message
    assert isinstance(stranger, Refused)
    assert "not_permitted" == stranger.kind


def test_a_point_that_fails_half_way_is_a_change_in_the_log_however_often() -> None:
    async def act(room: Room) -> list[dict[str, str]]:
        client = room.client()
        await room.desk.answer(client, Take(gpu=UUIDS[0]))
        room.gpus[0].is_refusing_request = True
        for _ in range(30):
            answer = await room.desk.answer(client, Apply(gpu=UUIDS[0], sm_clock_mhz=1200))
            assert isinstance(answer, Refused)
        room.desk.tick()
        room.log.close()
        return [json.loads(line) for line in room.stream.getvalue().splitlines()]

    lines = in_room(act)
    changes = [line for line in lines if line["event"] == "change"]

    assert 30 == len(changes)
    assert "failed, perhaps half way: it is gone" == changes[0]["result"]
    assert not [line for line in lines if line["event"].startswith("refused")]


def test_a_gpu_that_is_silent_at_first_is_shown_so_and_taken_into_care_later() -> None:
    async def act(room: Room) -> None:
        tries: list[bool] = []

        def open_it() -> GpuKeeper:
            tries.append(True)
            if len(tries) < 3:
                raise DeviceLost("it is gone")
            return GpuKeeper(NotedGpu("GPU-0002"), room.take)

        known = ControlledGpu(uuid="GPU-0002", name="A", device="nvml:2", is_simulated=True)
        absent = AbsentGpu(known=known, open=open_it)
        desk = LeaseDesk((), POLICY, room.log, absent=[absent], open_again_s=0.01)
        await desk.open()
        before = await desk.answer(room.client(), Status())
        assert isinstance(before, State)
        assert [("GPU-0002", False)] == [(gpu.gpu, gpu.is_answering) for gpu in before.gpus]
        refused = await desk.answer(room.client(), Take(gpu="GPU-0002"))
        assert isinstance(refused, Refused)
        assert "device_lost" == refused.kind
        while desk.gpus()[0].sample is None:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.005)
        assert 3 == len(tries)
        assert isinstance(await desk.answer(room.client(), Take(gpu="GPU-0002")), Granted)
        await desk.close()

    in_room(act)


def test_nothing_that_a_stranger_asks_reaches_a_gpu() -> None:
    async def act(room: Room) -> list[Answer]:
        client = room.client(STRANGER)
        questions: list[AnyQuestion] = [
            Take(gpu=UUIDS[0]),
            Apply(gpu=UUIDS[0], sm_clock_mhz=1200),
            Release(gpu=UUIDS[0]),
        ]
        said = [await room.desk.answer(client, question) for question in questions]
        assert [None, None] == [gpu.point for gpu in room.gpus]
        assert [None, None] == [keeper.client for keeper in room.keepers]
        return said

    said = in_room(act)

    assert ["not_permitted", "device", "device"] == [
        answer.kind for answer in said if isinstance(answer, Refused)
    ]


def test_a_point_beyond_the_bounds_leaves_the_last_one_as_it_is() -> None:
    async def act(room: Room) -> tuple[Answer, OperatingPoint | None]:
        client = room.client()
        await room.desk.answer(client, Take(gpu=UUIDS[0]))
        await room.desk.answer(client, Apply(gpu=UUIDS[0], sm_clock_mhz=1200))
        refused = await room.desk.answer(client, Apply(gpu=UUIDS[0], sm_clock_mhz=1800))
        return refused, room.gpus[0].point

    refused, point = in_room(act)

    assert isinstance(refused, Refused)
    assert "not_permitted" == refused.kind
    assert "max_sm_clock_mhz = 1500" in refused.message
    assert OperatingPoint(sm_clock_mhz=1200) == point


def test_a_gpu_that_cannot_be_given_back_is_told_to_whoever_releases_and_in_the_state() -> None:
    async def act(room: Room) -> tuple[Answer, Answer, Answer]:
        client = room.client()
        await room.desk.answer(client, Take(gpu=UUIDS[0]))
        await room.desk.answer(client, Apply(gpu=UUIDS[0], sm_clock_mhz=1200))
        room.gpus[0].is_refusing_reset = True
        refused = await room.desk.answer(client, Release(gpu=UUIDS[0]))
        state = await room.desk.answer(client, Status())
        room.gpus[0].is_refusing_reset = False
        # Takes the place on disk of the lock file that is gone, so that the next one is another.
        (room.folder / "other").touch()
        granted = await room.desk.answer(client, Take(gpu=UUIDS[0]))
        assert isinstance(granted, Granted), granted
        assert room.gpus[0].point is None
        return refused, state, granted

    refused, state, granted = in_room(act)

    assert isinstance(refused, Refused)
    assert "device_lost" == refused.kind
    assert isinstance(state, State)
    assert state.gpus[0].left_set is not None
    assert "nvidia-smi" in state.gpus[0].left_set
    assert state.gpus[1].left_set is None
    assert isinstance(granted, Granted)


def test_who_leaves_while_a_gpu_is_being_taken_does_not_get_it() -> None:
    async def act(room: Room) -> None:
        client = room.client()
        taking = asyncio.create_task(room.desk.answer(client, Take(gpu=UUIDS[0])))
        await asyncio.sleep(0)
        await room.desk.leave(client, Why.DISCONNECTED)
        await taking
        other = room.client()
        assert isinstance(await room.desk.answer(other, Take(gpu=UUIDS[0])), Granted)
        assert room.keepers[0].client is other

    in_room(act)


def test_who_is_gone_gets_nothing_more() -> None:
    async def act(room: Room) -> Answer:
        client = room.client()
        await room.desk.leave(client, Why.DISCONNECTED)
        answer = await room.desk.answer(client, Take(gpu=UUIDS[0]))
        assert room.keepers[0].client is None
        return answer

    assert isinstance(in_room(act), Refused)


def test_a_lease_that_the_daemon_ends_is_told_once_the_clocks_are_back() -> None:
    async def act(room: Room) -> list[Answer]:
        client = room.client()
        await room.desk.answer(client, Take(gpu=UUIDS[1]))
        await room.desk.answer(client, Apply(gpu=UUIDS[1], sm_clock_mhz=1200))
        await room.desk.end_leases(client, Why.SILENT)
        assert room.gpus[1].point is None
        return room.heard

    assert [Ended(gpu=UUIDS[1], why=Why.SILENT.text, is_given_back=True)] == in_room(act)


QUESTIONS: st.SearchStrategy[AnyQuestion] = st.one_of(
    st.builds(Take, gpu=st.sampled_from((*UUIDS, "GPU-0002"))),
    st.builds(
        Apply,
        gpu=st.sampled_from(UUIDS),
        sm_clock_mhz=st.sampled_from((None, 1200, 1201, 1500, 1800)),
        mem_clock_mhz=st.sampled_from((None, 5001, 1)),
    ),
    st.builds(Release, gpu=st.sampled_from(UUIDS)),
    st.just(Beat()),
    st.just(Status()),
)
STEPS = st.lists(st.tuples(st.integers(0, 3), st.one_of(QUESTIONS, st.none())), max_size=25)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_a_gpu_is_as_its_one_holder_asked_last_and_free_once_all_have_left(
    steps: list[tuple[int, AnyQuestion | None]],
) -> None:
    async def act(room: Room) -> None:
        clients = [room.client(), room.client(), room.client(), room.client(STRANGER)]
        held: dict[str, tuple[Client, OperatingPoint | None]] = {}
        for number, question in steps:
            client = clients[number]
            if question is None:
                await room.desk.leave(client, Why.DISCONNECTED)
                held = {gpu: one for gpu, one in held.items() if one[0] is not client}
                clients[number] = room.client(client.peer)
            else:
                _note(held, client, question, await room.desk.answer(client, question))
            for gpu, keeper in zip(room.gpus, room.keepers, strict=True):
                holder, point = held.get(keeper.uuid, (None, None))
                assert keeper.client is holder
                assert gpu.point == point
        for client in clients:
            await room.desk.leave(client, Why.DISCONNECTED)
        assert [None, None] == [gpu.point for gpu in room.gpus]
        assert [] == list(room.folder.glob("*.journal.json"))

    in_room(act)


def _note(
    held: dict[str, tuple[Client, OperatingPoint | None]],
    client: Client,
    question: AnyQuestion,
    answer: Answer,
) -> None:
    """What a model of the desk makes of a question and its answer."""
    match question, answer:
        case Take(gpu=gpu), Granted():
            assert gpu not in held
            held[gpu] = (client, None)
        case Apply(gpu=gpu), Applied():
            assert held[gpu][0] is client
            held[gpu] = (client, None if question.point.is_auto else question.point)
        case Release(gpu=gpu), Released():
            assert held.pop(gpu)[0] is client
        case _, Refused():
            assert client.peer is STRANGER or isinstance(question, Take | Apply | Release)
        case _:
            assert isinstance(question, Beat | Status)
