"""Time alone gives a clock back that is only tried out, and doubtful marks claim nothing."""

from __future__ import annotations

from tests.finetune_world import governor
from tests.virtual_training import VirtualTraining, steer_virtual

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.finetuning import ClockCost
from joulewise.finetune.jobs import job
from joulewise.finetune.live import Outcome
from joulewise.finetune.live_schedule import Purpose
from joulewise.finetune.step_work import step_work
from joulewise.simulator.virtual import open_virtual
from joulewise.workflow.finetune_running import LiveSteering
from joulewise.workflow.finetune_sweeping_command import told_of_gpu
from joulewise.workflow.leasing import lease_on

KERNEL = "bert-small/sst2"
WORK = step_work(job(KERNEL))


def test_a_board_is_not_held_at_a_probed_clock_while_a_program_marks_nothing() -> None:
    session = open_virtual("virtual:agx-orin", (WORK,))
    live = governor()
    training = VirtualTraining(session.gpu)
    with lease_on(session.gpu) as lease:
        steering = LiveSteering(session.gpu, lease, live, training, lambda _: None)
        steering.begin()
        with session.runner.loop(KERNEL, run="job") as loop:
            while live.scheduler.purpose is not Purpose.PROBE:
                training.run(loop, 1, steering.look)
                steering.look()
            training.run(loop, 2, steering.look)
            steering.look()
            assert live.scheduler.asked_mhz == 510
            for _ in range(250):
                loop.run_for(0.1)
                steering.look()
            assert live.scheduler.asked_mhz is None


def test_a_job_whose_marks_may_be_of_two_programs_claims_nothing() -> None:
    session = open_virtual("virtual:agx-orin", (WORK,))
    live = governor()
    training = VirtualTraining(session.gpu)
    training.is_ambiguous = True
    with lease_on(session.gpu) as lease:
        steering = LiveSteering(session.gpu, lease, live, training, lambda _: None)
        steering.begin()
        with session.runner.loop(KERNEL, run="job") as loop:
            training.run(loop, 400, steering.look)
        steered = steering.steered()

    assert live.outcome is Outcome.SAVES
    assert steered.shown is None
    assert steered.energy_j is None


def test_a_job_too_short_to_be_verified_says_how_long_it_would_have_to_be() -> None:
    session = open_virtual("virtual:agx-orin", (WORK,))
    steered = steer_virtual(session, KERNEL, governor(), 24)
    told = next(one for one in steered.caveats if one.kind is CaveatKind.NOT_VERIFIED)

    assert "that needs about" in told.seen
    assert f"there were {steered.steps_time_s:.2g} s" in told.seen


def test_a_gpu_that_ran_nothing_is_told_and_is_no_feature_of_the_job() -> None:
    costs = [
        ClockCost(sm_clock_mhz=clock, time_s=1.0, energy_j=9.0, busy_ratio=0.0)
        for clock in (None, 510, 714)
    ]
    caveats: list[Caveat] = []
    told = told_of_gpu((costs[0], tuple(costs[1:])), caveats)

    assert [one.busy_ratio for one in told] == [None, None, None]
    assert [one.kind for one in caveats] == [CaveatKind.MOSTLY_GAPS]
    assert "the GPU ran nothing" in caveats[0].seen
