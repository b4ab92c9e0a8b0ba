"""What the classes that are still relaxed can add to a partial plan."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from joulewise.domain.sweep import FloatTable, IntTable
from joulewise.plan.options import Options, Relaxation

ROUNDING_RATIO = 1e-12
"""Energies this close, relative to the whole, count as equal."""
PROVEN_RATIO = 1e-9
"""A gap this small, relative to the whole, counts as proof."""

_WINDOW_STEPS = 1024


def gap_ratio_of(value: float, bound: float) -> float:
    """By how much of itself a value lies above its bound; 0 where it does not."""
    return max(0.0, (value - bound) / value) if value > 0.0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Base:
    """The relaxation's last whole plan within the budget, and every option relative to it.

    `time_s`, `energy_j` (N,) are what changing one class to an option adds; `excess_j` (N,) is how
    far above the bound that change alone leads: Δe + rate·Δt, never negative.
    """

    choice: IntTable
    step_count: int
    total_energy_j: float
    slack_s: float
    rate_w: float
    time_s: FloatTable
    energy_j: FloatTable
    excess_j: FloatTable

    @property
    def bound_j(self) -> float:
        """No plan within the budget needs less energy, relative to the base plan: at most 0."""
        return -self.rate_w * self.slack_s


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Closing:
    """The best whole plan found and a proven bound, both relative to the base plan's energy.

    `choice` is `None` where nothing better than the given incumbent was found.
    """

    choice: IntTable | None
    energy_j: float
    bound_j: float


class Rest:
    """What the classes not yet taken in can add, by their relaxation, as their time changes.

    Only steps near the base plan are looked at; beyond them the energy is bounded by the rate of
    the next step, which no later step betters.
    """

    def __init__(
        self,
        options: Options,
        relaxation: Relaxation,
        base: Base,
        open_classes: IntTable,
    ) -> None:
        is_open_class = np.zeros(options.class_count, dtype=np.bool_)
        is_open_class[open_classes] = True
        is_open = is_open_class[relaxation.step_classes]
        steps = np.flatnonzero(is_open)
        taken_count = int(np.count_nonzero(is_open[: base.step_count]))
        low, high = max(0, taken_count - _WINDOW_STEPS), taken_count + _WINDOW_STEPS
        self._before = _Beyond(relaxation, steps[:low][::-1], options.class_count)
        self._after = _Beyond(relaxation, steps[high:], options.class_count)
        near = steps[low:high]
        self._classes = relaxation.step_classes[near]
        self._begins = relaxation.step_begins[near]
        self._ends = relaxation.step_ends[near]
        self._step_time_s = options.time_s[self._ends] - options.time_s[self._begins]
        self._step_energy_j = options.energy_j[self._ends] - options.energy_j[self._begins]
        self._is_taken = near < base.step_count
        self._sum_up()

    def drop(self, own_class: int) -> None:
        """Take a class out of the rest."""
        self._before.drop(own_class)
        self._after.drop(own_class)
        stays = self._classes != own_class
        self._classes = self._classes[stays]
        self._begins = self._begins[stays]
        self._ends = self._ends[stays]
        self._step_time_s = self._step_time_s[stays]
        self._step_energy_j = self._step_energy_j[stays]
        self._is_taken = self._is_taken[stays]
        self._sum_up()

    def _sum_up(self) -> None:
        """Time and energy after each step, relative to the base plan."""
        self._taken_count = int(np.count_nonzero(self._is_taken))
        self._time_s = _running_from(self._step_time_s, self._taken_count)
        self._energy_j = _running_from(self._step_energy_j, self._taken_count)

    def least_j(self, time_s: FloatTable) -> FloatTable:
        """Least energy that the rest adds when it may add `time_s`; +inf where it cannot."""
        least: FloatTable = np.interp(time_s, self._time_s, self._energy_j)
        if self._after.count:
            least -= self._after.rate_w * np.maximum(time_s - self._time_s[-1], 0.0)
        if self._before.count:
            least += self._before.rate_w * np.maximum(self._time_s[0] - time_s, 0.0)
        else:
            least[time_s < self._time_s[0]] = np.inf
        return least

    def rounded_j(self, time_s: FloatTable) -> tuple[FloatTable, IntTable]:
        """Energy that a whole choice of the rest adds within `time_s`, and its step count.

        +inf where the steps at hand do not reach.
        """
        counts = np.searchsorted(self._time_s, time_s, side="right") - 1
        return np.where(counts >= 0, self._energy_j[counts], np.inf), counts

    def changed_options(self, step_count: int) -> IntTable:
        """Options that differ from the base plan after so many steps; later entries overrule."""
        if step_count >= self._taken_count:
            return self._ends[self._taken_count : step_count]
        return self._begins[step_count : self._taken_count][::-1]


class _Beyond:
    """Steps too far from the base plan to be looked at singly; the nearest comes first."""

    def __init__(self, relaxation: Relaxation, steps: IntTable, class_count: int) -> None:
        self._per_class = np.bincount(relaxation.step_classes[steps], minlength=class_count)
        self.count = int(steps.size)
        self.rate_w = float(relaxation.rate_w[steps[0]]) if steps.size else 0.0

    def drop(self, own_class: int) -> None:
        self.count -= int(self._per_class[own_class])


def _running_from(steps: FloatTable, origin: int) -> FloatTable:
    """Running sum that is 0 after `origin` steps."""
    running: FloatTable = np.concatenate([[0.0], np.cumsum(steps)])
    running -= running[origin]
    return running
