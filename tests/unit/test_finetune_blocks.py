"""Blocks on a virtual board: what is set is given back, and what others set is left alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.jetson_trees import open_tree
from tests.virtual_training import VirtualTraining, steer_virtual

from joulewise.domain.caveats import CaveatKind
from joulewise.domain.errors import DeviceError, NotPermitted
from joulewise.domain.finetuning import ClockChoice
from joulewise.domain.points import OperatingPoint
from joulewise.domain.ports import Gpu, ReadBackGpu
from joulewise.domain.session import DeviceSession
from joulewise.finetune.jobs import job
from joulewise.finetune.live import LiveGovernor, LiveSettings, Outcome
from joulewise.finetune.live_schedule import Purpose
from joulewise.finetune.probing import choose_by_probing, probe_clocks
from joulewise.finetune.step_work import step_work
from joulewise.simulator.virtual import open_virtual
from joulewise.workflow.finetune_running import LiveSteering, Steered
from joulewise.workflow.leasing import lease_on

KERNEL = "bert-small/sst2"
WORK = step_work(job(KERNEL))
NODE = "sys/class/devfreq/17000000.gpu"


def governor(session: DeviceSession, advised: int | None = 918) -> LiveGovernor:
    clocks = session.gpu.clock_grid().sm_clocks_mhz
    advice = ClockChoice(policy="tree", sm_clock_mhz=advised, reason="rules")
    settings = LiveSettings(probe_clocks_mhz=probe_clocks(advised, clocks))
    return LiveGovernor(
        advice, settings, lambda costs, one: choose_by_probing(costs, clocks, baseline=one)
    )


def orin(options: str = "") -> DeviceSession:
    return open_virtual(f"virtual:agx-orin{options}", (WORK,))


def kinds(steered: Steered) -> set[CaveatKind]:
    return {caveat.kind for caveat in steered.caveats}


def test_a_virtual_orin_is_probed_proven_and_given_back() -> None:
    session = orin()
    live = governor(session)
    steered = steer_virtual(session, KERNEL, live, 400)

    assert steered.outcome is Outcome.SAVES
    assert steered.saving is not None
    assert steered.saving.energy_interval.high_ratio < 1
    assert [cost.sm_clock_mhz for cost in steered.probed] == [510, 918, 1300]
    assert steered.step_count == 400
    assert sum(steered.step_counts.values()) == 400
    assert steered.energy_j is not None
    assert steered.uncertainty_j is not None
    assert steered.uncertainty_j < 0.05 * steered.energy_j
    assert CaveatKind.SIMULATED_DEVICE in kinds(steered)
    assert CaveatKind.NOT_VERIFIED not in kinds(steered)


def test_what_the_pairs_say_is_what_the_board_does() -> None:
    steered = steer_virtual(session := orin(), KERNEL, governor(session), 400)
    chosen = steered.choice.sm_clock_mhz
    assert steered.saving is not None
    truth = {}
    for clock in (None, chosen):
        quiet = orin(",noise=0")
        with lease_on(quiet.gpu) as lease, quiet.runner.loop(KERNEL, run="truth") as loop:
            lease.apply(OperatingPoint(sm_clock_mhz=clock))
            loop.run_for(5.0)
            loop.begin_window(0)
            loop.run_for(20.0)
            power_w = quiet.gpu.sample().power_w
            timing = loop.end_window()
        assert power_w is not None
        truth[clock] = power_w * timing.elapsed_s / timing.launch_count

    assert steered.saving.energy_ratio == pytest.approx(truth[chosen] / truth[None], rel=0.02)


def interrupted(
    session: DeviceSession, disturb: Callable[[], None], *, after_count: int = 10, rest: int = 25
) -> tuple[Steered, list[str], LiveSteering]:
    """Train, disturb the board in the middle of it, and train on."""
    live, told = governor(session), list[str]()
    training = VirtualTraining(session.gpu)
    with lease_on(session.gpu) as lease:
        steering = LiveSteering(session.gpu, lease, live, training, told.append)
        steering.begin()
        with session.runner.loop(KERNEL, run="job") as loop:
            training.run(loop, after_count, steering.look)
            disturb()
            training.run(loop, rest, steering.look)
        steered = steering.steered()
    return steered, told, steering


def pin(root: Path, clock_hz: str) -> None:
    for name in ("min_freq", "max_freq"):
        (root / NODE / name).write_text(clock_hz, encoding="utf-8")


def bounds(root: Path) -> tuple[str, str]:
    low, high = ((root / NODE / f"{name}_freq").read_text().strip() for name in ("min", "max"))
    return low, high


def test_files_of_a_board_are_as_found_after_a_job(tmp_path: Path) -> None:
    session = open_tree(tmp_path, "agx-orin-jp6", (WORK,))
    before = bounds(tmp_path)
    steered = steer_virtual(session, KERNEL, governor(session), 24)

    assert steered.step_counts[Purpose.PROBE] > 0
    assert bounds(tmp_path) == before == ("306000000", "1300500000")
    assert steered.outcome is Outcome.UNFINISHED
    assert CaveatKind.NOT_VERIFIED in kinds(steered)


def test_a_board_that_somebody_pinned_before_is_told_and_stays_as_found(tmp_path: Path) -> None:
    session = open_tree(tmp_path, "agx-orin-jp6", (WORK,))
    pin(tmp_path, "816000000")
    steered = steer_virtual(session, KERNEL, governor(session), 24)

    assert CaveatKind.BASELINE_PINNED in kinds(steered)
    assert bounds(tmp_path) == ("816000000", "816000000")


def test_a_clock_that_somebody_else_sets_meanwhile_is_left_alone(tmp_path: Path) -> None:
    session = open_tree(tmp_path, "agx-orin-jp6", (WORK,))
    assert isinstance(session.gpu, ReadBackGpu)
    steered, told, steering = interrupted(session, lambda: pin(tmp_path, "408000000"))

    assert steered.outcome is Outcome.GIVEN_UP
    assert CaveatKind.FOREIGN_CONTROL in kinds(steered)
    assert steering.blocks.is_hands_off
    warned = [line for line in told if line.startswith(CaveatKind.FOREIGN_CONTROL)]
    assert len(warned) == 1
    assert "408" in warned[0]
    assert bounds(tmp_path) == ("408000000", "408000000")


class Refusing:
    """A lease whose device refuses from some moment on."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.is_refusing = False

    def apply(self, point: OperatingPoint) -> None:
        if self.is_refusing:
            raise DeviceError("the kernel said no")
        self.gpu.request(point)

    def release(self) -> None:
        """Nothing was taken."""


def test_a_clock_that_cannot_be_set_any_more_ends_no_training() -> None:
    session, told = orin(), list[str]()
    lease, live = Refusing(session.gpu), governor(session)
    training = VirtualTraining(session.gpu)
    steering = LiveSteering(session.gpu, lease, live, training, told.append)
    steering.begin()
    with session.runner.loop(KERNEL, run="job") as loop:
        training.run(loop, 10, steering.look)
        lease.is_refusing = True
        training.run(loop, 60, steering.look)
    steered = steering.steered()

    assert steered.outcome is Outcome.GIVEN_UP
    assert steered.step_count == 70
    assert "the kernel said no" in str(steering.blocks.trouble)
    assert sum("the kernel said no" in line for line in told) == 1


def test_without_rights_nothing_runs_and_nothing_is_set() -> None:
    session = orin(",control=denied")

    with pytest.raises(NotPermitted):
        steer_virtual(session, KERNEL, governor(session), 10)


def test_a_job_without_marks_holds_its_advice_and_claims_nothing() -> None:
    session = orin()
    live = governor(session)
    training = VirtualTraining(session.gpu)
    with lease_on(session.gpu) as lease:
        steering = LiveSteering(session.gpu, lease, live, training, lambda _: None)
        steering.begin()
        with session.runner.loop(KERNEL, run="job") as loop:
            for _ in range(50):
                loop.run_for(0.1)
                steering.look()
            held = session.gpu.sample().sm_clock_mhz
        steered = steering.steered()

    assert held == 918
    assert steered.outcome is Outcome.NO_STEPS
    assert steered.shown is None
    assert CaveatKind.STEPS_UNMARKED in kinds(steered)


def test_a_program_that_says_how_long_it_is_gets_no_probing_that_does_not_pay() -> None:
    session = orin()
    live = governor(session)
    training = VirtualTraining(session.gpu, planned_count=120)
    with lease_on(session.gpu) as lease:
        steering = LiveSteering(session.gpu, lease, live, training, lambda _: None)
        steering.begin()
        with session.runner.loop(KERNEL, run="job") as loop:
            training.run(loop, 120, steering.look)
        steered = steering.steered()

    assert steered.probed == ()
    assert steered.outcome is Outcome.ADVICE
