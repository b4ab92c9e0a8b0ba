"""`joulewise transitions` and `joulewise measure-transitions`: what changes of clocks cost."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console

from joulewise.cli.options import AsJson, FailOn
from joulewise.cli.outcome import Outcome, finish
from joulewise.cli.render import joules, seconds, table
from joulewise.cli.values import caveat_kinds
from joulewise.domain.plan import Status
from joulewise.workflow.transitions import TransitionLine, transition_lines


def transitions(as_json: AsJson = False, fail_on: FailOn = None) -> None:
    """List the transition presets that --transition takes, with their sources."""
    wanted = caveat_kinds(fail_on)
    lines = transition_lines()

    def render(console: Console) -> None:
        columns = ("transition", "stall", "energy", "source")
        console.print(table(None, columns, _rows(lines), left_count=4))

    outcome = Outcome(status=Status.FEASIBLE, render=render, extra={"transitions": lines})
    finish(outcome, as_json=as_json, fail_on=wanted)


def _rows(lines: tuple[TransitionLine, ...]) -> Iterator[tuple[str, ...]]:
    for line in lines:
        yield (
            line.transition,
            seconds(line.stall_s) if line.stall_s else "none",
            joules(line.energy_j) if line.energy_j else "none",
            line.source,
        )
