"""A clock that is only tried out is not held while no step is marked: nobody chose it for that."""

from __future__ import annotations

import pytest
from tests.finetune_world import World, governor

from joulewise.finetune.live import LiveGovernor, Outcome
from joulewise.finetune.live_schedule import Purpose


def trained_until(purpose: Purpose, clock_mhz: int | None) -> tuple[LiveGovernor, World]:
    """A job in the middle of a block for that, with marks that have come in step by step."""
    live = governor()
    world = World(scheduler=live.scheduler)
    for _ in range(700):
        world.run(1)
        live.scheduler.wait(world.time_s)
        if live.scheduler.purpose is purpose and live.scheduler.asked_mhz == clock_mhz:
            break
    assert live.scheduler.asked_mhz == clock_mhz
    return live, world


@pytest.mark.parametrize(
    ("purpose", "clock_mhz"), [(Purpose.PROBE, 510), (Purpose.VERIFY, 714)], ids=["probe", "verify"]
)
def test_an_evaluation_in_a_block_of_learning_runs_under_the_governor(
    purpose: Purpose, clock_mhz: int
) -> None:
    live, world = trained_until(purpose, clock_mhz)
    live.scheduler.wait(world.time_s + 25.0)

    assert live.scheduler.asked_mhz is None
    assert live.scheduler.purpose is purpose


def test_a_step_that_takes_a_little_longer_is_no_silence() -> None:
    live, world = trained_until(Purpose.PROBE, 510)
    live.scheduler.wait(world.time_s + 0.5)

    assert live.scheduler.asked_mhz == 510


def test_a_block_is_repeated_once_marks_come_again_and_the_job_is_still_proven() -> None:
    live, world = trained_until(Purpose.PROBE, 510)
    world.run(4)
    live.scheduler.wait(world.time_s + 25.0)
    live.scheduler.applied(world.time_s + 25.0, 0.1)
    assert [*live.probed] == []
    world.run(1)
    assert live.scheduler.asked_mhz == 510
    world.run(700)

    assert [cost.sm_clock_mhz for cost in live.probed] == [510, 714, 918]
    assert live.outcome is Outcome.SAVES


def test_a_clock_that_was_shown_to_save_is_held_in_silence() -> None:
    live, world = trained_until(Purpose.RUN, 714)
    assert live.outcome is Outcome.SAVES
    live.scheduler.wait(world.time_s + 25.0)

    assert live.scheduler.asked_mhz == 714


def test_a_governors_block_is_dropped_in_silence_without_any_change_of_the_clock() -> None:
    live, world = trained_until(Purpose.VERIFY, None)
    live.scheduler.wait(world.time_s + 25.0)
    assert live.scheduler.asked_mhz is None
    # No mark tells that it was no step.
    world.time_s = world.marked_s = world.time_s + 25.0
    world.run(700)

    assert live.outcome is Outcome.SAVES
    assert all(baseline.time_s < 1.0 for baseline, _ in live.pairs)


def test_what_a_short_job_lacks_is_told_in_seconds() -> None:
    live = governor()
    world = World(scheduler=live.scheduler)
    world.run(20)

    had_s = live.scheduler.taken.all_steps.duration_s
    assert live.needed_s is not None
    assert had_s < live.needed_s < 100 * had_s
