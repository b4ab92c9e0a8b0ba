"""What becomes of a requested operating point: when it takes effect, and what that costs."""

from __future__ import annotations

from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.transition import (
    TransitionCost,
    TransitionDomain,
    TransitionModel,
    uniform_transition,
)
from joulewise.domain.transition_presets import STALL_POWER_W, transition_preset
from joulewise.simulator.boards import board
from joulewise.simulator.device_string import VirtualOptions
from joulewise.simulator.virtual_time import NEVER, Units, seconds, units

# A change that the model does not know. `plan_table` refuses to plan one; what is left is to
# give the clocks back, and nobody waits for that.
_UNKNOWN = TransitionCost(domain=TransitionDomain.SM)


def board_transition(options: VirtualOptions, given: TransitionModel | None) -> TransitionModel:
    """What changes cost on a virtual board.

    The device string decides where it says anything of them; else the model given; else the
    board's own lag.
    """
    if options.transition is not None:
        named = transition_preset(options.transition)
        if named is not None:
            return named
    if options.stall_s is not None:
        power_w = STALL_POWER_W if options.stall_power_w is None else options.stall_power_w
        return uniform_transition(
            "virtual",
            f"device string {options.spec}",
            stall_s=options.stall_s,
            lag_s=options.lag_s or 0.0,
            energy_j=power_w * options.stall_s,
        )
    if options.lag_s is None and given is not None:
        return given
    lag_s = board(options.preset).transition_lag_s if options.lag_s is None else options.lag_s
    return uniform_transition("virtual", f"device string {options.spec}", lag_s=lag_s)


class ClockDriver:
    """Takes one request at a time; a request made while another is on its way replaces it."""

    def __init__(self, transition: TransitionModel) -> None:
        """Every knob with the driver, nothing on its way."""
        self.transition = transition
        self.point = AUTO
        """The operating point in force."""
        self.due_at: Units = NEVER
        """When the request on its way takes effect."""
        self.stalled_until: Units = 0
        self.stall_power_w = 0.0
        """Power at thermal equilibrium while the GPU waits."""
        self.change_count = 0
        """Changes that took effect so far."""
        self.wanted = AUTO
        """The operating point last asked for."""
        self._cost = _UNKNOWN
        self._rested_at: Units = 0

    def want(self, point: OperatingPoint, now: Units) -> None:
        """Install a request; it takes effect after its lag, and no earlier than the dwell."""
        asked_at = max(now, self._rested_at)
        self.wanted = point
        self._cost = self.transition.cost(self.point, point) or _UNKNOWN
        lead = self.transition.lead(self.point, point)
        self._rested_at = asked_at + units(self.transition.dwell_s)
        self.due_at = asked_at + units(self._cost.lag_s if lead is None else lead.lead_s)

    def ready_at(self, now: Units) -> Units:
        """From when on a request neither replaces another nor breaks the dwell."""
        pending_until = 0 if self.due_at == NEVER else self.due_at
        return max(now, self._rested_at, pending_until)

    def take_effect(self, now: Units) -> float | None:
        """Put a request that is due in force.

        Returns:
            Energy (J) spent at once, beside what is drawn while the GPU waits; `None` where
            nothing changed.
        """
        if now < self.due_at:
            return None
        self.due_at = NEVER
        if self.wanted == self.point:
            return None
        self.point = self.wanted
        self.change_count += 1
        stall = units(self._cost.stall_s)
        if not stall:
            return self._cost.energy_j
        waiting = max(0, self.stalled_until - now)
        left_j = self.stall_power_w * seconds(waiting)
        self.stalled_until = now + waiting + stall
        self.stall_power_w = (left_j + self._cost.energy_j) / seconds(waiting + stall)
        return 0.0
