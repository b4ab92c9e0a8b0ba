"""While a job runs it is told at which step which clock is tried, compared and held."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from joulewise.domain.finetuning import ClockChoice, ClockCost, StepMark
from joulewise.domain.measurement import GpuSample
from joulewise.finetune.accounting import PowerLog
from joulewise.finetune.live import LiveGovernor, LiveSettings
from joulewise.workflow.finetune_telling import PhaseTeller

STEP_S, READ_S = 0.5, 0.1


def told(power_w_at_612: float, step_count: int = 400) -> list[str]:
    """All that is told of a job whose choice is 612 MHz; the governor's clock draws 20 W."""

    def choose(_costs: Sequence[ClockCost], _baseline: ClockCost | None) -> ClockChoice:
        return ClockChoice(policy="probe", sm_clock_mhz=612, reason="least energy")

    advice = ClockChoice(policy="none", sm_clock_mhz=None, reason="nothing is known")
    governor = LiveGovernor(advice, LiveSettings(probe_clocks_mhz=(408, 612, 816)), choose)
    said: list[str] = []
    teller, log, asked_mhz = PhaseTeller(governor, said.append), PowerLog(), -1
    per_step_count = round(STEP_S / READ_S)
    for number in range(round(step_count * STEP_S / READ_S)):
        time_s, scheduler = number * READ_S, governor.scheduler
        if (scheduler.asked_mhz or 0) != asked_mhz:
            asked_mhz = scheduler.asked_mhz or 0
            scheduler.applied(time_s, log.shown_within_s() if number else READ_S)
        power_w = power_w_at_612 if scheduler.asked_mhz == 612 else 20.0
        log.add(sample(time_s, power_w + 0.01 * (number % 7)))
        step, is_between = divmod(number, per_step_count)
        scheduler.see(() if is_between else [StepMark(step=step, time_s=time_s)], log)
        teller.look()
    return said


def sample(time_s: float, power_w: float) -> GpuSample:
    return GpuSample(
        time_s=time_s,
        energy_j=None,
        power_w=power_w,
        sm_clock_mhz=612,
        mem_clock_mhz=None,
        temp_c=None,
        power_capped_s=None,
        thermally_throttled_s=None,
        other_process_count=None,
    )


@pytest.mark.parametrize(
    ("power_w", "last"),
    [
        (16.0, "holding 612 MHz, which saves 20.0% of a step's energy, from step"),
        (24.0, "the governor has the clock, for 612 MHz was not shown to save energy, from step"),
    ],
)
def test_each_phase_is_told_once_with_its_step(power_w: float, last: str) -> None:
    said = told(power_w)

    assert len(said) == 3
    assert said[0].startswith("trying 408, 612 and 816 MHz from step ")
    assert said[1].startswith("comparing 612 MHz with the governor's in pairs of blocks from step")
    assert said[2].startswith(last)
