"""What U-curves of fine-tuning jobs come to: records of reports, and their sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from joulewise.domain.caveats import Caveat, CaveatKind, by_gravity
from joulewise.domain.finetuning import ClockCost, ClockCurve
from joulewise.report.wording import change, counted, percent

_MOST_JOBS_NAMED = 3


class CurveEdge(StrEnum):
    """At which end of the clocks that were measured the least energy lies."""

    LOWEST = "lowest"
    HIGHEST = "highest"


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveCharacter:
    """One curve, and what follows from it.

    `best` is the clock of least energy per step. `saving_ratio` and `slowdown_ratio` are its
    against the governor, `pinned_saving_ratio` and `pinned_slowdown_ratio` against `pinned`, the
    highest clock that was measured. `band_mhz` are the clocks around the best one whose energy
    is within `near_ratio` of its without a gap, `near_mhz` all clocks that are that near.
    `alike_mhz` are other clocks whose energy cannot be told from the best one's at two standard
    errors; `None`: no errors are known. `powers_w` has the mean power at every clock.
    """

    curve: ClockCurve
    best: ClockCost
    pinned: ClockCost
    saving_ratio: float
    slowdown_ratio: float
    pinned_saving_ratio: float
    pinned_slowdown_ratio: float
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
    edge: CurveEdge | None = None


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
    """The verdict over one curve, or over several of them."""
    if len(characters) == 1:
        return _of_one(characters[0])
    clocks = sorted(one.best.sm_clock_mhz or 0 for one in characters)
    savings = [one.saving_ratio for one in characters]
    slowdowns = [one.slowdown_ratio for one in characters]
    where = str(clocks[0]) if clocks[0] == clocks[-1] else f"{clocks[0]} to {clocks[-1]}"
    text = (
        f"Of {counted(len(characters), 'job')} the least energy lies at {where} MHz: "
        f"on average {_saved(_mean(savings))} than the governor takes, "
        f"{_signed_saving(min(savings))} to {_signed_saving(max(savings))}, at "
        f"{change(_mean(slowdowns))} time."
    )
    return " ".join((text, *_doubtful(characters)))


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
    best = one.best.sm_clock_mhz
    text = (
        f"{curve.job}: {best} MHz takes {_saved(one.saving_ratio)} per step than the governor, at "
        f"{change(one.slowdown_ratio)} time"
    )
    if one.pinned.sm_clock_mhz != best:
        text += (
            f", and {_saved(one.pinned_saving_ratio)} than {one.pinned.sm_clock_mhz} MHz, the "
            "highest"
        )
    near = clocks_text(one.near_mhz, curve.sm_clocks_mhz)
    if len(one.near_mhz) > 1:
        text += f"; {near} MHz come within {percent(one.near_ratio, digit_count=0)}"
    return " ".join((f"{text}.", *_doubtful([one])))


def _doubtful(characters: Sequence[CurveCharacter]) -> list[str]:
    """What the figures do not show, and where the curve is not whole."""
    notes = []
    unshown = [one.curve.job for one in characters if one.is_saving_shown is False]
    if unshown:
        whose = "It is" if len(characters) == 1 else f"For {_named(unshown)} that is"
        notes.append(f"{whose} no more than its error.")
    at_edge = [one for one in characters if one.edge is not None]
    if at_edge and len(characters) == 1:
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


def _signed_saving(ratio: float) -> str:
    return percent(ratio, digit_count=1)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
