"""Gaps are timed by the host: noise of the GPU leaves their time alone, and plans know it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.kernel_works import kernel_works
from tests.rooflines import Bench, Noise, World, noisy_sweep
from tests.waiting import exchange, gap

from joulewise.domain.measurement import CellMeasurement
from joulewise.domain.plan import Granularity, PlannedLaunch, PlanRequest, Scope, Status
from joulewise.domain.points import AUTO
from joulewise.domain.ports import no_progress
from joulewise.domain.session import DeviceSession
from joulewise.domain.sweep import Sweep
from joulewise.domain.workload import KernelWork, Launch, Pass, Workload
from joulewise.measure.statistics import log_ratio_interval
from joulewise.model.fresh import fresh_cells
from joulewise.model.scatter import scatter_of, unshaken_rows
from joulewise.model.shrink import shrink
from joulewise.model.surrogate import fit_surrogate
from joulewise.plan.host_time import host_waits, with_host_wait, with_host_waits
from joulewise.plan.table import plan_table
from joulewise.report.compare import Role
from joulewise.report.gaps import is_gap
from joulewise.report.verdict import verdict
from joulewise.simulator.physics import steady_state
from joulewise.simulator.presets import preset
from joulewise.simulator.virtual import open_virtual
from joulewise.store.workload_files import write_workload
from joulewise.workflow.promise import plan_with_guard
from joulewise.workflow.tuning import TuneJob, TuneResult, tune_to_folder

GAP = gap(0.01)
GEMM = kernel_works({"gemm": (4e11, 4e8)}, core_activity_ratio=0.8)[0]
SPEC = preset("rtx3080ti")
POINTS = SPEC.grid.points((None, 600, 900, 1200, 1500), (None, 9501))
KERNELS = kernel_works(
    {f"k{number}": (2.0**number * 1e9, 8e9 / 2.0**number) for number in range(8)},
    core_activity_ratio=0.9,
)
SHIFTED = Noise(time_ratio=0.003, power_ratio=0.005, shift_ratio=0.01)


def work_of(counts: dict[str, int], works: Sequence[KernelWork]) -> Workload:
    launches = tuple(Launch(kernel=kernel) for kernel, n in counts.items() for _ in range(n))
    return Workload(name="w", launches=launches, works=tuple(works))


def window_of(session: DeviceSession, kernel: str, window: int) -> tuple[float, float]:
    """Time per launch and power."""
    with session.runner.loop(kernel, run=f"run {window}") as loop:
        loop.run_for(1.0)
        loop.begin_window(window)
        loop.run_for(0.5)
        power_w = session.gpu.sample().power_w
        timing = loop.end_window()
    assert power_w is not None
    return timing.elapsed_s / timing.launch_count, power_w


@pytest.mark.parametrize("device", ["virtual:rtx3080ti,noise=stress", "virtual:a100-sxm"])
def test_noise_shakes_the_power_of_a_gap_and_not_its_time(device: str) -> None:
    session = open_virtual(device, (GAP, GEMM))

    seen = [window_of(session, "gap", window) for window in range(5)]

    assert [0.01] * 5 == pytest.approx([time_s for time_s, _ in seen], rel=1e-12)
    assert 5 == len({power_w for _, power_w in seen})
    assert 5 == len({window_of(session, "gemm", window)[0] for window in range(5)})


def iteration_times(session: DeviceSession, launches: Sequence[PlannedLaunch]) -> list[float]:
    times_s = []
    for window in range(4):
        runner = session.iterations
        assert runner is not None
        with runner.iterate(launches, (), session.gpu.request, run=f"r{window}") as loop:
            loop.begin_window(window)
            loop.run_iterations(8)
            timing = loop.end_window()
        times_s.append(timing.elapsed_s / timing.iteration_count)
    return times_s


def test_noise_leaves_the_gaps_of_whole_iterations_alone() -> None:
    session = open_virtual("virtual:rtx3080ti,noise=stress", (GAP, GEMM))
    gaps = [PlannedLaunch(kernel="gap", pass_=Pass.FORWARD, point=AUTO)] * 3

    # As the grain of virtual time has it.
    assert [0.03] * 4 == pytest.approx(iteration_times(session, gaps), abs=4e-9)
    assert 4 == len(set(iteration_times(session, [*gaps, replace(gaps[0], kernel="gemm")])))


def test_a_gap_takes_the_time_that_is_known_wherever_it_was_measured_otherwise() -> None:
    workload = work_of({"k7": 2, "gap": 3}, (KERNELS[7], GAP))
    truth = truth_of(workload.works)
    sweep = noisy_sweep(truth, SHIFTED)

    known = with_host_waits(sweep, host_waits(workload))

    assert (known.time_s[1] == 0.01).all()
    assert known.time_std_s is not None
    assert (known.time_std_s[1] == 0.0).all()
    power_w = known.energy_j / known.time_s
    assert power_w == pytest.approx(sweep.energy_j / sweep.time_s)
    assert (known.time_s[0] == sweep.time_s[0]).all()
    table = plan_table(sweep, workload, Granularity.KERNEL)
    assert table.time_s[1] == pytest.approx(np.full(len(POINTS), 0.03), rel=1e-15)
    assert with_host_waits(sweep, {}) is sweep


def test_fresh_windows_of_a_gap_have_no_scatter_and_no_say_in_that_of_others() -> None:
    truth = truth_of((KERNELS[7], GAP))
    cells = bench_cells(truth)

    raw, known = (
        fresh_cells(some, truth.kernels, truth.points)
        for some in (cells, [with_host_wait(cell, {"gap": 0.01}) for cell in cells])
    )
    alone = fresh_cells(
        [cell for cell in cells if cell.kernel == "k7"], truth.kernels, truth.points
    )

    assert raw.window_time_ratio is not None
    assert known.window_time_ratio is not None
    assert alone.window_time_ratio is not None
    assert (raw.window_time_ratio > 0.0).all()
    assert (known.window_time_ratio[1] == 0.0).all()
    assert (known.window_time_ratio[0] == alone.window_time_ratio[0]).all()
    assert known.log_time[1] == pytest.approx(np.full(len(POINTS), math.log(0.01)))


def test_the_model_keeps_what_the_host_times_and_judges_the_rest_without_it() -> None:
    """Visits shift all kernels by a percent; gaps neither follow nor deny it."""
    works = (*KERNELS, *(gap(0.01 * number, f"gap {number}") for number in range(1, 6)))
    truth = truth_of(works)
    waits = {work.kernel: work.wait_s for work in works[8:]}
    sweep = with_host_waits(noisy_sweep(truth, SHIFTED), waits)
    only = rows_of(sweep, 8)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        surrogate, alone = fit_surrogate(sweep), fit_surrogate(only)
        calmed = shrink(sweep, surrogate)

    assert [False] * 8 + [True] * 5 == unshaken_rows(sweep).tolist()
    assert calmed.time_s[8:] == pytest.approx(truth.time_s[8:], rel=1e-12)
    scatter, bare_scatter = scatter_of(sweep), scatter_of(only)
    assert scatter is not None
    assert bare_scatter is not None
    assert (scatter.time_ratio[8:] == 0.0).all()
    assert (scatter.power_ratio > 0.0).all()
    assert (scatter.time_ratio[:8] == bare_scatter.time_ratio).all()
    shifts = np.log(alone.visit_shift_ratio)
    assert np.ptp(shifts) > 0.005
    assert np.log(surrogate.visit_shift_ratio) == pytest.approx(shifts, abs=0.002)
    assert (surrogate.cell_shift_ratio[8:] == 1.0).all()


def test_a_sweep_with_gaps_is_not_taken_for_free_of_noise() -> None:
    sweep = with_host_waits(noisy_sweep(truth_of((GAP,)), SHIFTED), {"gap": 0.01})

    assert unshaken_rows(sweep).all()
    assert not sweep.is_noise_free
    assert scatter_of(sweep) is not None


@pytest.mark.parametrize("scope", list(Scope))
@pytest.mark.parametrize("granularity", [Granularity.KERNEL, Granularity.REGION])
def test_at_no_budget_gaps_leave_the_baseline_though_kernels_may_not(
    scope: Scope, granularity: Granularity
) -> None:
    """Two standard errors of a kernel's time are more than there is; a gap's time has none."""
    workload = work_of({"k7": 6, "gap": 2}, (KERNELS[7], GAP))
    request = PlanRequest(max_slowdown_ratio=0.0, scope=scope, granularity=granularity)
    sweep = noisy_sweep(truth_of(workload.works), SHIFTED)

    known = plan_with_guard(sweep, workload, request)
    unknown = plan_with_guard(sweep, replace(workload, works=()), request)

    assert known.solution.status is Status.OPTIMAL
    assert known.solution.slowdown_ratio <= 1.0 + 1e-12
    assert known.solution.saving_ratio > 0.01
    assert unknown.solution.status is Status.NO_GAIN


def truth_of(works: Sequence[KernelWork]) -> World:
    table = steady_state(SPEC, works, POINTS)
    return World(
        kernels=tuple(work.kernel for work in works),
        points=POINTS,
        time_s=table.time_s,
        power_w=table.power_w,
        sm_clock_mhz=table.sm_clock_held_mhz,
        is_capped=table.is_power_capped,
    )


def bench_cells(truth: World) -> tuple[CellMeasurement, ...]:
    cells = [(kernel, point) for kernel in truth.kernels for point in truth.points]
    return Bench(truth, SHIFTED)(cells, 4)


def rows_of(sweep: Sweep, count: int) -> Sweep:
    """The first kernels alone."""
    tables = ("is_present", "time_s", "energy_j", "time_std_s", "energy_std_j", "window_count")
    return replace(
        sweep,
        kernels=sweep.kernels[:count],
        **{name: getattr(sweep, name)[:count] for name in (*tables, "sm_clock_held_mhz")},
    )


def test_sums_that_differ_by_rounding_are_no_slowdown() -> None:
    plans_s = [0.1 + 0.2 + 0.3] * 8
    baselines_s = [0.3 + 0.2 + 0.1] * 8

    ratio, interval = log_ratio_interval(plans_s, baselines_s)

    assert plans_s != baselines_s
    assert (1.0, 1.0, 1.0) == (ratio, interval.low_ratio, interval.high_ratio)


def tuned(folder: Path, workload: Workload | str, device: str) -> TuneResult:
    """At no slowdown whatever, with the noise that the device has."""
    if isinstance(workload, Workload):
        write_workload(workload, folder / "workload.json")
        workload = str(folder / "workload.json")
    job = TuneJob(
        device=device,
        workload=workload,
        request=PlanRequest(max_slowdown_ratio=0.0),
        sm_clocks_mhz=(None, 600, 1200),
        mem_clocks_mhz=(None,),
        pair_count=6,
        out=folder / "run",
    )
    return tune_to_folder(job, no_progress)


def gap_clocks_mhz(result: TuneResult) -> set[int | None]:
    return {one.point.sm_clock_mhz for one in result.plan.launches if is_gap(one.kernel)}


@pytest.mark.parametrize("device", ["virtual:rtx3080ti", "virtual:a100-sxm"])
def test_a_gap_alone_is_tuned_to_no_loss_of_time(tmp_path: Path, device: str) -> None:
    result = tuned(tmp_path, work_of({"gap": 1}, (GAP,)), device)

    rivals = [row.saving_ratio for row in result.comparison if row.role is Role.BEST_STATIC]
    assert {600} == gap_clocks_mhz(result)
    assert (1.0, 1.0) == (result.plan.slowdown_ratio, result.verification.slowdown_ratio)
    assert result.verification.is_within_budget
    assert result.plan.saving_ratio == pytest.approx(rivals[0], abs=0.01)
    assert result.verification.saving_ratio > 0.1


def test_a_few_gaps_among_kernels_are_saved_on(tmp_path: Path) -> None:
    workload = work_of({"gemm": 10, "gap": 3, "all-reduce": 2}, (GEMM, GAP, exchange(3e-3)))

    result = tuned(tmp_path, workload, "virtual:rtx3080ti")

    assert {600} == gap_clocks_mhz(result)
    assert result.verification.is_within_budget
    assert 1.0 == result.verification.slowdown_interval.high_ratio
    assert result.verification.saving_interval.low_ratio > 0.01


def test_the_host_gap_of_a_built_workload_is_saved_on(tmp_path: Path) -> None:
    name = "llama3-8b,seq=4096,gap_ms=100"

    result = tuned(tmp_path, name, "virtual:a100-sxm")

    assert {600} == gap_clocks_mhz(result)
    assert result.verification.saving_interval.low_ratio > 0.001
    assert "Verified" in verdict(result.plan, result.verification, result.comparison)
