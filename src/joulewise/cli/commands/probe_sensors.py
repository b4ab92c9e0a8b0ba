"""`joulewise probe sensors`: what the meters of a device are like."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Annotated

import typer
from rich.console import Console

from joulewise.cli.notes import note_default_device
from joulewise.cli.options import (
    DEFAULT_DEVICE,
    DEFAULT_WORKLOAD,
    AsJson,
    Device,
    FailOn,
    Workload,
)
from joulewise.cli.outcome import Outcome, finish
from joulewise.cli.progress import progress_bars
from joulewise.cli.render import percent, print_caveats, print_line, say, seconds, table
from joulewise.cli.values import caveat_kinds
from joulewise.domain.caveats import is_simulated
from joulewise.domain.plan import Status
from joulewise.domain.sensor_probe import SensorProbe, UpdatePeriod
from joulewise.integrations.torch_runner import TorchRunners
from joulewise.report.verdict import ran_on
from joulewise.workflow.sensor_probing import SensorsJob, SensorsResult, probe_sensors_of

Kernel = Annotated[
    str | None,
    typer.Option(
        "--kernel",
        envvar="JOULEWISE_KERNEL",
        help="Kernel that loads the GPU. Default: the one that computes the most.",
    ),
]
Idle = Annotated[
    bool,
    typer.Option("--idle", help="Run nothing; what shows only under load stays open."),
]
_NOT_SEEN = "not seen"
_FINEST_S = 1e-6
_AVERAGE_S = 0.5


def sensors(
    context: typer.Context,
    device: Device = DEFAULT_DEVICE,
    workload: Workload = DEFAULT_WORKLOAD,
    kernel: Kernel = None,
    idle: Idle = False,
    as_json: AsJson = False,
    fail_on: FailOn = None,
) -> None:
    """Find how often the meters of a device move, how long they average, and if they agree.

    Nothing is set, and no rights are needed.
    """
    wanted = caveat_kinds(fail_on)
    note_default_device(context, device, as_json=as_json)
    job = SensorsJob(device=device, workload=workload, kernel=kernel, is_idle=idle)
    with progress_bars(is_shown=not as_json) as progress:
        result = probe_sensors_of(job, progress, hardware=TorchRunners())
    outcome = Outcome(
        status=Status.FEASIBLE,
        render=lambda console: _render(console, result),
        caveats=result.probe.caveats,
        extra={
            "device": result.probe.device,
            "device_name": result.probe.device_name,
            "is_simulated": is_simulated(result.probe.caveats),
            "sensors": _document(result.probe),
            "no_load_reason": result.no_load_reason,
            "hint": result.hint,
        },
    )
    finish(outcome, as_json=as_json, fail_on=wanted)


def _document(probe: SensorProbe) -> dict[str, object]:
    """The probe without its doubts: those stand where every command has them."""
    return {
        field.name: getattr(probe, field.name) for field in fields(probe) if field.name != "caveats"
    }


def _render(console: Console, result: SensorsResult) -> None:
    probe = result.probe
    columns = ("meter", "moves every", "is a mean over")
    console.print(table(probe.device_name, columns, _meter_rows(probe)))
    print_caveats(console, probe.caveats)
    where = ran_on(probe.device_name, probe.device, probe.caveats)
    say(console, f"{where} {sentence(result)}")
    print_line(console, result.hint)


def _meter_rows(probe: SensorProbe) -> Iterator[tuple[str, str, str]]:
    yield "energy counter", _period(probe.counter), "-"
    if probe.average_power is None and (probe.instant_window_s or 0.0) >= _AVERAGE_S:
        # The one reading that there is looks back like an average, so it is called one.
        yield "average power", _period(probe.power), _span(probe.instant_window_s)
        return
    yield "instant power", _period(probe.power), _span(probe.instant_window_s)
    yield "average power", _period(probe.average_power), _span(probe.average_window_s)


def _period(period: UpdatePeriod | None) -> str:
    if period is None:
        return _NOT_SEEN
    if period.spread_s < _FINEST_S:
        return seconds(period.period_s)
    return f"{seconds(period.period_s)} ± {seconds(period.spread_s)}"


def _span(window_s: float | None) -> str:
    return _NOT_SEEN if window_s is None else seconds(window_s)


def sentence(result: SensorsResult) -> str:
    """Whether the meters agree, what idle draws, and why nothing was run."""
    probe = result.probe
    parts = []
    if probe.counter is None and probe.power_excess_ratio is not None:
        parts.append("How often the energy counter moves was not seen: too seldom for this probe.")
    if probe.power_excess_ratio is not None and probe.steady_s is not None:
        parts.append(
            f"Under {probe.kernel}, power adds up to {percent(abs(probe.power_excess_ratio), 2)} "
            f"{'more' if probe.power_excess_ratio > 0 else 'less'} than the counter says, over "
            f"{seconds(probe.steady_s)}."
        )
    if probe.idle_power_w is not None:
        parts.append(f"Idle draws {probe.idle_power_w:.1f} W.")
    if result.no_load_reason is not None:
        parts.append(f"Without load: {result.no_load_reason}.")
    return " ".join(parts) or "No meter could be followed."
