"""Measuring runs become curves: means, errors, and doubts at their right place."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.errors import InputError
from joulewise.domain.finetuning import ClockCost, ClockCurve
from joulewise.domain.measurement import CellMeasurement, GpuSample, Window
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.finetune.jobs import job
from joulewise.measure.settings import MeasureSettings
from joulewise.workflow.finetune_curves import CurveSource, JobRun, curves_of, job_run, run_scatter
from joulewise.workflow.finetune_reporting import JobsAsked, chosen_jobs
from joulewise.workflow.finetune_sweeping import sweep_jobs

SOURCE = CurveSource(device="virtual:x", device_name="X", is_simulated=True, caveats=())
QUICK = MeasureSettings(
    window_s=1.0, window_count=2, steady_s=0.0, soak_s=1.0, step_s=1.0, power_sample_s=0.1
)
CLOCKS_MHZ = (630, 1200, 1890)


def run(
    clock: int | None,
    time_s: float = 1.0,
    energy_j: float = 100.0,
    *,
    error: float | None = None,
    memory_mhz: int | None = 3199,
    caveats: Sequence[Caveat] = (),
) -> JobRun:
    return JobRun(
        job="a/b",
        point=OperatingPoint(sm_clock_mhz=clock),
        time_s=time_s,
        energy_j=energy_j,
        time_error_s=error,
        energy_error_j=error,
        step_count=10,
        busy_ratio=0.5,
        mem_clock_mhz=memory_mhz,
        caveats=tuple(caveats),
    )


def curve(*runs: JobRun) -> ClockCurve:
    return curves_of([("a/b", None)], runs, SOURCE)[0]


def test_runs_at_one_clock_are_averaged_and_their_steps_added() -> None:
    found = curve(run(None), run(306, 1.0, 90.0), run(306, 3.0, 110.0), run(None, 3.0, 300.0))

    assert (2.0, 200.0, 20) == (
        found.baseline.time_s,
        found.baseline.energy_j,
        found.baseline.step_count,
    )
    assert (306, 2.0, 100.0) == (
        found.costs[0].sm_clock_mhz,
        found.costs[0].time_s,
        found.costs[0].energy_j,
    )


def test_an_error_is_what_repeated_runs_show_where_windows_show_less() -> None:
    # Two runs under the governor that differ by 2 %: sigma of one is ln(1.02) / sqrt(2).
    found = curve(run(None, 1.0, error=1e-6), run(None, 1.02, error=1e-6), run(306, error=1e-6))

    sigma = math.log(1.02) / math.sqrt(2)
    assert pytest.approx(sigma) == found.costs[0].time_error_s
    assert pytest.approx(1.01 * sigma / math.sqrt(2)) == found.baseline.time_error_s


def test_an_error_is_what_windows_show_where_runs_agree_by_luck() -> None:
    found = curve(run(None, error=0.3), run(None, error=0.3), run(306, error=0.2))

    assert 0.2 == found.costs[0].energy_error_j
    assert pytest.approx(0.3 / math.sqrt(2)) == found.baseline.energy_error_j


def test_nothing_repeated_and_one_window_leave_no_error() -> None:
    found = curve(run(None), run(306))

    assert (None, None) == (found.costs[0].time_error_s, found.baseline.energy_error_j)


@given(st.lists(st.lists(st.floats(0.5, 2.0), min_size=1, max_size=4), min_size=1, max_size=4))
def test_pooled_scatter_is_the_variance_within_groups(groups: list[list[float]]) -> None:
    runs = [run(300 + index, value) for index, values in enumerate(groups) for value in values]
    found = run_scatter(runs).time_ratio

    # Half of the mean square difference over all pairs is the variance of each group.
    freedom = sum(len(values) - 1 for values in groups)
    squares = sum(
        (math.log(one) - math.log(other)) ** 2 / len(values)
        for values in groups
        for one, other in itertools.combinations(values, 2)
    )
    if not freedom:
        assert found is None
    else:
        assert found == pytest.approx(math.sqrt(squares / freedom), abs=1e-9)


def test_a_doubt_that_every_cost_has_is_the_curves_own() -> None:
    shared = Caveat(kind=CaveatKind.ENERGY_FROM_POWER, seen="power was read")
    own = Caveat(kind=CaveatKind.OUTLIERS_SEEN, seen="window 2 lies far")
    found = curve(run(None, caveats=[shared]), run(306, caveats=[own, shared]))

    assert (shared,) == found.caveats
    assert ((), (own,)) == (found.baseline.caveats, found.costs[0].caveats)


def test_another_memory_clock_than_the_baselines_is_told() -> None:
    found = curve(run(None, memory_mhz=3199), run(306, memory_mhz=2133))

    assert [CaveatKind.MEMORY_CLOCK_MOVED] == [caveat.kind for caveat in found.caveats]
    assert "2133, 3199 MHz" in found.caveats[0].seen
    assert not curve(run(None), run(306)).caveats


def test_a_job_without_a_run_under_the_governor_has_no_curve() -> None:
    with pytest.raises(ValueError, match="governor"):
        curve(run(306))


def window(number: int, time_s: float, energy_j: float) -> Window:
    return Window(
        window=number,
        time_s=time_s,
        energy_j=energy_j,
        duration_s=5.0,
        launch_count=4,
        sm_clock_held_mhz=None,
        temp_c=50.0,
    )


def sample(busy_ratio: float | None, memory_mhz: int | None) -> GpuSample:
    return GpuSample(
        time_s=0.0,
        energy_j=None,
        power_w=1.0,
        sm_clock_mhz=306,
        mem_clock_mhz=memory_mhz,
        temp_c=None,
        power_capped_s=None,
        thermally_throttled_s=None,
        other_process_count=None,
        busy_ratio=busy_ratio,
    )


def test_a_run_tells_medians_and_what_samples_saw() -> None:
    cell = CellMeasurement(
        kernel="a/b",
        point=AUTO,
        run="r",
        idle_power_w=None,
        windows=(window(0, 1.0, 10.0), window(1, 2.0, 12.0), window(2, 9.0, 11.0)),
    )
    samples = [sample(0.4, 3199), sample(None, None), sample(0.8, 3199), sample(0.6, 2133)]
    found = job_run(cell, samples)

    assert (2.0, 11.0, 12) == (found.time_s, found.energy_j, found.step_count)
    assert pytest.approx(0.6) == found.busy_ratio
    assert 3199 == found.mem_clock_mhz


def swept(device: str, rounds: int = 1) -> tuple[ClockCurve, ...]:
    jobs = [job("bert-base/sst2"), job("pythia-70m/qnli")]
    return sweep_jobs(device, jobs, CLOCKS_MHZ, settings=QUICK, round_count=rounds)


def test_a_sweep_has_every_job_at_every_clock_and_under_the_governor() -> None:
    first, second = swept("virtual:rtx3080ti")

    assert ("bert-base/sst2", "pythia-70m/qnli") == (first.job, second.job)
    assert CLOCKS_MHZ == first.sm_clocks_mhz == second.sm_clocks_mhz
    assert first.is_simulated
    assert CaveatKind.SIMULATED_DEVICE in {caveat.kind for caveat in first.caveats}
    assert first.features == job("bert-base/sst2").features
    assert all(cost.time_error_s for cost in (first.baseline, *first.costs))


def test_every_clock_is_a_run_of_its_own_so_that_its_shift_hits_it_alone() -> None:
    quiet = swept("virtual:rtx3080ti,noise=0")
    noisy = swept("virtual:rtx3080ti,seed=3")
    shifts = {
        round(one.time_s / other.time_s, 6)
        for mine, theirs in zip(noisy, quiet, strict=True)
        for one, other in zip(mine.costs, theirs.costs, strict=True)
    }

    assert len(CLOCKS_MHZ) * 2 == len(shifts)
    assert all(0.98 < shift < 1.02 for shift in shifts)


def test_a_governor_that_lowers_the_clock_of_a_waiting_gpu_is_nobody_else() -> None:
    # The GPU waits for its host half of the time, and the governor takes a low clock.
    found = sweep_jobs("virtual:agx-orin", [job("pythia-31m/sst2")], [510], settings=QUICK)[0]

    assert (found.baseline.busy_ratio or 1.0) < 0.9
    assert CaveatKind.FOREIGN_CONTROL not in {caveat.kind for caveat in found.baseline.caveats}
    assert found.features is not None
    assert found.baseline.busy_ratio == found.features.gpu_busy_ratio


def test_a_locked_memory_clock_is_told_beside_a_baseline_that_has_another() -> None:
    found = sweep_jobs(
        "virtual:agx-orin", [job("bert-base/sst2")], [1300], mem_clock_mhz=665, settings=QUICK
    )[0]

    assert (3199, 665) == (found.baseline.mem_clock_mhz, found.costs[0].mem_clock_mhz)
    assert CaveatKind.MEMORY_CLOCK_MOVED in {caveat.kind for caveat in found.caveats}
    assert found.costs[0].time_s > found.baseline.time_s


def test_rounds_are_added_and_lower_the_errors() -> None:
    def steps(curves: Sequence[ClockCurve]) -> list[int]:
        return [cost.step_count or 0 for one in curves for cost in one.costs]

    def worst(cost: ClockCost) -> float:
        return cost.energy_error_j or math.inf

    once, often = swept("virtual:rtx3080ti"), swept("virtual:rtx3080ti", rounds=4)

    assert all(3 * few < many for few, many in zip(steps(once), steps(often), strict=True))
    assert max(map(worst, often[0].costs)) < max(map(worst, once[0].costs))


def test_a_sweep_of_nothing_or_of_what_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match="named twice"):
        sweep_jobs("virtual:rtx3080ti", [job("bert-base/sst2")] * 2, None)
    with pytest.raises(InputError, match="no jobs"):
        sweep_jobs("virtual:rtx3080ti", [], None)
    with pytest.raises(InputError, match="no clock of 1 MHz"):
        sweep_jobs("virtual:rtx3080ti", [job("bert-base/sst2")], [1])
    with pytest.raises(InputError, match="rounds"):
        sweep_jobs("virtual:rtx3080ti", [job("bert-base/sst2")], None, round_count=0)


def test_jobs_are_named_one_by_one_or_by_models_and_tasks() -> None:
    assert 27 == len(chosen_jobs(JobsAsked()))
    assert 81 == len(chosen_jobs(JobsAsked(names=["all", "bert-base/sst2"])))
    assert ["bert-base/rte", "pythia-1b/rte"] == [
        one.name for one in chosen_jobs(JobsAsked(models=["bert-base", "pythia-1b"], tasks=["rte"]))
    ]
    assert 3 == len(chosen_jobs(JobsAsked(models=["bert-base"])))
    for wrong, words in (
        (JobsAsked(names=["bert-base"]), "no fine-tuning job"),
        (JobsAsked(models=["gpt"]), "'gpt'"),
        (JobsAsked(tasks=["x"]), "'x'"),
        (JobsAsked(names=["all"], tasks=["rte"]), "not both"),
    ):
        with pytest.raises(InputError, match=words) as caught:
            chosen_jobs(wrong)
        assert caught.value.hint
