"""A baseline that somebody pins in the middle of it is no governor, and nothing is claimed by it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.jetson_trees import open_tree
from tests.virtual_training import VirtualTraining

from joulewise.domain.caveats import CaveatKind
from joulewise.domain.errors import DeviceError
from joulewise.domain.finetuning import ClockChoice, ClockCost
from joulewise.domain.session import DeviceSession
from joulewise.finetune.jobs import job
from joulewise.finetune.live import LiveGovernor, LiveSettings, Outcome
from joulewise.finetune.live_schedule import Purpose, StepScheduler
from joulewise.finetune.live_sweep import sweep_schedule, whole_run_schedule
from joulewise.finetune.step_work import step_work
from joulewise.simulator.jetson_layouts import layout, write_layout
from joulewise.workflow.finetune_blocks import BlockSteering
from joulewise.workflow.finetune_running import LiveSteering, Steered
from joulewise.workflow.finetune_sweeping import sweep_jobs
from joulewise.workflow.governed_state import governed_state
from joulewise.workflow.leasing import lease_on

KERNEL = "bert-small/sst2"
WORK = step_work(job(KERNEL))
NODE = "sys/class/devfreq/17000000.gpu"


def pin(root: Path, clock_hz: str) -> None:
    for name in ("min_freq", "max_freq"):
        (root / NODE / name).write_text(clock_hz, encoding="utf-8")


def bounds(root: Path) -> tuple[str, str]:
    low, high = ((root / NODE / f"{name}_freq").read_text().strip() for name in ("min", "max"))
    return low, high


@pytest.fixture
def session(tmp_path: Path) -> DeviceSession:
    """An AGX Orin made of files, in virtual time."""
    return open_tree(tmp_path, "agx-orin-jp6", (WORK,))


def steered_with(
    session: DeviceSession,
    is_time: Callable[[LiveGovernor], bool],
    disturb: Callable[[], None],
) -> tuple[Steered, list[str]]:
    """Train under the live governor, and disturb the board once its time has come."""
    advice = ClockChoice(policy="tree", sm_clock_mhz=714, reason="rules")
    live = LiveGovernor(advice, LiveSettings(pair_count=3), lambda _, __: advice)
    told, is_done = list[str](), False

    def tell(line: str) -> None:
        # Beside which steps are for what.
        if line.startswith(CaveatKind.FOREIGN_CONTROL):
            told.append(line)

    training = VirtualTraining(session.gpu)
    with lease_on(session.gpu) as lease:
        steering = LiveSteering(session.gpu, lease, live, training, tell)
        steering.begin()

        def look() -> None:
            nonlocal is_done
            steering.look()
            if not is_done and is_time(live):
                is_done = True
                disturb()

        with session.runner.loop(KERNEL, run="job") as loop:
            training.run(loop, 400, look, lambda: len(live.pairs) >= 6 or bool(told))
            training.run(loop, 20, look)
        return steering.steered(), told


def in_governors_block(live: LiveGovernor) -> bool:
    """In the middle of the second pair's block under the governor."""
    scheduler = live.scheduler
    is_governed = scheduler.purpose is Purpose.VERIFY and scheduler.asked_mhz is None
    return is_governed and len(live.pairs) == 1


@pytest.mark.parametrize("clock_hz", ["510000000", "408000000"])
def test_a_clock_pinned_while_the_governor_is_measured_is_no_saving_against_the_governor(
    session: DeviceSession, tmp_path: Path, clock_hz: str
) -> None:
    steered, told = steered_with(session, in_governors_block, lambda: pin(tmp_path, clock_hz))
    kinds = {caveat.kind for caveat in steered.caveats}

    assert steered.outcome is Outcome.GIVEN_UP
    assert steered.shown is None
    assert {CaveatKind.FOREIGN_CONTROL, CaveatKind.BASELINE_PINNED} <= kinds
    # The pair at hand is dropped; what somebody set stays.
    assert len(steered.pairs) == 1
    assert len(told) == 1
    assert clock_hz[:3] in told[0]
    assert bounds(tmp_path) == (clock_hz, clock_hz)


def test_a_highest_clock_lowered_while_the_governor_is_measured_ends_the_claim(
    session: DeviceSession, tmp_path: Path
) -> None:
    def cap() -> None:
        (tmp_path / NODE / "max_freq").write_text("510000000", encoding="utf-8")

    steered, told = steered_with(session, in_governors_block, cap)

    assert steered.outcome is Outcome.GIVEN_UP
    assert "the highest GPU clock from 1300 MHz to 510 MHz" in told[0]


def test_another_governor_set_while_the_governor_is_measured_ends_the_claim(
    session: DeviceSession, tmp_path: Path
) -> None:
    def swap() -> None:
        (tmp_path / NODE / "governor").write_text("performance", encoding="utf-8")

    steered, told = steered_with(session, in_governors_block, swap)

    assert steered.outcome is Outcome.GIVEN_UP
    assert "the governor from nvhost_podgov to performance" in told[0]


def test_a_board_left_alone_keeps_its_claim(session: DeviceSession) -> None:
    steered, told = steered_with(session, in_governors_block, lambda: None)

    assert steered.outcome is Outcome.SAVES
    assert told == []
    assert CaveatKind.FOREIGN_CONTROL not in {caveat.kind for caveat in steered.caveats}


def test_a_clock_pinned_while_a_sweep_has_the_governor_ends_the_sweep(
    session: DeviceSession, tmp_path: Path
) -> None:
    rounds: list[list[ClockCost]] = []
    scheduler = StepScheduler(sweep_schedule((510,), rounds, round_count=20))
    training, told = VirtualTraining(session.gpu), list[str]()
    with lease_on(session.gpu) as lease:
        steering = BlockSteering(session.gpu, lease, scheduler, training, told.append)
        steering.begin()

        def look() -> None:
            steering.look()
            if not told and scheduler.purpose is Purpose.PROBE and scheduler.asked_mhz is None:
                pin(tmp_path, "408000000")

        with session.runner.loop(KERNEL, run="job") as loop:
            training.run(loop, 200, look, lambda: scheduler.is_over)

    assert steering.is_hands_off
    # Not one block under a governor that was pinned is kept.
    assert all(cost.sm_clock_mhz == 510 for one in rounds for cost in one)


def test_a_clock_pinned_between_two_runs_of_a_sweep_is_noticed_in_the_governors(
    session: DeviceSession, tmp_path: Path
) -> None:
    scheduler, told = StepScheduler(whole_run_schedule(None)), list[str]()
    training = VirtualTraining(session.gpu)
    with lease_on(session.gpu) as lease:
        found = governed_state(session.gpu)
        # An earlier run is over; the next one is the governor's.
        pin(tmp_path, "408000000")
        steering = BlockSteering(session.gpu, lease, scheduler, training, told.append, found)
        steering.begin()
        with session.runner.loop(KERNEL, run="job") as loop:
            training.run(loop, 10, steering.look)

    assert steering.is_hands_off
    assert "408 MHz" in told[0]


@pytest.mark.integration
def test_a_clock_pinned_in_the_middle_of_the_built_in_grid_ends_the_sweep(tmp_path: Path) -> None:
    write_layout(layout("agx-orin-jp6"), tmp_path)

    def pin_after_the_first(_: str, done: int, __: int) -> None:
        if done == 1:
            pin(tmp_path, "408000000")

    with pytest.raises(DeviceError, match="of no use"):
        sweep_jobs(
            f"jetson,root={tmp_path}",
            (job(KERNEL),),
            (714,),
            progress=pin_after_the_first,
        )
