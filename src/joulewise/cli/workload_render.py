"""How a workload reads in a terminal: kernels, passes as bars, what the job is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console

from joulewise.cli.render import counted, joules, percent, seconds, table, visible
from joulewise.domain.trace import IterationTrace
from joulewise.report.workload_facts import KernelFacts, WorkloadFacts
from joulewise.report.workload_names import names_told_apart
from joulewise.report.workload_words import (
    ESTIMATED_NOTE,
    amount,
    short_passes_text,
    size_rows,
    trace_rows,
    work_text,
)

# Letters of kernels' names, which run to hundreds: columns are left out rather than that names
# have fewer than the first, more than the second are never shown, and a terminal narrower than
# any has the third.
_LEAST_NAME_COUNT = 32
_MOST_NAME_COUNT = 60
_FEWEST_NAME_COUNT = 12
_BETWEEN_COLUMNS = 2
_BAR_COUNT = 24


def print_workload(console: Console, facts: WorkloadFacts, top_count: int) -> None:
    """Top kernels, time by pass, gaps and overlap, and what the job is."""
    shown = facts.kernels[:top_count]
    console.print(_kernel_table(facts, shown, console.width))
    rest_count = len(facts.kernels) - len(shown)
    if rest_count:
        console.print(f"… and {counted(rest_count, 'more kernel')}")
    if any(one.is_work_estimated for one in shown):
        console.print(ESTIMATED_NOTE, soft_wrap=True)
    console.print()
    _print_passes(console, facts)
    _print_times(console, facts)
    rows = [*size_rows(facts.workload.size), *trace_rows(facts.workload.trace)]
    if rows:
        console.print()
    for label, text in rows:
        console.print(f"{label:<16} {visible(text)}", markup=False, soft_wrap=True)


def _power_text(one: KernelFacts) -> str:
    if one.energy_j is None or not one.time_s:
        return ""
    return f"{one.energy_j / one.time_s:.0f} W"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """A column behind the kernels' names; where there is little room the highest `rank` goes."""

    head: str
    text: Callable[[KernelFacts], str]
    rank: int = 0


_PASS = _Column(head="pass", text=lambda one: short_passes_text(one.passes))
_LAUNCHES = _Column(head="launches", text=lambda one: str(one.launch_count), rank=1)
_TIME_COLUMNS = (
    _PASS,
    _LAUNCHES,
    _Column(head="time", text=lambda one: _seconds(one.time_s)),
    _Column(head="share", text=lambda one: _percent(one.time_share_ratio)),
    _Column(head="FLOPs", text=lambda one: work_text(one)[0], rank=2),
)
_ENERGY_COLUMNS = (
    _Column(head="energy", text=lambda one: _joules(one.energy_j)),
    _Column(head="power", text=_power_text, rank=3),
)
_WORK_COLUMNS = (
    _Column(head="FLOPs", text=lambda one: work_text(one)[0]),
    _Column(head="bytes", text=lambda one: work_text(one)[1], rank=2),
    _Column(head="FLOP/byte", text=lambda one: work_text(one)[2], rank=3),
)


def _columns(facts: WorkloadFacts) -> tuple[_Column, ...]:
    if facts.time_source is not None:
        return (*_TIME_COLUMNS, *(() if facts.energy_j is None else _ENERGY_COLUMNS))
    has_work = any(one.flop_count is not None for one in facts.kernels)
    return (_PASS, _LAUNCHES, *(_WORK_COLUMNS if has_work else ()))


def _kernel_table(facts: WorkloadFacts, shown: Sequence[KernelFacts], width: int) -> object:
    """Names on one line each: the less important columns make room for them."""
    names = [visible(one.kernel) for one in shown]
    columns = _columns(facts)
    wanted = min(_LEAST_NAME_COUNT, max(map(len, names), default=0))
    while (room := _name_room(columns, shown, width)) < wanted and any(
        column.rank for column in columns
    ):
        last = max(column.rank for column in columns)
        columns = tuple(column for column in columns if column.rank != last)
    room = max(_FEWEST_NAME_COUNT, min(room, _MOST_NAME_COUNT))
    rows = [
        (name, *(column.text(one) for column in columns))
        for name, one in zip(names_told_apart(names, room), shown, strict=True)
    ]
    return table(None, ("kernel", *(column.head for column in columns)), rows, left_count=2)


def _name_room(columns: Sequence[_Column], shown: Sequence[KernelFacts], width: int) -> int:
    """Letters that the other columns leave."""
    widths = [
        max([cell_len(column.head), *(cell_len(column.text(one)) for one in shown)])
        for column in columns
    ]
    return width - sum(widths) - _BETWEEN_COLUMNS * len(widths)


def _print_passes(console: Console, facts: WorkloadFacts) -> None:
    """A bar for each pass: of time where it is known, else of FLOPs."""
    amounts = [(one.pass_.value, one.time_s, one.flop_count) for one in facts.passes]
    is_timed = all(time_s is not None for _, time_s, _ in amounts)
    values = [(time_s if is_timed else flop_count) or 0.0 for _, time_s, flop_count in amounts]
    total = sum(values)
    if not total:
        return
    of = "the kernels' time" if is_timed else "all FLOPs"
    console.print(f"Passes, share of {of}:", markup=False)
    for (name, _, _), value in zip(amounts, values, strict=True):
        bar = "█" * round(_BAR_COUNT * value / total)
        text = seconds(value) if is_timed else amount(value, "FLOP")
        console.print(
            f"{name:<14} {bar:<{_BAR_COUNT}} {percent(value / total):>8}  {text}", markup=False
        )


def _print_times(console: Console, facts: WorkloadFacts) -> None:
    if facts.time_s is None or facts.busy_s is None:
        if facts.gap_s:
            gaps = counted(facts.gap_count, "gap")
            console.print(f"{'gaps':<14} {seconds(facts.gap_s)} in {gaps}", markup=False)
        return
    parts = (
        ("gaps", facts.gap_s, " without any kernel"),
        ("overlap", facts.overlap_s, " with several kernels"),
    )
    if any(time_s for _, time_s, _ in parts):
        whole = seconds(facts.time_s)
        console.print(f"Share of the iteration, which takes {whole}:", markup=False)
    for name, time_s, words in parts:
        if time_s:
            share = f"{percent(time_s / facts.time_s):>8}"
            line = f"{name:<14} {'':<{_BAR_COUNT}} {share}  {seconds(time_s)}{words}"
            console.print(line, markup=False)


def _seconds(time_s: float | None) -> str:
    return "" if time_s is None else seconds(time_s)


def _percent(ratio: float | None) -> str:
    return "" if ratio is None else percent(ratio)


def _joules(energy_j: float | None) -> str:
    return "" if energy_j is None else joules(energy_j, 4)


def facts_document(facts: WorkloadFacts, top_count: int) -> dict[str, object]:
    """A workload's facts as machines read them.

    `kernel_count` and `launch_count` are of kernels: on a device, and where nothing was traced,
    of those that are planned, else of those that the profiler saw; gaps are in neither.
    """
    return {
        "name": facts.workload.name,
        "kernel_count": facts.kernel_count,
        "launch_count": facts.launch_count,
        "gap_count": facts.gap_count,
        "time_source": facts.time_source,
        "device_name": facts.device_name,
        "iteration_time_s": facts.time_s,
        "busy_s": facts.busy_s,
        "gap_s": facts.gap_s,
        "overlap_s": facts.overlap_s,
        "pass_times": {one.pass_.value: one.time_s for one in facts.passes},
        "pass_flop_counts": {one.pass_.value: one.flop_count for one in facts.passes},
        "flop_count": facts.flop_count,
        "traffic_bytes": facts.traffic_bytes,
        "is_work_estimated": facts.is_work_estimated,
        "kernels": facts.kernels[:top_count],
        "size": facts.workload.size,
        "iteration": iteration_document(facts.workload.trace),
    }


def iteration_document(trace: IterationTrace | None) -> dict[str, object] | None:
    """Which iteration was taken out of a trace."""
    if trace is None:
        return None
    return {
        "tool": trace.tool,
        "file": trace.file,
        "gpu": trace.gpu,
        "device_name": trace.device_name,
        "rank": trace.rank,
        "rank_count": trace.rank_count,
        "step": trace.step,
        "iteration_count": trace.iteration_count,
    }
