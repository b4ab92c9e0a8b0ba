"""Running a training program under the live governor: advise, probe, verify, give back."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from joulewise.control.holder import this_process
from joulewise.control.lease import GpuLease
from joulewise.domain.caveats import Caveat, CaveatKind, first_of_each_kind
from joulewise.domain.clock_judgement import CAUSES
from joulewise.domain.errors import JoulewiseError, MeasurementError
from joulewise.domain.finetuning import ClockChoice, ClockCost
from joulewise.domain.ports import Gpu, Lease
from joulewise.finetune.live import LiveGovernor, Outcome, PairedSaving
from joulewise.finetune.live_schedule import Purpose, StepsTaken
from joulewise.finetune.step_marks import STEPS_VARIABLE, StepTail
from joulewise.measure.held_down import held_down
from joulewise.measure.readings import held_under_load_mhz
from joulewise.workflow.baseline_state import baseline_doubts
from joulewise.workflow.command import Command
from joulewise.workflow.daemon_lease import DaemonLease
from joulewise.workflow.finetune_blocks import BlockSteering, MarkSource
from joulewise.workflow.finetune_telling import PhaseTeller
from joulewise.workflow.leasing import lease_on
from joulewise.workflow.point_watch import Notice


@dataclass(frozen=True, slots=True, kw_only=True)
class Steered:
    """What the governor did to a job, and what that is known to save.

    `saving` is what pairs of blocks say, whatever became of the choice; only where `outcome` says
    so is it a saving of the job. `energy_j` is the module's over all training steps, and
    `uncertainty_j` how far it may lie off; `None` where readings do not reach over them.
    """

    advice: ClockChoice
    choice: ClockChoice
    outcome: Outcome
    probed: tuple[ClockCost, ...]
    pairs: tuple[tuple[ClockCost, ClockCost], ...]
    saving: PairedSaving | None
    step_count: int
    step_counts: Mapping[Purpose, int]
    steps_time_s: float
    energy_j: float | None
    uncertainty_j: float | None
    sm_clock_held_mhz: float | None
    caveats: tuple[Caveat, ...]

    @property
    def shown(self) -> PairedSaving | None:
        """The saving, where it is one of the job; `None` where nothing is claimed."""
        return self.saving if self.outcome is Outcome.SAVES else None

    @property
    def learning_count(self) -> int:
        """Steps that were taken at another clock than chosen, or right after a change of it."""
        return sum(self.step_counts.get(one, 0) for one in _LEARNING)


_LEARNING = (Purpose.PROBE, Purpose.VERIFY, Purpose.CHECK)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinetuneRun:
    """A training program under the governor: its exit code, its time, and what came of it.

    `trouble` is what went wrong once it had started: it ran to its end all the same.
    `is_given_back` is `None` where nothing tells: joulewised went away with the lease.
    """

    code: int
    time_s: float
    device: str
    device_name: str
    is_simulated: bool
    steered: Steered
    is_given_back: bool | None
    trouble: JoulewiseError | None = None

    @property
    def caveats(self) -> tuple[Caveat, ...]:
        """Of everything."""
        return self.steered.caveats


class LiveSteering:
    """A governor and what carries out its blocks on one GPU; also for programs in virtual time."""

    def __init__(
        self,
        gpu: Gpu,
        lease: Lease,
        governor: LiveGovernor,
        marks: MarkSource,
        notice: Notice,
    ) -> None:
        """Nothing is read or set yet."""
        self._gpu = gpu
        self._governor = governor
        self._marks = marks
        self.blocks = BlockSteering(gpu, lease, governor.scheduler, marks, notice)
        self._doubts: tuple[Caveat, ...] = ()
        self._teller = PhaseTeller(governor, notice)

    def begin(self) -> None:
        """See how the board was found, and set the advised clock. Raises as setting does."""
        self._doubts = baseline_doubts(self._gpu)
        self.blocks.begin()

    def look(self) -> None:
        """Once; for who drives time by himself."""
        self.blocks.look()
        self._hear_of_length()

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Now and then, on a thread of its own."""
        with self.blocks.looking(self._hear_of_length):
            yield

    def _hear_of_length(self) -> None:
        if self._governor.step_count is None:
            self._governor.step_count = self._marks.planned_count
        if not self.blocks.is_hands_off:
            self._teller.look()

    def steered(self) -> Steered:
        """What came of it, once the program has ended."""
        governor, blocks = self._governor, self.blocks
        governor.finish(is_given_up=blocks.is_hands_off)
        taken = governor.scheduler.taken
        energy_j, uncertainty_j = _energy(taken, blocks)
        outcome = governor.outcome
        if self._marks.is_ambiguous:
            # Half of the time may have passed for pauses: nothing is claimed of it.
            energy_j = uncertainty_j = None
            outcome = Outcome.UNFINISHED if outcome is Outcome.SAVES else outcome
        samples = blocks.samples
        return Steered(
            advice=governor.advice,
            choice=governor.choice,
            outcome=outcome,
            probed=governor.probed,
            pairs=governor.pairs,
            saving=governor.saving,
            step_count=taken.all_steps.step_count,
            step_counts=dict(taken.step_counts),
            steps_time_s=taken.all_steps.duration_s,
            energy_j=energy_j,
            uncertainty_j=uncertainty_j,
            sm_clock_held_mhz=held_under_load_mhz(samples),
            caveats=first_of_each_kind(
                *_doubts_of_claim(governor),
                *_doubts_of_marks(governor, self._marks),
                *self._doubts,
                *blocks.caveats,
                *_doubts_of_costs(governor),
                *over_current(blocks),
                *governor.choice.caveats,
                *(held_down(samples, *CAUSES) if samples else ()),
                *self._gpu.identity.caveats,
            ),
        )


def finetune_while(
    gpu: Gpu, governor: LiveGovernor, command: Command, notice: Notice
) -> FinetuneRun:
    """Steer the clock of this GPU while a training program runs, and give it back.

    Raises:
        BusyError, NotPermitted, DeviceError, InputError: before the command has started; nothing
            is left set.
    """
    code, trouble, time_s = 0, None, 0.0
    steering: LiveSteering | None = None
    held: Lease | None = None
    holder = replace(this_process(), command=command.name)
    with TemporaryDirectory(prefix="joulewise-steps-", ignore_cleanup_errors=True) as folder:
        file = Path(folder) / "steps.jsonl"
        try:
            with command.signals(), lease_on(gpu, holder) as held:
                steering = LiveSteering(gpu, held, governor, StepTail(file), notice)
                steering.begin()
                with steering.looking(), variables({STEPS_VARIABLE: str(file)}):
                    start_s = time.monotonic()
                    code = command.run()
                    time_s = time.monotonic() - start_s
        except JoulewiseError as error:
            if not command.has_run or steering is None:
                raise
            trouble = error
    identity = gpu.identity
    return FinetuneRun(
        code=code,
        time_s=time_s,
        device=identity.spec,
        device_name=identity.name,
        is_simulated=identity.is_simulated,
        steered=steering.steered(),
        is_given_back=trouble is None or given_back(held),
        trouble=trouble or steering.blocks.trouble,
    )


@contextmanager
def variables(added: Mapping[str, str]) -> Iterator[None]:
    """Environment variables that programs get which start inside the block."""
    found = {name: os.environ.get(name) for name in added}
    os.environ.update(added)
    try:
        yield
    finally:
        for name, value in found.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def given_back(lease: Lease | None) -> bool | None:
    """Whether a lease that ended in trouble left nothing set; `None`: joulewised knows."""
    if isinstance(lease, GpuLease):
        return lease.still_set() is None
    ended = lease.ended() if isinstance(lease, DaemonLease) else None
    return None if ended is None else ended.is_given_back


def _energy(taken: StepsTaken, blocks: BlockSteering) -> tuple[float | None, float | None]:
    """Of all training steps, and how far it may lie off."""
    if not taken.all_steps.step_count or taken.unmeasured_count:
        return None, None
    try:
        uncertainty_j = blocks.log.of_spans(taken.all_steps.spans).uncertainty_j
    except MeasurementError:
        uncertainty_j = None
    return taken.energy_j, uncertainty_j


def _doubts_of_claim(governor: LiveGovernor) -> Iterator[Caveat]:
    """What keeps a saving from being claimed, or a budget from being kept for sure."""
    saving, budget = governor.saving, governor.settings.max_slowdown_ratio
    if governor.outcome in {Outcome.ADVICE, Outcome.UNFINISHED}:
        yield Caveat(
            kind=CaveatKind.NOT_VERIFIED,
            seen="training ended, or was too short, before pairs of blocks could tell what the "
            f"clock saves{_time_needed(governor)}",
            advice="Run more steps; the clock can be checked in a longer run once and for all.",
        )
    is_kept = governor.outcome is Outcome.SAVES
    if is_kept and saving is not None and budget is not None:
        highest = saving.time_interval.high_ratio
        if highest > 1.0 + budget:
            yield Caveat(
                kind=CaveatKind.PROMISE_NOT_SHOWN,
                seen=f"time may be up to {highest - 1:+.2%}, beyond the budget of {budget:+.2%}",
                advice="Verify with more pairs: --verify-pairs.",
            )


def _time_needed(governor: LiveGovernor) -> str:
    """How long training would have to be; nothing where it was long enough."""
    had_s, needed_s = governor.scheduler.taken.all_steps.duration_s, governor.needed_s
    if needed_s is None or needed_s <= had_s:
        return ""
    return f": that needs about {needed_s:.2g} s of steps, and there were {had_s:.2g} s"


def _doubts_of_marks(governor: LiveGovernor, marks: MarkSource) -> Iterator[Caveat]:
    if not governor.scheduler.has_steps:
        seen = marks.doubt or "the command never marked the end of a training step"
        yield Caveat(kind=CaveatKind.STEPS_UNMARKED, seen=seen)
    elif marks.doubt is not None:
        yield Caveat(kind=CaveatKind.STEPS_UNMARKED, seen=f"{marks.doubt}; that was passed over")


def _doubts_of_costs(governor: LiveGovernor) -> Iterator[Caveat]:
    """MemoryClockMoved where blocks that are compared ran at several memory clocks."""
    costs = [*governor.probed, *(cost for pair in governor.pairs for cost in pair)]
    yield from memory_clock_moved(costs)


def memory_clock_moved(costs: Sequence[ClockCost]) -> Iterator[Caveat]:
    """MemoryClockMoved where costs that are compared were taken at several memory clocks."""
    clocks_mhz = sorted({one.mem_clock_mhz for one in costs if one.mem_clock_mhz is not None})
    if len(clocks_mhz) > 1:
        listed = ", ".join(f"{clock} MHz" for clock in clocks_mhz)
        seen = f"blocks of steps that are compared ran at memory clocks of {listed}"
        yield Caveat(kind=CaveatKind.MEMORY_CLOCK_MOVED, seen=seen)


def over_current(blocks: BlockSteering) -> Iterator[Caveat]:
    """OverCurrent where a supply drew more than it may while steps were measured."""
    count = blocks.log.over_current_count
    if count:
        seen = f"a supply drew more than it may {count} time(s) meanwhile"
        yield Caveat(kind=CaveatKind.OVER_CURRENT, seen=seen)
