"""Planning where changes must lie apart: cases worked out by hand, and corners of the solver."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from joulewise.domain.points import OperatingPoint
from joulewise.domain.transition import TransitionCost, TransitionDomain, TransitionModel
from joulewise.domain.transition import uniform_transition as uniform
from joulewise.plan.chain.problem import Chain
from joulewise.plan.chain.spaced import SpacedSolver
from joulewise.plan.chain.spaced_arrivals import Arrivals
from joulewise.plan.chain.spaced_frame import Frame
from joulewise.plan.chain.spaced_rules import SpacingRules
from joulewise.plan.chain.spaced_run import Openings, Run
from joulewise.plan.changes import change_costs

HIGH = OperatingPoint(sm_clock_mhz=2000)
LOW = OperatingPoint(sm_clock_mhz=1000)
SLOW_MEMORY = OperatingPoint(sm_clock_mhz=2000, mem_clock_mhz=5001)
SLOW = OperatingPoint(sm_clock_mhz=1000, mem_clock_mhz=5001)


def chain_of(
    time_s: list[list[float]],
    energy_j: list[list[float]],
    model: TransitionModel,
    *points: OperatingPoint,
) -> Chain:
    return Chain(
        time_s=np.array(time_s),
        energy_j=np.array(energy_j),
        changes=change_costs(points, model),
    )


def wishes(model: TransitionModel) -> Chain:
    """Six nodes of 1 s: the first, third and fourth save 2 J at LOW, the others lose some."""
    gain_j = [-2.0, 1.0, -2.0, -2.0, 1.5, 1.5]
    return chain_of([[1.0, 1.0]] * 6, [[10.0, 10.0 + gain] for gain in gain_j], model, HIGH, LOW)


@pytest.mark.parametrize(
    ("lag_s", "expected_j"),
    [
        (0.5, 54.0),  # every wish is met
        (1.0, 54.0),  # one node is long enough
        (1.5, 55.0),  # the second node runs at LOW: it costs 1 J to stay
        (2.0, 55.0),
        (3.0, 57.0),  # LOW holds for three nodes, and so does HIGH
        (3.5, 58.0),  # no two regions fit into 6 s: LOW throughout
    ],
)
def test_what_runs_at_the_wrong_point_for_a_lag_is_charged(lag_s: float, expected_j: float) -> None:
    chain = wishes(uniform("m", "test", lag_s=lag_s))

    answer = SpacedSolver(chain).least(0.0)

    assert expected_j == chain.totals(answer.choices[0])[1]
    assert answer.bound == pytest.approx(expected_j, rel=1e-9)


def test_each_domain_waits_for_its_own_lag() -> None:
    """The SM clock may change after 1 s, the memory clock only after 3 s."""
    model = TransitionModel(
        name="m",
        source="test",
        costs=(
            TransitionCost(domain=TransitionDomain.SM, lag_s=1.0),
            TransitionCost(domain=TransitionDomain.MEMORY, lag_s=3.0),
            TransitionCost(domain=TransitionDomain.BOTH, lag_s=3.0),
        ),
    )
    energy_j = [[9.0, 8.0, 7.0], [9.0, 8.0, 9.5], [8.0, 9.0, 9.5], [8.0, 9.0, 7.0]]
    chain = chain_of([[1.0] * 3] * 4, energy_j, model, HIGH, LOW, SLOW_MEMORY)

    answer = SpacedSolver(chain).least(0.0)

    assert [1, 1, 0, 0] == answer.choices[0].tolist()
    assert answer.bound == pytest.approx(32.0, rel=1e-9)


@pytest.mark.parametrize(("single", "both"), [((0.1, 5.0), (0.1, 0.0)), ((10.0, 0.0), (0.1, 0.0))])
def test_a_change_of_one_domain_is_never_taken_for_a_cheaper_one_of_both(
    single: tuple[float, float], both: tuple[float, float]
) -> None:
    """A change of both clocks takes less energy, or waits less, than one of a single clock."""
    costs = {TransitionDomain.SM: single, TransitionDomain.MEMORY: single}
    costs[TransitionDomain.BOTH] = both
    model = TransitionModel(
        name="m",
        source="test",
        costs=tuple(
            TransitionCost(domain=domain, lag_s=lag_s, energy_j=energy_j)
            for domain, (lag_s, energy_j) in costs.items()
        ),
    )
    energy_j = [[1.0, 4.0, 9.0, 9.0], [3.5, 1.0, 9.0, 9.0]]
    chain = chain_of([[1.0] * 4] * 2, energy_j, model, HIGH, LOW, SLOW_MEMORY, SLOW)

    answer = SpacedSolver(chain).least(0.0)

    assert [0, 0] == answer.choices[0].tolist()
    assert answer.bound == pytest.approx(4.5, rel=1e-9)


def test_a_cell_that_is_absent_is_never_run() -> None:
    chain = wishes(uniform("m", "test", lag_s=1.5))
    absent = np.array(chain.time_s)
    absent[0, 1] = np.inf
    energy_j = np.where(np.isfinite(absent), chain.energy_j, np.inf)
    holed = Chain(time_s=absent, energy_j=energy_j, changes=chain.changes)

    answer = SpacedSolver(holed).least(0.0)

    assert [0, 0, 1, 1, 0, 0] == answer.choices[0].tolist()
    assert answer.bound == pytest.approx(56.0, rel=1e-9)


def test_a_region_never_reaches_back_across_an_absent_cell() -> None:
    """The third point cannot run the third node, and all it costs up to there is a tie."""
    absent = math.inf
    chain = chain_of(
        [[2.0, 1.0, 3.0], [3.0, 3.0, 3.0], [1.0, 1.0, absent], [2.0, 1.0, 3.0]],
        [[3.0, 6.0, 4.0], [2.0, 8.0, 3.0], [1.0, 2.0, absent], [7.0, 2.0, 1.0]],
        uniform("m", "test", lag_s=1.0),
        HIGH,
        LOW,
        OperatingPoint(sm_clock_mhz=1500),
    )

    answer = SpacedSolver(chain).least(0.0)

    assert [0, 0, 0, 2] == answer.choices[0].tolist()
    assert answer.bound == pytest.approx(7.0, rel=1e-9)


def test_a_single_node_has_nothing_to_change() -> None:
    chain = chain_of([[1.0, 2.0]], [[5.0, 3.0]], uniform("m", "test", lag_s=0.1), HIGH, LOW)
    solver = SpacedSolver(chain)

    assert [[1], [0], [0]] == [
        solver.least(price_w).choices[0].tolist() for price_w in (0.0, 9.0, math.inf)
    ]
    assert solver.least(math.inf).bound == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("node_s", [0.1, 0.2, 0.7, 1.1])
@pytest.mark.parametrize("node_count", [3, 6, 7])
def test_plans_are_possible_where_sums_of_times_are_rounded(node_s: float, node_count: int) -> None:
    """A lag as long as so many nodes, written as the nearest number."""
    lag_s = float(Fraction(str(node_s)) * node_count)
    gain_j = [-2.0] * node_count + [1.0] * node_count
    chain = chain_of(
        [[node_s, node_s]] * (2 * node_count),
        [[10.0, 10.0 + gain] for gain in gain_j],
        uniform("m", "test", lag_s=lag_s),
        HIGH,
        LOW,
    )

    answer = SpacedSolver(chain).least(0.0)

    ideal_j = 20.0 * node_count - 2.0 * node_count
    energies_j = [chain.totals(choice)[1] for choice in answer.choices]
    assert all(chain.is_possible(choice) for choice in answer.choices)
    assert answer.bound <= ideal_j
    assert ideal_j <= min(energies_j) <= ideal_j + node_count


def test_rounding_in_running_sums_loses_no_plan() -> None:
    """Staying at HIGH costs one unit in the last place less if it counts as a change."""
    absent = math.inf
    chain = chain_of(
        [
            [1.0, absent],
            [2.481067381153851, absent],
            [8.0, 5.659742108836776],
            [1.0073081149720995, 5.0],
            [2.0, 1.0],
        ],
        [[1.0, absent], [1.0, absent], [2.0, 6.0], [1.0, 1.0], [8.0, 3.0]],
        uniform("m", "test", dwell_s=2.0),
        HIGH,
        SLOW,
    )

    answer = SpacedSolver(chain).least(2.0)

    time_s, energy_j = chain.totals(answer.choices[0])
    assert [0, 0, 1, 0, 0] == answer.choices[0].tolist()
    assert answer.bound == pytest.approx(energy_j + 2.0 * time_s, rel=1e-9)


def test_a_cycle_too_large_to_close_still_has_plans_and_a_bound() -> None:
    rng = np.random.default_rng(7)
    points = tuple(
        OperatingPoint(sm_clock_mhz=sm, mem_clock_mhz=memory)
        for memory in (5001, 9501)
        for sm in range(200, 2001, 100)
    )
    chain = chain_of(
        rng.uniform(0.5, 1.5, (700, len(points))).tolist(),
        rng.uniform(5.0, 15.0, (700, len(points))).tolist(),
        uniform("m", "test", lag_s=120.0),
        *points,
    )

    answer = SpacedSolver(chain).least(1.0)

    time_s, energy_j = chain.totals(answer.choices[0])
    assert chain.is_possible(answer.choices[0])
    assert 1 < np.unique(answer.choices[0]).size
    assert 0.98 * (energy_j + time_s) < answer.bound <= energy_j + time_s


def test_a_young_region_takes_the_way_that_its_age_allows() -> None:
    """Changing both clocks takes 5 s; one after the other takes 1 s each, and 3 J more."""
    lags_s = (1.0, 1.0, 5.0)
    model = TransitionModel(
        name="m",
        source="test",
        costs=tuple(
            TransitionCost(domain=domain, lag_s=lag_s)
            for domain, lag_s in zip(TransitionDomain, lags_s, strict=True)
        ),
    )
    energy_j = [[1.0, 9.0, 9.0], [1.0, 4.0, 9.0], *([[9.0, 9.0, 1.0]] * 4)]
    chain = chain_of([[1.0] * 3] * 6, energy_j, model, HIGH, SLOW_MEMORY, SLOW)
    frame = Frame(chain)
    rules = SpacingRules(frame, is_strict=False)
    arrivals = Arrivals(chain.changes, rules, frame.priced_changes(0.0))

    young = Openings(columns=np.array([0]), ages_s=np.array([0.0]))
    old = Openings(columns=np.array([0]), ages_s=np.array([5.0]))
    paths = [
        Run(frame.priced_sums(0.0), arrivals, opening, 1).traced(2, 2, 0).tolist()
        for opening in (young, old)
    ]

    assert 0 == frame.cut
    assert [[0, 1, 2, 2, 2, 2], [0, 0, 2, 2, 2, 2]] == paths


def test_too_many_spacings_are_joined_to_the_safe_side() -> None:
    points = tuple(OperatingPoint(sm_clock_mhz=100 * i) for i in range(1, 9))
    model = TransitionModel(
        name="m",
        source="test",
        costs=tuple(
            TransitionCost(domain=TransitionDomain.SM, target=point, lag_s=0.1 * (i + 1))
            for i, point in enumerate(points)
        ),
    )
    chain = chain_of([[1.0] * 8] * 5, [[1.0] * 8] * 5, model, *points)
    frame = Frame(chain)
    cell_count = 6 * 8

    lenient = SpacingRules(frame, is_strict=False, largest_table_count=3 * cell_count)
    strict = SpacingRules(frame, is_strict=True, largest_table_count=3 * cell_count)
    exact = SpacingRules(frame, is_strict=False)

    spacing_s = chain.changes.spacing_s[0]
    assert (3, 3, 8) == (lenient.levels_s.size, strict.levels_s.size, exact.levels_s.size)
    assert (lenient.levels_s[lenient.level_of[0]] <= spacing_s).all()
    assert (strict.levels_s[strict.level_of[0]] >= spacing_s).all()
    assert spacing_s.tolist() == exact.levels_s[exact.level_of[0]].tolist()
