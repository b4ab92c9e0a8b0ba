"""What U-curves of fine-tuning jobs come to: records of reports, and their sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from joulewise.domain.caveats import Caveat, CaveatKind, by_gravity
from joulewise.domain.finetuning import ClockCost, ClockCurve
from joulewise.report.wording import change, counted, percent

STD_ERROR_COUNT = 2.0
"""A difference within so many of its standard errors is not told as one."""
_MOST_JOBS_NAMED = 3


class CurveEdge(StrEnum):
    """At which end of the clocks that were measured the least energy lies."""

    LOWEST = "lowest"
    HIGHEST = "highest"


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveCharacter:
    """One curve, and what follows from it.

    `best` is the clock of least energy per step. `saving_ratio` and `slowdown_ratio` are its
    against the governor, `highest_saving_ratio` and `highest_slowdown_ratio` against `highest`,
    the highest clock that was measured; a curve does not say whether the device has a higher one.
    What people are told of a saving is `told_saving_ratio`. `fast` is the
    clock of least time among those within `near_ratio` of the least energy, often far faster than
    `best`; `fast_saving_ratio` and `fast_slowdown_ratio` are against the governor. `band_mhz`
    are the clocks around the
    best one whose energy is within `near_ratio` of its without a gap, `near_mhz` all clocks that
    are that near. `alike_mhz` are other clocks whose energy cannot be told from the best one's at
    two standard errors; `None`: no errors are known. `powers_w` has the mean power at every clock.
    """

    curve: ClockCurve
    best: ClockCost
    highest: ClockCost
    saving_ratio: float
    slowdown_ratio: float
    highest_saving_ratio: float
    highest_slowdown_ratio: float
    fast: ClockCost
    fast_saving_ratio: float
    fast_slowdown_ratio: float
    near_ratio: float
    band_mhz: tuple[int, ...]
    near_mhz: tuple[int, ...]
    powers_w: tuple[float, ...]
    baseline_power_w: float
    alike_mhz: tuple[int, ...] | None = None
    saving_error_ratio: float | None = None
    """Standard error of `saving_ratio`."""
    is_saving_shown: bool | None = None
    """Whether the saving against the governor exceeds two of its standard errors."""
    highest_saving_error_ratio: float | None = None
    is_highest_saving_shown: bool | None = None
    """Whether the saving against `highest` exceeds two of its standard errors."""
    fast_saving_error_ratio: float | None = None
    """Standard error of `fast_saving_ratio`."""
    edge: CurveEdge | None = None

    @property
    def told_fast_saving_ratio(self) -> float | None:
        """Saving or loss of the fast clock against the governor; `None` where it is not shown."""
        return _told(self.fast_saving_ratio, self.fast_saving_error_ratio)

    @property
    def told_saving_ratio(self) -> float | None:
        """Saving or, below 0, loss against the governor; `None` where it is not shown."""
        return _told(self.saving_ratio, self.saving_error_ratio)

    @property
    def told_highest_saving_ratio(self) -> float | None:
        """The same against the highest clock measured."""
        return _told(self.highest_saving_ratio, self.highest_saving_error_ratio)


def clocks_text(clocks_mhz: Sequence[int], measured_mhz: Sequence[int]) -> str:
    """`510-714, 918`: runs of neighbours among the clocks that were measured, in MHz."""
    runs: list[list[int]] = []
    for clock in sorted(clocks_mhz):
        place = measured_mhz.index(clock)
        if runs and measured_mhz.index(runs[-1][-1]) == place - 1:
            runs[-1].append(clock)
        else:
            runs.append([clock])
    return ", ".join(
        str(run[0]) if len(run) == 1 else f"{run[0]}\N{EN DASH}{run[-1]}" for run in runs
    )


def ucurve_sentence(characters: Sequence[CurveCharacter]) -> str:
    """The verdict over one curve, or over several; what errors do not part is not claimed."""
    if len(characters) == 1:
        return _of_one(characters[0])
    clocks = sorted(one.best.sm_clock_mhz or 0 for one in characters)
    where = str(clocks[0]) if clocks[0] == clocks[-1] else f"{clocks[0]} to {clocks[-1]}"
    text = f"Of {counted(len(characters), 'job')} the least energy lies at {where} MHz: "
    fast = _fast_of_several(characters)
    return " ".join((f"{text}{_of_several(characters)}.", *fast, *_doubtful(characters)))


def curve_caveats(characters: Sequence[CurveCharacter]) -> tuple[Caveat, ...]:
    """Doubts about the curves and their cells, each kind once; cells are counted."""
    first: dict[CaveatKind, Caveat] = {}
    counts: dict[CaveatKind, int] = {}
    cell_count = 0
    for one in characters:
        for caveat in one.curve.caveats:
            first.setdefault(caveat.kind, caveat)
        for cost in (one.curve.baseline, *one.curve.costs):
            cell_count += 1
            for kind in {caveat.kind for caveat in cost.caveats}:
                counts[kind] = counts.get(kind, 0) + 1
    of_cells = (
        Caveat(kind=kind, seen=f"{counts[kind]} of {cell_count} cells.")
        for kind in sorted(counts)
        if kind not in first
    )
    return by_gravity((*first.values(), *of_cells))


def _of_one(one: CurveCharacter) -> str:
    curve = one.curve
    best, highest = one.best.sm_clock_mhz, one.highest.sm_clock_mhz
    told, told_highest = one.told_saving_ratio, one.told_highest_saving_ratio
    slowdown = change(one.slowdown_ratio, digit_count=1)
    if told is None:
        why = "errors are not known"
        if one.saving_error_ratio is not None:
            why = "the difference is within two standard errors"
        text = f"no saving against the governor is shown, as {why}; {best} MHz took the least "
        text += "energy per step"
    elif told > 0:
        text = f"{best} MHz takes {_saved(told)} per step than the governor"
    else:
        text = f"no clock saves energy; the best, {best} MHz, takes {_saved(told)} per step than "
        text += "the governor"
    text = f"{curve.job}: {text}, at {slowdown} time"
    if highest != best and told_highest is not None:
        text += f", and {_saved(told_highest)} than {highest} MHz, the highest measured"
    near = clocks_text(one.near_mhz, curve.sm_clocks_mhz)
    if len(one.near_mhz) > 1:
        text += f"; {near} MHz come within {percent(one.near_ratio, digit_count=0)}"
    text += _fast(one)
    return " ".join((f"{text}.", *_doubtful([one])))


def _fast(one: CurveCharacter) -> str:
    """The clock that costs hardly more energy and less time, where that is another one."""
    if one.fast is one.best:
        return ""
    told = one.told_fast_saving_ratio
    against = "" if told is None else f"{_saved(told)} than the governor, "
    time = change(one.fast_slowdown_ratio, digit_count=1)
    return f", the fastest {one.fast.sm_clock_mhz} MHz: {against}{time} time"


def _fast_of_several(characters: Sequence[CurveCharacter]) -> list[str]:
    """What the faster clocks come to on average."""
    if all(one.fast is one.best for one in characters):
        return []
    mean = _told(
        _mean([one.fast_saving_ratio for one in characters]),
        _mean_error([one.fast_saving_error_ratio for one in characters]),
    )
    near = percent(characters[0].near_ratio, digit_count=0)
    against = "no shown saving" if mean is None else _saved(mean)
    time = _slowdown([one.fast_slowdown_ratio for one in characters])
    return [f"The fastest clocks within {near} of that energy: {against}, at {time} time."]


def _of_several(characters: Sequence[CurveCharacter]) -> str:
    """The mean over all jobs, shown or not, and the span of those that are shown."""
    shown = [one.saving_ratio for one in characters if one.is_saving_shown]
    span = ""
    if shown:
        span = percent(max(shown), digit_count=1)
        if len(shown) > 1:
            span = f"{percent(min(shown), digit_count=1)} to {span}"
    mean = _told(
        _mean([one.saving_ratio for one in characters]),
        _mean_error([one.saving_error_ratio for one in characters]),
    )
    at = f"at {_slowdown([one.slowdown_ratio for one in characters])} time"
    if mean is None:
        of_some = f"; where a job's own is shown, it is {span}" if shown else ""
        return f"no saving against the governor is shown on average, {at}{of_some}"
    text = f"on average {_saved(mean)} than the governor takes"
    if len(shown) == len(characters):
        return f"{text}, {span}, {at}"
    return f"{text}, {at}" + (f", and {span} where a job's own saving is shown" if shown else "")


def _doubtful(characters: Sequence[CurveCharacter]) -> list[str]:
    """What the figures do not show, and where the curve is not whole."""
    is_alone = len(characters) == 1
    notes = []
    within = [one for one in characters if one.told_saving_ratio is None and not is_alone]
    unknown = [one.curve.job for one in within if one.saving_error_ratio is None]
    known = [one.curve.job for one in within if one.saving_error_ratio is not None]
    if known:
        notes.append(f"For {_named(known)} no saving is shown: it is within two standard errors.")
    if unknown:
        notes.append(f"For {_named(unknown)} no saving is shown: errors are not known.")
    at_edge = [one for one in characters if one.edge is not None]
    if at_edge and is_alone:
        notes.append(f"That is the {at_edge[0].edge} clock measured: the least may lie beyond.")
    elif at_edge:
        jobs = _named([one.curve.job for one in at_edge])
        notes.append(f"At the edge of the clocks measured: {jobs}.")
    return notes


def _named(jobs: Sequence[str]) -> str:
    if len(jobs) <= _MOST_JOBS_NAMED:
        return ", ".join(jobs)
    return counted(len(jobs), "job")


def _saved(ratio: float) -> str:
    word = "less" if ratio >= 0 else "more"
    return f"{percent(abs(ratio), digit_count=1)} {word} energy"


def _told(saving_ratio: float, error_ratio: float | None) -> float | None:
    """A saving or a loss that exceeds two of its standard errors; else `None`."""
    if error_ratio is None or not abs(saving_ratio) > STD_ERROR_COUNT * error_ratio:
        return None
    return saving_ratio


def _mean_error(errors: Sequence[float | None]) -> float | None:
    """Standard error of the mean saving: jobs are measured apart from each other."""
    known = [error for error in errors if error is not None]
    return None if len(known) < len(errors) else math.hypot(*known) / len(known)


def _slowdown(ratios: Sequence[float]) -> str:
    return change(_mean(ratios), digit_count=1)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
