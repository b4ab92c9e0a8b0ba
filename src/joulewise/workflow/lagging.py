"""What becomes of a plan whose points are asked for only when they are needed."""

from __future__ import annotations

import math

from joulewise.domain.sweep import IntTable
from joulewise.plan.table import PlanTable

_WARM_COUNT = 2
_COUNTED_COUNT = 6


class _Clocks:
    """The column in force, and the one asked for with the time until it is in force."""

    def __init__(self, column: int) -> None:
        """Start with a point that has long been in force."""
        self.column = self.asked = column
        self.wait_s = math.inf

    def ask(self, column: int, lag_s: float) -> None:
        """Ask for a point; a request that is not in force yet is replaced."""
        if column == self.asked:
            return
        self.asked = column
        self.wait_s = math.inf if column == self.column else lag_s

    def run(self, times_s: list[float], energies_j: list[float]) -> tuple[float, float]:
        """Time (s) and energy (J) of one launch; the point may change while it runs."""
        left, spent_s, spent_j = 1.0, 0.0, 0.0
        while left > 0.0:
            whole_s = times_s[self.column]
            if math.isinf(whole_s):
                return math.inf, math.inf
            part = min(left, self.wait_s / whole_s)
            spent_s += part * whole_s
            spent_j += part * energies_j[self.column]
            left -= part
            if left > 0.0 or part * whole_s >= self.wait_s:
                self.column, self.wait_s = self.asked, math.inf
            else:
                self.wait_s -= part * whole_s
        return spent_s, spent_j


def late_totals(table: PlanTable, choice: IntTable, lag_s: float) -> tuple[float, float] | None:
    """Time (s) and energy (J) of one iteration when every point comes `lag_s` late.

    The point of a class is asked for when its first launch begins. Until it is in force work
    goes on at the old point, and a request made meanwhile takes the place of the last one, as
    on the virtual boards. The mean of several iterations, after a few to settle.

    Args:
        table: One class per launch, in order.
        choice: (C,) columns of the table.
        lag_s: From a request until it is in force.

    Returns `None` where a launch meets a point at which it was never measured.
    """
    clocks = _Clocks(int(choice[-1]))
    times, energies, columns = table.time_s.tolist(), table.energy_j.tolist(), choice.tolist()
    total_s = total_j = 0.0
    for iteration in range(_WARM_COUNT + _COUNTED_COUNT):
        for row, column in enumerate(columns):
            clocks.ask(column, lag_s)
            spent_s, spent_j = clocks.run(times[row], energies[row])
            if math.isinf(spent_s):
                return None
            if iteration >= _WARM_COUNT:
                total_s, total_j = total_s + spent_s, total_j + spent_j
    return total_s / _COUNTED_COUNT, total_j / _COUNTED_COUNT
