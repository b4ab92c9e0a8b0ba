"""`joulewise import tegrastats`: a log of a Jetson, added up."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from joulewise.cli.options import AsJson, FailOn
from joulewise.cli.outcome import Outcome, finish
from joulewise.cli.render import (
    counted,
    joules,
    percent,
    print_caveats,
    print_line,
    print_wrapped,
    say,
    seconds,
    table,
)
from joulewise.cli.values import caveat_kinds
from joulewise.domain.errors import InputError
from joulewise.domain.plan import Status
from joulewise.report.wording import decimal
from joulewise.workflow.importing_tegrastats import ClocksSeen, TegrastatsSummary, summarise_log

_PER_S = {"s": 1.0, "ms": 1e3, "µs": 1e6}
_UNITS_S = {"": 1.0, "s": 1.0, "ms": 1e-3}
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{0,9})?|\.\d{1,9})\s*(ms|s|)", re.ASCII)

LogFile = Annotated[Path, typer.Argument(metavar="LOG", show_default=False)]
IntervalOption = Annotated[
    str | None,
    typer.Option(
        "--interval",
        envvar="JOULEWISE_TEGRASTATS_INTERVAL",
        metavar="TIME",
        help="How far lines lie apart, such as 500ms. Default: as their stamps tell.",
    ),
]
From = Annotated[
    float | None,
    typer.Option(
        "--from",
        envvar="JOULEWISE_FROM",
        metavar="S",
        help="Only lines from that time on, in s since the first line.",
    ),
]
To = Annotated[
    float | None,
    typer.Option(
        "--to",
        envvar="JOULEWISE_TO",
        metavar="S",
        help="Only lines up to that time, in s since the first line.",
    ),
]


def import_tegrastats(
    file: LogFile,
    interval: IntervalOption = None,
    from_s: From = None,
    to_s: To = None,
    as_json: AsJson = False,
    fail_on: FailOn = None,
) -> None:
    """Add up a log of tegrastats: energy and mean power of the module, rails, clocks, load."""
    wanted = caveat_kinds(fail_on)
    interval_s = None if interval is None else _duration_s(interval)
    summary = summarise_log(file, interval_s=interval_s, from_s=from_s, to_s=to_s)

    def render(console: Console) -> None:
        _print(console, summary)

    outcome = Outcome(
        status=Status.FEASIBLE,
        render=render,
        caveats=summary.caveats,
        energy_j=summary.energy_j,
        time_s=summary.duration_s,
        extra=_document(summary),
    )
    finish(outcome, as_json=as_json, fail_on=wanted)


def _duration_s(text: str) -> float:
    match = _DURATION.fullmatch(text.strip().lower())
    duration_s = 0.0 if match is None else float(match[1]) * _UNITS_S[match[2]]
    if duration_s <= 0:
        raise InputError(
            f"{text!r} is no time between lines", field="interval", hint="Write 500ms or 0.5s."
        )
    return duration_s


def _print(console: Console, summary: TegrastatsSummary) -> None:
    if summary.rails:
        rows = [
            (
                one.rail,
                joules(one.energy_j),
                _power(one.energy_j, one.time_s),
                "yes" if one.is_counted else "no",
            )
            for one in summary.rails
        ]
        console.print(table(None, ("rail", "energy", "mean power", "counted"), rows))
        console.print()
    for name, value in _facts(summary):
        print_line(console, f"{name:<16} {value}")
    if summary.notes:
        console.print()
        console.print("Doubtful", style="bold")
        for note in summary.notes:
            print_wrapped(console, f"{note[0].upper()}{note[1:]}.")
    print_caveats(console, summary.caveats)
    say(console, _verdict(summary))


def _facts(summary: TegrastatsSummary) -> Iterator[tuple[str, str]]:
    yield "lines", f"{summary.line_count}, of {counted(summary.run_count, 'run')}"
    if summary.interval_s is not None:
        yield "apart by", give_or_take(summary.interval_s, summary.interval_error_s)
    yield from _clocks("GPU clock", summary.sm_clocks)
    yield from _clocks("memory clock", summary.mem_clocks)
    if summary.busy_ratio is not None:
        yield "GPU busy", percent(summary.busy_ratio)
    if summary.highest_gpu_temp_c is not None:
        yield "hottest GPU", f"{decimal(summary.highest_gpu_temp_c, 1)} °C"


def give_or_take(time_s: float, error_s: float | None) -> str:
    """The error in the unit of the time, and to its last digit: `111.1 ms, give or take 0.5 ms`."""
    said = seconds(time_s)
    if error_s is None:
        return said
    digits, unit = said.split(" ")
    places_count = len(digits.partition(".")[2])
    least = 10.0**-places_count
    if error_s * _PER_S[unit] < least / 2:
        return f"{said}, give or take less than {decimal(least, places_count)} {unit}"
    return f"{said}, give or take {decimal(error_s * _PER_S[unit], places_count)} {unit}"


def _clocks(name: str, seen: ClocksSeen | None) -> Iterator[tuple[str, str]]:
    if seen is None:
        return
    if seen.least_mhz == seen.most_mhz:
        yield name, f"{seen.median_mhz} MHz"
    else:
        yield name, f"{seen.median_mhz} MHz (median; {seen.least_mhz} to {seen.most_mhz})"


def _power(energy_j: float, time_s: float | None) -> str:
    if time_s is None or time_s <= 0:
        return ""
    return f"{decimal(energy_j / time_s, 3)} W"


def _verdict(summary: TegrastatsSummary) -> str:
    told_s = summary.energy_time_s
    if summary.energy_j is None or summary.mean_power_w is None or told_s is None:
        return f"{seconds(summary.duration_s)} of log, and no energy of the module in it."
    return (
        f"The module took {joules(summary.energy_j)} in {seconds(told_s)}: "
        f"{decimal(summary.mean_power_w, 3)} W in the mean."
    )


def _document(summary: TegrastatsSummary) -> dict[str, object]:
    return {
        "energy_time_s": summary.energy_time_s,
        "mean_power_w": summary.mean_power_w,
        "rails": summary.rails,
        "left_out": summary.left_out,
        "line_count": summary.line_count,
        "run_count": summary.run_count,
        "interval_s": summary.interval_s,
        "interval_error_s": summary.interval_error_s,
        "sm_clocks": summary.sm_clocks,
        "mem_clocks": summary.mem_clocks,
        "busy_ratio": summary.busy_ratio,
        "highest_gpu_temp_c": summary.highest_gpu_temp_c,
        "repeated_ratio": summary.repeated_ratio,
        "update_period_s": summary.update_period_s,
        "notes": summary.notes,
    }
