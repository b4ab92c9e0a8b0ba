"""`joulewise`: the commands, and one way out for every error."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

import typer
from typer.exceptions import TyperException

from joulewise import __version__
from joulewise.cli.beside import OWN_ARGUMENTS, print_error
from joulewise.cli.commands import (
    apply,
    doctor,
    finetune,
    frontier,
    importing,
    listing,
    measure,
    metrics,
    pipeline,
    plan,
    probe,
    replay,
    report,
    restore,
    status,
    transfer,
    transition_cost,
    transitions,
    tune,
    verify,
    workload,
)
from joulewise.cli.commands import run as run_command
from joulewise.cli.outcome import (
    EXIT_ERROR,
    error_document,
    notes_of,
    print_json,
)
from joulewise.domain.errors import InputError, JoulewiseError

_STREAM_COUNT = 3
_YES = frozenset({"1", "true", "t", "yes", "y", "on"})

app = typer.Typer(
    name="joulewise",
    help="The same AI work, in the same time, for less energy, by choosing GPU clocks.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("tune", short_help="Measure, plan, verify and report, all in a row.")(tune.tune)
app.command("measure", short_help="Measure a workload at each operating point.")(measure.measure)
app.command("plan")(plan.plan)
app.command("verify", short_help="Run baseline and plan afresh, in pairs.")(verify.verify)
app.command("frontier")(frontier.frontier)
app.add_typer(
    finetune.app, name="finetune", short_help="Choose the GPU clock of a fine-tuning job."
)
app.add_typer(pipeline.app, name="pipeline", short_help="Choose clocks for a pipeline of stages.")
app.command("transfer", short_help="Run a plan's clocks on other batch sizes.")(transfer.transfer)
app.command(
    "apply", short_help="Hold clocks while a command runs.", context_settings=OWN_ARGUMENTS
)(apply.apply)
app.command("run", short_help="Say what any command takes.", context_settings=OWN_ARGUMENTS)(
    run_command.run
)
app.command("status", short_help="Say who holds which GPU, and what was left set.")(status.status)
app.command("restore", short_help="Give back what dead holders left set.")(restore.restore)
app.command("report")(report.report)
app.command("replay", short_help="Play whole iterations as the plan says.")(replay.replay)
app.command("transition-cost", short_help="Show what slow changes leave of the saving.")(
    transition_cost.transition_cost
)
app.add_typer(probe.app, name="probe", short_help="See on the device itself what it does.")
app.command("transitions", short_help="List the presets that --transition takes.")(
    transitions.transitions
)
app.add_typer(importing.app, name="import", short_help="Read tables and profiles of other tools.")
app.add_typer(workload.app, name="workload", short_help="List, show and build workloads.")
app.command("doctor", short_help="Say what can be read and set on the GPUs here.")(doctor.doctor)
app.command("metrics", short_help="Serve metrics of the GPUs here to Prometheus.")(metrics.metrics)
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
        code = _invoke(arguments)
        sys.stdout.flush()
    except JoulewiseError as error:
        return _fail(error, arguments)
    except TyperException as error:
        return _fail(_wrong_usage(error), arguments)
    except (KeyboardInterrupt, SystemExit) as end:
        if isinstance(end.__context__, BrokenPipeError):
            # rich ends so where the reader of our output went away (`| head`).
            return _leave_stdout()
        # A lease turns other signals than SIGINT into SystemExit.
        return _fail(_stopped(end, arguments), arguments)
    except OSError as error:
        return _fail_to_print(error, arguments)
    return code


def _invoke(arguments: Sequence[str]) -> int:
    """Past Typer's own `main`, which turns SIGINT into a number and drops what was noted of it."""
    command = typer.main.get_command(app)
    try:
        with command.make_context("joulewise", list(arguments)) as context:
            command.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    return 0


# What goes on where it was stopped, and how; every other command begins anew.
_RESUMING = {
    "measure": "Give the same command again with --resume to go on.",
    "tune": "Give the same command again, with --out and its run folder, to go on.",
}


def _stopped(end: BaseException, arguments: Sequence[str]) -> JoulewiseError:
    """What a command that a signal ended leaves behind."""
    command = next((text for text in arguments if not text.startswith("-")), "")
    hint = _RESUMING.get(command)
    said = "stopped" if hint is None else "stopped; what was measured so far is kept"
    error = JoulewiseError(said, hint=hint)
    _hand_on_notes(end, error)
    return error


def _hand_on_notes(source: BaseException, target: BaseException) -> None:
    """Notes tell what became of the clocks, whatever becomes of the error."""
    for note in notes_of(source):
        target.add_note(note)


def _wrong_usage(error: TyperException) -> InputError:
    parameter = getattr(error, "param", None)
    options = [] if parameter is None else parameter.opts
    return InputError(
        error.format_message(),
        field=options[0].lstrip("-") if options else None,
        hint=_usage_hint(error.format_message()),
    )


_STRAY_DEVICE = re.compile(
    r"extra argument(?:s|\(s\))? \(((?:nvml|virtual|recorded)(?::[^\s)]*)?)[\s)]"
)


def _usage_hint(message: str) -> str:
    """A device is named by an option, which is easily forgotten."""
    device = _STRAY_DEVICE.search(message)
    return "See --help." if device is None else f"Did you mean --device {device[1]}?"


def _fail_to_print(error: OSError, arguments: Sequence[str]) -> int:
    """What became of our output; an error of any file is none of this function's."""
    if error.filename is not None:
        raise error
    _leave_stdout()
    if isinstance(error, BrokenPipeError):
        return EXIT_ERROR
    reason = (error.strerror or str(error)).lower()
    failure = InputError(f"the output cannot be written: {reason}")
    _hand_on_notes(error, failure)
    return _fail(failure, arguments)


def _leave_stdout() -> int:
    """The reader of our output went away (`| head`): let what is left go nowhere."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_ERROR


def _fail(error: JoulewiseError, arguments: Sequence[str]) -> int:
    """One sentence on stderr, or one JSON object when that was asked for.

    It goes to stdout, but for commands that run one of the user's: stdout is that one's there.
    """
    own = _own(arguments)
    if not _wants_json(own):
        print_error(error)
        return EXIT_ERROR
    is_beside = _runs_another(arguments) and "--dry-run" not in own
    try:
        print_json(error_document(error), sys.stderr if is_beside else sys.stdout)
        sys.stdout.flush()
    except OSError:
        _leave_stdout()
    return EXIT_ERROR


_RUNS_ANOTHER = frozenset({("apply",), ("run",), ("finetune", "run")})
_MAY_RUN_ANOTHER = ("finetune", "sweep")


def _runs_another(arguments: Sequence[str]) -> bool:
    """Whether it is a command that runs one of the user's."""
    if _command_of(arguments) is not None:
        return True
    return tuple(arguments[:2]) == _MAY_RUN_ANOTHER and "--" in arguments


def _command_of(arguments: Sequence[str]) -> tuple[str, ...] | None:
    """The name of a command that always runs one of the user's, of one word or two."""
    heads = (tuple(arguments[:count]) for count in (1, 2))
    return next((head for head in heads if head in _RUNS_ANOTHER), None)


def _own(arguments: Sequence[str]) -> Sequence[str]:
    """The arguments that are meant for us, without a command line of the user's behind them."""
    if "--" in arguments:
        return arguments[: list(arguments).index("--")]
    command = _command_of(arguments)
    if command is None:
        return arguments
    with_value = _options_with_value(command)
    is_value = False
    for index, text in enumerate(arguments[len(command) :], start=len(command)):
        if not is_value and not text.startswith("-"):
            return arguments[:index]
        is_value = not is_value and text in with_value
    return arguments


def _options_with_value(path: Sequence[str]) -> frozenset[str]:
    """Options of a command whose value is the argument behind them."""
    command: object = typer.main.get_command(app)
    for name in path:
        command = getattr(command, "commands", {})[name]
    options = [one for one in getattr(command, "params", ()) if not getattr(one, "is_flag", True)]
    return frozenset(text for option in options for text in option.opts)


def _wants_json(arguments: Sequence[str]) -> bool:
    """Also where the command line is too wrong to be parsed."""
    asked = os.environ.get("JOULEWISE_JSON", "").strip().lower()
    return asked in _YES or any(text.partition("=")[0] == "--json" for text in arguments)


def main() -> None:
    """Entry point of the console script."""
    _mend_streams()
    arguments = sys.argv[1:]
    try:
        code = run(arguments)
    except Exception as error:  # noqa: BLE001 - the last resort: still one sentence, still JSON
        code = _fail(_our_fault(error), arguments)
    sys.exit(code)


def _mend_streams() -> None:
    """Write to nowhere where a stream is closed; escape what its encoding does not know.

    What is opened later must not get the number of a closed stream: it would be written to, and be
    lost to every program that is started with streams of its own.
    """
    for descriptor in range(_STREAM_COUNT):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest number that is free is this one.
            os.open(os.devnull, os.O_RDWR)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            nowhere = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - to the end
            setattr(sys, name, nowhere)
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _our_fault(error: Exception) -> JoulewiseError:
    *_, frame = traceback.extract_tb(error.__traceback__)
    place = f"{Path(frame.filename).name}:{frame.lineno}"
    ours = JoulewiseError(
        f"joulewise failed where it should not ({type(error).__name__}: {error}; {place})",
        hint="Please report it, with the command line and its input.",
    )
    _hand_on_notes(error, ours)
    return ours
