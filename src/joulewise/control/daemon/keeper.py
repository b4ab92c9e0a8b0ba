"""One GPU within the daemon: whose it is, what was asked of it, and what was last seen of it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial

from joulewise.control.daemon.client import Client
from joulewise.control.daemon.drifting import Asked, Drifting
from joulewise.control.daemon.idling import Idling, require_lowerable
from joulewise.control.daemon.others import Others, lasting, left_by, no_others, note_nothing
from joulewise.control.daemon.serial_thread import SerialThread
from joulewise.control.idle import LOWERED_SAMPLE_PERIOD_S, IdleAct, IdlePolicy
from joulewise.control.lease import GpuLease
from joulewise.domain.caveats import Caveat
from joulewise.domain.control import ControlledGpu, Holder
from joulewise.domain.errors import BusyError, DeviceError, JoulewiseError
from joulewise.domain.measurement import GpuSample
from joulewise.domain.points import CLOCK_KNOBS, ClockGrid, KnobState, OperatingPoint, Touched
from joulewise.domain.ports import Gpu

TakeLease = Callable[[Gpu, Holder], GpuLease]
"""Takes the lock of a GPU and undoes what a dead holder left; blocks."""


_GIVING_BACK_PATIENCE_S = 3.0
_READING_PATIENCE_S = 3.0
_RECOVER_AGAIN_S = 5.0


class GpuKeeper:
    """Hands one GPU to one client at a time.

    All methods are called on the event loop. What sets clocks runs in one thread, in order, and
    what reads in another, so that no reading stands in the way of a question.
    """

    def __init__(
        self,
        gpu: Gpu,
        take: TakeLease,
        *,
        others: Callable[[], Others] = no_others,
        idle: IdlePolicy | None = None,
        index: int | None = None,
        reading_patience_s: float = _READING_PATIENCE_S,
    ) -> None:
        """Read what the GPU takes; `others` looks for leases that are not this daemon's.

        Raises NotSupported, DeviceLost.
        """
        self.gpu = gpu
        self.uuid = gpu.identity.uuid
        self.grid: ClockGrid = gpu.clock_grid()
        self.client: Client | None = None
        self.left_set: str | None = None
        self.unguarded: str | None = None
        """Why nobody gives its clocks back at present, should this process be killed."""
        self.note: Callable[[str, str | None], None] = note_nothing
        """Hears, on the event loop, what happens that no client asked for."""
        self._index = index
        self._reading_patience_s = reading_patience_s
        self._take = take
        self._look_for_others = others
        self._others = Others()
        self._left_open: str | None = None
        self._setting = SerialThread(f"sets {self.uuid}")
        self._reading = SerialThread(f"reads {self.uuid}")
        self._giving_back: asyncio.Future[bool] | None = None
        self._holder: Holder | None = None
        self._idle = Idling(idle)
        self._try_again_s = 0.0
        # Of the thread that sets clocks.
        self._lease: GpuLease | None = None
        self._found: KnobState | None = None
        # Clocks that somebody took over: under this lease, and under those before it.
        self._yielded: frozenset[str] = frozenset()
        self._stale: frozenset[str] = frozenset()
        # What is not as asked.
        self._asked: Asked | None = None
        self._drifting = Drifting()
        self._caveats: tuple[Caveat, ...] = ()
        self._sample: GpuSample | None = None

    @property
    def is_lowered_idle(self) -> bool:
        """Whether the idle policy holds the GPU."""
        return self._idle.is_lowered

    def state(self) -> ControlledGpu:
        """What is known of it now; any thread may ask."""
        identity, lease, asked = self.gpu.identity, self._lease, self._asked
        touched = () if lease is None else tuple(sorted(lease.touched.knobs))
        return ControlledGpu(
            uuid=identity.uuid,
            name=identity.name,
            device=identity.spec,
            is_simulated=identity.is_simulated,
            holder=self._holder or self._others.holder,
            asked=None if asked is None else asked[0],
            touched=touched,
            found=self._found,
            sample=self._sample,
            caveats=(*self._caveats, *lasting(identity.caveats)),
            left_set=self.left_set or self._others.left_set,
            left_open=self._left_open,
            is_lowered_idle=self.is_lowered_idle,
            index=self._index,
        )

    async def recover(self) -> JoulewiseError | None:
        """Undo what a dead holder left; returns what was in the way. Raises nothing."""
        try:
            if await self._setting.start(self._recover):
                self.note("given back for a dead holder", None)
            self._see_others(await self._reading.start(self._look_for_others))
        except BusyError as error:
            self.note("held by another", str(error))
            return error
        except JoulewiseError as error:
            self.note("not given back", str(error))
            return error
        return None

    async def take(self, client: Client) -> float | None:
        """Give the GPU to this client; returns the power limit found, in watts.

        Raises:
            BusyError: somebody else has it, here or elsewhere.
            DeviceError: it cannot be had, or the client went away meanwhile.
        """
        if self.client is not None:
            raise BusyError(
                f"{self.gpu.identity.name} is held by {self.holder_text}",
                hint="Wait until it ends, or end it; one process at a time may set clocks.",
            )
        holder = client.holder(os.getpid())
        # From here on it is this client's, so that nobody else waits for it.
        self.client, self._holder = client, holder
        try:
            self._stop_idling()
            await self._settled()
            return await self._setting.start(partial(self._begin, client, holder))
        except BaseException:
            if self.client is client:
                self.client = self._holder = None
            raise

    async def apply(self, point: OperatingPoint) -> None:
        """Ask for a point under the client's lease. Raises what the lease raises."""
        await self._setting.start(partial(self._apply, point))

    def give_back(self) -> asyncio.Future[bool]:
        """End the lease; the future tells whether anything was to be.

        It raises what was in the way of giving the clocks back.
        """
        self.client = self._holder = self._asked = None
        self._caveats, self._others = (), Others()
        self._giving_back = self._setting.start(self._finish)
        return self._giving_back

    async def watch(self, period_s: float) -> None:
        """Look at the GPU now and then, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            began_s = loop.time()
            await self._look()
            period = min(period_s, LOWERED_SAMPLE_PERIOD_S) if self.is_lowered_idle else period_s
            await asyncio.sleep(max(0.0, began_s + period - loop.time()))

    async def close(self) -> None:
        """Give back what is held, and end the threads."""
        self._stop_idling()
        if self._giving_back is not None:
            await asyncio.wait({self._giving_back})
        self._setting.stop()
        self._reading.stop()

    @property
    def holder_text(self) -> str:
        """Who holds it, as refusals name them."""
        holder = self._holder
        return "nobody" if holder is None else holder.text

    async def _settled(self) -> None:
        """Wait until the last lease is given back."""
        giving_back = self._giving_back
        if giving_back is None or giving_back.done():
            return
        await asyncio.wait({giving_back}, timeout=_GIVING_BACK_PATIENCE_S)
        if not giving_back.done():
            raise BusyError(
                f"{self.gpu.identity.name} is still being given back, for its driver does not "
                "answer",
                hint="Try again later; if that goes on, look at the machine.",
            )

    # The idle policy.

    def adopt_idle_policy(self, policy: IdlePolicy | None) -> None:
        """Follow another one, or none, from now on."""
        self._stop_idling()
        self._idle = Idling(policy)

    def _stop_idling(self) -> None:
        act = self._idle.feed(None, now_s=asyncio.get_running_loop().time(), is_leased=True)
        if act is IdleAct.GIVE_BACK:
            if self.client is None:
                self._holder = None
            self._giving_back = self._setting.start(self._finish)
            self._asked = None
            self._giving_back.add_done_callback(self._note_idle_end)

    async def _idle_on(self, sample: GpuSample | None) -> None:
        now_s = asyncio.get_running_loop().time()
        act = self._idle.feed(sample, now_s=now_s, is_leased=self.client is not None)
        if act is IdleAct.GIVE_BACK and self.client is None:
            self.give_back().add_done_callback(self._note_idle_end)
        elif act is IdleAct.LOWER:
            await self._lower_now(now_s)

    async def _lower_now(self, now_s: float) -> None:
        idle = self._idle
        holder = Holder(
            pid=os.getpid(), user="joulewised", command="idle policy", is_idle_policy=True
        )
        point = idle.point
        try:
            await self._setting.start(partial(self._lower, holder, point))
        except JoulewiseError as error:
            is_last = idle.refused(error, now_s)
            if not isinstance(error, BusyError):
                what = "; it is not tried any more" if is_last else ""
                self.note("idle clock not lowered", f"{error}{what}")
        else:
            idle.done()
            self.note("idle clock lowered", point.label)
            if self.client is None and self.is_lowered_idle:
                self._holder = holder

    def _note_idle_end(self, ending: asyncio.Future[bool]) -> None:
        """Said once it is so; what was in the way is in the keeper's state, too."""
        error = None if ending.cancelled() else ending.exception()
        if error is None:
            self.note("idle clock given back", None)
        else:
            self.note("idle clock not given back", str(error))

    # Looking.

    async def _look(self) -> None:
        reading = self._reading.start(self.gpu.sample)
        await asyncio.wait({reading}, timeout=self._reading_patience_s)
        if not reading.done():
            # What was seen last says nothing of a GPU that does not answer, or of what runs there.
            self._sample = None
            await self._idle_on(None)
        try:
            self._sample = await reading
        except JoulewiseError:
            self._sample = None
        if self._sample is not None:
            self._judge(self._sample)
        await self._idle_on(self._sample)
        others = await self._reading.start(self._look_for_others)
        await self._see_guard()
        is_leased = self._lease is not None
        self._see_others(Others(left_open=others.left_open) if is_leased else others)
        if not is_leased:
            await self._recover_again()

    def _judge(self, sample: GpuSample) -> None:
        """See whether the GPU does as asked, and leave alone what somebody else took over."""
        drift = self._drifting.feed(sample, self._asked, self.grid)
        if drift is None:
            return
        self._caveats = drift.caveats
        for caveat in drift.new:
            self.note("drift", f"{caveat.kind.value}: {caveat.seen}")
        lease = self._lease
        if lease is not None:
            # A power limit shows by itself whose it is.
            for knob in drift.taken_over & lease.touched.knobs.intersection(CLOCK_KNOBS):
                yielding = self._setting.start(partial(self._yield, lease, knob))
                yielding.add_done_callback(partial(self._note_yielded, knob))

    def _note_yielded(self, knob: str, yielding: asyncio.Future[bool]) -> None:
        error = None if yielding.cancelled() else yielding.exception()
        if error is not None:
            self.note("not left to whoever set it", f"{knob}: {error}")
        elif not yielding.cancelled() and yielding.result():
            self.note("left to whoever set it", knob)

    async def _see_guard(self) -> None:
        lease = self._lease
        # Not on the event loop: a guard process may just be started.
        trouble = None if lease is None else await self._reading.start(lambda: lease.unguarded)
        if trouble is not None and self.unguarded is None:
            self.note("no guard process", trouble)
        elif trouble is None and self.unguarded is not None:
            self.note("guard process again", None)
        self.unguarded = trouble

    def _see_others(self, others: Others) -> None:
        """Keep in mind what shows of others; what a damaged journal leaves open is said once."""
        if others.left_open is not None and others.left_open != self._left_open:
            self.note("damaged journal", others.left_open)
        self._others, self._left_open = others, others.left_open

    async def _recover_again(self) -> None:
        """Where a dead holder left clocks set and no guard process was there to give them back."""
        others, now_s = self._others, asyncio.get_running_loop().time()
        is_left = self.left_set is not None or (others.is_left and others.holder is None)
        if is_left and self.client is None and now_s >= self._try_again_s:
            self._try_again_s = now_s + _RECOVER_AGAIN_S
            if await self.recover() is None:
                self._try_again_s = 0.0

    # In the thread that sets clocks.

    def _recover(self) -> bool:
        """Whether a dead holder had left something, which is given back now."""
        if self._lease is not None:
            return False
        is_left = self._look_for_others().is_left
        self._begin(None, Holder(pid=os.getpid(), command="joulewised"))
        self._finish()
        return is_left

    def _begin(self, client: Client | None, holder: Holder) -> float | None:
        if client is not None and self.client is not client:
            raise DeviceError("the client went away")
        try:
            self._lease = self._take(self.gpu, holder)
        except DeviceError as error:
            self.left_set = left_by(error)
            raise
        self.left_set, self._others = None, Others()
        try:
            # What was asked under the last lease says nothing of how the GPU is found by this one;
            # a clock that somebody took over is theirs until it is asked for by name.
            self.gpu.reset(Touched(knobs=frozenset({"power_limit_w"})) if self._stale else None)
            self.grid = self.gpu.clock_grid()
            self._found = self.gpu.knob_state()
        except BaseException:
            self._finish()
            raise
        return self._found.power_limit_w

    def _apply(self, point: OperatingPoint) -> None:
        lease = self._lease
        if lease is None:
            raise DeviceError(
                "the lease on this GPU is over", hint="Take a new one before setting clocks."
            )
        named = frozenset(knob for knob in self._stale if getattr(point, knob) is not None)
        if named:
            # Else the GPU's handle would take it for set as it was before it was taken over.
            self.gpu.reset(Touched(knobs=named))
            self._stale -= named
        lease.apply(point)
        self._asked = (point, self.gpu.now_s())

    def _lower(self, holder: Holder, point: OperatingPoint) -> None:
        if self.client is not None:
            raise BusyError("a client has the GPU")
        require_lowerable(self.gpu.identity)
        self._begin(None, holder)
        try:
            self._apply(point)
        except JoulewiseError:
            self._finish()
            raise

    def _yield(self, lease: GpuLease, knob: str) -> bool:
        """Whether the clock is left alone now; not where the lease has ended, or it was before."""
        if self._lease is not lease or knob not in lease.touched.knobs:
            return False
        lease.yield_knob(knob)
        self._yielded |= {knob}
        return True

    def _finish(self) -> bool:
        """End the lease; whether anything was to be given back."""
        lease, self._lease, self._found, self._asked = self._lease, None, None, None
        if lease is None:
            return False
        self._stale, self._yielded = self._stale | self._yielded, frozenset()
        is_touched = bool(lease.touched.knobs)
        try:
            lease.release()
        except Exception as error:
            self.left_set = lease.still_set() or left_by(error)
            raise
        return is_touched
