"""A stand-in for a training program on a fake Jetson board that lives in real time.

`python -m joulewise.simulator.fake_training --root ROOT --work WORK.json --steps 200`: it loads a
model (nothing runs on the GPU), takes steps as long as the physics says at the clocks in force,
marks them as joulewise asks for it, evaluates, and ends. `WORK.json` is the kernel work of one
step. It knows of joulewise what a training program would: the environment that names the file of
step marks, the limit of steps and the file that asks it to stop.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import msgspec

from joulewise.domain.errors import InputError, JoulewiseError
from joulewise.domain.points import OperatingPoint
from joulewise.domain.workload import KernelWork
from joulewise.simulator.device_string import parse_device
from joulewise.simulator.jetson_layout import BoardLayout, EmcControl
from joulewise.simulator.jetson_layout_files import BWMGR_CLOCK
from joulewise.simulator.jetson_layouts import tree_layout
from joulewise.simulator.jetson_live import Load, write_load
from joulewise.simulator.jetson_spec import preset_of, spec_of_tree
from joulewise.simulator.jetson_tree import TreeFiles
from joulewise.simulator.noise import WindowKey, window_noise
from joulewise.simulator.operations import Operations

STEPS_VARIABLE = "JOULEWISE_STEPS"
LIMIT_VARIABLE = "JOULEWISE_STEP_LIMIT"
STOP_VARIABLE = "JOULEWISE_STOP"

_USAGE_STATUS = 2
_KILLED_BASE = 128
_HZ_PER_MHZ = 1_000_000
# A new clock takes 5 ms to come into force.
_LOOK_EVERY_S = 0.004


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What a training run does."""

    work: KernelWork
    step_count: int
    load_s: float = 0.0
    eval_s: float = 0.0
    noise: str = "default"
    seed: int = 0


class StepClock:
    """How long a step takes on a fake board, at the clocks that its files tell."""

    def __init__(self, root: Path, layout: BoardLayout, training: Training) -> None:
        """Know the board's physics. Raises NotSupported for arithmetic that it lacks."""
        self._files = TreeFiles(root)
        self._layout = layout
        self._kernel = training.work.kernel
        self._operations = Operations(spec_of_tree(root, layout), [training.work])
        options = f"virtual:{preset_of(layout)},noise={training.noise},seed={training.seed}"
        self._options = parse_device(options)
        self._operations.running(self._kernel, OperatingPoint())

    def step_s(self, step: int) -> float:
        """Time of this step where all of it runs at the clocks in force."""
        point = OperatingPoint(sm_clock_mhz=self._sm_clock_mhz(), mem_clock_mhz=self._mem_mhz())
        operation = self._operations.running(self._kernel, point)
        key = WindowKey(
            seed=self._options.seed,
            run=f"process {os.getpid()}",
            kernel=self._kernel,
            point_label="",
            window=step,
            is_power_capped=operation.is_power_capped,
            is_host_time=operation.is_host_time,
        )
        return operation.time_s * window_noise(self._options.noise_level, key).time_ratio

    def _sm_clock_mhz(self) -> int:
        clock_hz = self._files.read_number(f"{self._layout.devfreq_folder}/cur_freq")
        return _nearest(clock_hz, self._layout.sm_clocks_mhz)

    def _mem_mhz(self) -> int:
        return _nearest(
            self._files.read_number(_rate_path(self._layout)), self._layout.mem_clocks_mhz
        )


class StepMarks:
    """Tells of steps as a training program that knows joulewise does."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """As the environment asks for it."""
        steps, limit = environment.get(STEPS_VARIABLE), environment.get(LIMIT_VARIABLE, "")
        stop = environment.get(STOP_VARIABLE)
        self._path = Path(steps) if steps else None
        self._stop_path = Path(stop) if stop else None
        self.limit_count = int(limit) if limit.isdecimal() else None

    @property
    def is_asked_to_stop(self) -> bool:
        """Whether training shall end after the step at hand."""
        return self._stop_path is not None and self._stop_path.exists()

    def mark(self, step: int, time_s: float, planned_count: int | None = None) -> None:
        """The step ended then; step 0 is the begin of the first."""
        if self._path is None:
            return
        told: dict[str, float] = {"step": step, "time_s": time_s}
        if planned_count is not None:
            told["planned"] = planned_count
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(told) + "\n")


def train(root: Path, training: Training, marks: StepMarks, over: threading.Event) -> int:
    """Load, take steps, evaluate; `over` ends it at once. Returns the steps that were taken.

    Raises:
        InputError: no fake board lies there.
        NotSupported: the board has not the arithmetic of the work.
    """
    layout = tree_layout(root)
    if layout is None:
        raise InputError(f"there is no fake board below {root}", field="root")
    clock = StepClock(root, layout, training)
    over.wait(training.load_s)
    load = Load(kernel=training.work.kernel, work=training.work, pid=os.getpid())
    write_load(root, load)
    try:
        taken_count = _take_steps(clock, training, marks, over)
        over.wait(training.eval_s)
    finally:
        write_load(root, None)
    return taken_count


def _take_steps(
    clock: StepClock, training: Training, marks: StepMarks, over: threading.Event
) -> int:
    """Steps one after the other; of one that clocks changed in, every part takes its own time."""
    planned_count = training.step_count
    if marks.limit_count is not None:
        planned_count = min(planned_count, marks.limit_count)
    now_s, done_ratio, step = time.monotonic(), 0.0, 0
    marks.mark(0, now_s, planned_count)
    while step < planned_count and not over.is_set() and not marks.is_asked_to_stop:
        step_s = clock.step_s(step)
        over.wait(min(_LOOK_EVERY_S, (1.0 - done_ratio) * step_s))
        before_s, now_s = now_s, time.monotonic()
        done_ratio += (now_s - before_s) / step_s
        while done_ratio >= 1.0 and step < planned_count:
            done_ratio -= 1.0
            step += 1
            marks.mark(step, now_s - done_ratio * step_s)
    return step


def main(arguments: Sequence[str] | None = None) -> int:
    """Train once; the exit status."""
    asked = _parser().parse_args(arguments)
    over, numbers = threading.Event(), list[int]()

    def end(number: int, _frame: FrameType | None) -> None:
        numbers.append(number)
        over.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    try:
        training = Training(
            work=read_work(asked.work),
            step_count=asked.steps,
            load_s=asked.load_s,
            eval_s=asked.eval_s,
            noise=asked.noise,
            seed=asked.seed,
        )
        taken_count = train(asked.root, training, StepMarks(os.environ), over)
    except JoulewiseError as error:
        sys.stderr.write(f"{error}\n{error.hint or ''}".rstrip() + "\n")
        return _USAGE_STATUS
    sys.stdout.write(f"{training.work.kernel}: {taken_count} steps\n")
    return _KILLED_BASE + numbers[0] if numbers else int(asked.status)


def read_work(file: Path) -> KernelWork:
    """The kernel work of one step, from JSON. Raises InputError naming the file."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=KernelWork)
    except (OSError, msgspec.MsgspecError) as error:
        raise InputError(
            f"it is no kernel work: {error}",
            file=str(file),
            hint="Write the fields of a KernelWork as a JSON object.",
        ) from error


def _rate_path(layout: BoardLayout) -> str:
    folder = layout.emc.folder
    return {
        EmcControl.BPMP: f"{folder}/rate",
        EmcControl.BWMGR: f"{BWMGR_CLOCK}/clk_rate",
        EmcControl.DEVFREQ: f"{folder}/cur_freq",
    }[layout.emc.control]


def _nearest(clock_hz: int | None, listed_mhz: Sequence[int]) -> int:
    """The label that is meant; the highest where the file is gone."""
    if clock_hz is None:
        return listed_mhz[-1]
    return min(listed_mhz, key=lambda mhz: abs(mhz - clock_hz / _HZ_PER_MHZ))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m joulewise.simulator.fake_training",
        description="Train nothing on a fake Jetson board.",
    )
    parser.add_argument("--root", type=Path, required=True, help="folder of the living board")
    parser.add_argument("--work", type=Path, required=True, help="JSON of one step's kernel work")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--load-s", type=float, default=0.0, help="time until the first step")
    parser.add_argument("--eval-s", type=float, default=0.0, help="time after the last step")
    parser.add_argument("--noise", default="default", help="as of virtual devices; 0 for none")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--status", type=int, default=0, help="exit status of a whole run")
    return parser


if __name__ == "__main__":
    sys.exit(main())
