"""How often a plan keeps its promise, and what that costs: 200 seeds on a virtual RTX 3080 Ti.

    python studies/promise.py --seeds 200 --jobs 2

Every seed is another board with other noise. It is swept at 66 operating points, planned for
0.6 % slowdown, and the plan is judged by the simulator's own noise-free truth:

* naive: the best plan of the sweep as it stands;
* kept: `joulewise.workflow.promise.keep_promise`, as `joulewise tune` does it.

The virtual device is not run window by window here: `SteadyBench` draws the same noise from the
same streams at thermal equilibrium, which is where measuring brings it
(tests/workflow/test_promise_study.py holds the two against each other). Results go to
`studies/results/promise.json`. Exit status 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.measurement import CellMeasurement, Window
from joulewise.domain.plan import PlannedLaunch, PlanRequest
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.sweep import Sweep, SweepSource
from joulewise.domain.workload import Workload
from joulewise.measure.fresh import REMEASURE_RUN
from joulewise.measure.sweep import sweep_run_label
from joulewise.plan.solve import Solution, solve
from joulewise.plan.table import PlanTable, plan_table
from joulewise.simulator.device_string import parse_device
from joulewise.simulator.noise import WindowKey, board_gain, window_noise
from joulewise.simulator.operations import Operations
from joulewise.simulator.oracle import open_oracle
from joulewise.simulator.presets import preset
from joulewise.workflow.promise import keep_promise
from joulewise.workload.builtin import builtin_workload

DEVICE = "virtual:rtx3080ti"
WORKLOAD = "gpt3-xl"
MAX_SLOWDOWN_RATIO = 0.006
REQUEST = PlanRequest(max_slowdown_ratio=MAX_SLOWDOWN_RATIO)
SETTINGS = {
    "default": "",
    "default, no shift between runs": ",shift=0",
    "stress": ",noise=stress",
}
SM_CLOCKS_MHZ = (None, *range(210, 2101, 210))
SWEEP_WINDOW_COUNT = 3
LEAST_SHARE_RATIO = 0.95
LARGEST_LOSS_RATIO = 0.005
RESULT = Path(__file__).parent / "results" / "promise.json"
_CAPPED = Caveat(kind=CaveatKind.POWER_CAPPED, seen="the power limit held the clock down")


class SteadyBench:
    """Windows of a virtual device at thermal equilibrium, without the way there."""

    def __init__(self, device: str, operations: Operations) -> None:
        """Open the device of this string; `operations` are those of its preset."""
        options = parse_device(device)
        self.device = device
        self._seed = options.seed
        self._level = options.noise_level
        self._gain_ratio = board_gain(options.noise_level, options.seed)
        self._operations = operations
        self._next_window = 0

    def sweep(self, kernels: Sequence[str], points: Sequence[OperatingPoint]) -> Sweep:
        """What `measure_sweep` finds with three windows per cell, laid out at once."""
        cells = [
            [
                self.cell(kernel, point, sweep_run_label(point), range(SWEEP_WINDOW_COUNT)).windows
                for point in points
            ]
            for kernel in kernels
        ]
        time_s = np.array([[[w.time_s for w in cell] for cell in row] for row in cells])
        energy_j = np.array([[[w.energy_j for w in cell] for cell in row] for row in cells])
        return Sweep(
            kernels=tuple(kernels),
            points=tuple(points),
            baseline=AUTO,
            source=SweepSource(
                device=self.device, device_name=self.device, tool="study", is_simulated=True
            ),
            is_present=np.ones(time_s.shape[:2], dtype=np.bool_),
            time_s=np.median(time_s, axis=2),
            energy_j=np.median(energy_j, axis=2),
            time_std_s=time_s.std(axis=2, ddof=1),
            energy_std_j=energy_j.std(axis=2, ddof=1),
            window_count=np.full(time_s.shape[:2], SWEEP_WINDOW_COUNT, dtype=np.int64),
            sm_clock_held_mhz=np.array(
                [[cell[0].sm_clock_held_mhz for cell in row] for row in cells], dtype=np.float64
            ),
            cell_caveats={
                (kernel, point): cell[0].caveats
                for kernel, row in zip(kernels, cells, strict=True)
                for point, cell in zip(points, row, strict=True)
                if cell[0].caveats
            },
        )

    def remeasure(
        self, cells: Sequence[tuple[str, OperatingPoint]], window_count: int
    ) -> tuple[CellMeasurement, ...]:
        """What `measure_fresh` finds, going on counting windows from call to call."""
        windows = range(self._next_window, self._next_window + window_count)
        self._next_window = windows.stop
        return tuple(self.cell(kernel, point, REMEASURE_RUN, windows) for kernel, point in cells)

    def cell(
        self, kernel: str, point: OperatingPoint, run: str, windows: Sequence[int]
    ) -> CellMeasurement:
        """These windows of one cell."""
        steady = self._operations.running(kernel, point)
        found = []
        for window in windows:
            key = WindowKey(
                seed=self._seed,
                run=run,
                kernel=kernel,
                point_label=point.label,
                window=window,
                is_power_capped=steady.is_power_capped,
            )
            noise = window_noise(self._level, key)
            time_s = steady.time_s * noise.time_ratio
            power_w = steady.power_w * noise.power_ratio * self._gain_ratio
            found.append(
                Window(
                    window=window,
                    time_s=time_s,
                    energy_j=power_w * time_s,
                    duration_s=5.0,
                    launch_count=1,
                    sm_clock_held_mhz=steady.sm_clock_mhz,
                    temp_c=None,
                    caveats=(_CAPPED,) if steady.is_power_capped else (),
                )
            )
        return CellMeasurement(
            kernel=kernel, point=point, run=run, idle_power_w=None, windows=tuple(found)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What a plan promised and what it truly does."""

    promised_slowdown_ratio: float
    promised_saving_ratio: float
    slowdown_ratio: float
    saving_ratio: float
    guard_band_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One seed."""

    naive: Judged
    kept: Judged
    optimum_saving_ratio: float
    round_count: int
    remeasured_cell_count: int
    remeasured_window_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table: means over seeds, where nothing else is said."""

    noise: str
    plan: str
    seed_count: int
    promised_slowdown_ratio: float
    slowdown_ratio: float
    slowdown_p95_ratio: float
    within_budget_ratio: float
    promised_saving_ratio: float
    saving_ratio: float
    optimum_saving_ratio: float
    loss_ratio: float
    loss_p95_ratio: float
    guard_band_ratio: float
    remeasured_cell_count: float
    remeasured_window_count: float


class Truth:
    """The simulator's own noise-free iteration."""

    def __init__(self, workload: Workload, points: Sequence[OperatingPoint]) -> None:
        """Find the best plan that could be."""
        self.operations = Operations(preset(parse_device(DEVICE).preset), workload.works)
        self._oracle = open_oracle(DEVICE, workload.works)
        baseline = [
            PlannedLaunch(kernel=launch.kernel, pass_=launch.pass_, point=AUTO)
            for launch in workload.launches
        ]
        self._time_s, self._energy_j = self._oracle.true_iteration(baseline)
        quiet = SteadyBench(f"{DEVICE},noise=0", self.operations)
        table = plan_table(quiet.sweep(workload.kernels, points), workload, REQUEST.granularity)
        self.optimum_saving_ratio = solve(table, REQUEST).saving_ratio

    def judge(self, table: PlanTable, solution: Solution) -> Judged:
        """Hold a plan against the truth."""
        time_s, energy_j = self._oracle.true_iteration(
            [
                PlannedLaunch(
                    kernel=launch.kernel,
                    pass_=launch.pass_,
                    point=table.points[solution.choice[own_class]],
                )
                for launch, own_class in zip(table.launches, table.launch_classes, strict=True)
            ]
        )
        return Judged(
            promised_slowdown_ratio=solution.slowdown_ratio,
            promised_saving_ratio=solution.saving_ratio,
            slowdown_ratio=time_s / self._time_s,
            saving_ratio=1.0 - energy_j / self._energy_j,
            guard_band_ratio=solution.guard_band_ratio,
        )


def swept_points() -> tuple[OperatingPoint, ...]:
    """The 66 points of the paper: auto and ten SM clocks, auto and all memory clocks."""
    grid = preset(parse_device(DEVICE).preset).grid
    return grid.points(SM_CLOCKS_MHZ, (None, *grid.mem_clocks_mhz))


def run_trial(device: str, workload: Workload, truth: Truth) -> Trial:
    """Sweep, plan naively, plan with `keep_promise`, and judge both."""
    bench = SteadyBench(device, truth.operations)
    sweep = bench.sweep(workload.kernels, swept_points())
    table = plan_table(sweep, workload, REQUEST.granularity)
    naive = truth.judge(table, solve(table, REQUEST))
    window_count = 0

    def remeasure(
        cells: Sequence[tuple[str, OperatingPoint]], count: int
    ) -> tuple[CellMeasurement, ...]:
        nonlocal window_count
        window_count += count * len(cells)
        return bench.remeasure(cells, count)

    kept = keep_promise(sweep, workload, REQUEST, remeasure)
    return Trial(
        naive=naive,
        kept=truth.judge(kept.table, kept.solution),
        optimum_saving_ratio=truth.optimum_saving_ratio,
        round_count=kept.round_count,
        remeasured_cell_count=kept.remeasured_cell_count,
        remeasured_window_count=window_count,
    )


def run_seeds(device_options: str, seeds: Sequence[int]) -> list[Trial]:
    """Trials of these seeds at one noise setting."""
    workload = builtin_workload(WORKLOAD)
    truth = Truth(workload, swept_points())
    return [run_trial(f"{DEVICE},seed={seed}{device_options}", workload, truth) for seed in seeds]


def summarise(noise: str, trials: Sequence[Trial]) -> tuple[Row, Row]:
    """The naive line and the kept one."""
    return (
        _row(noise, "naive", trials, [trial.naive for trial in trials], is_kept=False),
        _row(noise, "kept", trials, [trial.kept for trial in trials], is_kept=True),
    )


def _row(
    noise: str, plan: str, trials: Sequence[Trial], judged: Sequence[Judged], *, is_kept: bool
) -> Row:
    slowdown = np.array([one.slowdown_ratio for one in judged])
    saving = np.array([one.saving_ratio for one in judged])
    loss = np.array([trial.optimum_saving_ratio for trial in trials]) - saving
    return Row(
        noise=noise,
        plan=plan,
        seed_count=len(trials),
        promised_slowdown_ratio=_mean([one.promised_slowdown_ratio for one in judged]),
        slowdown_ratio=float(slowdown.mean()),
        slowdown_p95_ratio=float(np.quantile(slowdown, 0.95)),
        within_budget_ratio=float((slowdown <= 1.0 + MAX_SLOWDOWN_RATIO).mean()),
        promised_saving_ratio=_mean([one.promised_saving_ratio for one in judged]),
        saving_ratio=float(saving.mean()),
        optimum_saving_ratio=_mean([trial.optimum_saving_ratio for trial in trials]),
        loss_ratio=float(loss.mean()),
        loss_p95_ratio=float(np.quantile(loss, 0.95)),
        guard_band_ratio=_mean([one.guard_band_ratio for one in judged]),
        remeasured_cell_count=_mean([t.remeasured_cell_count for t in trials]) * is_kept,
        remeasured_window_count=_mean([t.remeasured_window_count for t in trials]) * is_kept,
    )


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def missed_targets(rows: Sequence[Row]) -> list[str]:
    """What the kept plans fall short of."""
    missed = []
    for row in rows:
        if row.plan != "kept":
            continue
        if row.within_budget_ratio < LEAST_SHARE_RATIO:
            missed.append(f"{row.noise}: only {row.within_budget_ratio:.1%} keep the budget")
        if row.loss_ratio > LARGEST_LOSS_RATIO:
            missed.append(f"{row.noise}: {100 * row.loss_ratio:.2f} points below the optimum")
    return missed


def table_text(rows: Sequence[Row]) -> str:
    """The table for people: percent, and points for what is lost."""
    head = (
        f"{'noise':<31} {'plan':<6} {'slowdown %':>27} {'within':>7} "
        f"{'saving %':>25} {'lost':>11}\n"
        f"{'':<31} {'':<6} {'promised':>9} {'true':>8} {'p95':>8} {'0.6 %':>7} "
        f"{'promised':>9} {'true':>7} {'best':>7} {'mean':>5} {'p95':>5}"
    )
    lines = [
        f"{row.noise:<31} {row.plan:<6} {100 * (row.promised_slowdown_ratio - 1):>+9.2f} "
        f"{100 * (row.slowdown_ratio - 1):>+8.2f} {100 * (row.slowdown_p95_ratio - 1):>+8.2f} "
        f"{100 * row.within_budget_ratio:>6.1f}% {100 * row.promised_saving_ratio:>9.2f} "
        f"{100 * row.saving_ratio:>7.2f} {100 * row.optimum_saving_ratio:>7.2f} "
        f"{100 * row.loss_ratio:>5.2f} {100 * row.loss_p95_ratio:>5.2f}"
        for row in rows
    ]
    return "\n".join([head, *lines])


def run_study(seed_count: int, job_count: int) -> list[Row]:
    """All settings over seeds 0 to `seed_count` - 1, in so many processes."""
    share = max(1, min(10, -(-seed_count // job_count)))
    chunks = [range(at, min(at + share, seed_count)) for at in range(0, seed_count, share)]
    rows: list[Row] = []
    # Each process computes on one core; threads of the linear algebra would only get in the way.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    with ProcessPoolExecutor(job_count) as pool:
        for noise, options in SETTINGS.items():
            futures = [pool.submit(run_seeds, options, chunk) for chunk in chunks]
            for done_count, _ in enumerate(as_completed(futures), 1):
                print(f"{noise}: {done_count} of {len(futures)}", file=sys.stderr)
            rows.extend(summarise(noise, [t for future in futures for t in future.result()]))
    return rows


def main() -> int:
    """Run the study, print its table and write its result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULT)
    arguments = parser.parse_args()
    rows = run_study(arguments.seeds, arguments.jobs)
    print(table_text(rows))
    missed = missed_targets(rows)
    print("\n".join(f"missed: {line}" for line in missed) or "all targets met")
    document = {
        "schema_version": 1,
        "device": DEVICE,
        "workload": WORKLOAD,
        "max_slowdown_ratio": MAX_SLOWDOWN_RATIO,
        "is_simulated": True,
        "rows": [asdict(row) for row in rows],
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
