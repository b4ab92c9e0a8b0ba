from __future__ import annotations

import pytest

from joulewise.control.idle import LONGEST_GAP_S, IdleAct, IdlePolicy
from joulewise.domain.errors import InputError
from joulewise.domain.measurement import EventReason, GpuActivity, GpuSample
from joulewise.domain.points import ClockGrid, OperatingPoint

AFTER_S = 10.0
GRID = ClockGrid(sm_clocks_mhz=(210, 405, 1980), mem_clocks_mhz=())
IDLE = frozenset({EventReason.GPU_IDLE})
CAPPED = frozenset({EventReason.POWER_CAP})


def policy(sm_clock_mhz: int | None = None) -> IdlePolicy:
    return IdlePolicy(after_s=AFTER_S, grid=GRID, sm_clock_mhz=sm_clock_mhz)


def sample(
    reasons: frozenset[EventReason] | None = IDLE, activity: GpuActivity | None = None
) -> GpuSample:
    return GpuSample(
        time_s=0.0,
        energy_j=None,
        power_w=60.0,
        sm_clock_mhz=1980,
        mem_clock_mhz=None,
        temp_c=None,
        power_capped_s=None,
        thermally_throttled_s=None,
        other_process_count=1,
        event_reasons=reasons,
        activity=activity,
    )


def active(sm_cycle_ratio: float | None, dram_ratio: float | None = 0.0) -> GpuActivity:
    return GpuActivity(
        duration_s=1.0,
        sm_cycle_ratio=sm_cycle_ratio,
        sm_time_ratio=sm_cycle_ratio,
        occupancy_ratio=None,
        tensor_ratio=None,
        dram_ratio=dram_ratio,
    )


def acts(
    idle: IdlePolicy,
    seen: GpuSample | None,
    from_s: float,
    to_s: float,
    *,
    is_leased: bool = False,
) -> dict[float, IdleAct]:
    """What it says to the same sample once a second, where that is something."""
    said = {
        float(now_s): idle.feed(seen, now_s=float(now_s), is_leased=is_leased)
        for now_s in range(int(from_s), int(to_s) + 1)
    }
    return {now_s: act for now_s, act in said.items() if act is not IdleAct.NOTHING}


def lowered(idle: IdlePolicy) -> None:
    """Let it idle for 160 s, within which it is lowered."""
    assert {AFTER_S: IdleAct.LOWER} == acts(idle, sample(), 0, 160)


def test_a_gpu_that_idles_so_long_is_lowered_once_to_the_lowest_clock() -> None:
    idle = policy()

    assert {AFTER_S: IdleAct.LOWER} == acts(idle, sample(), 0, 100)
    assert idle.is_lowered
    assert OperatingPoint(sm_clock_mhz=210) == idle.point


def test_the_first_busy_sample_gives_it_back() -> None:
    idle = policy()
    lowered(idle)

    assert IdleAct.GIVE_BACK is idle.feed(sample(frozenset()), now_s=200.0, is_leased=False)
    assert not idle.is_lowered


def test_a_gpu_held_down_by_its_power_limit_is_busy() -> None:
    assert {} == acts(policy(), sample(CAPPED), 0, 100)


def test_a_process_that_waits_does_not_keep_a_gpu_from_being_lowered() -> None:
    waiting = sample()
    assert 1 == waiting.other_process_count

    assert {AFTER_S: IdleAct.LOWER} == acts(policy(), waiting, 0, 20)


@pytest.mark.parametrize("seen", [sample(None), sample(frozenset({EventReason.UNKNOWN})), None])
def test_a_gpu_that_does_not_tell_whether_it_idles_is_left_alone(seen: GpuSample | None) -> None:
    assert {} == acts(policy(), seen, 0, 100)


def test_a_lowered_gpu_that_no_longer_answers_is_given_back() -> None:
    idle = policy()
    lowered(idle)

    assert IdleAct.GIVE_BACK is idle.feed(None, now_s=161.0, is_leased=False)


def test_work_between_two_samples_counts_where_the_gpu_tells_of_it() -> None:
    worked = sample(IDLE, active(0.2))
    copied = sample(IDLE, active(0.0, dram_ratio=0.1))

    assert {} == acts(policy(), worked, 0, 100)
    assert {} == acts(policy(), copied, 0, 100)
    assert {AFTER_S: IdleAct.LOWER} == acts(policy(), sample(IDLE, active(0.0)), 0, 20)


def test_a_driver_that_no_longer_gives_the_reason_is_judged_by_activity() -> None:
    idle = policy()
    without_reason = frozenset[EventReason]()

    assert {AFTER_S: IdleAct.LOWER} == acts(idle, sample(without_reason, active(0.0)), 0, 20)
    busy = sample(without_reason, active(0.5))
    assert IdleAct.GIVE_BACK is idle.feed(busy, now_s=21.0, is_leased=False)


def test_activity_that_is_not_told_yet_is_not_quiet() -> None:
    assert {} == acts(policy(), sample(IDLE, active(None)), 0, 100)


def test_where_the_reason_is_given_its_absence_means_work_that_has_just_begun() -> None:
    idle = policy()
    acts(idle, sample(IDLE, active(0.0)), 0, 20)
    assert idle.is_lowered

    just_begun = sample(frozenset(), active(0.001))
    assert IdleAct.GIVE_BACK is idle.feed(just_begun, now_s=20.2, is_leased=False)


def test_whoever_asks_for_the_gpu_gets_it_with_its_clocks_given_back() -> None:
    idle = policy()
    lowered(idle)

    assert IdleAct.GIVE_BACK is idle.feed(None, now_s=161.0, is_leased=True)
    assert {} == acts(idle, sample(), 161, 300, is_leased=True)
    assert {301.0 + AFTER_S: IdleAct.LOWER} == acts(idle, sample(), 301, 400)


def test_nobody_knows_what_ran_while_nobody_looked() -> None:
    idle = policy()
    acts(idle, sample(), 0, 9)

    late_s = 9.0 + 2 * LONGEST_GAP_S + 1.0
    assert {late_s + AFTER_S: IdleAct.LOWER} == acts(idle, sample(), late_s, 60)


class Machine:
    """Feeds a policy once a second, and counts the seconds."""

    def __init__(self) -> None:
        self.idle = policy()
        self.now_s = 0.0

    def idles_until_lowered(self) -> float:
        """Idle until it is lowered, and say how long that took."""
        from_s = self.now_s
        while self.idle.feed(sample(), now_s=self.now_s, is_leased=False) is not IdleAct.LOWER:
            assert self.now_s < from_s + 100 * AFTER_S
            self.now_s += 1.0
        return self.now_s - from_s

    def idles_on_and_works(self, for_s: float) -> None:
        """Stay lowered so long, work for one sample, and begin to idle anew."""
        until_s = self.now_s + for_s
        acts(self.idle, sample(), self.now_s, until_s - 1.0)
        assert IdleAct.GIVE_BACK is self.idle.feed(
            sample(frozenset()), now_s=until_s, is_leased=False
        )
        self.now_s = until_s + 1.0


def test_samples_that_come_late_now_and_then_are_no_gap() -> None:
    idle = policy()
    said = [
        idle.feed(sample(), now_s=index * (LONGEST_GAP_S + 0.1), is_leased=False)
        for index in range(4)
    ]

    assert IdleAct.LOWER in said


def test_short_work_that_comes_back_is_slowed_down_less_and_less_often() -> None:
    machine = Machine()
    waited_s = []
    for _ in range(6):
        waited_s.append(machine.idles_until_lowered())
        machine.idles_on_and_works(2.0)

    assert [10.0, 20.0, 40.0, 80.0, 160.0, 160.0] == waited_s


def test_once_it_stayed_lowered_long_enough_the_wait_is_as_set() -> None:
    machine = Machine()
    machine.idles_until_lowered()
    machine.idles_on_and_works(2.0)
    assert 2 * AFTER_S == machine.idles_until_lowered()
    machine.idles_on_and_works(AFTER_S)

    assert AFTER_S == machine.idles_until_lowered()


def test_what_could_not_be_lowered_is_tried_again_later() -> None:
    machine = Machine()
    assert AFTER_S == machine.idles_until_lowered()
    machine.idle.not_lowered(machine.now_s)

    assert not machine.idle.is_lowered
    machine.now_s += 1.0
    assert 2 * AFTER_S == machine.idles_until_lowered()


def test_a_listed_clock_can_be_named_and_no_other() -> None:
    assert OperatingPoint(sm_clock_mhz=405) == policy(405).point
    with pytest.raises(InputError, match="400 MHz is none that the GPU lists") as caught:
        policy(400)
    assert caught.value.hint is not None
    assert "405" in caught.value.hint
