"""`joulewised`: the daemon's command line."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.exceptions import TyperException

from joulewise import __version__
from joulewise.cli.beside import print_error
from joulewise.cli.outcome import EXIT_DONE, EXIT_ERROR
from joulewise.cli.render import visible
from joulewise.domain.errors import InputError, JoulewiseError, NotSupported

if TYPE_CHECKING:
    from joulewise.control.daemon.policy import IdleSettings, Policy, Rule
    from joulewise.domain.points import ClockGrid
    from joulewise.workflow.daemon import CheckedDaemon, DaemonOptions

app = typer.Typer(
    name="joulewised",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="The policy file; else /etc/joulewise/joulewised.toml, where it is there.",
    ),
]
Socket = Annotated[
    Path | None,
    typer.Option("--socket", metavar="PATH", help="Listen there, whatever the policy file says."),
]
StateDir = Annotated[
    Path | None,
    typer.Option(
        "--state-dir",
        metavar="DIR",
        help="Keep locks and journals there, whatever the policy file says.",
    ),
]
NvmlLibrary = Annotated[
    Path | None,
    typer.Option("--nvml-library", metavar="PATH", help="Use this libnvidia-ml.so.1."),
]
Check = Annotated[
    bool,
    typer.Option("--check", help="Say what the daemon would do, and end; nothing is set."),
]


def _print_version(value: bool) -> None:
    if value:
        sys.stdout.write(f"joulewised {__version__}\n")
        raise typer.Exit


@app.command()
def joulewised(
    config: Config = None,
    socket: Socket = None,
    state_dir: StateDir = None,
    nvml_library: NvmlLibrary = None,
    check: Check = False,
    _version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Show the version."
    ),
) -> None:
    """Set GPU clocks for those whom the policy file allows it, as long as they stay connected.

    Runs in the foreground, writes one JSON object a line of every change to standard error, and
    gives every clock back at SIGTERM.
    """
    if sys.platform != "linux":
        raise NotSupported("joulewised runs on Linux", hint="Run it where the GPUs' driver is.")
    from joulewise.workflow import daemon  # noqa: PLC0415 - its servers take a while to load

    options = daemon.DaemonOptions(
        config=config, socket=socket, state_dir=state_dir, nvml_library=nvml_library
    )
    if check:
        checked = daemon.check(options)
        _check_metrics(checked.policy)
        for line in _said(checked):
            sys.stdout.write(f"{visible(line)}\n")
    elif not _serve(options):
        # The driver hangs, and so would whoever says goodbye to it; the guard process goes on.
        sys.stderr.flush()
        os._exit(EXIT_ERROR)


def _serve(options: DaemonOptions) -> bool:
    from joulewise.workflow import daemon  # noqa: PLC0415 - the same

    def serve_metrics(listen: str, gpus: daemon.Gpus, counts: daemon.Counts) -> Callable[[], None]:
        from joulewise.integrations import prometheus  # noqa: PLC0415 - where it is asked for

        return prometheus.serve_metrics(listen, gpus, counts)

    return daemon.serve(options, serve_metrics=serve_metrics)


def _check_metrics(policy: Policy) -> None:
    """Raise InputError for an address that is none."""
    listen = policy.settings.metrics_listen
    if listen is None:
        return
    from joulewise.integrations.prometheus import parse_listen  # noqa: PLC0415 - the same

    try:
        parse_listen(listen)
    except InputError as error:
        raise InputError(
            error.message, file=policy.file, field="daemon.metrics_listen", hint=error.hint
        ) from error


def _said(checked: CheckedDaemon) -> Iterator[str]:
    """What the daemon would do, line by line."""
    policy, settings = checked.policy, checked.policy.settings
    yield f"policy: {policy.file or 'no file'}"
    yield f"socket: {settings.socket}"
    yield f"state folder: {settings.state_dir}"
    yield f"metrics: {settings.metrics_listen or 'not served'}"
    yield f"idle: {_idle(policy.idle)}"
    for gpu in checked.gpus:
        simulated = " (simulated)" if gpu.is_simulated else ""
        numbers = ", ".join(map(str, checked.rules_of(gpu)))
        yield f"GPU {gpu.device}: {gpu.name}{simulated}"
        yield f"  takes {_taken(gpu.grid)}"
        yield f"  rules: {numbers or 'none'}"
    for line in checked.silent:
        yield f"left out: {line}"
    for number, rule in enumerate(policy.rules, start=1):
        name = "always" if rule.is_built_in else f"rule {number}"
        yield f"{name}: {_rule(rule)}"
        yield from (f"{name} never allows {what}" for what in _never_allowed(rule, checked))


def _never_allowed(rule: Rule, checked: CheckedDaemon) -> Iterator[str]:
    """What a rule was written for and cannot do on the GPUs that are here."""
    grids = [gpu.grid for gpu in checked.gpus if rule.covers_gpu(gpu.uuid)]
    if not grids:
        yield "anything: no GPU here that answers has a UUID that begins so"
        return
    least, greatest = rule.min_sm_clock_mhz or 0, rule.max_sm_clock_mhz or math.inf
    if not any(least <= clock <= greatest for grid in grids for clock in grid.sm_clocks_mhz):
        yield "an SM clock: none of its GPUs lists one between its bounds"
    least, greatest = rule.min_mem_clock_mhz or 0, rule.max_mem_clock_mhz or math.inf
    memory_mhz = [clock for grid in grids for clock in grid.mem_clocks_mhz]
    if rule.is_memory_lock_allowed and not any(least <= one <= greatest for one in memory_mhz):
        yield "a memory clock: none of its GPUs takes one between its bounds"
    least_w, greatest_w = rule.min_power_limit_w or 0.0, rule.max_power_limit_w or math.inf
    limits = [grid.power_limits for grid in grids if grid.power_limits is not None]
    is_any = any(least_w <= one.found_w and one.least_w <= greatest_w for one in limits)
    if rule.is_power_limit_allowed and not rule.is_built_in and not is_any:
        yield "a power limit: none of its GPUs takes one between its bounds"


def _idle(idle: IdleSettings | None) -> str:
    if idle is None:
        return "off"
    clock = "its lowest clock" if idle.sm_clock_mhz is None else f"{idle.sm_clock_mhz} MHz"
    return f"after {idle.after_s:g} s to {clock}"


def _taken(grid: ClockGrid) -> str:
    said = [_between("SM clock", grid.sm_clocks_mhz[0], grid.sm_clocks_mhz[-1], "MHz")]
    if grid.mem_clocks_mhz:
        said.append(
            _between("memory clock", grid.mem_clocks_mhz[0], grid.mem_clocks_mhz[-1], "MHz")
        )
    if grid.power_limits is not None:
        limits = grid.power_limits
        said.append(_between("power limit", limits.least_w, limits.found_w, "W"))
    return ", ".join(said)


def _rule(rule: Rule) -> str:
    said = [f"users {_listed(rule.uids, _user_name)}"] if rule.uids else []
    said += [f"groups {_listed(rule.gids, _group_name)}"] if rule.gids else []
    said.append("GPUs " + ", ".join(f"{beginning or '*'}" for beginning in rule.gpus))
    said.append(_between("SM clock", rule.min_sm_clock_mhz, rule.max_sm_clock_mhz, "MHz"))
    if rule.is_memory_lock_allowed:
        least, greatest = rule.min_mem_clock_mhz, rule.max_mem_clock_mhz
        said.append(_between("memory clock", least, greatest, "MHz"))
    else:
        said.append("memory clock auto")
    if rule.is_power_limit_allowed:
        said.append(_between("power limit", rule.min_power_limit_w, rule.max_power_limit_w, "W"))
    else:
        said.append("power limit auto")
    return "; ".join(said)


def _listed(numbers: frozenset[int], name_of: Callable[[int], str]) -> str:
    return ", ".join(
        f"{name} ({one})" if (name := name_of(one)) else str(one) for one in sorted(numbers)
    )


def _user_name(uid: int) -> str:
    import pwd  # noqa: PLC0415 - Unix only

    with suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return ""


def _group_name(gid: int) -> str:
    import grp  # noqa: PLC0415 - Unix only

    with suppress(KeyError):
        return grp.getgrgid(gid).gr_name
    return ""


def _between(name: str, least: float | None, greatest: float | None, unit: str) -> str:
    if least is None and greatest is None:
        return f"{name} any"
    begin = "" if least is None else f"from {least:.10g} "
    end = "" if greatest is None else f"to {greatest:.10g} "
    return f"{name} {begin}{end}{unit}"


def run(arguments: list[str]) -> int:
    """Run one command line; 0 done, 1 error or wrong usage."""
    command = typer.main.get_command(app)
    try:
        with command.make_context("joulewised", arguments) as context:
            command.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    except JoulewiseError as error:
        return _fail(error)
    except TyperException as error:
        return _fail(InputError(error.format_message(), hint="See --help."))
    except KeyboardInterrupt:
        return EXIT_ERROR
    return EXIT_DONE


def _fail(error: JoulewiseError) -> int:
    print_error(error)
    return EXIT_ERROR


def main() -> None:
    """Entry point of the console script."""
    sys.exit(run(sys.argv[1:]))
