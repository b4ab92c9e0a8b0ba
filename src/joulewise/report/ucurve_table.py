"""The tables of U-curves: one row a job, and one row a clock of a job, as people read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from joulewise.domain.finetuning import ClockCost
from joulewise.report.ucurve import CurveCharacter, CurveEdge, clocks_text
from joulewise.report.wording import change, decimal, duration, energy, percent

NOT_SHOWN = "not shown"
_EDGES = {
    CurveEdge.LOWEST: "lowest clock measured",
    CurveEdge.HIGHEST: "highest clock measured",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """One job in words: its best clock, against what, and which clocks do as well.

    `saving` and `highest_saving` say that they are not shown where they are within two of their
    errors; `energy` and `baseline_energy` are what was measured all the same.
    """

    job: str
    best: str
    energy: str
    baseline_energy: str
    saving: str
    slowdown: str
    highest: str
    highest_saving: str
    highest_slowdown: str
    fast: str
    fast_saving: str
    fast_slowdown: str
    near: str
    alike: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockRow:
    """One clock of one job in words; `mark` says what it is, where it is anything special."""

    clock: str
    mark: str
    time: str
    time_change: str
    energy: str
    energy_change: str
    power: str
    busy: str
    memory: str


def job_rows(characters: Sequence[CurveCharacter]) -> tuple[JobRow, ...]:
    """One row a job, in the order given."""
    return tuple(_job_row(one) for one in characters)


def clock_rows(one: CurveCharacter) -> tuple[ClockRow, ...]:
    """The governor, then every clock, ascending."""
    return tuple(_clock_rows(one))


def energy_with_error(cost: ClockCost) -> str:
    """`23.5 J ± 0.4 %`."""
    return f"{energy(cost.energy_j)}{_error(cost.energy_error_j, cost.energy_j)}"


def time_with_error(cost: ClockCost) -> str:
    """`1.204 s ± 0.3 %`."""
    return f"{duration(cost.time_s)}{_error(cost.time_error_s, cost.time_s)}"


def _job_row(one: CurveCharacter) -> JobRow:
    measured = one.curve.sm_clocks_mhz
    alike = one.alike_mhz
    return JobRow(
        job=one.curve.job,
        best=f"{one.best.sm_clock_mhz}",
        energy=energy_with_error(one.best),
        baseline_energy=energy_with_error(one.curve.baseline),
        saving=_saving(one.told_saving_ratio, one.saving_error_ratio),
        slowdown=change(one.slowdown_ratio, digit_count=1),
        highest=f"{one.highest.sm_clock_mhz}",
        highest_saving=_highest_saving(one),
        highest_slowdown=change(one.highest_slowdown_ratio, digit_count=1),
        fast=f"{one.fast.sm_clock_mhz}",
        fast_saving=_saving(one.told_fast_saving_ratio, one.fast_saving_error_ratio),
        fast_slowdown=change(one.fast_slowdown_ratio, digit_count=1),
        near=clocks_text(one.near_mhz, measured),
        alike="unknown" if alike is None else clocks_text(alike, measured) or "none",
        note="" if one.edge is None else _EDGES[one.edge],
    )


def _saving(told: float | None, error_ratio: float | None) -> str:
    if told is None:
        return NOT_SHOWN
    error = "" if error_ratio is None else f" ± {percent(error_ratio, digit_count=1)}"
    return f"{percent(told, digit_count=1)}{error}"


def _highest_saving(one: CurveCharacter) -> str:
    if one.best is one.highest:
        return "is the best"
    return _saving(one.told_highest_saving_ratio, None)


def _clock_rows(one: CurveCharacter) -> Iterator[ClockRow]:
    base = one.curve.baseline
    for cost in (base, *one.curve.costs):
        yield ClockRow(
            clock="governor" if cost.sm_clock_mhz is None else str(cost.sm_clock_mhz),
            mark=_mark(one, cost),
            time=time_with_error(cost),
            time_change=change(cost.time_s / base.time_s, digit_count=1),
            energy=energy_with_error(cost),
            energy_change=change(cost.energy_j / base.energy_j, digit_count=1),
            power=_watts(cost),
            busy="" if cost.busy_ratio is None else percent(cost.busy_ratio, digit_count=0),
            memory="" if cost.mem_clock_mhz is None else str(cost.mem_clock_mhz),
        )


def _mark(one: CurveCharacter, cost: ClockCost) -> str:
    if cost is one.curve.baseline:
        return "baseline"
    if cost is one.best:
        return "least energy"
    if cost.sm_clock_mhz in one.band_mhz:
        return f"within {percent(one.near_ratio, digit_count=0)}"
    return "highest measured" if cost is one.highest else ""


def _watts(cost: ClockCost) -> str:
    return f"{decimal(cost.energy_j / cost.time_s, 1)}\N{NARROW NO-BREAK SPACE}W"


def _error(error: float | None, value: float) -> str:
    return "" if error is None else f" ± {percent(error / value, digit_count=1)}"
