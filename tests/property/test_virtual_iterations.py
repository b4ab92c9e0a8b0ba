"""Laws of iterations on a virtual board: time and energy add up, whatever is asked for when."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kernel_works import kernel_works
from tests.replays import change_totals, requests_for

from joulewise.domain.plan import PlannedLaunch, PlannedRequest
from joulewise.domain.points import OperatingPoint
from joulewise.domain.session import DeviceSession
from joulewise.domain.transition import (
    ChangeLead,
    TransitionCost,
    TransitionDomain,
    TransitionModel,
    uniform_transition,
)
from joulewise.domain.workload import Pass
from joulewise.plan.requests import planned_requests
from joulewise.simulator.oracle import open_oracle
from joulewise.simulator.virtual import open_virtual

WORKS = kernel_works(
    {"gemm": (3e12, 1e7), "copy": (1e9, 2e10), "short": (1e7, 3e9)}, core_activity_ratio=0.9
)
POINTS = tuple(
    OperatingPoint(sm_clock_mhz=sm, mem_clock_mhz=mem) for sm in (900, 1200) for mem in (5001, 9501)
)
PAIRS = tuple(permutations(POINTS, 2))
DEVICE = "virtual:rtx3080ti,noise=0"
ORACLE = open_oracle(DEVICE, WORKS)
SHORTEST_S = min(
    ORACLE.true_iteration([PlannedLaunch(kernel=work.kernel, pass_=Pass.FORWARD, point=point)])[0]
    for work in WORKS
    for point in POINTS
)

LAUNCHES = st.lists(
    st.builds(
        PlannedLaunch,
        kernel=st.sampled_from([work.kernel for work in WORKS]),
        pass_=st.just(Pass.FORWARD),
        point=st.sampled_from(POINTS),
    ),
    min_size=1,
    max_size=8,
).map(tuple)
COSTS = st.floats(min_value=0.0, max_value=0.02)
STALLS = st.tuples(COSTS, COSTS, COSTS).map(
    lambda stalls: TransitionModel(
        name="stall",
        source="a test",
        costs=tuple(
            TransitionCost(domain=domain, stall_s=stall_s, energy_j=50 * stall_s)
            for domain, stall_s in zip(TransitionDomain, stalls, strict=True)
        ),
    )
)


def _iteration_s(
    session: DeviceSession,
    launches: tuple[PlannedLaunch, ...],
    requests: tuple[PlannedRequest, ...],
) -> tuple[float, float]:
    """Time of an iteration and requests in it, once the first ones are over."""
    assert session.iterations is not None
    session.gpu.request(launches[0].point)
    session.gpu.wait(1.0)
    with session.iterations.iterate(launches, requests, session.gpu.request, run="r") as loop:
        loop.run_iterations(3)
        loop.begin_window(0)
        loop.run_iterations(2)
        timing = loop.end_window()
    assert timing.late_count == timing.early_count == 0
    return timing.elapsed_s / 2, timing.request_count / 2


@settings(max_examples=60, deadline=None)
@given(launches=LAUNCHES, model=STALLS)
def test_an_iteration_takes_its_launches_and_its_stalls(
    launches: tuple[PlannedLaunch, ...], model: TransitionModel
) -> None:
    requests = requests_for(launches, model)
    time_s, request_count = _iteration_s(open_virtual(DEVICE, WORKS, model), launches, requests)
    running_s, _ = ORACLE.true_iteration(launches)
    stalled_s, _ = change_totals(launches, model)
    # Every launch and every stall is rounded to the nearest nanosecond.
    assert time_s == pytest.approx(running_s + stalled_s, abs=2e-9 * len(launches), rel=1e-12)
    assert request_count == len(requests)


@settings(max_examples=60, deadline=None)
@given(launches=LAUNCHES, share=st.floats(min_value=0.0, max_value=0.99))
def test_requests_their_lag_ahead_take_effect_at_their_launches(
    launches: tuple[PlannedLaunch, ...], share: float
) -> None:
    """A lag below the shortest launch can always be kept."""
    model = uniform_transition("lag", "a test", lag_s=share * SHORTEST_S)
    requests = requests_for(launches, model)
    time_s, request_count = _iteration_s(open_virtual(DEVICE, WORKS, model), launches, requests)
    running_s, _ = ORACLE.true_iteration(launches)
    assert time_s == pytest.approx(running_s, abs=2e-8 * len(launches))
    assert request_count == len(requests)


@settings(max_examples=60, deadline=None)
@given(
    launches=LAUNCHES,
    shares=st.lists(st.floats(0.0, 1.0), min_size=len(PAIRS), max_size=len(PAIRS)),
)
def test_where_lags_differ_by_direction_each_change_takes_effect_at_its_launch(
    launches: tuple[PlannedLaunch, ...], shares: list[float]
) -> None:
    """Neither later nor sooner, so the iteration is the sum of its launches."""
    longest_s = 0.99 * SHORTEST_S
    model = replace(
        uniform_transition("lag", "a test", lag_s=longest_s),
        leads=tuple(
            ChangeLead(before=before, after=after, lead_s=share * longest_s)
            for (before, after), share in zip(PAIRS, shares, strict=True)
        ),
    )
    requests = planned_requests(tuple(launch.point for launch in launches), model)
    time_s, request_count = _iteration_s(open_virtual(DEVICE, WORKS, model), launches, requests)
    running_s, _ = ORACLE.true_iteration(launches)
    assert time_s == pytest.approx(running_s, abs=2e-8 * len(launches))
    assert request_count == len(requests)


@settings(max_examples=40, deadline=None)
@given(
    launches=LAUNCHES,
    lag_s=st.floats(min_value=0.0, max_value=0.05),
    dwell_s=st.floats(min_value=0.0, max_value=0.05),
    leads_s=st.lists(st.floats(min_value=0.0, max_value=0.5), min_size=8, max_size=8),
)
def test_whatever_is_asked_for_an_iteration_lies_between_its_fastest_and_its_slowest(
    launches: tuple[PlannedLaunch, ...], lag_s: float, dwell_s: float, leads_s: list[float]
) -> None:
    model = uniform_transition("odd", "a test", lag_s=lag_s, dwell_s=dwell_s)
    requests = tuple(
        PlannedRequest(launch_index=one.launch_index, lead_s=lead_s, point=one.point)
        for one, lead_s in zip(requests_for(launches, model), leads_s, strict=False)
    )
    session = open_virtual(DEVICE, WORKS, model)
    assert session.iterations is not None
    session.gpu.request(launches[0].point)
    session.gpu.wait(1.0)
    with session.iterations.iterate(launches, requests, session.gpu.request, run="r") as loop:
        loop.run_for(0.5)
        loop.begin_window(0)
        loop.run_iterations(20)
        timing = loop.end_window()
    rows = [[work.kernel for work in WORKS].index(one.kernel) for one in launches]
    times_s, _ = ORACLE.table(POINTS)
    assert timing.elapsed_s / 20 <= math.fsum(times_s[row].max() for row in rows) + 1e-6
    assert timing.elapsed_s / 20 >= math.fsum(times_s[row].min() for row in rows) - 1e-6
    # By the end of the window the same leads have come due as by its start, give or take those
    # that had to wait.
    made = timing.request_count + timing.skipped_count
    assert made == pytest.approx(20 * len(requests), abs=2 * len(requests))


@settings(max_examples=5, deadline=None)
@given(launches=LAUNCHES, model=STALLS)
def test_a_warm_iteration_draws_the_energy_of_its_launches_and_changes(
    launches: tuple[PlannedLaunch, ...], model: TransitionModel
) -> None:
    session = open_virtual(DEVICE, WORKS, model)
    assert session.iterations is not None
    requests = requests_for(launches, model)
    running_s, running_j = ORACLE.true_iteration(launches)
    stalled_s, spent_j = change_totals(launches, model)
    session.gpu.request(launches[0].point)
    with session.iterations.iterate(launches, requests, session.gpu.request, run="r") as loop:
        loop.run_for(70.0)
        start = session.gpu.wait_for_energy_tick(1.0)
        loop.run_for(30.0)
        end = session.gpu.wait_for_energy_tick(1.0)
    assert start.energy_j is not None
    assert end.energy_j is not None
    mean_w = (end.energy_j - start.energy_j) / (end.time_s - start.time_s)
    assert mean_w == pytest.approx((running_j + spent_j) / (running_s + stalled_s), rel=2e-3)


@settings(max_examples=30, deadline=None)
@given(
    launches=LAUNCHES,
    model=STALLS,
    pieces_s=st.lists(st.floats(min_value=1e-6, max_value=0.3), min_size=1, max_size=20),
)
def test_cutting_time_up_changes_nothing(
    launches: tuple[PlannedLaunch, ...], model: TransitionModel, pieces_s: list[float]
) -> None:
    seen = []
    for is_cut in (True, False):
        session = open_virtual(DEVICE, WORKS, model)
        assert session.iterations is not None
        requests = requests_for(launches, model)
        with session.iterations.iterate(launches, requests, session.gpu.request, run="r") as loop:
            loop.begin_window(0)
            for piece_s in pieces_s if is_cut else [math.fsum(pieces_s)]:
                loop.run_for(piece_s)
            loop.run_iterations(2)
            timing = loop.end_window()
            sample = session.gpu.wait_for_energy_tick(1.0)
        seen.append((timing, sample))
    (cut, cut_sample), (whole, whole_sample) = seen
    assert cut == whole
    assert cut_sample.energy_j == pytest.approx(whole_sample.energy_j, rel=1e-5)
    assert cut_sample.sm_clock_mhz == whole_sample.sm_clock_mhz
    assert cut_sample.power_capped_s == pytest.approx(whole_sample.power_capped_s, abs=1e-6)
