"""The ten questions of `first_hour.py`, and how each is answered."""

# ruff: noqa: INP001 - beside a script, not in a package

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from joulewise.control.lease import hold
from joulewise.device.host import host_facts
from joulewise.device.nvml import NvmlDevice, is_fake_library
from joulewise.device.nvml_gpu import NvmlGpu
from joulewise.domain.errors import NotPermitted, NotSupported
from joulewise.domain.gpu_facts import GpuFacts
from joulewise.domain.points import OperatingPoint
from joulewise.domain.ports import KernelRunner, Timer, no_progress
from joulewise.integrations.torch_runner import TorchRunner, TorchRunners
from joulewise.simulator.fake_driver import loaded_driver
from joulewise.workflow.host_findings import may_set_clocks
from joulewise.workflow.sensor_probing import SensorsJob, probe_sensors_of
from joulewise.workflow.transitions_measuring import TransitionsJob, measure_transitions_to_file

SETTLE_S, IDLE_S, WAVE_S, LOAD_S, UNLOAD_S = 2.0, 10.0, 10.0, 2.0, 3.0
IDLE_TURNS = ("(floor, f): first_w", "(f, f): first_w", "(f, f): again_w", "(floor, f): again_w")
WAVE_PERIODS_S = (0.1, 0.25, 0.13)
CALL_COUNT, LAUNCH_COUNT = 50, 1000
# Fields 74, 269, 270, 271, 76, 297, 298, 299, 251, 272, 273, and GPM.
NEWER_FACTS = (
    *("power_capped_s", "sw_thermal_s", "hw_thermal_s", "power_braked_s", "sync_boosted_s"),
    *("mma_stall_ratio", "memory_clock_switch", "memory_clock_switch_interval_s"),
    *("is_power_smoothed", "is_clock_accumulated", "is_activity_accumulated"),
    "is_activity_metered",
)
PROFILED = "import torch; a = torch.randn(4096, 4096, device='cuda'); (a @ a).sum().item()"

Figures = dict[str, float | str | bool | None]
Found = tuple[Figures, str]


class Load(NamedTuple):
    """What runs kernels: the one that computes the most, and the one that does the least."""

    runner: KernelRunner
    kernel: str
    short_kernel: str


class LeftBehind(NamedTuple):
    """What a killed process left on the GPU: a locked clock, and the counter, then and now."""

    sm_clock_mhz: int
    energy_j: float | None
    found_energy_j: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hour:
    """What the questions are put to; `left` is what was tried before it was opened."""

    device: str
    gpu: NvmlGpu
    raw: NvmlDevice
    facts: GpuFacts
    timer: Timer
    load: Load | None
    may_control: bool
    left: LeftBehind | None = None

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
        figures[f"{name}: call_s"] = change.call_s
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
    # The first block makes the kernel's tensors; after it blocks begin and end at once, but for
    # the launches that are queued when one ends.
    with load.runner.loop(load.kernel, run="wave") as loop:
        loop.run_for(LOAD_S)
    queued_s = busy_s = 0.0
    start = hour.gpu.wait_for_energy_tick(5.0)
    while (begin_s := hour.timer.now_s()) < start.time_s + WAVE_S:
        asked_s = max(0.0, period_s / 2 - queued_s)
        with load.runner.loop(load.kernel, run="wave") as loop:
            loop.run_for(asked_s)
        spent_s = hour.timer.now_s() - begin_s
        queued_s = max(0.0, spent_s - asked_s)
        busy_s += spent_s
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


def leave_locked(gpu: NvmlGpu) -> None:
    """Lock the SM clock under a lease, tell of it, and end without giving it back.

    The lease's journal stays, so that the next one gives it back whatever happens meanwhile.
    """
    listed = gpu.clock_grid().sm_clocks_mhz
    clock_mhz = listed[len(listed) // 3]
    with hold(gpu) as lease:
        lease.apply(OperatingPoint(sm_clock_mhz=clock_mhz))
        # Until the counter of a driver that was loaded just now shows more than that of one
        # that is loaded next.
        gpu.wait(SETTLE_S)
        left = LeftBehind(sm_clock_mhz=clock_mhz, energy_j=gpu.sample().energy_j)
        sys.stdout.write(json.dumps(left))
        sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGKILL)


def locked_and_left(script: Path, device: str) -> LeftBehind | None:
    """Let a process of its own leave a lock behind, and give the driver time to unload.

    `None` where it could not lock anything; the questions will say why.
    """
    command = [sys.executable, str(script), "--device", device, "--leave-locked"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode != -signal.SIGKILL:
        return None
    time.sleep(UNLOAD_S)
    return LeftBehind(*json.loads(done.stdout))


def unloading(hour: Hour) -> Found:
    """Question 5: what became of the lock that was left before anything was opened here."""
    if hour.left is None:
        raise NotSupported("no lock could be left behind to see what becomes of it")
    try:
        seen_mhz = hour.clock_mhz()
    finally:
        with hold(hour.gpu):
            pass
    locked_mhz, energy_j, found_j = hour.left
    figures: Figures = {
        "is_persistent": hour.facts.is_persistent.value,
        "is_counter_reset": None if energy_j is None or found_j is None else found_j < energy_j,
        "locked_mhz": locked_mhz,
        "seen_mhz": seen_mhz,
    }
    if hour.load is not None and seen_mhz is not None:
        figures["is_dropped"] = seen_mhz > locked_mhz
    return figures, (
        f"a process locked the clock and was killed, {UNLOAD_S:g} s passed, and the clock was "
        "read under load; a driver that stayed loaded, by persistence mode or for another user, "
        "did not reset its energy counter, and says nothing"
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
    runner = hour.load.runner
    with runner.loop(hour.load.kernel, run="calls") as loop:
        loop.run_for(LOAD_S)
        figures["sample_under_load_s"] = statistics.median(sample_times_s(hour))
    if not isinstance(runner, TorchRunner):
        return figures, "median of samples, without load and under it; launches take no host here"
    figures |= launch_figures(runner, hour.load.short_kernel, "alone")
    stop = threading.Event()
    with ThreadPoolExecutor() as pool:
        pool.submit(sample_times_s, hour, stop)
        try:
            figures |= launch_figures(runner, hour.load.short_kernel, "while_sampled")
        finally:
            stop.set()
    return figures, (
        f"median of samples; {LAUNCH_COUNT} launches of {hour.load.short_kernel}, one by one, "
        "each until the host knew its end, alone and while a thread read samples all the time"
    )


def launch_figures(runner: TorchRunner, kernel: str, name: str) -> Figures:
    """The middle one of single launches, and one that a hundredth of them took longer than."""
    times_s = runner.launch_times_s(kernel, launch_count=LAUNCH_COUNT)
    return {
        f"launch_{name}_s": statistics.median(times_s),
        f"slow_launch_{name}_s": statistics.quantiles(times_s, n=100)[-1],
    }


def sample_times_s(hour: Hour, stop: threading.Event | None = None) -> list[float]:
    """How long reading everything takes: 50 times, or again and again until told to stop."""
    times_s: list[float] = []
    while not times_s or (len(times_s) < CALL_COUNT if stop is None else not stop.is_set()):
        begin_s = time.perf_counter()
        hour.gpu.sample()
        times_s.append(time.perf_counter() - begin_s)
    return times_s


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


def profiler(hour: Hour) -> Found:
    """Question 10."""
    ncu = shutil.which("ncu")
    if ncu is None or hour.load is None:
        raise NotSupported(
            "Nsight Compute (ncu) is not installed"
            if ncu is None
            else "nothing here runs kernels, and clocks show only under load"
        )
    listed = hour.gpu.clock_grid().sm_clocks_mhz
    asked = listed[len(listed) // 3]
    figures: Figures = {"locked_mhz": asked}
    with hold(hour.gpu) as lease:
        for control in ("none", "base"):
            lease.apply(OperatingPoint(sm_clock_mhz=asked))
            command = [ncu, "--clock-control", control, sys.executable, "-c", PROFILED]
            clocks_mhz, code = clocks_during(hour, hour.load, command)
            figures[f"{control}: lowest_mhz"] = min(clocks_mhz, default=None)
            figures[f"{control}: highest_mhz"] = max(clocks_mhz, default=None)
            figures[f"{control}: after_mhz"] = hour.clock_mhz()
            figures[f"{control}: exit_status"] = str(code)
    return figures, "ncu --clock-control none and base on a product of matrices, beside a load"


def clocks_during(hour: Hour, load: Load, command: list[str]) -> tuple[list[int], int]:
    """SM clocks under load while a command runs, after they had settled, and how it ended."""
    clocks_mhz: list[int] = []
    with load.runner.loop(load.kernel, run="profiler") as loop:
        loop.run_for(SETTLE_S)
        with subprocess.Popen(  # noqa: S603
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            while process.poll() is None:
                loop.run_for(0.02)
                clock_mhz = hour.gpu.sample().sm_clock_mhz
                clocks_mhz += [] if clock_mhz is None else [clock_mhz]
    return clocks_mhz, process.returncode


# Each with whether it sets clocks.
QUESTIONS: tuple[tuple[str, bool, Callable[[Hour], Found]], ...] = (
    ("How long does a change of clocks take, and does the GPU stall?", True, switching),
    ("How often do meters move, and do they see part of the time only?", False, counters),
    ("What becomes of a request between two listed clocks?", True, rounding),
    ("Does a lock (floor, f) idle lower than (f, f)?", True, idle_at_locks),
    ("Is a lock dropped when the driver unloads without persistence mode?", True, unloading),
    ("Which of the newer fields are there?", False, fields),
    ("Do meters see the GPU or the module?", False, scopes),
    ("What does reading cost under load, and does it slow launches?", False, call_costs),
    ("Are clocks permitted here, and is that as expected?", False, rights),
    ("Does Nsight Compute fight the locks?", True, profiler),
)
ALL = list(range(1, len(QUESTIONS) + 1))
UNLOADING = 1 + [find for _, _, find in QUESTIONS].index(unloading)
