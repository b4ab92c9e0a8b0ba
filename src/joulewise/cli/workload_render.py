"""How a workload reads in a terminal: kernels, passes as bars, what the job is."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from joulewise.cli.render import counted, joules, percent, seconds, table, visible
from joulewise.domain.trace import IterationTrace
from joulewise.report.wording import shortened
from joulewise.report.workload_facts import KernelFacts, WorkloadFacts
from joulewise.report.workload_words import (
    ESTIMATED_NOTE,
    amount,
    passes_text,
    size_rows,
    trace_rows,
    work_text,
)

# Letters that leave room for the columns behind; names of kernels run to hundreds.
_NAME_COUNT = 44
_NAME_BESIDE_ENERGY_COUNT = 28
_BAR_COUNT = 30


def print_workload(console: Console, facts: WorkloadFacts, top_count: int) -> None:
    """Top kernels, time by pass, gaps and overlap, and what the job is."""
    shown = facts.kernels[:top_count]
    if facts.time_source is None:
        console.print(_work_table(facts, shown))
    else:
        console.print(_time_table(facts, shown))
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


def _time_table(facts: WorkloadFacts, shown: Sequence[KernelFacts]) -> object:
    has_energy = facts.energy_j is not None
    columns = ("kernel", "pass", "launches", "time", "share", "FLOPs")
    rows = [
        (
            shortened(one.kernel, _NAME_BESIDE_ENERGY_COUNT if has_energy else _NAME_COUNT),
            passes_text(one.passes),
            str(one.launch_count),
            _seconds(one.time_s),
            _percent(one.time_share_ratio),
            work_text(one)[0],
            *((_joules(one.energy_j), _power(one)) if has_energy else ()),
        )
        for one in shown
    ]
    return table(None, (*columns, *(("energy", "power") if has_energy else ())), rows, left_count=2)


def _work_table(facts: WorkloadFacts, shown: Sequence[KernelFacts]) -> object:
    has_work = any(one.flop_count is not None for one in facts.kernels)
    columns = ("kernel", "pass", "launches")
    rows = [
        (
            shortened(one.kernel, _NAME_COUNT),
            passes_text(one.passes),
            str(one.launch_count),
            *(work_text(one) if has_work else ()),
        )
        for one in shown
    ]
    work_columns = ("FLOPs", "bytes", "FLOP/byte") if has_work else ()
    return table(None, (*columns, *work_columns), rows, left_count=2)


def _print_passes(console: Console, facts: WorkloadFacts) -> None:
    """A bar for each pass: of time where it is known, else of FLOPs."""
    amounts = [(one.pass_.value, one.time_s, one.flop_count) for one in facts.passes]
    is_timed = all(time_s is not None for _, time_s, _ in amounts)
    values = [(time_s if is_timed else flop_count) or 0.0 for _, time_s, flop_count in amounts]
    total = sum(values)
    if not total:
        return
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
        ("overlap", facts.overlap_s, " with more than one kernel"),
    )
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


def _power(one: KernelFacts) -> str:
    if one.energy_j is None or not one.time_s:
        return ""
    return f"{one.energy_j / one.time_s:.0f} W"


def facts_document(facts: WorkloadFacts, top_count: int) -> dict[str, object]:
    """A workload's facts as machines read them."""
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
