"""What is told while a training program runs: at which step which clock is tried, or held."""

from __future__ import annotations

from joulewise.finetune.live import LiveGovernor, Outcome
from joulewise.finetune.live_schedule import Purpose
from joulewise.workflow.point_watch import Notice


class PhaseTeller:
    """Tells each phase of a governor once, as it begins; fresh checks between are no news."""

    def __init__(self, governor: LiveGovernor, notice: Notice) -> None:
        """Nothing is told yet."""
        self._governor = governor
        self._notice = notice
        self._told: tuple[Purpose | None, int | None] | None = None

    def look(self) -> None:
        """Tell what is new since the last look."""
        governor = self._governor
        purpose = governor.scheduler.purpose
        if not governor.scheduler.has_steps or purpose in _NO_NEWS:
            return
        phase = (purpose, governor.choice.sm_clock_mhz)
        if phase == self._told:
            return
        self._told = phase
        step = governor.scheduler.taken.all_steps.step_count + 1
        self._notice(f"{_phase(governor, purpose)} from step {step} on")


_NO_NEWS = {Purpose.WARM_UP, Purpose.CHECK}


def _phase(governor: LiveGovernor, purpose: Purpose | None) -> str:
    clock_mhz = governor.choice.sm_clock_mhz
    clock = "the governor's clock" if clock_mhz is None else f"{clock_mhz} MHz"
    if purpose is Purpose.PROBE:
        clocks = [str(one) for one in governor.settings.probe_clocks_mhz]
        return f"trying {', '.join(clocks[:-1])} and {clocks[-1]} MHz"
    if purpose is Purpose.VERIFY:
        return f"comparing {clock} with the governor's in pairs of blocks"
    if purpose is None:
        return f"the governor has the clock{_WHY.get(governor.outcome, '').format(clock=clock)}"
    saving = governor.saving
    if governor.outcome is Outcome.SAVES and saving is not None:
        return f"holding {clock}, which saves {1 - saving.energy_ratio:.1%} of a step's energy,"
    return f"holding {clock}, unchecked,"


_WHY = {
    Outcome.NOT_SHOWN: ", for {clock} was not shown to save energy,",
    Outcome.TOO_SLOW: ", for {clock} takes more time than allowed,",
}
