"""Gaps and exchanges from the sweep to the plan: their time stands still, their energy does not."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from tests.kernel_works import kernel_works
from tests.rooflines import Noise, World, noisy_sweep, rms_ratio
from tests.waiting import exchange, gap

from joulewise.domain.plan import Granularity, Plan, PlanRequest, Scope, Status
from joulewise.domain.points import AUTO
from joulewise.domain.sweep import Sweep
from joulewise.domain.transition import TransitionModel, uniform_transition
from joulewise.domain.workload import KernelWork, Launch, Pass, Workload
from joulewise.model.shrink import shrink
from joulewise.model.surrogate import fit_surrogate
from joulewise.plan.make import make_plan
from joulewise.simulator.physics import steady_state
from joulewise.simulator.presets import preset

SPEC = preset("rtx3080ti")
POINTS = SPEC.grid.points((None, *SPEC.grid.sm_clocks_mhz[20::12]), (None, 5001, 9501))
KERNELS = kernel_works(
    {f"k{number}": (2.0**number * 1e9, 8e9 / 2.0**number) for number in range(8)},
    core_activity_ratio=0.9,
)
NAMES = tuple(work.kernel for work in KERNELS)
GAPS = tuple(gap(4e-6 * 8.0**number, f"gap {number}") for number in range(5))
EXCHANGE = exchange(5e-3)
MIXED = (*KERNELS, *GAPS, EXCHANGE)
NOISE = Noise(time_ratio=0.003, power_ratio=0.005)
SLOW_CHANGES = uniform_transition("slow", "a test", stall_s=6e-3, energy_j=0.36)
FREE_CHANGES = uniform_transition("free", "a test")


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


def shrunk(works: Sequence[KernelWork], absent_ratio: float = 0.0) -> Sweep:
    sweep = noisy_sweep(truth_of(works), NOISE, absent_ratio=absent_ratio)
    return shrink(sweep, fit_surrogate(sweep))


def exact_sweep(works: Sequence[KernelWork]) -> Sweep:
    return truth_of(works).exact_sweep()


def iteration(launches: Sequence[str]) -> Workload:
    return Workload(name="w", launches=tuple(Launch(kernel=kernel) for kernel in launches))


def planned(
    sweep: Sweep,
    launches: Sequence[str],
    *,
    scope: Scope = Scope.GLOBAL,
    transition: TransitionModel | None = None,
) -> Plan:
    request = PlanRequest(scope=scope, transition=transition, max_slowdown_ratio=0.0)
    return make_plan(sweep, iteration(launches), request, sweep_sha256="0" * 64)


@pytest.mark.parametrize(
    "works",
    [MIXED, GAPS, GAPS[:1], (*KERNELS[:2], *GAPS), (*GAPS, EXCHANGE)],
    ids=["many kernels", "only gaps", "one gap", "mostly gaps", "all waiting"],
)
def test_the_model_knows_that_clocks_do_not_shorten_gaps(works: tuple[KernelWork, ...]) -> None:
    truth = truth_of(works)
    sweep = noisy_sweep(truth, NOISE, absent_ratio=0.2)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        surrogate = fit_surrogate(sweep)
        calmed = shrink(sweep, surrogate)

    for table in (surrogate.time_s, surrogate.energy_j, surrogate.energy_error_ratio):
        assert np.isfinite(table).all()
    assert np.isfinite(calmed.time_s[calmed.is_present]).all()
    is_gap = np.array([work in GAPS for work in works])
    if is_gap.any():
        gaps_s = surrogate.time_s[is_gap]
        assert (np.ptp(gaps_s, axis=1) < 0.01 * gaps_s.mean(axis=1)).all()
        cells = np.broadcast_to(is_gap[:, None], truth.time_s.shape)
        assert rms_ratio(surrogate.time_s, truth.time_s, cells) < 0.003
        assert rms_ratio(surrogate.energy_j, truth.energy_j, cells) < 0.01


def test_a_plan_runs_gaps_where_they_cost_least_and_loses_no_time_on_them() -> None:
    sweep = exact_sweep(MIXED)
    launches = [work.kernel for work in MIXED] * 3

    plan = planned(sweep, launches, scope=Scope.LOCAL)

    cheapest = {
        kernel: sweep.points[int(sweep.energy_j[row].argmin())]
        for row, kernel in enumerate(sweep.kernels)
        if kernel.startswith("gap")
    }
    chosen = {launch.kernel: launch.point for launch in plan.launches}
    assert cheapest == {kernel: chosen[kernel] for kernel in cheapest}
    assert all(point != AUTO for point in cheapest.values())
    assert plan.slowdown_ratio <= 1.0


@pytest.mark.parametrize("scope", list(Scope))
def test_an_iteration_of_gaps_alone_is_saved_at_no_time_at_all(scope: Scope) -> None:
    sweep = exact_sweep(GAPS)

    plan = planned(sweep, [work.kernel for work in GAPS], scope=scope)

    assert Status.OPTIMAL is plan.status
    assert 1.0 == plan.slowdown_ratio
    assert plan.saving_ratio > 0.1


def test_slow_changes_are_made_for_long_gaps_only() -> None:
    """A gap of 16 µs is not worth two changes of 6 ms each, which also take time."""
    sweep = exact_sweep((KERNELS[7], GAPS[0]))

    free = planned(sweep, ["k7", "gap 0"] * 4, transition=FREE_CHANGES)
    slow = planned(sweep, ["k7", "gap 0"] * 4, transition=SLOW_CHANGES)

    assert 8 == len(free.requests)
    assert 0 == len(slow.requests)
    assert slow.saving_ratio >= 0.0


def test_a_lag_is_worth_while_where_the_gap_is_long() -> None:
    """The point is asked for ahead, so even a slow knob lowers the clocks in a long gap."""
    long_gap = gap(0.5, "gap of half a second")
    sweep = exact_sweep((KERNELS[7], long_gap))
    late = uniform_transition("late", "a test", lag_s=5e-3)

    plan = planned(sweep, [*["k7"] * 10, long_gap.kernel], transition=late)

    points = {launch.kernel: launch.point for launch in plan.launches}
    assert 2 == len(plan.requests)
    assert points[long_gap.kernel] == sweep.points[int(sweep.energy_j[1].argmin())]
    assert plan.slowdown_ratio <= 1.0


@pytest.mark.parametrize("granularity", [Granularity.PASS, Granularity.REGION])
def test_every_granularity_and_pass_takes_gaps_and_exchanges(granularity: Granularity) -> None:
    calmed = shrunk(MIXED, absent_ratio=0.1)
    names = [work.kernel for work in MIXED]
    launches = tuple(
        Launch(kernel=kernel, pass_=pass_) for pass_ in Pass for kernel in (*names, *names)
    )
    transition = SLOW_CHANGES if granularity is Granularity.REGION else None
    request = PlanRequest(granularity=granularity, max_slowdown_ratio=0.02, transition=transition)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan = make_plan(
            calmed, Workload(name="w", launches=launches), request, sweep_sha256="0" * 64
        )

    assert [launch.pass_ for launch in plan.launches] == [launch.pass_ for launch in launches]
    assert plan.slowdown_ratio <= 1.02
    assert plan.saving_ratio > 0.0


def test_waiting_longer_makes_a_plan_save_more_joules() -> None:
    """The same kernels beside a longer gap: what the gap saves comes on top."""
    short, long = (
        planned(exact_sweep((*KERNELS, replace(gap(wait_s), kernel="gap"))), [*NAMES, "gap"])
        for wait_s in (1e-3, 1e-2)
    )

    saved_j = [plan.baseline_energy_j - plan.energy_j for plan in (short, long)]
    assert saved_j[1] > saved_j[0]
    assert long.slowdown_ratio <= 1.0
