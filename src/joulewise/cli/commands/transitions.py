"""`joulewise transitions` and `joulewise probe transitions`: what changes of clocks cost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from joulewise.cli.notes import note_default_device
from joulewise.cli.options import (
    DEFAULT_DEVICE,
    DEFAULT_TRANSITION,
    DEFAULT_WORKLOAD,
    AsJson,
    Device,
    FailOn,
    PowerLimits,
    TransitionOut,
    Workload,
)
from joulewise.cli.outcome import Outcome, finish
from joulewise.cli.progress import progress_bars
from joulewise.cli.render import counted, joules, print_caveats, say, seconds, table
from joulewise.cli.sentences import memory_clock_note
from joulewise.cli.values import caveat_kinds, clock_list, power_limit_list
from joulewise.domain.caveats import is_simulated
from joulewise.domain.plan import Status
from joulewise.integrations.torch_runner import TorchRunners
from joulewise.report.transition_cost import latency_text
from joulewise.report.verdict import ran_on
from joulewise.workflow.transitions import TransitionLine, transition_lines
from joulewise.workflow.transitions_measuring import (
    TransitionsJob,
    TransitionsResult,
    measure_transitions_to_file,
)

Kernel = Annotated[
    str | None,
    typer.Option(
        "--kernel",
        envvar="JOULEWISE_KERNEL",
        help="Kernel that runs meanwhile. Default: the shortest that keeps a GPU busy.",
    ),
]
SmClocks = Annotated[
    str | None,
    typer.Option(
        "--sm-clocks",
        envvar="JOULEWISE_SM_CLOCKS",
        metavar="MHZ,…",
        help="SM clocks to change between. Default: auto and two in the middle of the list.",
    ),
]
MemClocks = Annotated[
    str | None,
    typer.Option(
        "--mem-clocks",
        envvar="JOULEWISE_MEM_CLOCKS",
        metavar="MHZ,…",
        help="Memory clocks to change between. Default: auto and the one in the middle.",
    ),
]

_DIGIT_COUNT = 3


def transitions(as_json: AsJson = False, fail_on: FailOn = None) -> None:
    """List the transition presets that --transition takes, with their sources."""
    wanted = caveat_kinds(fail_on)
    lines = transition_lines()

    def render(console: Console) -> None:
        columns = ("transition", "stall", "lag", "dwell", "energy", "source")
        console.print(table(None, columns, _preset_rows(lines), left_count=6))

    outcome = Outcome(status=Status.FEASIBLE, render=render, extra={"transitions": lines})
    finish(outcome, as_json=as_json, fail_on=wanted)


def probe_transitions(
    context: typer.Context,
    device: Device = DEFAULT_DEVICE,
    workload: Workload = DEFAULT_WORKLOAD,
    kernel: Kernel = None,
    sm_clocks: SmClocks = None,
    mem_clocks: MemClocks = None,
    power_limits: PowerLimits = None,
    out: TransitionOut = DEFAULT_TRANSITION,
    as_json: AsJson = False,
    fail_on: FailOn = None,
) -> None:
    """Measure what changing clocks costs on a device, and write the model to a file."""
    wanted = caveat_kinds(fail_on)
    note_default_device(context, device, as_json=as_json)
    job = TransitionsJob(
        device=device,
        workload=workload,
        kernel=kernel,
        sm_clocks_mhz=clock_list(sm_clocks, field="sm-clocks"),
        mem_clocks_mhz=clock_list(mem_clocks, field="mem-clocks"),
        power_limits=power_limit_list(power_limits),
        out=out,
    )
    with progress_bars(is_shown=not as_json) as progress:
        result = measure_transitions_to_file(job, progress, hardware=TorchRunners())

    def render(console: Console) -> None:
        columns = ("from", "to", "call", "lag", "stall", "energy")
        console.print(table(None, columns, _change_rows(result), left_count=2))
        print_caveats(console, result.caveats)
        say(console, _sentence(result, out))

    outcome = Outcome(
        status=Status.FEASIBLE,
        render=render,
        caveats=result.caveats,
        extra={
            "device": result.device,
            "device_name": result.device_name,
            "is_simulated": is_simulated(result.caveats),
            "kernel": result.kernel,
            "transition": str(out),
            "model": result.model,
            "changes": result.changes,
        },
    )
    finish(outcome, as_json=as_json, fail_on=wanted)


def _sentence(result: TransitionsResult, out: Path) -> str:
    """What was changed, on what, and how the table reads."""
    parts = [
        ran_on(result.device_name, result.device, result.caveats),
        (
            f"{counted(len(result.changes), 'change')} of the operating point (SM/memory clock in "
            f"MHz, @ power limit) under kernel {result.kernel}, written to {out}."
        ),
        (
            "Times are medians, with the longest seen in brackets where it is another; "
            "< is what could not be told from none."
        ),
        *memory_clock_note(result.device),
    ]
    return " ".join(parts)


def _preset_rows(lines: tuple[TransitionLine, ...]) -> Iterator[tuple[str, ...]]:
    for line in lines:
        yield (
            line.transition,
            *(_short_time(time_s) for time_s in (line.stall_s, line.lag_s, line.dwell_s)),
            _short_energy(line.energy_j),
            line.source,
        )


def _short_time(time_s: float) -> str:
    """With the digits that an assumption has."""
    return latency_text(time_s) if time_s else "none"


def _short_energy(energy_j: float) -> str:
    for scale, unit in ((1.0, "J"), (1e3, "mJ")):
        if energy_j * scale >= 0.1:  # noqa: PLR2004 - 0.36 J, but 60 mJ
            return f"{energy_j * scale:g} {unit}"
    return f"{energy_j * 1e6:g} µJ" if energy_j else "none"


def _change_rows(result: TransitionsResult) -> Iterator[tuple[str, ...]]:
    """What was too small to be seen is given by what could have been."""
    for change in result.changes:
        yield (
            # With a place to break at, for narrow terminals.
            change.before.label.replace("@", " @"),
            change.after.label.replace("@", " @"),
            _with_worst(change.call_s, change.worst_call_s),
            _with_worst(change.lag_s, change.worst_lag_s),
            seconds(change.stall_s, _DIGIT_COUNT)
            if change.is_stall_seen
            else f"< {seconds(change.stall_least_s, _DIGIT_COUNT)}",
            joules(change.energy_j, _DIGIT_COUNT)
            if change.is_energy_seen
            else f"< {joules(change.energy_least_j, _DIGIT_COUNT)}",
        )


def _with_worst(middle_s: float, worst_s: float) -> str:
    """A median, and the longest where that reads otherwise: `4.00 (5.20) ms`."""
    middle, worst = (
        seconds(time_s, _DIGIT_COUNT) if time_s else "none" for time_s in (middle_s, worst_s)
    )
    if middle == worst:
        return middle
    number, _, unit = middle.partition(" ")
    return (
        f"{number} ({worst.removesuffix(f' {unit}')}) {unit}"
        if unit and worst.endswith(f" {unit}")
        else f"{middle} ({worst})"
    )
