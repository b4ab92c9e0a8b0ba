"""`joulewise apply`: hold clocks while a command runs, and give them back whatever comes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.console import Console

from joulewise.cli.beside import (
    JsonAtEnd,
    ResultOut,
    UserCommand,
    command_text,
    end,
    require_out,
    tell,
)
from joulewise.cli.outcome import Outcome, finish
from joulewise.cli.render import print_caveats, print_line, say, seconds, table
from joulewise.cli.values import clock_list, power_limit_list
from joulewise.domain.caveats import is_simulated
from joulewise.domain.errors import InputError
from joulewise.domain.plan import Status
from joulewise.domain.points import OperatingPoint
from joulewise.workflow.applying import Applied, AskedPoint, apply_while, open_for, point_on
from joulewise.workflow.command import Command
from joulewise.workflow.devices import AskedPowerLimit
from joulewise.workflow.dry_run import DryRun, Write, dry_run
from joulewise.workflow.lease_findings import knob_names

T = TypeVar("T")

ApplyDevice = Annotated[
    list[str] | None,
    typer.Option(
        "--device",
        envvar="JOULEWISE_DEVICE",
        help="The GPU, as in nvml:0. Default: the one that the plan was made on, or the only one "
        "that CUDA_VISIBLE_DEVICES leaves.",
    ),
]
ApplyPlan = Annotated[
    Path | None, typer.Option("--plan", help="A plan.json that has a single operating point.")
]
SmClock = Annotated[
    str | None,
    typer.Option("--sm-clock", metavar="MHZ", help="Highest SM clock; one that the GPU lists."),
]
MemClock = Annotated[
    str | None,
    typer.Option(
        "--mem-clock",
        metavar="MHZ",
        help="Memory clock; the device string has to say memory_lock=on.",
    ),
]
PowerLimit = Annotated[
    str | None,
    typer.Option(
        "--power-limit",
        metavar="W",
        help="Power limit in watts, or in percent of the one found, which is never exceeded.",
    ),
]
DryRunFlag = Annotated[
    bool,
    typer.Option("--dry-run", help="Print what would be written to the GPU; set and run nothing."),
]


def apply(
    command: UserCommand = None,
    plan: ApplyPlan = None,
    sm_clock: SmClock = None,
    mem_clock: MemClock = None,
    power_limit: PowerLimit = None,
    device: ApplyDevice = None,
    is_dry_run: DryRunFlag = False,
    out: ResultOut = None,
    as_json: JsonAtEnd = False,
) -> None:
    """Hold an operating point on a GPU while a command runs, and give the clocks back.

    They are given back when the command ends, however it or joulewise does. The command has its
    own input, output and exit code. Setting clocks needs rights, or joulewised.
    """
    asked = _asked(plan, sm_clock, mem_clock, power_limit)
    gpu_name = _only_gpu(device or ())
    if is_dry_run:
        gpu = open_for(asked, gpu_name)
        planned = dry_run(gpu, point_on(asked, gpu))
        finish(_dry_outcome(planned), as_json=as_json, fail_on=frozenset())
        return
    own = Command(command or ())
    require_out(out)
    result = apply_while(open_for(asked, gpu_name), asked, own, tell)
    outcome = Outcome(
        status=Status.FEASIBLE,
        render=lambda console: render(console, result, own.arguments),
        time_s=result.time_s,
        caveats=result.caveats,
        extra=_extra(result, own.arguments),
    )
    end(outcome, result.code, trouble=result.trouble, as_json=as_json, out=out)


def render(console: Console, result: Applied, arguments: Sequence[str]) -> None:
    """The doubts, and one sentence: what was asked, what was held."""
    print_caveats(console, result.caveats)
    say(console, sentence(result, arguments))


def sentence(result: Applied, arguments: Sequence[str]) -> str:
    """What ran at which clocks, and that they are given back."""
    origin = "Simulated. " if is_simulated(result.caveats) else ""
    if result.sm_clock_held_mhz is not None:
        held = f"The SM ran at {result.sm_clock_held_mhz:.0f} MHz under load (median)."
    elif result.is_idle:
        held = "The GPU stayed idle all the while."
    else:
        held = "Nothing tells which clock it held."
    part = "" if result.held_s is None else f", about {seconds(result.held_s, 2)} of it"
    return (
        f"{origin}{command_text(arguments)} took {seconds(result.time_s)}{part} with "
        f"{point_text(result.point)} on {result.device_name}. {held} {given_back_text(result)}"
    )


def given_back_text(result: Applied) -> str:
    """That all is given back, but for what is somebody else's by now."""
    said = _GIVEN_BACK[result.is_given_back]
    left = [
        f"the power limit, left at {result.left_limit_w:g} W"
        if knob == "power_limit_w" and result.left_limit_w is not None
        else f"the {knob_names((knob,))}"
        for knob in result.left_alone
    ]
    if not left:
        return said
    return f"{said} Not so {' and '.join(left)}: somebody else has set it since."


_GIVEN_BACK = {
    True: "What was set is given back.",
    False: "What was set could not be given back.",
    None: "Whether what was set is given back, joulewise status tells.",
}


def point_text(point: OperatingPoint) -> str:
    """`an SM clock of at most 1005 MHz and a power limit of 250 W`."""
    parts = []
    if point.sm_clock_mhz is not None:
        parts.append(f"an SM clock of at most {point.sm_clock_mhz} MHz")
    if point.mem_clock_mhz is not None:
        parts.append(f"a memory clock of {point.mem_clock_mhz} MHz")
    if point.power_limit_w is not None:
        parts.append(f"a power limit of {point.power_limit_w:g} W")
    return " and ".join(parts) if parts else "every knob left to the driver"


def _only_gpu(devices: Sequence[str]) -> str | None:
    """Raises InputError for several."""
    if len(devices) > 1:
        raise InputError(
            "a command holds one GPU",
            field="device",
            hint="Start one joulewise apply per GPU; one may run another: joulewise apply "
            "--device nvml:0 … -- joulewise apply --device nvml:1 … -- COMMAND.",
        )
    return devices[0] if devices else None


def _asked(
    plan: Path | None, sm_clock: str | None, mem_clock: str | None, power_limit: str | None
) -> AskedPoint:
    """Raises InputError for nothing, for a plan beside knobs, and for what is no setting."""
    knobs = [text for text in (sm_clock, mem_clock, power_limit) if text is not None]
    if (plan is None) == (not knobs):
        raise InputError(
            "there is nothing to apply" if plan is None else "a plan has its own clocks",
            field="plan",
            hint="Give either --plan PLAN, or knobs: --sm-clock 1005 (and --mem-clock, "
            "--power-limit).",
        )
    return AskedPoint(
        plan=plan,
        sm_clock_mhz=_only(clock_list(sm_clock, field="sm-clock"), "sm-clock"),
        mem_clock_mhz=_only(clock_list(mem_clock, field="mem-clock"), "mem-clock"),
        power_limit=_power_limit(power_limit),
    )


def _power_limit(text: str | None) -> AskedPowerLimit | None:
    field = "power-limit"
    try:
        return _only(power_limit_list(text), field)
    except InputError as error:
        hint = "Write 250 or 80%: watts, or percent of the limit that the GPU has now."
        raise InputError(error.message, field=field, hint=hint) from None


def _only(listed: Sequence[T | None] | None, field: str) -> T | None:
    """The one that was given. Raises InputError for several."""
    if listed is None:
        return None
    if len(listed) != 1:
        raise InputError(
            "a command runs at one operating point",
            field=field,
            hint="Give one value; joulewise measure takes several.",
        )
    return listed[0]


def _extra(result: Applied, arguments: Sequence[str]) -> dict[str, object]:
    return {
        "command": tuple(arguments),
        "exit_code": result.code,
        "device": result.device,
        "device_name": result.device_name,
        "is_simulated": result.is_simulated,
        "point": result.point,
        "sm_clock_held_mhz": result.sm_clock_held_mhz,
        "is_idle": result.is_idle,
        "held_s": result.held_s,
        "is_given_back": result.is_given_back,
        "left_alone": result.left_alone,
        "left_power_limit_w": result.left_limit_w,
    }


def _dry_outcome(planned: DryRun) -> Outcome:
    return Outcome(
        status=Status.FEASIBLE,
        render=lambda console: render_dry_run(console, planned),
        extra={"dry_run": _document(planned)},
    )


def _document(planned: DryRun) -> dict[str, object]:
    fields: dict[str, object] = {
        name: getattr(planned, name) for name in DryRun.__dataclass_fields__
    }
    for name in ("journal", "daemon"):
        fields[name] = None if fields[name] is None else str(fields[name])
    return fields


def render_dry_run(console: Console, planned: DryRun) -> None:
    """The calls in order, what is journalled, and what undoes them."""
    print_line(console, f"{planned.device_name} ({planned.device})")
    writes = (*planned.writes, *planned.frees, *planned.gives_back)
    if any(write.file is not None for write in writes):
        for when, line in _write_rows(planned):
            if when:
                print_line(console, f"{when}:")
            print_line(console, f"  {line}")
    else:
        console.print(table(None, ("when", "NVML call"), _write_rows(planned), left_count=2))
        console.print()
        console.print("The same with nvidia-smi:", markup=False)
        for write in writes:
            print_line(console, f"  {write.nvidia_smi}")
    for line in _dry_notes(planned):
        console.print()
        print_line(console, line)
    say(console, "Nothing was set and nothing was run.")


def _write_rows(planned: DryRun) -> Iterator[tuple[str, str]]:
    stages: tuple[tuple[str, tuple[Write, ...]], ...] = (
        ("first the point is set", planned.writes),
        ("then other locks go", planned.frees),
        ("at the end, given back", planned.gives_back),
    )
    for when, writes in stages:
        for number, write in enumerate(writes):
            yield ("" if number else when), write.call


def _dry_notes(planned: DryRun) -> Iterator[str]:
    if planned.daemon is not None:
        yield f"joulewised does it, which answers at {planned.daemon}, and keeps the journal."
    elif planned.journal is not None:
        found = planned.found_power_limit_w
        limit = "" if found is None else f", and the power limit found, {found:g} W"
        yield f"Journalled before that in {planned.journal}: {knob_names(planned.touched)}{limit}."
    if planned.refusal is not None:
        yield f"It would refuse: {planned.refusal}."
    if planned.left_set is not None:
        yield f"Before all that, a dead holder's clocks are given back. {planned.left_set}"
    if planned.holder is not None:
        yield f"Now the GPU is held by {planned.holder}, so that nothing of this can be done."
