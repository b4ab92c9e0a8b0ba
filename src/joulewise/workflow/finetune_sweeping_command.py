"""`finetune sweep -- COMMAND`: the U-curve of a training program of the user's.

By default one run tells it: clocks take turns in blocks of training steps. With whole runs each
clock gets a run of its own, for programs whose steps differ too much among each other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from joulewise.control.holder import this_process
from joulewise.domain.board_state import BoardState
from joulewise.domain.caveats import Caveat, CaveatKind, first_of_each_kind
from joulewise.domain.errors import DeviceError, MeasurementError
from joulewise.domain.finetuning import ClockCost, ClockCurve
from joulewise.domain.ports import Gpu, Lease, Progress, no_progress
from joulewise.finetune.learning_cost import BLOCK_STEP_COUNT, LiveSettings, block_steps
from joulewise.finetune.live_schedule import StepScheduler
from joulewise.finetune.live_sweep import (
    Rounds,
    costs_of_rounds,
    sweep_schedule,
    whole_run_schedule,
)
from joulewise.finetune.step_marks import (
    LIMIT_VARIABLE,
    STEPS_VARIABLE,
    STOP_VARIABLE,
    StepTail,
)
from joulewise.measure.order import shuffled
from joulewise.workflow.baseline_state import baseline_doubts
from joulewise.workflow.command import Command
from joulewise.workflow.devices import chosen_clocks
from joulewise.workflow.finetune_blocks import BlockSteering
from joulewise.workflow.finetune_running import memory_clock_moved, over_current, variables
from joulewise.workflow.governed_state import governed_state
from joulewise.workflow.leasing import lease_on
from joulewise.workflow.point_watch import Notice

DEFAULT_ROUND_COUNT = 3
"""So many blocks tell a scatter (assumed)."""
DEFAULT_RUN_STEP_COUNT = 100
"""Training steps of each of several whole runs."""
_WHAT = "sweeping the command"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSweepSettings:
    """How a command is swept.

    `sm_clocks_mhz` are the clocks to pin, `None` for all that the device lists. One run, in which
    clocks take turns for `round_count` rounds of blocks of `block_step_count` steps; or, with
    `is_whole_runs`, one run of `run_step_count` steps per clock.
    """

    sm_clocks_mhz: tuple[int, ...] | None = None
    round_count: int = DEFAULT_ROUND_COUNT
    block_step_count: int = BLOCK_STEP_COUNT
    is_whole_runs: bool = False
    run_step_count: int = DEFAULT_RUN_STEP_COUNT
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSweep:
    """The curve of a command, and how its last run ended."""

    curve: ClockCurve
    code: int
    time_s: float


def sweep_command(
    gpu: Gpu,
    command: Command,
    settings: CommandSweepSettings,
    *,
    notice: Notice,
    progress: Progress = no_progress,
) -> CommandSweep:
    """Measure the training steps of a command at each clock and under the governor.

    The command has to mark its steps (`integrations/step_marks.py`). It is asked to end once all
    rounds are measured; one that goes on does so under the governor. `gpu` comes from
    `open_hardware`. The clock is given back whatever comes.

    Raises:
        InputError: a clock that the device does not list.
        MeasurementError: no steps were marked, or training ended before every clock had its turn;
            or one of several runs failed.
        BusyError, NotPermitted, DeviceError: the clocks cannot be set.
    """
    listed = gpu.clock_grid().sm_clocks_mhz
    chosen = chosen_clocks(settings.sm_clocks_mhz, listed, "sm-clocks") or listed
    clocks = tuple(sorted({clock for clock in chosen if clock is not None}))
    holder = replace(this_process(), command=command.name)
    start_s = time.monotonic()
    with (
        TemporaryDirectory(prefix="joulewise-steps-", ignore_cleanup_errors=True) as folder,
        command.signals(),
        lease_on(gpu, holder) as lease,
    ):
        swept = _Sweep(gpu, lease, Path(folder), settings, notice)
        # Once for all runs: between two of them, too, somebody may pin the clock.
        swept.found = governed_state(gpu)
        doubts = baseline_doubts(gpu)
        run = swept.whole_runs if settings.is_whole_runs else swept.one_run
        baseline, *costs = told_of_gpu(run(command, clocks, progress), swept.caveats)
    identity = gpu.identity
    return CommandSweep(
        curve=ClockCurve(
            job=command.name,
            device=identity.spec,
            device_name=identity.name,
            is_simulated=identity.is_simulated,
            features=None,
            baseline=baseline,
            costs=tuple(costs),
            caveats=first_of_each_kind(
                *doubts,
                *swept.caveats,
                *memory_clock_moved((baseline, *costs)),
                *identity.caveats,
            ),
        ),
        code=swept.code,
        time_s=time.monotonic() - start_s,
    )


def told_of_gpu(
    costs: tuple[ClockCost, tuple[ClockCost, ...]], caveats: list[Caveat]
) -> tuple[ClockCost, ...]:
    """All costs; a GPU that ran nothing at all tells nothing of how busy the job keeps it."""
    every = (costs[0], *costs[1])
    told = [one.busy_ratio for one in every if one.busy_ratio is not None]
    if not told or any(told):
        return every
    caveats.append(
        Caveat(
            kind=CaveatKind.MOSTLY_GAPS,
            seen="the GPU ran nothing while training steps were measured, so the curve is that of "
            "an idle GPU",
            advice="Let the command train on this GPU, or name the one that it uses: --device.",
        )
    )
    return tuple(replace(one, busy_ratio=None) for one in every)


class _Sweep:
    """Runs a command once, or once per clock, and measures its steps."""

    def __init__(
        self, gpu: Gpu, lease: Lease, folder: Path, settings: CommandSweepSettings, notice: Notice
    ) -> None:
        self.code = 0
        self.caveats: list[Caveat] = []
        self.found: BoardState | None = None
        """How the board was before anything was set."""
        self._gpu = gpu
        self._lease = lease
        self._folder = folder
        self._settings = settings
        self._notice = notice

    def one_run(
        self, command: Command, clocks: Sequence[int], progress: Progress
    ) -> tuple[ClockCost, tuple[ClockCost, ...]]:
        """Clocks take turns in one run of it."""
        settings, rounds = self._settings, Rounds()
        total_count = settings.round_count * (len(clocks) + 1)
        scheduler = StepScheduler(
            sweep_schedule(
                clocks,
                rounds,
                round_count=settings.round_count,
                block_step_count=settings.block_step_count,
                seed=settings.seed,
            )
        )
        stop = self._folder / "stop"

        def tell() -> None:
            progress(_WHAT, sum(map(len, rounds)), total_count)
            if scheduler.is_over:
                stop.touch()

        self._run(command, scheduler, "steps.jsonl", {STOP_VARIABLE: str(stop)}, after_each=tell)
        try:
            costs = costs_of_rounds(rounds, len(clocks) + 1)
        except MeasurementError as error:
            raise MeasurementError(
                f"{error.message}{_time_needed(scheduler, total_count)}", hint=error.hint
            ) from error
        self.caveats.extend(_cut_short(rounds, len(clocks) + 1, settings.round_count, self.code))
        return costs

    def whole_runs(
        self, command: Command, clocks: Sequence[int], progress: Progress
    ) -> tuple[ClockCost, tuple[ClockCost, ...]]:
        """One run per clock, and one under the governor, in random order."""
        limit = {LIMIT_VARIABLE: str(self._settings.run_step_count)}
        order = shuffled((None, *clocks), seed=self._settings.seed, label="runs")
        costs: dict[int | None, ClockCost] = {}
        for number, clock_mhz in enumerate(order):
            progress(_WHAT, number, len(order))
            scheduler = StepScheduler(whole_run_schedule(clock_mhz))
            again = Command(command.arguments)
            with again.signals():
                steering = self._run(again, scheduler, f"steps-{number}.jsonl", limit)
            if self.code:
                raise MeasurementError(
                    f"the command ended with exit code {self.code} in run {number + 1} of "
                    f"{len(order)}"
                )
            costs[clock_mhz] = scheduler.cost_so_far(steering.log)
        progress(_WHAT, len(order), len(order))
        baseline = costs.pop(None)
        return baseline, tuple(costs[clock] for clock in clocks)

    def _run(
        self,
        command: Command,
        scheduler: StepScheduler,
        file: str,
        added: dict[str, str],
        after_each: Callable[[], None] = lambda: None,
    ) -> BlockSteering:
        marks = StepTail(self._folder / file)
        steering = BlockSteering(self._gpu, self._lease, scheduler, marks, self._notice, self.found)
        steering.begin()
        environment = {STEPS_VARIABLE: str(self._folder / file), **added}
        with steering.looking(after_each), variables(environment):
            self.code = command.run()
        if steering.trouble is not None:
            raise steering.trouble
        if steering.is_hands_off:
            raise DeviceError(
                f"{steering.caveats[0].seen}, so the sweep is of no use",
                hint="Stop the other controller, and sweep again.",
            )
        if not scheduler.has_steps:
            if self.code:
                raise MeasurementError(
                    f"the command ended with exit code {self.code} before it had marked a step",
                    hint="Mend what the command says, and sweep again.",
                )
            raise MeasurementError(
                marks.doubt or "the command never marked the end of a training step",
                hint="Call StepMarker.step, or give the trainer the JoulewiseCallback.",
            )
        if marks.is_ambiguous:
            raise MeasurementError(
                marks.doubt or "several programs may have marked the steps",
                hint="Let one process mark them, or use StepMarker, which signs each mark.",
            )
        if marks.doubt is not None:
            self.caveats.append(Caveat(kind=CaveatKind.STEPS_UNMARKED, seen=marks.doubt))
        self.caveats.extend(over_current(steering))
        return steering


def _cut_short(rounds: Rounds, setting_count: int, asked_count: int, code: int) -> list[Caveat]:
    """NotVerified where training ended, or was stopped, before all rounds were measured."""
    whole_count = sum(len(one) == setting_count for one in rounds)
    if whole_count >= asked_count:
        return []
    ended = f", and the command ended with exit code {code}" if code else ", for training ended"
    seen = f"{whole_count} of {asked_count} rounds were measured{ended}"
    return [Caveat(kind=CaveatKind.NOT_VERIFIED, seen=seen, advice="Sweep a longer training.")]


def _time_needed(scheduler: StepScheduler, block_count: int) -> str:
    """How long training lasted, and about how long all blocks take; "" where no step tells."""
    taken, sensor = scheduler.taken.all_steps, scheduler.sensor
    if not taken.step_count:
        return ""
    block = block_steps(None, taken.time_s, LiveSettings(), sensor)
    needed_s = block_count * block.step_count * taken.time_s
    return (
        f" ({taken.step_count} steps, {taken.duration_s:.2g} s: all of it needs about "
        f"{needed_s:.2g} s)"
    )
