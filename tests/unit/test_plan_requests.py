"""Requests: a plan as a driver that takes one request at a time can carry it out."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.chains import free_costs, models, point_sets, spacings

from joulewise.domain.errors import PlanError
from joulewise.domain.plan import PlannedRequest
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.sweep import FloatTable
from joulewise.domain.transition import (
    ChangeLead,
    TransitionCost,
    TransitionDomain,
    TransitionModel,
    uniform_transition,
)
from joulewise.plan.chain.problem import Chain
from joulewise.plan.chain.spaced import SpacedSolver
from joulewise.plan.changes import change_costs
from joulewise.plan.requests import planned_requests

LOW = OperatingPoint(sm_clock_mhz=1000)
MEM = OperatingPoint(sm_clock_mhz=1000, mem_clock_mhz=5001)
LAGGING = TransitionModel(
    name="two lags",
    source="test",
    costs=(
        TransitionCost(domain=TransitionDomain.SM, lag_s=0.005),
        TransitionCost(domain=TransitionDomain.MEMORY, lag_s=0.02),
        TransitionCost(domain=TransitionDomain.BOTH, lag_s=0.03),
    ),
)


def test_there_is_one_request_per_change_with_the_lag_of_that_change() -> None:
    requests = planned_requests((AUTO, AUTO, LOW, MEM, MEM), LAGGING)

    assert requests == (
        PlannedRequest(launch_index=0, lead_s=0.03, point=AUTO),
        PlannedRequest(launch_index=2, lead_s=0.005, point=LOW),
        PlannedRequest(launch_index=3, lead_s=0.02, point=MEM),
    )


def test_a_change_that_was_measured_is_asked_for_as_far_ahead_as_it_took() -> None:
    """The costs keep the longest lag to a target, which keeps requests apart."""
    measured = ChangeLead(before=LOW, after=MEM, lead_s=0.012)
    model = replace(LAGGING, leads=(measured,))

    assert [0.03, 0.005, 0.012] == [
        request.lead_s for request in planned_requests((AUTO, AUTO, LOW, MEM, MEM), model)
    ]
    own, plain = (change_costs((LOW, MEM), one) for one in (model, LAGGING))
    assert own.spacing_s.tolist() == plain.spacing_s.tolist()


def test_a_dwell_counts_from_the_shortest_lead() -> None:
    """A request 12 ms ahead, and the next no sooner than 25 ms after it: 13 ms and its lag."""
    leads = (ChangeLead(before=LOW, after=MEM, lead_s=0.012),)
    model = replace(LAGGING, dwell_s=0.025, leads=leads)
    spacing_s = change_costs((LOW, MEM), model).spacing_s

    assert spacing_s[1].tolist() == pytest.approx([0.02 + 0.013] * 2)


def test_one_point_for_the_whole_iteration_needs_no_requests() -> None:
    assert () == planned_requests((LOW, LOW, LOW), LAGGING)
    assert () == planned_requests((LOW,), None)


@pytest.mark.parametrize("model", [None, uniform_transition("stalls", "test", stall_s=0.1)])
def test_without_a_lag_requests_are_made_as_the_launch_begins(
    model: TransitionModel | None,
) -> None:
    requests = planned_requests((LOW, AUTO, AUTO), model)

    assert [(0, 0.0, LOW), (1, 0.0, AUTO)] == [
        (request.launch_index, request.lead_s, request.point) for request in requests
    ]


def test_a_change_that_the_model_does_not_know_is_refused() -> None:
    only_sm = TransitionModel(
        name="half", source="test", costs=(TransitionCost(domain=TransitionDomain.SM),)
    )

    with pytest.raises(PlanError, match="'half' says nothing of a change of memory from 1000/5001"):
        planned_requests((LOW, MEM), only_sm)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A chain with the points and the model that it was made of."""

    points: tuple[OperatingPoint, ...]
    model: TransitionModel
    time_s: FloatTable
    energy_j: FloatTable

    @property
    def chain(self) -> Chain:
        changes = change_costs(self.points, self.model)
        return Chain(time_s=self.time_s, energy_j=self.energy_j, changes=changes)


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """Up to 30 launches with lags, dwells or both; nothing stalls."""
    points = draw(point_sets(min_size=2))
    model = draw(models(points, stalls=free_costs, lags=spacings, dwells=spacings))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = (draw(st.integers(2, 30)), len(points))
    return Job(
        points=tuple(points),
        model=model,
        time_s=rng.uniform(0.2, 8.0, shape),
        energy_j=rng.uniform(1.0, 50.0, shape),
    )


class SerialDriver:
    """Takes one request at a time, each in force a lag later; refuses one that comes too soon."""

    def __init__(self, model: TransitionModel, point: OperatingPoint) -> None:
        self._model = model
        self._changes = [(-np.inf, point)]
        self._last_request_s = -np.inf

    def request(self, now_s: float, point: OperatingPoint) -> None:
        in_force_s, before = self._changes[-1]
        slack_s = 1e-9
        assert now_s >= in_force_s - slack_s, "the last request is not in force yet"
        assert now_s >= self._last_request_s + self._model.dwell_s - slack_s, "within the dwell"
        cost = self._model.cost(before, point)
        assert cost is not None
        self._last_request_s = now_s
        self._changes.append((now_s + cost.lag_s, point))

    def in_force(self, from_s: float, to_s: float) -> set[OperatingPoint]:
        """Points in force in the inner part of a stretch of time."""
        slack_s = 1e-9
        found = set()
        ends_s = [when_s for when_s, _ in self._changes[1:]] + [np.inf]
        for (begin_s, point), end_s in zip(self._changes, ends_s, strict=True):
            if begin_s < to_s - slack_s and end_s > from_s + slack_s:
                found.add(point)
        return found


@settings(max_examples=150, deadline=None)
@given(job=jobs(), price_w=st.floats(0.0, 20.0))
def test_a_driver_that_takes_one_request_at_a_time_runs_every_launch_at_its_point(
    job: Job, price_w: float
) -> None:
    choice = SpacedSolver(job.chain).least(price_w).choices[0]
    planned = tuple(job.points[column] for column in choice)
    requests = planned_requests(planned, job.model)
    ends_s = np.cumsum(job.time_s[np.arange(choice.size), choice])
    begins_s = np.append(0.0, ends_s)
    iteration_s = float(ends_s[-1])

    timeline = sorted(
        (lap * iteration_s + float(begins_s[one.launch_index]) - one.lead_s, one.point.label)
        for lap in range(3)
        for one in requests
    )
    by_label = {point.label: point for point in job.points}
    driver = SerialDriver(job.model, planned[-1])
    for when_s, label in timeline:
        driver.request(when_s, by_label[label])

    for lap in range(2):
        for launch, point in enumerate(planned):
            offset_s = lap * iteration_s
            begin_s, end_s = offset_s + begins_s[launch], offset_s + begins_s[launch + 1]
            assert {point} == driver.in_force(float(begin_s), float(end_s))
