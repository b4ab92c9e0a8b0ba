"""The first hour on a real GPU: ten questions that only hardware answers.

    python scripts/first_hour.py --device nvml:0 --out first-hour.json

Reads only, unless --allow-control is given: then clocks are set under a lease, and given back.
"""

# ruff: noqa: INP001, T201 - a script, not a package, and it prints

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from first_hour_questions import (
    ALL,
    QUESTIONS,
    UNLOADING,
    Figures,
    Found,
    Hour,
    LeftBehind,
    Load,
    leave_locked,
    locked_and_left,
)

from joulewise import __version__
from joulewise.device.nvml import handle_by_index
from joulewise.device.nvml_facts import driver_facts, gpu_facts
from joulewise.device.nvml_gpu import open_nvml
from joulewise.device.real_time import MonotonicTimer
from joulewise.domain.errors import JoulewiseError, NotSupported
from joulewise.domain.ports import Timer
from joulewise.integrations.torch_runner import TorchRunners
from joulewise.simulator.fake_driver import loaded_driver
from joulewise.workflow.devices import open_session
from joulewise.workflow.workloads import load_workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One question: figures with units in their names, how they were found, or why not."""

    question: str
    figures: Figures = field(default_factory=dict)
    how: str | None = None
    why_not: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """What is written: the GPU's model and the driver, and nothing that tells machines apart."""

    schema_version: int = 1
    joulewise_version: str = __version__
    device_name: str
    driver_version: str | None
    is_simulated: bool
    answers: list[Answer]


def ask(hour: Hour, numbers: list[int]) -> Document:
    """Put these questions; one that cannot be answered says why and stops none of the others."""
    identity = hour.gpu.identity
    # The lock that was left behind is gone with the first lease.
    in_turn = sorted(set(numbers), key=lambda number: (number != UNLOADING, number))
    answers = {number: answer_of(hour, number) for number in in_turn}
    return Document(
        device_name=identity.name,
        driver_version=driver_facts().driver_version.value,
        is_simulated=identity.is_simulated,
        answers=[answers[number] for number in sorted(answers)],
    )


def answer_of(hour: Hour, number: int) -> Answer:
    """The answer to one question."""
    question, is_setting, find = QUESTIONS[number - 1]

    def found() -> Found:
        if is_setting and not hour.may_control:
            raise NotSupported("sets clocks; run again with --allow-control")
        return find(hour)

    return answered(f"{number}. {question}", found)


def answered(question: str, find: Callable[[], Found]) -> Answer:
    """What was found, or why nothing was."""
    try:
        figures, how = find()
    except JoulewiseError as error:
        return Answer(question=question, why_not=str(error))
    # An hour on a GPU is dear: whatever else goes wrong must not take other answers along.
    except Exception as error:  # noqa: BLE001
        return Answer(question=question, why_not=f"{type(error).__name__}: {error}")
    return Answer(question=question, figures=figures, how=how)


def open_hour(device: str, *, may_control: bool, left: LeftBehind | None) -> Hour:
    """Open the GPU, and whatever runs kernels on it. Raises JoulewiseError where there is none."""
    timer = timer_of_driver()
    gpu = open_nvml(device, timer=timer)
    if left is not None:
        left = left._replace(found_energy_j=gpu.sample().energy_j)
    (facts,) = (facts for facts in gpu_facts() if facts.index == gpu.index)
    return Hour(
        device=device,
        gpu=gpu,
        raw=handle_by_index(gpu.index, timer.sleep).needed("NVML"),
        facts=facts,
        timer=timer,
        load=find_load(device),
        may_control=may_control,
        left=left,
    )


def timer_of_driver() -> Timer:
    """The time that GPUs live in."""
    harness = loaded_driver()
    return MonotonicTimer() if harness is None else harness.timer


def find_load(device: str) -> Load | None:
    """The kernels that compute the most and the least, where something runs them."""
    workload = load_workload("gpt3-xl")
    try:
        runner = open_session(device, workload, hardware=TorchRunners()).runner
    except NotSupported:
        return None
    flops = {work.kernel: work.flop_count for work in workload.works}
    by_work = sorted(runner.kernels, key=lambda name: flops.get(name, 0.0))
    return Load(runner=runner, kernel=by_work[-1], short_kernel=by_work[0])


def tell(document: Document) -> None:
    """The answers for people."""
    kind = "SIMULATED " if document.is_simulated else ""
    print(f"{kind}{document.device_name}, driver {document.driver_version}")
    for answer in document.answers:
        print(f"\n{answer.question}")
        for name, figure in answer.figures.items():
            print(f"   {name}: {f'{figure:.6g}' if isinstance(figure, float) else figure}")
        print(f"   not answered: {answer.why_not}" if answer.why_not else f"   by: {answer.how}")


def main() -> int:
    """Ask, tell, and write the file where one is wanted."""
    parser = argparse.ArgumentParser(description="Ten questions that only a real GPU answers.")
    parser.add_argument("--device", default="nvml", help="e.g. nvml:0; default: the only GPU")
    parser.add_argument("--allow-control", action="store_true", help="set clocks, under a lease")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="write the answers there")
    parser.add_argument("--only", type=int, nargs="+", choices=ALL, default=ALL, metavar="NUMBER")
    parser.add_argument("--leave-locked", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    try:
        if asked.leave_locked:
            leave_locked(open_nvml(asked.device, timer=timer_of_driver()))
        left = None
        if asked.allow_control and UNLOADING in asked.only:
            left = locked_and_left(Path(__file__), asked.device)
        hour = open_hour(asked.device, may_control=asked.allow_control, left=left)
    except JoulewiseError as error:
        print(f"error: {error}\nhint: {error.hint or 'joulewise doctor'}", file=sys.stderr)
        return 1
    document = ask(hour, asked.only)
    tell(document)
    if asked.out is not None:
        asked.out.write_bytes(msgspec.json.format(msgspec.json.encode(document)) + b"\n")
        print(f"\nWritten to {asked.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
