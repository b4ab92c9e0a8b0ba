"""Time the pipeline planner, and compare its plans with Perseus's, in one run.

    python benchmarks/bench_pipelines.py            everything (several minutes, mostly lowtime)
    python benchmarks/bench_pipelines.py --quick    without lowtime

GPT-3 175B on eight A100s with 12, 24 and 48 micro-batches, blocking power 83.64 W, from the
measured data sets at JOULEWISE_DATA (default ../shared/data). Times are CPU time of one process
with one thread, for both planners, so that other load on the machine counts little.

*Published* compares with the frontiers that Perseus published, at each of their times that the
measured points can reach at all. Perseus cuts every operation's time down to a whole millisecond,
so its published times are shorter than the iterations really are, most of all at the fast end
(there, lowtime's own plans for 24 micro-batches really take 35 to 39 ms longer, of 4.7 s). A time
is left out only where the bound proves that no plan on the measured points keeps the goal.
*lowtime* is its planner; it runs beside ours in an environment of its own (.venv-peers, from
requirements-peers.txt). There each of its plans is timed as its operations really are, and
compared with our plan for that same time.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import process_time
from typing import TypedDict

# One core, as promised; set before numpy starts its threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

from joulewise.domain.pipeline import (
    Instruction,
    OperationOption,
    PipelinePoint,
    PipelineRequest,
    PipelineShape,
    StageProfile,
)
from joulewise.domain.points import OperatingPoint
from joulewise.plan.pipeline.problem import PipelineProblem, pipeline_problem
from joulewise.plan.pipeline.solve import pipeline_frontier, pipeline_points, plan_pipeline

FloatTable = NDArray[np.float64]

HERE = Path(__file__).resolve().parent
STAGE_COUNT = 8
BLOCKING_POWER_W = 83.64
BUDGET_RATIOS = (1.0, 1.02, 1.05, 1.1)
QUERY_GOALS_MS = {12: 150.0, 24: None, 48: 1000.0}
FRONTIER_POINT_COUNT = 100
FRONTIER_GOAL_S = 4.0
PUBLISHED_GOAL_RATIO = 0.007
GAP_GOAL_RATIO = 0.005


class PeerPlan(TypedDict):
    """One plan of lowtime: as it counts time and energy, and the clock of each operation."""

    time_s: float
    energy_j: float
    clocks_mhz: list[int]


class PeerAnswer(TypedDict):
    """What `peers/lowtime_frontier.py` prints."""

    fit_s: float
    solve_s: float
    operations: list[tuple[int, str, int]]
    plans: list[PeerPlan]


def profiles(path: Path) -> list[StageProfile]:
    """Options by stage and instruction; the baseline is the top clock."""
    options: dict[tuple[int, Instruction], list[OperationOption]] = {}
    with path.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            option = OperationOption(
                time_s=float(row["time"]),
                energy_j=float(row["energy"]),
                point=OperatingPoint(sm_clock_mhz=int(row["frequency"])),
            )
            key = int(row["stage"]), Instruction(row["instruction"])
            options.setdefault(key, []).append(option)
    return [
        StageProfile(
            stage=stage,
            instruction=instruction,
            options=tuple(own),
            baseline_index=max(range(len(own)), key=lambda i: clock_mhz(own[i])),
        )
        for (stage, instruction), own in options.items()
    ]


def clock_mhz(option: OperationOption) -> int:
    """SM clock of an option that names one."""
    return (option.point and option.point.sm_clock_mhz) or 0


def request(micro_batch_count: int, max_time_s: float | None = None) -> PipelineRequest:
    """What is asked for here."""
    return PipelineRequest(
        shape=PipelineShape(stage_count=STAGE_COUNT, micro_batch_count=micro_batch_count),
        blocking_power_w=BLOCKING_POWER_W,
        max_time_s=max_time_s,
    )


def median_s(run: Callable[[], object], count: int) -> float:
    """Median CPU time over several runs."""
    times = []
    for _ in range(count):
        start_s = process_time()
        run()
        times.append(process_time() - start_s)
    return statistics.median(times)


def verdict(*, is_fine: bool) -> str:
    """How a row ends."""
    return "ok" if is_fine else "MISSED"


def report_queries(found: Sequence[StageProfile], run_count: int) -> bool:
    """One budget at a time; each time is a median, the slowest budget counts."""
    print("\none budget: median ms of each budget, as a share of the fastest time, and the gap")
    budgets = "".join(f"{ratio:>16.2f}" for ratio in BUDGET_RATIOS)
    print(f"{'micro-batches':>14}{budgets}{'goal ms':>10}")
    is_fine = True
    for micro_batch_count, goal_ms in QUERY_GOALS_MS.items():
        base_s = plan_pipeline(found, request(micro_batch_count), profile_name="").baseline_time_s
        row, slowest_ms = "", 0.0
        for ratio in BUDGET_RATIOS:
            wish = request(micro_batch_count, base_s * ratio)
            gap_ratio = plan_pipeline(found, wish, profile_name="").bound_gap_ratio
            time_ms = 1e3 * median_s(
                lambda w=wish: plan_pipeline(found, w, profile_name=""),  # type: ignore[misc]
                run_count,
            )
            slowest_ms = max(slowest_ms, time_ms)
            row += f"{time_ms:>8.0f}{gap_ratio:>8.3%}"
            is_fine &= gap_ratio <= GAP_GOAL_RATIO
        is_fast = goal_ms is None or slowest_ms <= goal_ms
        is_fine &= is_fast
        print(f"{micro_batch_count:>14}{row}{goal_ms or '':>10}  {verdict(is_fine=is_fast)}")
    return is_fine


def report_frontier(found: Sequence[StageProfile], run_count: int) -> tuple[float, bool]:
    """Whole frontier of 12 micro-batches; seconds, and whether they are few enough."""
    time_s = median_s(
        lambda: pipeline_frontier(found, request(12), point_count=FRONTIER_POINT_COUNT), run_count
    )
    is_fine = time_s <= FRONTIER_GOAL_S
    print(
        f"\nfrontier of {FRONTIER_POINT_COUNT} budgets, 12 micro-batches: {time_s:.2f} s"
        f" (goal {FRONTIER_GOAL_S:g} s)  {verdict(is_fine=is_fine)}"
    )
    return time_s, is_fine


def report_published(found: Sequence[StageProfile], folder: Path, micro_batch_count: int) -> bool:
    """Every published time that is not below the fastest possible."""
    name = f"frontier_gpt3-175b_a100_sxm_mb{micro_batch_count}.csv"
    known = np.loadtxt(folder / name, delimiter=",", skiprows=1)
    wish = request(micro_batch_count)
    least_s = pipeline_problem(found, wish).least_time_s()
    cut_s = least_s - known[:, 0].min()
    known = known[known[:, 0] >= least_s]
    known = known[np.argsort(known[:, 0])]
    points = pipeline_points(found, wish, budgets_s=known[:, 0].tolist())
    energy_j, bound_j = energies(points)
    excess, bound_excess = energy_j / known[:, 1] - 1.0, bound_j / known[:, 1] - 1.0
    gap_ratio = float((energy_j / bound_j - 1.0).max())
    is_over = excess > PUBLISHED_GOAL_RATIO
    is_proven_out = bound_excess > PUBLISHED_GOAL_RATIO
    print(
        f"\npublished, {micro_batch_count} micro-batches: {len(known)} times from {least_s:.4f} s"
        f" on, the fastest possible ({1e3 * cut_s:.1f} ms above the fastest published)"
    )
    print(
        f"  energy against published: mean {excess.mean():+.3%}, worst {excess.max():+.3%} at"
        f" {known[excess.argmax(), 0]:.3f} s; largest gap to the bound {gap_ratio:.3%}"
    )
    print(
        f"  more than {PUBLISHED_GOAL_RATIO:+.1%}: {is_over.sum()} times, up to"
        f" {known[is_over, 0].max(initial=0.0):.3f} s; at {is_proven_out.sum()} of them the bound"
        " proves that no plan needs less"
    )
    worst = excess[~is_proven_out].max()
    is_fine = bool(
        worst <= PUBLISHED_GOAL_RATIO and excess.mean() < 0.0 and gap_ratio <= GAP_GOAL_RATIO
    )
    print(
        f"  worst of the others: {worst:+.3%} (goal {PUBLISHED_GOAL_RATIO:+.1%})"
        f"  {verdict(is_fine=is_fine)}"
    )
    return is_fine


def energies(points: Sequence[PipelinePoint]) -> tuple[FloatTable, FloatTable]:
    """Energies and bounds of points."""
    return (
        np.array([point.energy_j for point in points]),
        np.array([point.bound_j for point in points]),
    )


def report_peer(
    found: Sequence[StageProfile], profile: Path, micro_batch_count: int, own_s: float
) -> bool:
    """Lowtime's whole frontier, and ours at the times that its plans really take."""
    python = HERE.parent / ".venv-peers" / "bin" / "python"
    if not python.exists():
        print(
            f"\nlowtime: not run, {python.parents[1].name} is absent (see requirements-peers.txt)"
        )
        return True
    answer = peer_answer(python, profile, micro_batch_count)
    wish = request(micro_batch_count)
    problem = pipeline_problem(found, wish)
    known = true_totals(problem, answer)
    peer_s = answer["fit_s"] + answer["solve_s"]
    # Beyond its frugal end time is only wasted.
    useful = known[known[:, 0] <= known[known[:, 1].argmin(), 0]]
    points = pipeline_points(found, wish, budgets_s=useful[:, 0].tolist())
    excess = energies(points)[0] / useful[:, 1] - 1.0
    shift_ms = 1e3 * (known[:, 0] - np.array([plan["time_s"] for plan in answer["plans"]]))
    is_fine = bool(excess.max() <= 0.0)
    print(
        f"\nlowtime, {micro_batch_count} micro-batches: {peer_s:.1f} s for {len(known)} plans,"
        f" {peer_s / own_s:.0f}x our time for {FRONTIER_POINT_COUNT}"
        f" (fitting {answer['fit_s']:.1f} s, solving {answer['solve_s']:.1f} s)"
    )
    print(
        f"  its fastest iteration really takes {shift_ms[known[:, 0].argmin()]:+.1f} ms more"
        f" than it counts"
    )
    print(
        f"  our energy at {len(useful)} equal true times: mean {excess.mean():+.3%}, best"
        f" {excess.min():+.3%}, worst {excess.max():+.3%}  {verdict(is_fine=is_fine)}"
    )
    return is_fine


def peer_answer(python: Path, profile: Path, micro_batch_count: int) -> PeerAnswer:
    """Run lowtime in its own environment."""
    script = HERE / "peers" / "lowtime_frontier.py"
    wish = ["--stages", str(STAGE_COUNT), "--microbatches", str(micro_batch_count)]
    power = ["--blocking-power", str(BLOCKING_POWER_W)]
    done = subprocess.run(  # noqa: S603 - our own script in our own environment
        [python, "-W", "ignore", script, profile, *wish, *power],
        stdout=subprocess.PIPE,
        check=True,
    )
    answer: PeerAnswer = json.loads(done.stdout)
    return answer


def true_totals(problem: PipelineProblem, answer: PeerAnswer) -> FloatTable:
    """(n, 2) time and energy of the peer's plans by the measured points that they use."""
    places = {
        (o.stage, o.instruction.value, o.micro_batch): place
        for place, o in enumerate(problem.graph.operations)
    }
    order = [places[stage, name, micro] for stage, name, micro in answer["operations"]]
    by_clock = [
        {clock_mhz(option): index for index, option in enumerate(own.profile.options)}
        for own in problem.passes
    ]
    totals = []
    for plan in answer["plans"]:
        choice = np.empty(len(order), dtype=np.int64)
        for place, mhz in zip(order, plan["clocks_mhz"], strict=True):
            choice[place] = by_clock[problem.pass_of[place]][mhz]
        totals.append(problem.totals(choice))
    return np.array(totals)


def main() -> int:
    """Run all; exit 1 where a goal is missed, 2 without the data."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="leave lowtime out")
    parser.add_argument("--runs", type=int, default=5, help="runs that a median is of")
    wish = parser.parse_args()
    data = Path(os.environ.get("JOULEWISE_DATA", HERE.parents[1] / "shared" / "data"))
    profile = data / "perseus" / "gpt3-175b+a100_sxm_bf16.csv"
    if not profile.exists():
        print(f"no profile at {profile}; set JOULEWISE_DATA", file=sys.stderr)
        return 2
    found = profiles(profile)
    print(f"{profile.stem}, {STAGE_COUNT} stages, 1F1B, blocking power {BLOCKING_POWER_W} W")
    results = [report_queries(found, wish.runs)]
    frontier_s, is_fine = report_frontier(found, wish.runs)
    results.append(is_fine)
    results += [report_published(found, profile.parent, count) for count in (12, 24)]
    if not wish.quick:
        results.append(report_peer(found, profile, 12, frontier_s))
    return 0 if all(results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
