"""Who holds which GPU: answers the questions of clients, and knows nothing of sockets."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from joulewise.control.daemon.absent import OPEN_AGAIN_S, AbsentGpu, opened
from joulewise.control.daemon.changes_log import ChangesLog, Refusals
from joulewise.control.daemon.client import Client, Why
from joulewise.control.daemon.keeper import GpuKeeper
from joulewise.control.daemon.messages import (
    PROTOCOL_VERSION,
    Alive,
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
    Release,
    Released,
    State,
    Status,
    Take,
    Welcome,
    refusal,
    shown,
    state_of,
    tag_of,
)
from joulewise.control.daemon.policy import Policy
from joulewise.control.daemon.rate import UserRates
from joulewise.control.idle import IdlePolicy
from joulewise.domain.control import ControlledGpu
from joulewise.domain.errors import (
    BusyError,
    DeviceError,
    DeviceLost,
    InputError,
    JoulewiseError,
)
from joulewise.domain.points import ClockGrid

_BEATS_PER_TIMEOUT = 4.0
_RECOVERY_PATIENCE_S = 10.0


# Taking a GPU, setting it and setting it once more is no flood, however slow the rate.
_LEAST_BURST_COUNT = 10.0


class LeaseDesk:
    """Leases GPUs to clients within a policy.

    One desk serves one event loop. A question that is refused sets nothing.
    """

    def __init__(
        self,
        keepers: Sequence[GpuKeeper],
        policy: Policy,
        log: ChangesLog,
        *,
        absent: Sequence[AbsentGpu] = (),
        open_again_s: float = OPEN_AGAIN_S,
    ) -> None:
        """Take these into care, and each that is `absent` once it can be opened."""
        self._keepers: dict[str, GpuKeeper] = {}
        self._absent = tuple(absent)
        self._open_again_s = open_again_s
        self.problems: tuple[str, ...] = ()
        """Sentences on what the daemon cannot do, beside its GPUs."""
        self.policy = policy
        self._log = log
        self._refusals = Refusals(log, self._now_s)
        self._rates = _change_rates(policy)
        self._is_closing = False
        self._watches: list[asyncio.Task[None]] = []
        self._endings: set[asyncio.Task[JoulewiseError | None]] = set()
        self.answer_count: Counter[tuple[str, str]] = Counter()
        self.ended_lease_count: Counter[str] = Counter()
        for keeper in keepers:
            self._adopt(keeper)

    async def open(self) -> None:
        """Undo what dead holders left, and begin to watch the GPUs."""
        keepers = self._keepers.values()
        recoveries = {asyncio.create_task(keeper.recover()) for keeper in keepers}
        # One whose driver hangs is tried on, and the others are served.
        if recoveries:
            await asyncio.wait(recoveries, timeout=_RECOVERY_PATIENCE_S)
        self._endings |= recoveries
        period_s = self.policy.settings.sample_period_s
        self._watches = [asyncio.create_task(self._watch(one, period_s)) for one in keepers]
        self._watches += [asyncio.create_task(self._await_absent(one)) for one in self._absent]

    def left_set(self) -> tuple[str, ...]:
        """Sentences on clocks that could not be given back."""
        return tuple(one.left_set for one in self._keepers.values() if one.left_set is not None)

    def _unguarded(self) -> Iterator[str]:
        for keeper in self._keepers.values():
            if keeper.unguarded is not None:
                yield (
                    f"nothing gives back the clocks of {keeper.uuid} should joulewised be killed: "
                    f"{keeper.unguarded}"
                )

    def adopt_policy(self, policy: Policy, idle: Callable[[ClockGrid], IdlePolicy | None]) -> None:
        """Judge by another policy from now on; leases go on, and `idle` is anew for each GPU."""
        policies = [(keeper, idle(keeper.grid)) for keeper in self._keepers.values()]
        self.policy, self._rates = policy, _change_rates(policy)
        for keeper, idle_policy in policies:
            keeper.adopt_idle_policy(idle_policy)

    def gpus(self) -> tuple[ControlledGpu, ...]:
        """Every GPU as it is known now, in their order; any thread may ask."""
        known = [keeper.state() for keeper in self._keepers.values()]
        known += [one.known for one in self._absent if one.known.uuid not in self._keepers]
        return tuple(sorted(known, key=lambda gpu: -1 if gpu.index is None else gpu.index))

    async def answer(self, client: Client, question: AnyQuestion) -> Answer:
        """Do what a client asks, or say why not; raises nothing that a client can bring about."""
        try:
            answer = await self._do(client, question)
        except JoulewiseError as error:
            answer = refusal(error)
            asked = tag_of(question)
            if isinstance(question, Apply | May):
                asked = question.point.label
            gpu = getattr(question, "gpu", None)
            self._refusals.note(client, gpu=gpu, asked=asked, result=str(error))
        except Exception as error:  # noqa: BLE001 - one client's trouble is no other's
            self._log.write("fault", client=client, result=f"{type(error).__name__}: {error}")
            answer = refusal(DeviceError("joulewised failed where it should not; see its log"))
        self.answer_count[tag_of(question), tag_of(answer)] += 1
        return answer

    def note_broken(self, client: Client, error: InputError) -> None:
        """A client sent what is no question."""
        self._refusals.note(client, gpu=None, asked="unknown", result=str(error))
        self.answer_count["unknown", "refused"] += 1

    async def leave(self, client: Client, why: Why) -> None:
        """The client is gone: take nothing more for it, and give back what it held.

        The clocks are on their way back when this first waits, and back when it returns.
        """
        client.is_gone = True
        await self.end_leases(client, why)

    def is_holding(self, client: Client) -> bool:
        """Whether a client holds a GPU, or is about to."""
        return any(keeper.client is client for keeper in self._keepers.values())

    async def end_leases(self, client: Client, why: Why, *, kept: str | None = None) -> None:
        """End the leases of a client but that on `kept`; tell it once the clocks are given back."""
        held = [keeper for keeper in self._held_by(client) if keeper.uuid != kept]
        endings = [self._end(client, keeper, why) for keeper in held]
        if endings:
            await asyncio.wait(endings)

    async def close(self) -> None:
        """Give every GPU back."""
        self._is_closing = True
        for task in self._watches:
            task.cancel()
        for keeper in self._keepers.values():
            if keeper.client is not None:
                self._end(keeper.client, keeper, Why.STOPPING)
        if self._endings:
            await asyncio.wait(self._endings)
        await asyncio.gather(*(keeper.close() for keeper in self._keepers.values()))

    def tick(self) -> None:
        """Call this now and then."""
        self._refusals.sum_up()

    async def _do(self, client: Client, question: AnyQuestion) -> Answer:
        match question:
            case Apply():
                return await self._apply(client, question)
            case Take():
                return await self._take(client, question)
            case Release():
                return await self._release(client, question)
            case Hello():
                return self._hello(client, question)
            case _:
                return self._told(client, question)

    def _told(self, client: Client, question: Beat | Status | May) -> Answer:
        """What sets nothing and needs no lease."""
        match question:
            case Beat():
                return Alive()
            case Status():
                gpus = tuple(map(state_of, self.gpus()))
                return State(
                    pid=os.getpid(), gpus=gpus, problems=(*self.problems, *self._unguarded())
                )
            case May(gpu=gpu, point=point):
                self.policy.check(client.peer, gpu, point, self._keeper(gpu).grid)
                return Allowed(gpu=gpu)

    def _hello(self, client: Client, question: Hello) -> Welcome:
        if question.version != PROTOCOL_VERSION:
            raise InputError(
                f"joulewised speaks version {PROTOCOL_VERSION} of its protocol, not "
                f"{question.version}",
                hint="Use the same version of joulewise and joulewised.",
            )
        client.program = None if question.program is None else shown(question.program)
        return Welcome(
            version=PROTOCOL_VERSION,
            pid=os.getpid(),
            beat_s=self.policy.settings.heartbeat_timeout_s / _BEATS_PER_TIMEOUT,
        )

    async def _take(self, client: Client, question: Take) -> Granted:
        self._count_change(client)
        if client.is_gone:
            raise DeviceError("the client went away")
        if self._is_closing:
            raise BusyError("joulewised is stopping", hint="Try again once it runs again.")
        uuid = question.gpu
        keeper = self._keeper(uuid)
        self.policy.require_lease(client.peer, uuid)
        if keeper.client is client:
            raise InputError("this connection holds the lease on this GPU already")
        found_w = await keeper.take(client)
        client.held.add(uuid)
        client.over.pop(uuid, None)
        self._log.write("lease taken", client=client, gpu=uuid)
        return Granted(gpu=uuid, found_limit_w=found_w)

    async def _apply(self, client: Client, question: Apply) -> Answer:
        self._count_change(client)
        keeper, point = self._keeper_of(client, question.gpu), question.point
        self.policy.check(client.peer, question.gpu, point, keeper.grid)
        answer: Answer = Applied(gpu=question.gpu)
        result = "set"
        try:
            await keeper.apply(point)
        except DeviceError as error:
            # Of several knobs some may be set by now: never summed up with what set nothing.
            answer, result = refusal(error), f"failed, perhaps half way: {error}"
        self._log.write("change", client=client, gpu=question.gpu, asked=point.label, result=result)
        return answer

    async def _release(self, client: Client, question: Release) -> Released:
        # Not counted: nobody is kept from giving something back.
        keeper = self._keeper_of(client, question.gpu)
        problem = await self._end(client, keeper, Why.RELEASED)
        if problem is not None:
            raise problem
        return Released(gpu=question.gpu)

    def _count_change(self, client: Client) -> None:
        if not self._rates.take(client.peer.uid, self._now_s()):
            raise BusyError(
                f"{client.peer.title} asks for more than "
                f"{self.policy.settings.max_changes_per_s:g} changes per second",
                hint="Ask less often, or have max_changes_per_s raised in the policy file.",
            )

    def _keeper(self, uuid: str) -> GpuKeeper:
        keeper = self._keepers.get(uuid)
        if keeper is None:
            if any(one.known.uuid == uuid for one in self._absent):
                raise DeviceLost(
                    f"{uuid} does not answer joulewised",
                    hint=f"joulewised tries it every {self._open_again_s:g} s; see its log.",
                )
            raise InputError(
                f"joulewised has no GPU {uuid}",
                hint=f"It has {', '.join(self._keepers)}.",
            )
        return keeper

    def _keeper_of(self, client: Client, uuid: str) -> GpuKeeper:
        keeper = self._keepers.get(uuid)
        if keeper is not None and keeper.client is client:
            return keeper
        self._keeper(uuid)
        why = client.over.get(uuid)
        because = "" if why is None else f": {why.text}"
        raise DeviceError(
            f"this connection holds no lease on this GPU{because}",
            hint="Take a new one before setting clocks.",
        )

    def _held_by(self, client: Client) -> list[GpuKeeper]:
        return [keeper for keeper in self._keepers.values() if keeper.client is client]

    def _end(
        self, client: Client, keeper: GpuKeeper, why: Why
    ) -> asyncio.Task[JoulewiseError | None]:
        """End a lease now; what may be awaited tells of giving the clocks back."""
        client.held.discard(keeper.uuid)
        if why is not Why.RELEASED:
            client.over[keeper.uuid] = why
        self.ended_lease_count[why.value] += 1
        ending = asyncio.create_task(self._tell_end(client, keeper.uuid, why, keeper.give_back()))
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)
        return ending

    async def _tell_end(
        self, client: Client, uuid: str, why: Why, given_back: asyncio.Future[bool]
    ) -> JoulewiseError | None:
        problem: JoulewiseError | None = None
        result = "given back"
        try:
            if not await given_back:
                result = "nothing to give back"
        except JoulewiseError as error:
            problem = error
        except Exception as error:  # noqa: BLE001 - whatever it is, it has to be told
            problem = DeviceError(f"joulewised failed to ({type(error).__name__}: {error})")
        if problem is not None:
            result = f"not given back: {problem}"
        self._log.write("lease ended", client=client, gpu=uuid, why=why.value, result=result)
        if why is not Why.RELEASED:
            said = why.text if problem is None else f"{why.text}; {result}"
            client.tell(Ended(gpu=uuid, why=said, is_given_back=problem is None))
        return problem

    def _note(self, gpu: str, event: str, what: str | None) -> None:
        self._log.write(event, gpu=gpu, result=what)

    def _adopt(self, keeper: GpuKeeper) -> None:
        keeper.note = partial(self._note, keeper.uuid)
        # Another one, for other threads may be going through it.
        self._keepers = {**self._keepers, keeper.uuid: keeper}

    async def _await_absent(self, absent: AbsentGpu) -> None:
        """Take a GPU into care once it can be opened, and watch it from then on."""
        fault = partial(self._note, absent.known.uuid, "fault")
        keeper = await opened(absent, again_s=self._open_again_s, fault=fault)
        self._adopt(keeper)
        self._absent = tuple(one for one in self._absent if one is not absent)
        self._note(keeper.uuid, "gpu answers", None)
        await keeper.recover()
        await self._watch(keeper, self.policy.settings.sample_period_s)

    async def _watch(self, keeper: GpuKeeper, period_s: float) -> None:
        """Watch a GPU for ever, whatever happens to one look at it."""
        while True:
            try:
                await keeper.watch(period_s)
            except Exception as error:  # noqa: BLE001 - leases go on where watching fails
                self._log.write("fault", gpu=keeper.uuid, result=f"{type(error).__name__}: {error}")
                await asyncio.sleep(period_s)

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()


def _change_rates(policy: Policy) -> UserRates:
    return UserRates(policy.settings.max_changes_per_s, least_burst_count=_LEAST_BURST_COUNT)
