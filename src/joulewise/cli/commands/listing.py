"""`joulewise devices` and `joulewise workloads`: what is there."""

from __future__ import annotations

from rich.console import Console

from joulewise.cli.options import AsJson, FailOn
from joulewise.cli.outcome import Outcome, finish
from joulewise.cli.render import say, seconds, table
from joulewise.cli.values import caveat_kinds
from joulewise.domain.plan import Status
from joulewise.workflow.devices import DeviceLine, device_lines
from joulewise.workflow.workloads import workload_lines


def devices(as_json: AsJson = False, fail_on: FailOn = None) -> None:
    """List the devices that --device takes."""
    wanted = caveat_kinds(fail_on)
    lines = device_lines()

    def render(console: Console) -> None:
        rows = [
            (
                line.device,
                line.name,
                _kind(line),
                str(line.sm_clock_count),
                str(line.mem_clock_count),
                _cost(line.lag_s),
                _cost(line.stall_s),
            )
            for line in lines
        ]
        columns = ("device", "name", "kind", "SM", "memory", "lag", "stall")
        console.print(table(None, columns, rows, left_count=3, copied_count=1))
        say(
            console,
            "SM and memory are numbers of clocks. A new operating point comes late by the lag, and "
            "at every change the GPU waits for the stall; set them with lag=5ms or stall=1ms. "
            "joulewise doctor tells what can be read and set on the GPUs here.",
        )

    outcome = Outcome(status=Status.FEASIBLE, render=render, extra={"devices": lines})
    finish(outcome, as_json=as_json, fail_on=wanted)


def _kind(line: DeviceLine) -> str:
    """Hardware, or a model and whether that was fitted to measurements."""
    if not line.is_simulated:
        return "hardware"
    return "simulated" if line.is_calibrated else "simulated, uncalibrated"


def _cost(time_s: float | None) -> str:
    """What a change takes; hardware does not tell before it is measured."""
    if time_s is None:
        return "unknown"
    return seconds(time_s) if time_s else "none"


def workloads(as_json: AsJson = False, fail_on: FailOn = None) -> None:
    """List the built-in workloads that --workload takes."""
    wanted = caveat_kinds(fail_on)
    lines = workload_lines()

    def render(console: Console) -> None:
        rows = [(line.workload, line.description) for line in lines]
        console.print(table(None, ("workload", "what it is"), rows, left_count=2))

    outcome = Outcome(status=Status.FEASIBLE, render=render, extra={"workloads": lines})
    finish(outcome, as_json=as_json, fail_on=wanted)
