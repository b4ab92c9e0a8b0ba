"""The live governor finds a clock in a running job, proves it, and gives way where it cannot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.finetune_world import CLOCKS, EMPTY, World, advice, governor, u_curve

from joulewise.domain.caveats import CaveatKind
from joulewise.domain.errors import MeasurementError
from joulewise.domain.finetuning import ClockChoice, ClockCost, StepMark
from joulewise.finetune.accounting import PowerLog
from joulewise.finetune.live import (
    CHECK_RATIO,
    LiveGovernor,
    LiveSettings,
    Outcome,
)
from joulewise.finetune.live_schedule import Purpose, StepScheduler
from joulewise.finetune.live_sweep import costs_of_rounds, sweep_schedule


def clocks_for(world: World, purpose: Purpose) -> list[int | None]:
    """Clocks in the order of their blocks."""
    kept = [clock for clock, why, _ in world.history if why is purpose]
    return [clock for index, clock in enumerate(kept) if not index or kept[index - 1] != clock]


def test_a_job_begins_at_the_advice_is_probed_and_runs_on_at_a_clock_that_is_shown_to_save() -> (
    None
):
    live = governor()
    world = World(scheduler=live.scheduler)
    world.run(700)

    assert world.history[0][0] == 918
    assert clocks_for(world, Purpose.PROBE) == [510, 714, 918]
    assert live.choice.sm_clock_mhz == 714
    assert live.outcome is Outcome.SAVES
    assert world.history[-1][0] == 714
    assert live.saving is not None
    truth = math.prod(u_curve(714)) / math.prod(u_curve(1300))
    assert live.saving.energy_interval.low_ratio - 0.01 < truth
    assert truth < live.saving.energy_interval.high_ratio + 0.01
    assert live.saving.energy_ratio == pytest.approx(truth, rel=0.02)
    assert live.saving.time_ratio == pytest.approx(1300 / 714, rel=0.02)


def test_pairs_are_interleaved_so_that_neighbours_share_their_clock() -> None:
    live = governor(pair_count=6)
    world = World(scheduler=live.scheduler)
    world.run(700)

    # Six pairs, each in the other order than the one before: a b, b a, a b …
    assert clocks_for(world, Purpose.VERIFY) == [None, 714, None, 714, None, 714, None]


def test_steps_right_after_a_change_of_the_clock_are_dropped() -> None:
    # Whatever the step under way and the next one take, blocks do not show it.
    live = governor()
    world = World(scheduler=live.scheduler, noise_ratio=0.0)
    slow = {"left": 0, "last": None}

    def cost(clock_mhz: int) -> tuple[float, float]:
        if slow["last"] != clock_mhz:
            slow["last"], slow["left"] = clock_mhz, 2
        time_s, power_w = u_curve(clock_mhz)
        if slow["left"]:
            slow["left"] -= 1
            return 5 * time_s, 3 * power_w
        return time_s, power_w

    world.cost = cost
    world.run(300)

    for probe in live.probed:
        time_s, power_w = u_curve(probe.sm_clock_mhz or 0)
        assert probe.time_s == pytest.approx(time_s, rel=1e-6)
        assert probe.energy_j == pytest.approx(time_s * power_w, rel=0.02)


def test_a_block_too_short_for_the_power_sensor_is_made_longer() -> None:
    live = governor()
    world = World(scheduler=live.scheduler, cost=lambda mhz: (20.0 / mhz, u_curve(mhz)[1]))
    world.run(400)

    assert all((cost.step_count or 0) > 30 for cost in live.probed)
    assert all((cost.step_count or 0) * cost.time_s > 1.0 for cost in live.probed)


def test_a_clock_that_does_not_save_goes_back_to_the_governor_for_good() -> None:
    # The governor is at the best clock already.
    live = governor()
    world = World(scheduler=live.scheduler, governor_mhz=714)
    world.run(900)

    assert live.outcome is Outcome.NOT_SHOWN
    assert {clock for clock, _, _ in world.history[-400:]} == {None}
    assert live.saving is not None
    assert live.saving.energy_interval.high_ratio >= 1.0
    # What does not show is looked at twice before it is given up.
    assert live.saving.pair_count == 12


def test_a_clock_beyond_the_budget_of_time_goes_back_to_the_governor() -> None:
    live = governor(max_slowdown_ratio=0.05)
    world = World(scheduler=live.scheduler)
    world.run(900)

    assert live.outcome is Outcome.TOO_SLOW
    assert world.history[-1][0] is None
    # With a budget the governor is probed, too: the choice has to know what it may take.
    assert clocks_for(world, Purpose.PROBE) == [510, 714, 918, None]


def test_a_choice_of_the_governor_needs_no_check() -> None:
    live = LiveGovernor(
        advice(), LiveSettings(probe_clocks_mhz=(510, 714, 918)), lambda _, __: advice(None)
    )
    world = World(scheduler=live.scheduler)
    world.run(200)

    assert live.outcome is Outcome.GOVERNOR
    assert clocks_for(world, Purpose.VERIFY) == []
    assert world.history[-1][0] is None


def test_blocks_that_say_nothing_leave_the_advice() -> None:
    def refuse(_: Sequence[ClockCost], __: ClockCost | None) -> ClockChoice:
        raise MeasurementError("these blocks say nothing")

    live = LiveGovernor(advice(714), LiveSettings(probe_clocks_mhz=(510, 714, 918)), refuse)
    World(scheduler=live.scheduler).run(500)

    assert replace(live.choice, caveats=()) == advice(714)
    assert [one.kind for one in live.choice.caveats] == [CaveatKind.EXTRAPOLATED]
    assert "these blocks say nothing" in live.choice.caveats[0].seen
    assert live.outcome is Outcome.SAVES


@pytest.mark.parametrize(
    ("step_count", "is_probed", "pair_count"),
    [(200, False, 0), (395, False, 3), (600, True, 5), (5000, True, 6)],
)
def test_a_short_job_takes_the_advice_and_learns_no_more_than_it_has_room_for(
    step_count: int,
    is_probed: bool,  # noqa: FBT001
    pair_count: int,
) -> None:
    live = governor(step_count=step_count)
    world = World(scheduler=live.scheduler)
    world.run(min(step_count, 500))

    assert bool(live.probed) is is_probed
    assert len(live.pairs) == pair_count
    # The first look shows it, so that no second one is taken.
    assert (live.saving is None) or live.saving.pair_count == pair_count


def test_a_job_with_room_for_hardly_any_pairs_is_not_checked() -> None:
    live = governor(step_count=130)
    world = World(scheduler=live.scheduler)
    world.run(130)

    assert live.outcome is Outcome.ADVICE
    assert {clock for clock, _, _ in world.history} == {918}


def test_a_job_that_ends_before_the_check_claims_nothing() -> None:
    live = governor()
    World(scheduler=live.scheduler).run(60)
    live.finish(is_given_up=False)

    assert live.outcome is Outcome.UNFINISHED
    assert live.saving is None


def test_a_job_of_hardly_any_steps_is_not_one_without_steps() -> None:
    with_steps, without = governor(), governor()
    World(scheduler=with_steps.scheduler).run(2)
    for live in (with_steps, without):
        live.finish(is_given_up=False)

    assert (with_steps.outcome, without.outcome) == (Outcome.ADVICE, Outcome.NO_STEPS)


def test_fresh_checks_take_a_small_share_of_the_steps_and_notice_a_job_that_changed() -> None:
    live = governor(check_every_s=60.0, pair_count=3)
    world = World(scheduler=live.scheduler)
    world.run(3000)
    counts = live.scheduler.taken.step_counts
    was, checked = live.outcome, counts[Purpose.CHECK]
    # From here on every clock draws the same: a low one costs time and saves nothing.
    world.cost = lambda mhz: (500.0 / mhz, 40.0)
    world.run(6000)

    assert was is Outcome.SAVES
    assert 0 < checked <= 1.1 * CHECK_RATIO * 3000
    assert live.outcome is Outcome.NOT_SHOWN
    assert world.history[-1][0] is None


def test_an_evaluation_in_the_middle_of_a_block_is_no_part_of_it() -> None:
    live = governor()
    world = World(scheduler=live.scheduler, noise_ratio=0.0)
    world.run(14)
    before_j = live.scheduler.taken.energy_j
    for _ in range(300):
        world.time_s += 0.1
        world.read(3.0)
    world.run(60)

    assert live.scheduler.taken.all_steps.duration_s == pytest.approx(
        sum(duration for _, _, duration in world.history)
    )
    assert live.scheduler.taken.energy_j > before_j
    for probe in live.probed:
        time_s, power_w = u_curve(probe.sm_clock_mhz or 0)
        assert probe.energy_j == pytest.approx(time_s * power_w, rel=0.02)


def test_readings_that_were_missing_for_a_while_make_a_block_run_again() -> None:
    live = governor()
    world = World(scheduler=live.scheduler)
    world.run(12)
    # A driver that does not answer for the length of a block: marks come, readings do not.
    marks = []
    for _ in range(25):
        world.step += 1
        world.time_s += 0.5
        marks.append(StepMark(step=world.step, time_s=world.time_s))
    live.scheduler.see(marks, world.log)

    assert live.scheduler.taken.unmeasured_count == 25
    world.run(500)
    assert live.outcome is Outcome.SAVES


def test_one_run_tells_the_curve_of_a_job_and_drift_cancels() -> None:
    rounds: list[list[ClockCost]] = []
    scheduler = StepScheduler(sweep_schedule(CLOCKS, rounds, round_count=3))
    world = World(scheduler=scheduler)

    def drifting(clock_mhz: int) -> tuple[float, float]:
        time_s, power_w = u_curve(clock_mhz)
        # Texts grow: half as long again at the end.
        return time_s * (1 + 0.5 * world.step / 250), power_w

    world.cost = drifting
    while not scheduler.is_over:
        world.run(1)
    baseline, costs = costs_of_rounds(rounds, len(CLOCKS) + 1)

    assert [cost.sm_clock_mhz for cost in costs] == list(CLOCKS)
    assert min(costs, key=lambda cost: cost.energy_j).sm_clock_mhz == 714
    ratios = [cost.energy_j / baseline.energy_j for cost in costs]
    truths = [math.prod(u_curve(clock)) / math.prod(u_curve(1300)) for clock in CLOCKS]
    assert ratios == pytest.approx(truths, rel=0.1)
    assert len({tuple(cost.sm_clock_mhz for cost in one) for one in rounds}) == 3
    assert all(cost.energy_error_j and (cost.step_count or 0) >= 30 for cost in costs)


def test_training_that_ends_within_the_first_round_says_what_helps() -> None:
    rounds: list[list[ClockCost]] = []
    scheduler = StepScheduler(sweep_schedule(CLOCKS, rounds, round_count=3))
    World(scheduler=scheduler).run(40)

    with pytest.raises(MeasurementError, match="every clock") as raised:
        costs_of_rounds(rounds, len(CLOCKS) + 1)
    assert "--whole-runs" in (raised.value.hint or "")


@settings(max_examples=40)
@given(
    moves=st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 9), st.booleans(), st.floats(0.5, 60)),
        min_size=1,
        max_size=60,
    )
)
def test_whatever_comes_steps_are_counted_once_and_time_is_that_of_steps(
    moves: list[tuple[int, int, bool, float]],
) -> None:
    live = governor()
    log, time_s, step, expected = PowerLog(), 0.0, 0, [0, 0.0]
    log.add(replace(EMPTY, time_s=0.0, power_w=20.0))
    marks = [StepMark(step=0, time_s=0.0)]
    for advance, wait_s, is_read, power_w in moves:
        time_s += wait_s / 4
        # Nothing: a break; four: training begins anew.
        number = 0 if advance == 4 else step + advance
        if number > step and wait_s > 0:
            expected = [expected[0] + number - step, expected[1] + wait_s / 4]
        step = number
        marks.append(StepMark(step=step, time_s=time_s))
        if is_read:
            log.add(replace(EMPTY, time_s=time_s, power_w=power_w))
            live.scheduler.see(marks, log)
            marks = []
            live.scheduler.applied(time_s, log.shown_within_s())
    live.scheduler.see(marks, log)
    taken = live.scheduler.taken

    assert taken.all_steps.step_count == expected[0]
    assert taken.all_steps.duration_s == pytest.approx(expected[1])
    assert sum(taken.step_counts.values()) == expected[0]
    assert 0 <= taken.unmeasured_count <= expected[0]
    assert taken.energy_j >= 0
