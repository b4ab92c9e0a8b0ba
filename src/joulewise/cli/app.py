"""`joulewise`: the commands, and one way out for every error."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import typer
from typer.exceptions import TyperException

from joulewise import __version__
from joulewise.cli.commands import frontier, importing, listing, measure, plan, report, tune, verify
from joulewise.cli.outcome import EXIT_ERROR, error_json, print_json, stderr_console
from joulewise.domain.errors import InputError, JoulewiseError

app = typer.Typer(
    name="joulewise",
    help="The same AI work, in the same time, for less energy, by choosing GPU clocks.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("tune")(tune.tune)
app.command("measure")(measure.measure)
app.command("plan")(plan.plan)
app.command("verify")(verify.verify)
app.command("frontier")(frontier.frontier)
app.command("report")(report.report)
app.add_typer(importing.app, name="import")
app.command("devices")(listing.devices)
app.command("workloads")(listing.workloads)


def _print_version(value: bool) -> None:
    if value:
        sys.stdout.write(f"joulewise {__version__}\n")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Show the version."
    ),
) -> None:
    """The same AI work, in the same time, for less energy, by choosing GPU clocks."""


def run(arguments: Sequence[str]) -> int:
    """Run one command line; 0 done, 1 error, infeasible or wrong usage, 2 a named caveat."""
    try:
        code = typer.main.get_command(app).main(
            args=list(arguments), prog_name="joulewise", standalone_mode=False
        )
    except JoulewiseError as error:
        _print_error(error, arguments)
        return EXIT_ERROR
    except TyperException as error:
        _print_error(
            InputError(error.format_message(), hint="See --help."),
            arguments,
        )
        return EXIT_ERROR
    except (typer.Abort, KeyboardInterrupt):
        stderr_console().print("Stopped; what was measured so far is kept.")
        return EXIT_ERROR
    except BrokenPipeError:
        # The reader of our output went away (`| head`): not an error of ours.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_ERROR
    return code if isinstance(code, int) else 0


def _print_error(error: JoulewiseError, arguments: Sequence[str]) -> None:
    """One sentence on stderr, or one JSON object on stdout when that was asked for."""
    if "--json" in arguments or os.environ.get("JOULEWISE_JSON", "").lower() in {"1", "true"}:
        print_json(error_json(error))
        return
    console = stderr_console()
    console.print(f"error: {error}", markup=False)
    if error.hint:
        console.print(f"hint: {error.hint}", markup=False)


def main() -> None:
    """Entry point of the console script."""
    sys.exit(run(sys.argv[1:]))
