"""What is worth choosing: each class's undominated points, and the convex ones among them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from joulewise.domain.sweep import FloatTable, IntTable


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Options:
    """The undominated points of every class, flat: by class, then from fast to frugal.

    Within a class `time_s` rises and `energy_j` falls, both strictly. `classes` and `columns`
    name the cell of the (C, P) table that an option stands for. All arrays are (N,).
    """

    class_count: int
    classes: IntTable
    columns: IntTable
    time_s: FloatTable
    energy_j: FloatTable

    def subset(self, is_kept: NDArray[np.bool_]) -> Options:
        """The same classes with fewer options; every class must keep one."""
        return Options(
            class_count=self.class_count,
            classes=self.classes[is_kept],
            columns=self.columns[is_kept],
            time_s=self.time_s[is_kept],
            energy_j=self.energy_j[is_kept],
        )

    @property
    def fastest(self) -> IntTable:
        """(C,) index of every class's fastest option."""
        return np.searchsorted(self.classes, np.arange(self.class_count))

    @property
    def cheapest(self) -> IntTable:
        """(C,) index of every class's option of least energy."""
        return np.searchsorted(self.classes, np.arange(self.class_count), side="right") - 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Relaxation:
    """The whole frontier of the linear relaxation, found in one pass.

    It walks from every class at its fastest option to every class at its cheapest; each of the
    S steps moves one class to its next convex option, the step that saves most energy per
    second first. After any number of steps the choice is whole: a *supported* plan, on the
    convex hull of all plans. `rate_w` (S,) is the saving per second of each step, falling;
    `time_s` and `energy_j` (S + 1,) are totals after 0, 1, … S steps; step s leads class
    `step_classes[s]` from the option `step_begins[s]` to `step_ends[s]`.

    Source: Sinha and Zoltners, The multiple-choice knapsack problem, Operations Research 27
    (1979), propositions 1 and 2.
    """

    start: IntTable
    step_classes: IntTable
    step_begins: IntTable
    step_ends: IntTable
    rate_w: FloatTable
    time_s: FloatTable
    energy_j: FloatTable

    def choice_after(self, step_count: int) -> IntTable:
        """(C,) option of every class after so many steps."""
        choice = self.start.copy()
        # Steps of one class come in order of time, so the last write is the slowest option.
        choice[self.step_classes[:step_count]] = self.step_ends[:step_count]
        return choice


def options_of(time_s: FloatTable, energy_j: FloatTable) -> Options:
    """Drop every point that another point of its class beats or equals.

    Args:
        time_s: (C, P) times; +inf where absent.
        energy_j: (C, P) energies; +inf where absent.

    Every class must have at least one finite cell. Of equal points the first column stays.
    """
    order = np.argsort(time_s, axis=1, kind="stable")
    energies = np.take_along_axis(energy_j, order, axis=1)
    is_better = np.empty(energies.shape, dtype=np.bool_)
    is_better[:, 0] = True
    np.less(energies[:, 1:], np.minimum.accumulate(energies, axis=1)[:, :-1], out=is_better[:, 1:])
    classes, places = np.nonzero(is_better)
    columns = order[classes, places]
    times = time_s[classes, columns]
    # Of equal times the last one is the cheapest: the earlier ones go.
    is_last = np.append((times[1:] != times[:-1]) | (classes[1:] != classes[:-1]), [True])
    classes, columns = classes[is_last], columns[is_last]
    return Options(
        class_count=time_s.shape[0],
        classes=classes,
        columns=columns,
        time_s=times[is_last],
        energy_j=energy_j[classes, columns],
    )


def relaxation_of(options: Options) -> Relaxation:
    """Solve the linear relaxation for every budget at once."""
    hull, rates = _convex(options)
    is_step = np.isfinite(rates)
    ends = hull[is_step]
    begins = hull[np.flatnonzero(is_step) - 1]
    # Stable, so that equal rates of one class stay in order of time.
    order = np.argsort(-rates[is_step], kind="stable")
    ends, begins = ends[order], begins[order]
    start = options.fastest
    time_s, energy_j = options.time_s, options.energy_j
    return Relaxation(
        start=start,
        step_classes=options.classes[ends],
        step_begins=begins,
        step_ends=ends,
        rate_w=rates[is_step][order],
        time_s=_running(time_s[start].sum(), time_s[ends] - time_s[begins]),
        energy_j=_running(energy_j[start].sum(), energy_j[ends] - energy_j[begins]),
    )


def _convex(options: Options) -> tuple[IntTable, FloatTable]:
    """Indices of the options on each class's convex hull, and the saving rate into each (W).

    The rate into a class's first option is +inf. A point above the line between its present
    neighbours is on no hull, so each round drops all of these together.
    """
    hull = np.arange(options.classes.size)
    while True:
        rates = _rates_w(options, hull)
        is_bent = np.append(rates[1:] >= rates[:-1], [False])
        # The next option starts another class: nothing to compare with.
        is_bent &= np.append(np.isfinite(rates[1:]), [False])
        if not is_bent.any():
            return hull, rates
        hull = hull[~is_bent]


def _rates_w(options: Options, hull: IntTable) -> FloatTable:
    time_s, energy_j, classes = options.time_s[hull], options.energy_j[hull], options.classes[hull]
    rates = np.full(hull.size, np.inf)
    is_inner = np.flatnonzero(classes[1:] == classes[:-1])
    rates[is_inner + 1] = -(np.diff(energy_j)[is_inner] / np.diff(time_s)[is_inner])
    return rates


def _running(start: float, steps: FloatTable) -> NDArray[np.float64]:
    return np.cumsum(np.concatenate([[start], steps]))
