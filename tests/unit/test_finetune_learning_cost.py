"""Learning about a running job takes no more of it than is said, however fast its steps are."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.finetune_world import World, governor, u_curve

from joulewise.domain.finetuning import ClockCost
from joulewise.finetune.learning_cost import (
    FEWEST_PAIR_COUNT,
    LEARNING_RATIO,
    VERIFYING_RATIO,
    LiveSettings,
    SensorTiming,
    learning_cost,
)
from joulewise.finetune.live import LiveGovernor, Outcome, paired_saving
from joulewise.finetune.live_schedule import Purpose

PROBED = (510, 714, 918)


def learned(live: LiveGovernor, world: World, step_count: int) -> tuple[int, int, int]:
    """Steps of warming up, probing and checking; those after them are not run."""
    while world.step < step_count and world.scheduler.purpose not in {Purpose.RUN, None}:
        world.run(1)
    counts = live.scheduler.taken.step_counts
    warm, probing = counts[Purpose.WARM_UP], counts.get(Purpose.PROBE, 0)
    return warm, probing, counts.get(Purpose.VERIFY, 0)


@settings(max_examples=25)
@given(
    step_s=st.floats(0.01, 1.5),
    sensor_s=st.floats(0.02, 1.0),
    step_count=st.integers(20, 2500),
    is_probing=st.booleans(),
    budget=st.sampled_from([None, 0.05]),
    governor_mhz=st.sampled_from([714, 1300]),
)
def test_however_long_steps_are_and_whatever_the_sensor_learning_keeps_to_its_share(
    step_s: float,
    sensor_s: float,
    step_count: int,
    is_probing: bool,  # noqa: FBT001
    budget: float | None,
    governor_mhz: int,
) -> None:
    live = governor(
        probe_clocks_mhz=PROBED if is_probing else (),
        step_count=step_count,
        max_slowdown_ratio=budget,
    )
    world = World(
        scheduler=live.scheduler,
        cost=lambda mhz: (step_s * 1300 / mhz, u_curve(mhz)[1]),
        sensor_s=sensor_s,
        governor_mhz=governor_mhz,
    )
    warm, probing, verifying = learned(live, world, step_count)

    left = step_count - warm
    assert probing <= LEARNING_RATIO * left
    assert verifying <= VERIFYING_RATIO * (left - probing)


def test_a_job_of_400_short_steps_is_not_probed_for_177_of_them() -> None:
    # Steps of 15 ms at 1300 MHz, and a sensor that moves every 0.15 s.
    live = governor(step_count=400)
    world = World(
        scheduler=live.scheduler, cost=lambda mhz: (20.0 / mhz, u_curve(mhz)[1]), sensor_s=0.15
    )
    world.run(400)

    counts = live.scheduler.taken.step_counts
    assert counts.get(Purpose.PROBE, 0) <= 40
    assert counts.get(Purpose.VERIFY, 0) <= 100


def test_a_sensor_slower_than_was_thought_ends_probing_and_that_is_told() -> None:
    live = governor(step_count=1000)
    world = World(
        scheduler=live.scheduler,
        cost=lambda mhz: (130.0 / mhz, u_curve(mhz)[1]),
        sensor_s=1.0,
    )
    world.run(1000)

    assert 0 < live.scheduler.taken.step_counts[Purpose.PROBE] <= 100
    assert live.choice.sm_clock_mhz == live.advice.sm_clock_mhz
    assert "more of the job than it has room for" in live.choice.caveats[0].seen


@pytest.mark.parametrize(("step_count", "pair_count"), [(None, 12), (5000, 12), (700, 6)])
def test_a_second_look_is_taken_only_where_a_quarter_of_the_job_has_room_for_it(
    step_count: int | None, pair_count: int
) -> None:
    # The governor has the best clock already: no look shows a saving.
    live = governor(step_count=step_count)
    world = World(scheduler=live.scheduler, governor_mhz=714)
    world.run(700)

    assert live.outcome is Outcome.NOT_SHOWN
    assert len(live.pairs) == pair_count


@pytest.mark.parametrize("step_s", [0.01, 0.1, 1.0])
def test_what_learning_is_said_to_take_is_what_it_takes(step_s: float) -> None:
    cost_s = {clock: step_s * 1300 / (clock or 1300) for clock in (*PROBED, None)}
    live = governor(top_mhz=1300)
    world = World(
        scheduler=live.scheduler,
        cost=lambda mhz: (step_s * 1300 / mhz, u_curve(mhz)[1]),
        noise_ratio=0.002,
    )
    _, probing, verifying = learned(live, world, 10**6)
    said = learning_cost(
        None, cost_s.__getitem__, live.settings, chosen_mhz=714, sensor=live.scheduler.sensor
    )

    assert live.choice.sm_clock_mhz == 714
    assert said.is_probing
    assert said.pair_count == 6
    assert probing == pytest.approx(said.probing_count, rel=0.35)
    assert verifying == pytest.approx(said.verifying_count, rel=0.35)


@settings(max_examples=60)
@given(
    step_count=st.integers(0, 10**6),
    step_s=st.floats(1e-3, 10.0),
    period_s=st.floats(0.01, 2.0),
    pair_count=st.integers(3, 30),
    budget=st.sampled_from([None, 0.05]),
)
def test_no_plan_of_learning_goes_beyond_its_shares(
    step_count: int, step_s: float, period_s: float, pair_count: int, budget: float | None
) -> None:
    said = learning_cost(
        step_count,
        lambda _: step_s,
        LiveSettings(probe_clocks_mhz=PROBED, pair_count=pair_count, max_slowdown_ratio=budget),
        chosen_mhz=714,
        sensor=SensorTiming(period_s=period_s, shown_within_s=2 * period_s),
    )

    assert said.probing_count <= LEARNING_RATIO * step_count
    assert said.verifying_count <= VERIFYING_RATIO * step_count
    assert said.pair_count == 0 or FEWEST_PAIR_COUNT <= said.pair_count <= pair_count
    assert len(said.probe_blocks) in {0, 3 if budget is None else 4}


def test_a_choice_of_the_governor_costs_no_check() -> None:
    said = learning_cost(None, lambda _: 1.0, LiveSettings(), chosen_mhz=None)

    assert (said.is_probing, said.pair_count, said.verifying_count) == (False, 0, 0)


@pytest.mark.integration
@pytest.mark.parametrize("pair_count", [3, 6, 12])
def test_two_looks_claim_a_saving_that_is_none_in_no_more_than_one_of_twenty_jobs(
    pair_count: int,
) -> None:
    rng = np.random.default_rng(7)
    trial_count, claimed = 1500, 0
    for _ in range(trial_count):
        logs = rng.normal(0.0, 0.02, size=2 * pair_count)
        pairs = [(block(0.0), block(float(log))) for log in logs]
        claimed += paired_saving(pairs[:pair_count]).is_shown or paired_saving(pairs).is_shown

    # Two standard errors of a rate of 5 % over so many.
    assert claimed / trial_count <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / trial_count)


def block(log_ratio: float) -> ClockCost:
    return ClockCost(sm_clock_mhz=None, time_s=1.0, energy_j=math.exp(log_ratio))
