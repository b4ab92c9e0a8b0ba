"""`joulewise run`: the time and energy of any command."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import Console

from joulewise.cli.beside import (
    JsonAtEnd,
    ResultOut,
    UserCommand,
    command_text,
    end,
    require_out,
)
from joulewise.cli.outcome import Outcome, caveat_document
from joulewise.cli.render import (
    counted,
    joules_within,
    print_caveats,
    say,
    seconds,
    table,
    within,
)
from joulewise.domain.caveats import is_simulated
from joulewise.domain.plan import Status
from joulewise.workflow.command import Command
from joulewise.workflow.hardware import open_visible
from joulewise.workflow.running import CommandRun, GpuRun, run_measured

# `nvml:GPU-` and the eight digits that tell GPUs of a machine apart.
_SHORT_DEVICE_COUNT = 17

RunDevices = Annotated[
    list[str] | None,
    typer.Option(
        "--device",
        envvar="JOULEWISE_DEVICE",
        help="A GPU to measure, as in nvml:0; may be given several times. Default: those that "
        "CUDA_VISIBLE_DEVICES names, and every GPU without it.",
    ),
]


def run(
    command: UserCommand = None,
    device: RunDevices = None,
    out: ResultOut = None,
    as_json: JsonAtEnd = False,
) -> None:
    """Run any command and say what time and energy it took on the GPUs.

    Nothing is set, and no rights are needed. The command has its own input, output and exit
    code; the result goes to standard error.
    """
    asked = Command(command or ())
    require_out(out)
    gpus = open_visible(device or ())
    result = run_measured(gpus, asked.run_alone)
    outcome = Outcome(
        status=Status.FEASIBLE,
        render=lambda console: render(console, result, asked.arguments),
        energy_j=result.energy_j,
        time_s=result.time_s,
        caveats=result.caveats,
        extra=_extra(result, asked.arguments),
    )
    end(outcome, result.code, trouble=result.trouble, as_json=as_json, out=out)


def render(console: Console, result: CommandRun, arguments: tuple[str, ...]) -> None:
    """A row for each GPU, the doubts, and one sentence."""
    columns = ("GPU", "time", "energy", "mean power", "SM clock", "temperature")
    console.print()
    console.print(table(None, columns, _rows(result)))
    print_caveats(console, result.caveats)
    say(console, sentence(result, arguments))


def sentence(result: CommandRun, arguments: tuple[str, ...]) -> str:
    """What ran, what it took, and whether the GPUs had any part in it."""
    origin = "Simulated. " if is_simulated(result.caveats) else ""
    took = f"{origin}{command_text(arguments)} took {seconds(result.time_s)}"
    gpus = "" if len(result.gpus) == 1 else f" on {counted(len(result.gpus), 'GPU')}"
    energy = result.energy_j
    if energy is None:
        return f"{took}; its energy could not be measured."
    said = f"{took} and {_energy(energy, result.uncertainty_j)}{gpus}"
    idle = [_short_device(gpu) for gpu in result.gpus if gpu.is_idle]
    if not idle:
        return f"{said}."
    which = ", ".join(idle)
    if len(idle) == len(result.gpus):
        which = "The GPU" if len(idle) == 1 else "All of them"
    return f"{said}. {which} stayed idle all the while."


def _rows(result: CommandRun) -> Iterator[tuple[str, ...]]:
    for gpu in result.gpus:
        yield (
            _title(gpu, is_only=len(result.gpus) == 1),
            seconds(result.time_s),
            _energy(gpu.energy_j, gpu.uncertainty_j),
            _power(gpu, result.time_s),
            "-" if gpu.sm_clock_held_mhz is None else f"{gpu.sm_clock_held_mhz:.0f} MHz",
            "-" if gpu.temp_c is None else f"{gpu.temp_c:.0f} °C",
        )
    if len(result.gpus) > 1:
        energy = _energy(result.energy_j, result.uncertainty_j)
        yield ("all", seconds(result.time_s), energy, _power(result, result.time_s), "", "")


def _title(gpu: GpuRun, *, is_only: bool) -> str:
    """The model, and where there are others the beginning of the UUID, which opens it too."""
    if is_only:
        return gpu.device_name
    return f"{gpu.device_name.removeprefix('NVIDIA ')} ({_short_device(gpu)})"


def _short_device(gpu: GpuRun) -> str:
    return gpu.device.partition(",")[0][:_SHORT_DEVICE_COUNT]


def _power(measured: GpuRun | CommandRun, time_s: float) -> str:
    """Nothing where all of it is open."""
    energy_j, uncertainty_j = measured.energy_j, measured.uncertainty_j or 0.0
    if energy_j is None or uncertainty_j >= energy_j or time_s <= 0:
        return "-"
    return f"{within(energy_j / time_s, uncertainty_j / time_s)} W"


def _energy(energy_j: float | None, uncertainty_j: float | None) -> str:
    if energy_j is None:
        return "-"
    return joules_within(energy_j, uncertainty_j or 0.0)


def _extra(result: CommandRun, arguments: tuple[str, ...]) -> dict[str, object]:
    return {
        "command": arguments,
        "exit_code": result.code,
        "uncertainty_j": result.uncertainty_j,
        "is_simulated": is_simulated(result.caveats),
        "gpus": [_gpu(gpu) for gpu in result.gpus],
    }


def _gpu(gpu: GpuRun) -> dict[str, object]:
    return {
        "device": gpu.device,
        "device_name": gpu.device_name,
        "is_simulated": gpu.is_simulated,
        "energy_j": gpu.energy_j,
        "uncertainty_j": gpu.uncertainty_j,
        "mean_power_w": gpu.mean_power_w,
        "sm_clock_held_mhz": gpu.sm_clock_held_mhz,
        "temp_c": gpu.temp_c,
        "is_idle": gpu.is_idle,
        "caveats": [caveat_document(caveat) for caveat in gpu.caveats],
        "message": None if gpu.trouble is None else str(gpu.trouble),
    }
