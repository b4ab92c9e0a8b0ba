"""The first hour on a real GPU: ten questions that only hardware answers.

    python scripts/first_hour.py --device nvml:0 --out first-hour.json

Reads only, unless --allow-control is given: then clocks are set under a lease, and given back.
"""

# ruff: noqa: INP001, T201 - a script, not a package, and it prints

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec

from joulewise import __version__
from joulewise.control.lease import hold
from joulewise.device.host import host_facts
from joulewise.device.nvml import NvmlDevice, handle_by_index, is_fake_library
from joulewise.device.nvml_facts import driver_facts, gpu_facts
from joulewise.device.nvml_gpu import NvmlGpu, open_nvml
from joulewise.device.real_time import MonotonicTimer
from joulewise.domain.errors import JoulewiseError, NotPermitted, NotSupported
from joulewise.domain.gpu_facts import GpuFacts
from joulewise.domain.points import OperatingPoint
from joulewise.domain.ports import KernelRunner, Timer, no_progress
from joulewise.integrations.torch_runner import TorchRunners
from joulewise.simulator.fake_driver import loaded_driver
from joulewise.workflow.devices import open_session
from joulewise.workflow.host_findings import may_set_clocks
from joulewise.workflow.sensor_probing import SensorsJob, probe_sensors_of
from joulewise.workflow.transitions_measuring import TransitionsJob, measure_transitions_to_file
from joulewise.workflow.workloads import load_workload

SETTLE_S, IDLE_S, WAVE_S, LOAD_S = 2.0, 10.0, 10.0, 2.0
IDLE_TURNS = ("(floor, f): first_w", "(f, f): first_w", "(f, f): again_w", "(floor, f): again_w")
WAVE_PERIODS_S = (0.1, 0.25, 0.13)
CALL_COUNT = 50
# Fields 74, 269, 270, 271, 76, 297, 298, 299, 251, and GPM.
NEWER_FACTS = (
    *("power_capped_s", "sw_thermal_s", "hw_thermal_s", "power_braked_s", "sync_boosted_s"),
    *("mma_stall_ratio", "memory_clock_switch", "memory_clock_switch_interval_s"),
    *("is_power_smoothed", "is_activity_metered"),
)

Figures = dict[str, float | str | bool | None]
Found = tuple[Figures, str]


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


class Load(NamedTuple):
    """A kernel, and what runs it."""

    runner: KernelRunner
    kernel: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hour:
    """What the questions are put to."""

    device: str
    gpu: NvmlGpu
    raw: NvmlDevice
    facts: GpuFacts
    timer: Timer
    load: Load | None
    may_control: bool

    def clock_mhz(self) -> int | None:
        """The SM clock, a while after something was asked; under load where there is one."""
        if self.load is None:
            self.timer.sleep(SETTLE_S)
            return self.gpu.sample().sm_clock_mhz
        with self.load.runner.loop(self.load.kernel, run="clock") as loop:
            loop.run_for(SETTLE_S)
            return self.gpu.sample().sm_clock_mhz

    def idle_power_w(self) -> float | None:
        """Mean power without load: of readings, ten a second."""
        self.timer.sleep(SETTLE_S)
        powers_w = []
        for _ in range(int(IDLE_S * 10)):
            self.timer.sleep(0.1)
            powers_w.append(self.gpu.sample().power_w)
        known = [power_w for power_w in powers_w if power_w is not None]
        return statistics.mean(known) if known else None


def switching(hour: Hour) -> Found:
    """Question 1."""
    job = TransitionsJob(device=hour.device, workload="gpt3-xl")
    result = measure_transitions_to_file(job, no_progress, hardware=TorchRunners())
    figures: Figures = {}
    for change in result.changes:
        name = f"{change.before.label} to {change.after.label}"
        figures[f"{name}: lag_s"] = change.lag_s
        figures[f"{name}: stall_s"] = change.stall_s if change.is_stall_seen else None
        figures[f"{name}: stall_least_s"] = change.stall_least_s
    return figures, "joulewise probe transitions, under a running kernel"


def counters(hour: Hour) -> Found:
    """Question 2."""
    job = SensorsJob(device=hour.device, workload="gpt3-xl")
    probe = probe_sensors_of(job, no_progress, hardware=TorchRunners()).probe
    figures: Figures = {
        "counter_period_s": None if probe.counter is None else probe.counter.period_s,
        "power_period_s": None if probe.power is None else probe.power.period_s,
        "instant_window_s": probe.instant_window_s,
        "average_window_s": probe.average_window_s,
        "power_excess_ratio": probe.power_excess_ratio,
        "idle_power_w": probe.idle_power_w,
    }
    how = "joulewise probe sensors"
    if hour.load is None or probe.steady_power_w is None or probe.idle_power_w is None:
        return figures, f"{how}; without a load nothing tells whether the counter samples"
    for period_s in WAVE_PERIODS_S:
        figures[f"wave of {period_s} s: counted_ratio"] = counted_ratio(
            hour, hour.load, period_s, probe.steady_power_w, probe.idle_power_w
        )
    return figures, (
        f"{how}; then load for half of each period, over {WAVE_S:g} s, and what was counted over "
        "what the busy time should draw: alike for every period where the counter misses nothing"
    )


def counted_ratio(
    hour: Hour, load: Load, period_s: float, busy_w: float, idle_w: float
) -> float | None:
    """Energy counted under a square wave of load, over what it draws."""
    start = hour.gpu.wait_for_energy_tick(5.0)
    busy_s = 0.0
    while (begin_s := hour.timer.now_s()) < start.time_s + WAVE_S:
        with load.runner.loop(load.kernel, run="wave") as loop:
            loop.run_for(period_s / 2)
        busy_s += hour.timer.now_s() - begin_s
        hour.timer.sleep(max(0.0, begin_s + period_s - hour.timer.now_s()))
    end = hour.gpu.wait_for_energy_tick(5.0)
    if start.energy_j is None or end.energy_j is None:
        return None
    drawn_j = busy_s * busy_w + (end.time_s - start.time_s - busy_s) * idle_w
    return (end.energy_j - start.energy_j) / drawn_j


def rounding(hour: Hour) -> Found:
    """Question 3."""
    listed = hour.gpu.clock_grid().sm_clocks_mhz
    below, above = listed[len(listed) // 2 - 1 : len(listed) // 2 + 1]
    figures: Figures = {}
    with hold(hour.gpu) as lease:
        # The lease's journal then says that the clock was touched, whatever is asked next.
        lease.apply(OperatingPoint(sm_clock_mhz=below))
        for asked in range(below, above + 1, max(1, (above - below) // 5)):
            reply = hour.raw.call("nvmlDeviceSetGpuLockedClocks", asked, asked)
            seen = hour.clock_mhz() if reply.code == 0 else f"refused (NVML {reply.code})"
            figures[f"asked {asked}: seen_mhz"] = seen
    load = "without load" if hour.load is None else f"under {hour.load.kernel}"
    return figures, f"locked to (f, f) between two listed clocks, and read back {load}"


def idle_at_locks(hour: Hour) -> Found:
    """Question 4."""
    listed = hour.gpu.clock_grid().sm_clocks_mhz
    high = listed[len(listed) * 3 // 4]
    figures: Figures = {"sm_clock_mhz": high}
    with hold(hour.gpu) as lease:
        for turn in IDLE_TURNS:
            lease.apply(OperatingPoint(sm_clock_mhz=high))
            if turn.startswith("(f, f)"):
                hour.raw.call("nvmlDeviceSetGpuLockedClocks", high, high).needed("(f, f)")
            figures[turn] = hour.idle_power_w()
    return figures, f"mean power over {IDLE_S:g} s without load, in turn, for the board cools"


def unloading(hour: Hour) -> Found:
    """Question 5."""
    state = {True: "on", False: "off", None: "unknown"}[hour.facts.is_persistent.value]
    raise NotSupported(
        f"persistence mode is {state}; every user of the driver would have to leave, this script "
        "too: nvidia-smi -lgc, wait a minute, nvidia-smi -q -d CLOCK under load"
    )


def fields(hour: Hour) -> Found:
    """Question 6."""
    figures: Figures = {}
    for name in NEWER_FACTS:
        fact = getattr(hour.facts, name)
        figures[name] = "there" if fact.is_known else fact.absence
    return figures, "read once each"


def scopes(hour: Hour) -> Found:
    """Question 7."""
    names = ("is_superchip", "power_w", "module_power_w", "memory_power_w")
    figures: Figures = {name: getattr(hour.facts, name).value for name in names}
    return figures, "power fields 186 (scopes 0 and 1) and 185 (scope 2), read once"


def call_costs(hour: Hour) -> Found:
    """Question 8."""
    harness = loaded_driver()
    if harness is not None and harness.is_virtual_time:
        raise NotSupported("calls take no time where time is virtual")
    figures: Figures = {"sample_idle_s": statistics.median(sample_times_s(hour))}
    if hour.load is None:
        return figures, "median of samples; nothing here runs kernels"
    figures["launch_alone_s"] = launch_s(hour.load)
    stop = threading.Event()
    with ThreadPoolExecutor() as pool:
        times_s = pool.submit(sample_times_s, hour, stop)
        try:
            figures["launch_while_sampled_s"] = launch_s(hour.load)
        finally:
            stop.set()
    figures["sample_under_load_s"] = statistics.median(times_s.result())
    return figures, f"median of samples; launches over {LOAD_S:g} s, alone and while sampled"


def sample_times_s(hour: Hour, stop: threading.Event | None = None) -> list[float]:
    """How long reading everything takes: 50 times, or again and again until told to stop."""
    times_s: list[float] = []
    while not times_s or (len(times_s) < CALL_COUNT if stop is None else not stop.is_set()):
        begin_s = time.perf_counter()
        hour.gpu.sample()
        times_s.append(time.perf_counter() - begin_s)
    return times_s


def launch_s(load: Load) -> float:
    """Time per launch of the kernel."""
    with load.runner.loop(load.kernel, run="calls") as loop:
        loop.run_for(LOAD_S / 4)
        loop.begin_window(0)
        loop.run_for(LOAD_S)
        timing = loop.end_window()
    return timing.elapsed_s / timing.launch_count


def rights(hour: Hour) -> Found:
    """Question 9."""
    host = host_facts()
    names = ("container", "has_sys_admin", "is_initial_user_namespace")
    figures: Figures = {name: getattr(host, name) for name in names}
    figures["is_expected"] = may_set_clocks(host, is_fake=is_fake_library())
    if not hour.may_control:
        return figures, "what the machine says; to try it, run again with --allow-control"
    highest = OperatingPoint(sm_clock_mhz=hour.gpu.clock_grid().sm_clocks_mhz[-1])
    try:
        with hold(hour.gpu) as lease:
            lease.apply(highest)
        figures["is_permitted"] = True
    except NotPermitted:
        figures["is_permitted"] = False
    return figures, "what the machine says, and a lock at the highest clock"


def profiler(_hour: Hour) -> Found:
    """Question 10."""
    raise NotSupported(
        "needs a CUDA program under Nsight Compute "
        f"({'which is installed' if shutil.which('ncu') else 'which is not installed here'}): run "
        "`ncu --clock-control base` beside `joulewise measure` and see whether windows say "
        "ForeignControl, then once more with `--clock-control none`"
    )


# Each with whether it sets clocks.
QUESTIONS: tuple[tuple[str, bool, Callable[[Hour], Found]], ...] = (
    ("How long does a change of clocks take, and does the GPU stall?", True, switching),
    ("How often do meters move, and do they see part of the time only?", False, counters),
    ("What becomes of a request between two listed clocks?", True, rounding),
    ("Does a lock (floor, f) idle lower than (f, f)?", True, idle_at_locks),
    ("Is a lock dropped when the driver unloads without persistence mode?", False, unloading),
    ("Which of the newer fields are there?", False, fields),
    ("Do meters see the GPU or the module?", False, scopes),
    ("What does reading cost under load, and does it slow launches?", False, call_costs),
    ("Are clocks permitted here, and is that as expected?", False, rights),
    ("Does Nsight Compute fight the locks?", False, profiler),
)
ALL = list(range(1, len(QUESTIONS) + 1))


def ask(hour: Hour, numbers: list[int]) -> Document:
    """Put these questions; one that cannot be answered says why and stops none of the others."""
    answers = []
    for number in numbers:
        question, is_setting, find = QUESTIONS[number - 1]
        question = f"{number}. {question}"
        try:
            if is_setting and not hour.may_control:
                raise NotSupported("sets clocks; run again with --allow-control")
            figures, how = find(hour)
        except JoulewiseError as error:
            answers.append(Answer(question=question, why_not=str(error)))
        else:
            answers.append(Answer(question=question, figures=figures, how=how))
    identity = hour.gpu.identity
    return Document(
        device_name=identity.name,
        driver_version=driver_facts().driver_version.value,
        is_simulated=identity.is_simulated,
        answers=answers,
    )


def open_hour(device: str, *, may_control: bool) -> Hour:
    """Open the GPU, and whatever runs kernels on it. Raises JoulewiseError where there is none."""
    harness = loaded_driver()
    timer: Timer = MonotonicTimer() if harness is None else harness.timer
    gpu = open_nvml(device, timer=timer)
    (facts,) = (facts for facts in gpu_facts() if facts.index == gpu.index)
    return Hour(
        device=device,
        gpu=gpu,
        raw=handle_by_index(gpu.index, timer.sleep).needed("NVML"),
        facts=facts,
        timer=timer,
        load=find_load(device),
        may_control=may_control,
    )


def find_load(device: str) -> Load | None:
    """The kernel that computes the most, where something runs it."""
    workload = load_workload("gpt3-xl")
    try:
        runner = open_session(device, workload, hardware=TorchRunners()).runner
    except NotSupported:
        return None
    flops = {work.kernel: work.flop_count for work in workload.works}
    return Load(runner=runner, kernel=max(runner.kernels, key=lambda name: flops.get(name, 0.0)))


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
    asked = parser.parse_args()
    try:
        document = ask(open_hour(asked.device, may_control=asked.allow_control), asked.only)
    except JoulewiseError as error:
        print(f"error: {error}\nhint: {error.hint or 'joulewise doctor'}", file=sys.stderr)
        return 1
    tell(document)
    if asked.out is not None:
        asked.out.write_bytes(msgspec.json.format(msgspec.json.encode(document)) + b"\n")
        print(f"\nWritten to {asked.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
