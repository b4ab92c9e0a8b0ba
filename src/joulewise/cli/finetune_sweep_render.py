"""U-curves of fine-tuning jobs on the terminal and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from joulewise.cli.outcome import Outcome
from joulewise.cli.render import percent, print_caveats, print_line, say, signed_percent, table
from joulewise.domain.finetuning import ClockCost
from joulewise.domain.plan import Status
from joulewise.report.ucurve import CurveCharacter
from joulewise.report.ucurve_table import NOT_SHOWN, energy_with_error
from joulewise.workflow.finetune_reporting import CurveReport

_COLUMNS = ("job", "best MHz", "saving", "time", "fast MHz", "saving", "time")


def sweep_outcome(report: CurveReport, out: Path | None, page: Path | None) -> Outcome:
    """The result of a sweep: the table, the verdict, and every number behind them."""
    first = report.characters[0]
    is_alone = len(report.characters) == 1
    return Outcome(
        status=Status.FEASIBLE,
        render=lambda console: render(console, report, out, page),
        slowdown_ratio=first.slowdown_ratio if is_alone else None,
        saving_ratio=first.told_saving_ratio if is_alone else None,
        energy_j=first.best.energy_j if is_alone else None,
        time_s=first.best.time_s if is_alone else None,
        caveats=report.caveats,
        extra={
            "device": first.curve.device,
            "device_name": first.curve.device_name,
            "is_simulated": first.curve.is_simulated,
            "curves": None if out is None else str(out),
            "former_curves": None if report.former is None else str(report.former),
            "page": None if page is None else str(page),
            "jobs": [_document(one) for one in report.characters],
        },
    )


def render(console: Console, report: CurveReport, out: Path | None, page: Path | None) -> None:
    """One table, the doubts, one sentence, and where the files are."""
    console.print(table(None, _COLUMNS, _rows(report.characters), copied_count=1))
    for one in report.characters:
        print_line(console, _unshown(one))
    print_caveats(console, report.caveats)
    say(console, f"{_origin(report)} {report.sentence}")
    print_line(console, None if out is None else f"Curves: {out}")
    former = report.former
    print_line(console, None if former is None else f"The file that lay there: {former}")
    print_line(console, None if page is None else f"Figure: {page}")


def _origin(report: CurveReport) -> str:
    """What the figures come from: a model, or hardware."""
    curves = report.curves
    devices = dict.fromkeys(f"{one.device_name} ({one.device})" for one in curves)
    is_simulated = any(one.is_simulated for one in curves)
    return f"{'Simulated' if is_simulated else 'Measured on'} {', '.join(devices)}."


def _rows(characters: Sequence[CurveCharacter]) -> Iterator[tuple[str, ...]]:
    for one in characters:
        yield (
            one.curve.job,
            str(one.best.sm_clock_mhz),
            _saving(one.told_saving_ratio, one.saving_error_ratio),
            signed_percent(one.slowdown_ratio - 1, 1),
            str(one.fast.sm_clock_mhz),
            _saving(one.told_fast_saving_ratio, None),
            signed_percent(one.fast_slowdown_ratio - 1, 1),
        )


def _saving(told: float | None, error_ratio: float | None) -> str:
    if told is None:
        return NOT_SHOWN
    return percent(told) + ("" if error_ratio is None else f" ± {100 * error_ratio:.1f}")


def _unshown(one: CurveCharacter) -> str | None:
    """What was measured of a job whose saving is not shown."""
    if one.told_saving_ratio is not None:
        return None
    best, base = energy_with_error(one.best), energy_with_error(one.curve.baseline)
    return f"{one.curve.job}: {best} at {one.best.sm_clock_mhz} MHz, {base} under the governor"


def _document(one: CurveCharacter) -> dict[str, object]:
    curve = one.curve
    return {
        "job": curve.job,
        "best_sm_clock_mhz": one.best.sm_clock_mhz,
        "saving_ratio": one.told_saving_ratio,
        "saving_error_ratio": one.saving_error_ratio,
        "is_saving_shown": one.is_saving_shown,
        "slowdown_ratio": one.slowdown_ratio,
        "highest_sm_clock_mhz": one.highest.sm_clock_mhz,
        "highest_saving_ratio": one.told_highest_saving_ratio,
        "highest_saving_error_ratio": one.highest_saving_error_ratio,
        "is_highest_saving_shown": one.is_highest_saving_shown,
        "highest_slowdown_ratio": one.highest_slowdown_ratio,
        "fast_sm_clock_mhz": one.fast.sm_clock_mhz,
        "fast_saving_ratio": one.told_fast_saving_ratio,
        "fast_saving_error_ratio": one.fast_saving_error_ratio,
        "fast_slowdown_ratio": one.fast_slowdown_ratio,
        "near_ratio": one.near_ratio,
        "band_mhz": one.band_mhz,
        "near_mhz": one.near_mhz,
        "alike_mhz": one.alike_mhz,
        "edge": one.edge,
        "baseline": _cost(curve.baseline),
        "costs": [_cost(cost) for cost in curve.costs],
    }


def _cost(cost: ClockCost) -> dict[str, object]:
    return {
        "sm_clock_mhz": cost.sm_clock_mhz,
        "mem_clock_mhz": cost.mem_clock_mhz,
        "time_s": cost.time_s,
        "time_error_s": cost.time_error_s,
        "energy_j": cost.energy_j,
        "energy_error_j": cost.energy_error_j,
        "power_w": cost.energy_j / cost.time_s,
        "busy_ratio": cost.busy_ratio,
        "step_count": cost.step_count,
    }
