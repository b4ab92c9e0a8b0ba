"""One GPU in the daemon's care: idle clocks, hanging readings, and what is told of both."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.unit.test_daemon_desk import NotedGpu

from joulewise.control.daemon.client import Client
from joulewise.control.daemon.keeper import GpuKeeper
from joulewise.control.daemon.messages import Answer
from joulewise.control.daemon.others import Others
from joulewise.control.daemon.peer import Peer
from joulewise.control.guard import NoGuard
from joulewise.control.idle import IdlePolicy
from joulewise.control.lease import GpuLease, take_lease
from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.control import Holder
from joulewise.domain.measurement import EventReason, GpuSample
from joulewise.domain.points import OperatingPoint
from joulewise.domain.ports import Gpu

LEAST_MHZ = 210
PATIENCE_S = 10.0


class IdleGpu(NotedGpu):
    """One that does nothing, and whose readings hang where a test wants it."""

    def __init__(self, *caveats: Caveat) -> None:
        super().__init__("GPU-0000")
        self.identity = replace(self.identity, caveats=caveats)
        self.answering = threading.Event()
        self.answering.set()
        self.request_count = 0
        self._read = self._gpu.sample
        self.sample = self._idle_sample

    def _idle_sample(self) -> GpuSample:
        self.answering.wait(PATIENCE_S)
        reasons = frozenset({EventReason.GPU_IDLE})
        return replace(self._read(), event_reasons=reasons, activity=None)

    def request(self, point: OperatingPoint) -> None:
        self.request_count += 1
        super().request(point)


class TroubledGuard(NoGuard):
    """Watches, or does not."""

    why: str | None = None

    @property
    def trouble(self) -> str | None:
        return self.why


class Care:
    """A keeper that is watching, and what it noted."""

    def __init__(self, gpu: IdleGpu, folder: Path) -> None:
        self.gpu = gpu
        self.folder = folder
        self.others = Others()
        self.guard = TroubledGuard()
        self.noted: list[tuple[str, str | None]] = []
        self.keeper = GpuKeeper(
            gpu,
            self._take,
            others=lambda: self.others,
            idle=IdlePolicy(after_s=0.0, grid=gpu.clock_grid()),
            reading_patience_s=0.05,
        )
        self.keeper.note = lambda event, what: self.noted.append((event, what))

    def events(self) -> list[str]:
        return [event for event, _ in self.noted]

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.002)

    def _take(self, gpu: Gpu, holder: Holder) -> GpuLease:
        return take_lease(gpu, state_dir=self.folder, guard=self.guard, holder=holder)


def in_care(gpu: IdleGpu, act: Callable[[Care], Awaitable[None]]) -> list[tuple[str, str | None]]:
    """Do this while a keeper watches the GPU; returns what the keeper noted."""

    async def run(folder: Path) -> Care:
        care = Care(gpu, folder)
        watching = asyncio.create_task(care.keeper.watch(0.01))
        try:
            await act(care)
        finally:
            gpu.answering.set()
            watching.cancel()
            await care.keeper.close()
        return care

    with TemporaryDirectory() as name:
        return asyncio.run(run(Path(name))).noted


def is_lowered(care: Care) -> bool:
    return care.gpu.point == OperatingPoint(sm_clock_mhz=LEAST_MHZ)


def tell_nobody(_answer: Answer) -> None:
    """Where nothing is to be heard."""


def test_a_gpu_whose_reading_hangs_is_not_kept_lowered() -> None:
    async def act(care: Care) -> None:
        await care.until(lambda: is_lowered(care))
        care.gpu.answering.clear()
        await care.until(lambda: care.gpu.point is None)
        assert care.keeper.state().sample is None
        assert "idle clock given back" not in care.events()
        # The lease looks whether the GPU answers before it says so.
        care.gpu.answering.set()
        await care.until(lambda: "idle clock given back" in care.events())

    in_care(IdleGpu(), act)


def test_an_idle_clock_is_said_to_be_given_back_only_where_it_is() -> None:
    async def act(care: Care) -> None:
        await care.until(lambda: is_lowered(care))
        care.gpu.is_refusing_reset = True
        care.gpu.answering.clear()
        await care.until(lambda: "idle clock not given back" in care.events())
        assert "idle clock given back" not in care.events()
        assert care.keeper.left_set is not None
        care.gpu.is_refusing_reset = False

    noted = in_care(IdleGpu(), act)

    assert ("idle clock not given back", "GPU-0000 is lost") in noted


def test_a_client_that_takes_a_lowered_gpu_has_it_said_once_it_is_given_back() -> None:
    async def act(care: Care) -> None:
        await care.until(lambda: is_lowered(care))
        peer = Peer(pid=1, uid=1, gids=frozenset())
        await care.keeper.take(Client(peer, tell_nobody))
        assert care.gpu.point is None
        assert 1 == care.events().count("idle clock given back")
        await care.keeper.give_back()

    in_care(IdleGpu(), act)


def test_a_gpu_that_refuses_the_idle_clock_is_tried_a_few_times_and_no_more() -> None:
    gpu = IdleGpu()
    gpu.is_refusing_request = True

    async def act(care: Care) -> None:
        await care.until(lambda: care.events().count("idle clock not lowered") == 3)
        await asyncio.sleep(0.1)

    noted = in_care(gpu, act)

    assert 3 == gpu.request_count
    assert ("idle clock not lowered", "it is gone; it is not tried any more") == noted[-1]


def test_a_gpu_with_mig_on_is_asked_for_no_idle_clock_at_all() -> None:
    gpu = IdleGpu(Caveat(kind=CaveatKind.GPU_PARTITIONED, seen="MIG is on"))

    async def act(care: Care) -> None:
        await care.until(lambda: "idle clock not lowered" in care.events())

    in_care(gpu, act)

    assert 0 == gpu.request_count


def test_what_a_damaged_journal_leaves_open_is_noted_once_and_stays_in_the_state() -> None:
    async def act(care: Care) -> None:
        care.others = Others(left_open="a power limit may still be lowered")
        await care.until(lambda: care.keeper.state().left_open is not None)
        await asyncio.sleep(0.05)
        assert care.keeper.state().left_set is None
        care.others = Others()
        await care.until(lambda: care.keeper.state().left_open is None)

    noted = in_care(IdleGpu(), act)

    assert [("damaged journal", "a power limit may still be lowered")] == [
        one for one in noted if one[0] == "damaged journal"
    ]


def test_a_lowered_gpu_is_given_back_where_the_idle_policy_is_switched_off() -> None:
    async def act(care: Care) -> None:
        await care.until(lambda: is_lowered(care))
        care.keeper.adopt_idle_policy(None)
        await care.until(lambda: care.gpu.point is None)
        await asyncio.sleep(0.05)
        assert care.gpu.point is None
        assert care.keeper.state().holder is None
        care.keeper.adopt_idle_policy(IdlePolicy(after_s=0.0, grid=care.gpu.clock_grid()))
        await care.until(lambda: is_lowered(care))

    in_care(IdleGpu(), act)


def test_that_nobody_would_give_the_clocks_back_is_noted_once_and_so_is_its_end() -> None:
    async def act(care: Care) -> None:
        await care.until(lambda: "idle clock lowered" in care.events())
        care.guard.why = "no guard process can be started: too many open files"
        await care.until(lambda: care.keeper.unguarded is not None)
        await asyncio.sleep(0.05)
        care.guard.why = None
        await care.until(lambda: care.keeper.unguarded is None)

    gpu = IdleGpu()
    # One that is in this process alone needs no guard.
    gpu.identity = replace(gpu.identity, is_in_process=False)
    noted = [one for one in in_care(gpu, act) if "guard" in one[0]]

    assert [
        ("no guard process", "no guard process can be started: too many open files"),
        ("guard process again", None),
    ] == noted


def test_doubts_of_the_device_that_last_are_among_those_of_its_state() -> None:
    lasting = Caveat(kind=CaveatKind.PERSISTENCE_OFF, seen="persistence mode is off")
    passing = Caveat(kind=CaveatKind.FOREIGN_CONTROL, seen="a power limit of 300 W is in force")

    async def act(care: Care) -> None:
        assert (lasting,) == care.keeper.state().caveats

    in_care(IdleGpu(lasting, passing), act)


def test_what_the_guard_of_another_holder_gives_back_counts_as_left_set_until_it_has() -> None:
    async def act(care: Care) -> None:
        care.others = Others(left_set="Being given back by the guard of process 7.")
        await care.until(lambda: care.keeper.state().left_set is not None)
        care.others = Others()
        await care.until(lambda: care.keeper.state().left_set is None)

    # One that is not lowered meanwhile.
    in_care(IdleGpu(Caveat(kind=CaveatKind.GPU_PARTITIONED, seen="MIG is on")), act)
