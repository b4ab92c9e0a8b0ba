"""`joulewise status`: who controls which GPU, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table

from joulewise.cli.options import AsJson
from joulewise.cli.outcome import Outcome, finish
from joulewise.cli.render import counted, print_wrapped, say, table
from joulewise.control.by_hand import BOARD_UUID_START, is_board
from joulewise.control.daemon.messages import AskedPoint, GpuState, SeenCaveat, SeenHolder
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
            "held_elsewhere": seen.held_elsewhere,
        },
    )
    finish(outcome, as_json=as_json, fail_on=frozenset())


def render(console: Console, seen: ControlStatus) -> None:
    """One row for each GPU; what is amiss below; one sentence."""
    for number, grid in enumerate(_tables(seen)):
        if number:
            console.print()
        console.print(grid)
    for line in _lines(seen):
        console.print()
        print_wrapped(console, line)
    say(console, sentence(seen))


def sentence(seen: ControlStatus) -> str:
    """How many are held, and through what."""
    if not seen.gpus:
        return f"{_through(seen.daemon)} knows of no GPU."
    held_count = sum(gpu.holder is not None and not gpu.is_lowered_idle for gpu in seen.gpus)
    lowered_count = sum(gpu.is_lowered_idle for gpu in seen.gpus)
    gpus = counted(len(seen.gpus), "GPU")
    origin = "Simulated. " if any(gpu.is_simulated for gpu in seen.gpus) else ""
    known = " known to be" if seen.unknown else ""
    lowered = f", {lowered_count} lowered by the idle policy" if lowered_count else ""
    said = f"{origin}{held_count} of {gpus}{known} held{lowered}, as {_through(seen.daemon)} says."
    left_count = sum(gpu.left_set is not None for gpu in seen.gpus) + len(seen.left_elsewhere)
    if left_count:
        said += f" Clocks of {counted(left_count, 'GPU')} were left set: joulewise restore."
    if seen.unknown and (seen.daemon is None or seen.daemon.problem is not None):
        said += " What root or joulewised holds or left cannot be seen by this account."
    return said


def _through(daemon: SeenDaemon | None) -> str:
    if daemon is None or daemon.problem is not None:
        return "the state of this account's leases"
    return f"joulewised (process {daemon.pid})"


def _tables(seen: ControlStatus) -> Iterator[Table]:
    """One for each model, whose name stands above: so a GPU takes one line of 80 columns."""
    digit_count = _digit_count([gpu.gpu for gpu in seen.gpus])
    columns = ("GPU", "UUID", "held by", "asked", "SM/memory", "power/limit")
    for name in dict.fromkeys(gpu.name for gpu in seen.gpus):
        rows = [_row(gpu, seen, digit_count) for gpu in seen.gpus if gpu.name == name]
        yield table(name, columns, rows, left_count=4, copied_count=2)


def _row(gpu: GpuState, seen: ControlStatus, digit_count: int) -> tuple[str, ...]:
    return (
        _number(gpu),
        _short(gpu.gpu, digit_count) if gpu.gpu != gpu.device else "-",
        _holder(gpu, seen),
        _asked(gpu),
        _pair(gpu.sm_clock_mhz, gpu.mem_clock_mhz, "MHz"),
        _pair(gpu.power_w, gpu.power_limit_w, "W"),
    )


def _number(gpu: GpuState) -> str:
    """What opens it here: its number for the driver, or that it is the board's own."""
    if gpu.index is not None:
        return f"nvml:{gpu.index}"
    kind = gpu.device.partition(",")[0]
    return "-" if ":" in kind else kind


_UUID_START = "GPU-"
_FEWEST_DIGIT_COUNT = 4


def _short(uuid: str, digit_count: int) -> str:
    """The beginning of a UUID, which names the GPU in device strings."""
    start = BOARD_UUID_START if is_board(uuid) else _UUID_START
    return uuid[: len(start) + digit_count]


def _digit_count(uuids: Sequence[str]) -> int:
    """So few digits that they still tell all apart."""
    longest = max(map(len, uuids), default=0)
    different = len(set(uuids))
    counts = range(_FEWEST_DIGIT_COUNT, longest)
    return next((n for n in counts if len({_short(one, n) for one in uuids}) == different), longest)


def _holder(gpu: GpuState, seen: ControlStatus) -> str:
    """Who, by name and program: `alice: train.py (15481)`."""
    if gpu.is_lowered_idle:
        return "nobody (lowered)"
    if gpu.held_by is not None:
        said = ": ".join(filter(None, (gpu.held_by.user, gpu.held_by.command)))
        return f"{said} ({gpu.held_by.pid})" if said else f"process {gpu.held_by.pid}"
    if gpu.left_set is not None:
        return "nobody (left set)"
    return gpu.holder or ("not known" if gpu.device in seen.unknown else "nobody")


def _asked(gpu: GpuState) -> str:
    """The point; of a holder beside joulewised only which knobs it has touched is known."""
    if gpu.asked is not None:
        return gpu.asked.label
    return knob_names(gpu.touched) or "-"


def _pair(first: float | None, second: float | None, unit: str) -> str:
    """Two readings in one cell: `1005/9501 MHz`."""
    if first is None and second is None:
        return "-"
    said = ("-" if one is None else f"{one:.0f}" for one in (first, second))
    return f"{'/'.join(said)} {unit}"


def _title(gpu: GpuState) -> str:
    number = _number(gpu)
    return gpu.device if number == "-" else number


def _lines(seen: ControlStatus) -> Iterator[str]:
    for gpu in seen.gpus:
        title = _title(gpu)
        if not gpu.is_answering:
            yield (
                f"{title} does not answer: {gpu.name} ({gpu.device}) is lost to its driver, or "
                "that hangs. The kernel log says more."
            )
        yield from (f"{title}: {said}" for said in _doubts(gpu))
        yield from (f"{title}: {said}" for said in (gpu.left_set, gpu.left_open) if said)
    yield from seen.held_elsewhere
    yield from seen.left_elsewhere
    if seen.daemon is None:
        return
    yield from (f"{problem}." for problem in seen.daemon.own_problems)
    if seen.daemon.problem is not None:
        yield f"joulewised at {seen.daemon.socket} was not asked: {seen.daemon.problem}."


# What a reading is of, and nothing that is amiss.
_STANDING = {CaveatKind.SIMULATED_DEVICE.value, CaveatKind.ENERGY_OF_MODULE.value}


def _doubts(gpu: GpuState) -> Iterator[str]:
    for caveat in gpu.caveats:
        # What a dead holder left set is no riddle.
        is_explained = gpu.left_set is not None and caveat.kind == CaveatKind.FOREIGN_CONTROL.value
        if caveat.kind not in _STANDING and not is_explained:
            yield f"{caveat.kind}: {caveat.seen}."


def _document(gpu: GpuState, seen: ControlStatus) -> dict[str, object]:
    """Every field, also those that say nothing."""
    return {
        **_fields(gpu),
        "held_by": None if gpu.held_by is None else _fields(gpu.held_by),
        "asked": None if gpu.asked is None else _fields(gpu.asked),
        "caveats": [_fields(caveat) for caveat in gpu.caveats],
        "is_control_known": gpu.device not in seen.unknown,
    }


def _fields(record: GpuState | AskedPoint | SeenCaveat | SeenHolder) -> dict[str, object]:
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
