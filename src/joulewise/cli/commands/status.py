"""`joulewise status`: who controls which GPU, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console

from joulewise.cli.options import AsJson
from joulewise.cli.outcome import Outcome, finish
from joulewise.cli.render import counted, print_line, say, table
from joulewise.control.daemon.messages import AskedPoint, GpuState, SeenCaveat
from joulewise.domain.caveats import CaveatKind
from joulewise.domain.plan import Status
from joulewise.workflow.control_status import ControlStatus, SeenDaemon, control_status
from joulewise.workflow.lease_findings import knob_names


def status(as_json: AsJson = False) -> None:
    """Say who holds which GPU, what was asked and what runs, and what dead holders left set.

    Asks joulewised where it answers; else reads locks, journals and the GPUs. Nothing is set,
    and no rights are needed.
    """
    seen = control_status()
    outcome = Outcome(
        status=Status.FEASIBLE,
        render=lambda console: render(console, seen),
        extra={
            "daemon": _daemon(seen.daemon),
            "gpus": [_document(gpu, seen) for gpu in seen.gpus],
            "left_elsewhere": seen.left_elsewhere,
        },
    )
    finish(outcome, as_json=as_json, fail_on=frozenset())


def render(console: Console, seen: ControlStatus) -> None:
    """One row for each GPU; what is amiss below; one sentence."""
    columns = ("GPU", "held by", "asked", "SM clock", "memory", "power", "limit")
    rows = [_row(gpu, seen) for gpu in seen.gpus]
    console.print(table(None, columns, rows, left_count=3))
    for line in _lines(seen):
        console.print()
        print_line(console, line)
    say(console, sentence(seen))


def sentence(seen: ControlStatus) -> str:
    """How many are held, and through what."""
    if not seen.gpus:
        return f"{_through(seen.daemon)} knows of no GPU."
    held_count = sum(gpu.holder is not None for gpu in seen.gpus)
    gpus = counted(len(seen.gpus), "GPU")
    origin = "Simulated. " if any(gpu.is_simulated for gpu in seen.gpus) else ""
    said = f"{origin}{held_count} of {gpus} held, as {_through(seen.daemon)} says."
    left_count = sum(gpu.left_set is not None for gpu in seen.gpus) + len(seen.left_elsewhere)
    if left_count:
        said += f" Clocks of {counted(left_count, 'GPU')} were left set: joulewise restore."
    return said


def _through(daemon: SeenDaemon | None) -> str:
    if daemon is None or daemon.problem is not None:
        return "the state of this account's leases"
    return f"joulewised (process {daemon.pid})"


def _row(gpu: GpuState, seen: ControlStatus) -> tuple[str, ...]:
    holder = gpu.holder or ("not to be seen" if gpu.device in seen.unknown else "nobody")
    if gpu.is_lowered_idle:
        holder = "idle policy (lowered)"
    return (
        gpu.name,
        holder,
        _asked(gpu),
        _with_unit(gpu.sm_clock_mhz, "MHz"),
        _with_unit(gpu.mem_clock_mhz, "MHz"),
        _with_unit(gpu.power_w, "W"),
        _with_unit(gpu.power_limit_w, "W"),
    )


def _asked(gpu: GpuState) -> str:
    """The point; of a holder beside joulewised only which knobs it has touched is known."""
    if gpu.asked is not None:
        return gpu.asked.label
    return knob_names(gpu.touched) or "-"


def _with_unit(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{value:.0f} {unit}"


def _lines(seen: ControlStatus) -> Iterator[str]:
    for gpu in seen.gpus:
        if not gpu.is_answering:
            yield f"{gpu.name} ({gpu.device}) does not answer."
        for caveat in gpu.caveats:
            if caveat.kind != CaveatKind.SIMULATED_DEVICE.value:
                yield f"{gpu.name} ({gpu.device}): {caveat.kind}: {caveat.seen}."
        yield from (said for said in (gpu.left_set, gpu.left_open) if said is not None)
    yield from seen.left_elsewhere
    if seen.daemon is None:
        return
    yield from (f"{problem}." for problem in seen.daemon.own_problems)
    if seen.daemon.problem is not None:
        yield f"joulewised at {seen.daemon.socket} was not asked: {seen.daemon.problem}."


def _document(gpu: GpuState, seen: ControlStatus) -> dict[str, object]:
    """Every field, also those that say nothing."""
    return {
        **_fields(gpu),
        "asked": None if gpu.asked is None else _fields(gpu.asked),
        "caveats": [_fields(caveat) for caveat in gpu.caveats],
        "is_control_known": gpu.device not in seen.unknown,
    }


def _fields(record: GpuState | AskedPoint | SeenCaveat) -> dict[str, object]:
    return {name: getattr(record, name) for name in record.__struct_fields__}


def _daemon(daemon: SeenDaemon | None) -> dict[str, object] | None:
    if daemon is None:
        return None
    return {
        "socket": str(daemon.socket),
        "pid": daemon.pid,
        "problem": daemon.problem,
        "own_problems": daemon.own_problems,
    }
