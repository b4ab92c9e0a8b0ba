"""`joulewise probe`: what a device does when nobody has told, seen on the device itself."""

from __future__ import annotations

import typer

from joulewise.cli.commands import probe_sensors, transitions

app = typer.Typer(
    help="See on the device itself what it does.", no_args_is_help=True, rich_markup_mode=None
)
app.command("transitions", short_help="Measure what changing clocks costs.")(
    transitions.probe_transitions
)
app.command("sensors", short_help="Find how often meters move, and whether they agree.")(
    probe_sensors.sensors
)
