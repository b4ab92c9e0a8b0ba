"""The lesson of the TX2: which clock is best hangs on the rails and on the time that are counted.

thynics/jetson_dvfs (VGG-19): the logger was never stopped, so that each file holds all later runs,
too, and wall time has 270 s of set-up in it. One set of logs gives five best clocks by five ways
to count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import pytest
from tests.jetson_kernel import KernelFiles

from joulewise.device.jetson_rails import find_rails, module_power_w
from joulewise.domain.finetuning import ClockCost, StepMark
from joulewise.domain.measurement import GpuSample, RailPower
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.finetune.accounting import PowerLog, StepTimes, cost_of_steps
from joulewise.finetune.jobs import job
from joulewise.finetune.step_marks import step_spans
from joulewise.finetune.step_work import step_work
from joulewise.simulator.jetson_layout_files import rail_figures
from joulewise.simulator.operations import Operation, Operations
from joulewise.simulator.presets import preset

EMPTY = GpuSample(
    time_s=0.0,
    energy_j=None,
    power_w=None,
    sm_clock_mhz=None,
    mem_clock_mhz=None,
    temp_c=None,
    power_capped_s=None,
    thermally_throttled_s=None,
    other_process_count=None,
)
SETUP_S = 270.0
STEP_COUNT = 75
KERNEL = "bert-base/qnli"
TOTAL, GPU = "VDD_IN", "VDD_SYS_GPU"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    time_s: float
    rails: tuple[RailPower, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRun:
    """One training run at one clock, and the power log that began with it and never ended."""

    wall_s: float
    marks: tuple[StepMark, ...]
    own: tuple[Line, ...]
    file: tuple[Line, ...] = ()


def rails_of(operation: Operation) -> tuple[RailPower, ...]:
    """What a TX2 tells by its sensors where its parts draw as much: total, GPU and others."""
    drawn = {one.rail: one.power_w for one in operation.rails}
    told_w = {
        TOTAL: math.fsum(one.power_w for one in operation.rails if one.is_counted),
        GPU: drawn["VDD_GPU_SOC"],
        "VDD_SYS_SOC": 0.1 * drawn["VDD_GPU_SOC"],
        "VDD_SYS_CPU": drawn["VDD_CPU_CV"],
        "VDD_SYS_DDR": drawn["VDDQ_VDD2_1V8AO"],
    }
    board = KernelFiles("tx2-jp4")
    for rail in board.layout.rails:
        board.files |= rail_figures(board.layout, rail, told_w[rail.rail])
    reader = find_rails(board)
    assert reader is not None
    return reader.read()


def power_w(line: Line, rail: str) -> float:
    return next(one.power_w for one in line.rails if one.rail == rail)


def logged_run(operations: Operations, clock_mhz: int, begin_s: float) -> LoggedRun:
    running = operations.running(KERNEL, OperatingPoint(sm_clock_mhz=clock_mhz))
    first_s = begin_s + SETUP_S
    marks = tuple(
        StepMark(step=step, time_s=first_s + step * running.time_s)
        for step in range(STEP_COUNT + 1)
    )
    idle, busy = rails_of(operations.idle(AUTO)), rails_of(running)
    wall_s = marks[-1].time_s - begin_s
    own = tuple(
        Line(
            time_s=begin_s + tick,
            rails=busy if first_s <= begin_s + tick < marks[-1].time_s else idle,
        )
        # Files end with a line of the board at rest.
        for tick in range(math.ceil(wall_s) + 1)
    )
    return LoggedRun(wall_s=wall_s, marks=marks, own=own)


@cache
def logged_runs() -> dict[int, LoggedRun]:
    operations = Operations(preset("agx-orin"), (step_work(job(KERNEL)),))
    runs: dict[int, LoggedRun] = {}
    begin_s = 0.0
    for clock_mhz in operations.grid().sm_clocks_mhz:
        runs[clock_mhz] = logged_run(operations, clock_mhz, begin_s)
        begin_s += math.ceil(runs[clock_mhz].wall_s) + 30.0
    clocks = list(runs)
    return {
        clock: replace(
            runs[clock],
            file=tuple(line for later in clocks[index:] for line in runs[later].own),
        )
        for index, clock in enumerate(clocks)
    }


def mean_w(lines: Sequence[Line], rail: str) -> float:
    return math.fsum(power_w(line, rail) for line in lines) / len(lines)


def our_cost(clock_mhz: int, run: LoggedRun) -> ClockCost:
    """As the product counts: samples with their rails go in, and step marks."""
    log, times = PowerLog(), StepTimes()
    for line in run.file:
        sample = replace(EMPTY, time_s=line.time_s, rails=line.rails)
        log.add(replace(sample, power_w=module_power_w(line.rails)))
    for span in step_spans(run.marks):
        times.add(span)
    return cost_of_steps(clock_mhz, times, log)


def best_of(costs_j: dict[int, float]) -> int:
    return min(costs_j, key=costs_j.__getitem__)


def test_symptom_one_log_five_best_clocks_by_five_ways_to_count() -> None:
    runs = logged_runs()
    working = {
        clock: [line for line in run.own if line.time_s >= run.marks[0].time_s]
        for clock, run in runs.items()
    }
    step_s = {clock: (run.wall_s - SETUP_S) / STEP_COUNT for clock, run in runs.items()}
    of_gpu = {clock: mean_w(lines, GPU) for clock, lines in working.items()}
    of_module = {clock: mean_w(lines, TOTAL) for clock, lines in working.items()}

    best = {
        "GPU rail of the whole file x wall": best_of(
            {clock: mean_w(run.file, GPU) * run.wall_s for clock, run in runs.items()}
        ),
        "GPU rail x wall": best_of({one: of_gpu[one] * run.wall_s for one, run in runs.items()}),
        "module x wall": best_of({one: of_module[one] * run.wall_s for one, run in runs.items()}),
        "GPU rail per step": best_of({one: of_gpu[one] * step_s[one] for one in runs}),
        "module per step": best_of({one: of_module[one] * step_s[one] for one in runs}),
    }

    assert best == {
        "GPU rail of the whole file x wall": 918,
        "GPU rail x wall": 408,
        "module x wall": 510,
        "GPU rail per step": 612,
        "module per step": 816,
    }


def test_of_five_ways_to_count_ours_is_module_energy_of_the_steps() -> None:
    runs = logged_runs()
    ours = {clock: our_cost(clock, run).energy_j for clock, run in runs.items()}

    assert best_of(ours) == 816
    for clock, run in runs.items():
        lines = [line for line in run.own if line.time_s >= run.marks[0].time_s]
        step_s = (run.wall_s - SETUP_S) / STEP_COUNT
        assert ours[clock] == pytest.approx(mean_w(lines, TOTAL) * step_s, rel=0.005)


def test_of_the_rails_of_a_tx2_the_one_that_carries_all_is_counted_alone() -> None:
    rails = logged_runs()[816].file[0].rails

    assert {one.rail for one in rails if one.is_counted} == {TOTAL}
    assert {one.rail for one in rails} >= {TOTAL, GPU, "VDD_SYS_CPU", "VDD_SYS_SOC", "VDD_SYS_DDR"}
