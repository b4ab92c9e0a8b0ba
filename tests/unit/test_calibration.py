"""The calibrated RTX 3080 Ti against the paper, and the machinery that fitted it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from calibration import parameters as par
from calibration.conversion import shipped
from calibration.evaluation import Figure, figures
from calibration.facts import (
    BASELINE,
    SWEPT_POINTS,
    frontier_facts,
    kernel_facts,
    pass_facts,
)
from calibration.objective import Objective, State
from calibration.rtx3080ti import random_start
from calibration.search import descend, descend_kernels, restart_kernels
from calibration.table import render
from calibration.twin import steady_twin

from joulewise.domain.points import AUTO
from joulewise.simulator.physics import (
    kernel_load,
    point_conditions,
    steady_state,
    steady_state_of_load,
)
from joulewise.simulator.presets import preset
from joulewise.workload.gpt3_xl import gpt3_xl

RESULTS = Path(__file__).resolve().parents[2] / "calibration" / "results"


@pytest.fixture(scope="module")
def objective() -> Objective:
    return Objective(kernel_facts(), pass_facts())


@pytest.fixture(scope="module")
def start(objective: Objective) -> State:
    return random_start(objective, np.random.default_rng(11))


@pytest.fixture(scope="module")
def shipped_figures() -> tuple[Figure, ...]:
    return figures(preset("rtx3080ti"), gpt3_xl().works, kernel_facts(), frontier_facts())


def test_the_facts_add_up_to_the_totals_of_the_paper() -> None:
    facts = kernel_facts()
    time_s = facts.launch_count * facts.time_s
    energy_j = facts.launch_count * facts.energy_j

    assert time_s.sum() == pytest.approx(5.358, abs=1e-3)
    assert energy_j.sum() == pytest.approx(1815.5, abs=0.1)
    assert time_s @ facts.chosen_time_ratio / time_s.sum() == pytest.approx(1.0, abs=1e-4)
    assert energy_j @ facts.chosen_energy_ratio / energy_j.sum() == pytest.approx(0.8436, abs=1e-4)
    assert energy_j @ facts.least_energy_ratio / energy_j.sum() == pytest.approx(0.6306, abs=1e-4)


def test_facts_cover_the_46_kernels_and_65_points_of_two_passes() -> None:
    facts, passes = kernel_facts(), pass_facts()

    assert gpt3_xl().kernels == facts.kernels
    assert list(gpt3_xl().launch_counts().values()) == facts.launch_count.tolist()
    assert (66, 130) == (len(SWEPT_POINTS), len(passes.point))
    assert SWEPT_POINTS[BASELINE] == AUTO
    assert BASELINE not in passes.point


def test_at_most_21_global_and_5_per_kernel_parameters_are_fitted() -> None:
    assert par.GLOBAL_COUNT <= 21
    assert len(par.PER_KERNEL) <= 5


def test_the_compiled_twin_is_the_shipped_physics() -> None:
    spec, works = preset("rtx3080ti"), gpt3_xl().works

    table = steady_state(spec, works, SWEPT_POINTS)
    time_s, energy_j = steady_twin(
        spec, kernel_load(spec, works), point_conditions(spec, SWEPT_POINTS)
    )

    assert np.abs(time_s / table.time_s - 1).max() < 1e-9
    assert np.abs(energy_j / table.energy_j - 1).max() < 1e-9


def test_the_twin_is_the_shipped_physics_for_parameters_drawn_at_random(
    objective: Objective,
) -> None:
    for seed in range(5):
        state = random_start(objective, np.random.default_rng(seed))
        spec = par.spec_of(state.of_device)
        load = par.load_of(spec, state.of_kernels, objective.is_gemm)

        table = steady_state_of_load(spec, load, SWEPT_POINTS)
        ours = objective.tables(state)

        assert np.abs(ours.time_s / table.time_s - 1).max() < 1e-9
        assert np.abs(ours.energy_j / table.energy_j - 1).max() < 1e-9


def test_what_ships_behaves_as_what_was_fitted(objective: Objective, start: State) -> None:
    spec, works = shipped(start, objective.kernels)

    table = steady_state(spec, works, SWEPT_POINTS)

    fitted = objective.tables(start)
    assert np.abs(table.time_s / fitted.time_s - 1).max() < 1e-5
    assert np.abs(table.energy_j / fitted.energy_j - 1).max() < 1e-5


def test_a_descent_lowers_the_cost_and_stays_in_its_bounds(
    objective: Objective, start: State
) -> None:
    _, before = descend(objective, start, step_count=0)
    state, after = descend(objective, start, step_count=2)

    assert after < 0.8 * before
    assert (par.LEAST <= state.of_device).all()
    assert (state.of_device <= par.GREATEST).all()


def test_kernels_moved_alone_and_restarted_never_fit_worse(
    objective: Objective, start: State
) -> None:
    _, before = descend_kernels(objective, start, step_count=0)
    moved, after = descend_kernels(objective, start, step_count=3)
    _, here = descend_kernels(objective, moved, step_count=0)
    again = restart_kernels(objective, moved, np.random.default_rng(1), attempt_count=1)

    assert (after <= before).all()
    assert after.sum() < 0.9 * before.sum()
    facts = objective.kernel_residuals(
        objective.tables(again), par.value(again.of_device, "exchange_rate")
    )
    was = objective.kernel_residuals(
        objective.tables(moved), par.value(moved.of_device, "exchange_rate")
    )
    changed = (again.of_kernels != moved.of_kernels).any(axis=0)
    assert changed.any()
    assert np.abs(facts[:, changed]).sum() < np.abs(was[:, changed]).sum()
    assert np.isfinite(here).all()


def test_the_shipped_gpu_does_what_the_paper_says(shipped_figures: tuple[Figure, ...]) -> None:
    judged = {line.name: line.is_met(line.value) for line in shipped_figures}

    assert [] == [name for name, is_met in judged.items() if is_met is False]
    assert sum(is_met is True for is_met in judged.values()) == 14


def test_the_median_of_at_least_five_fits_does_what_the_paper_says(
    shipped_figures: tuple[Figure, ...],
) -> None:
    fits = json.loads((RESULTS / "rtx3080ti.json").read_text())["fits"]
    assert len(fits) >= 5

    missed = [
        line.name
        for line in shipped_figures
        if line.is_met(float(np.median([fit["figures"][line.name.strip()] for fit in fits])))
        is False
    ]

    assert [] == missed


def test_the_recorded_figures_are_those_of_what_ships(
    shipped_figures: tuple[Figure, ...],
) -> None:
    record = json.loads((RESULTS / "rtx3080ti.json").read_text())
    best = min(record["fits"], key=lambda fit: fit["cost"])

    assert record["shipped_seed"] == best["seed"]
    assert {
        line.name.strip(): pytest.approx(line.value, rel=1e-4, abs=1e-4) for line in shipped_figures
    } == (best["figures"])


def test_efficiencies_are_shares_of_the_peak() -> None:
    long = [work for work in gpt3_xl().works if "bias_reduce" not in work.kernel]

    assert all(0 < work.compute_efficiency_ratio <= 1.3 for work in long)
    assert all(0 < work.memory_efficiency_ratio <= 1.3 for work in long)


def test_the_table_states_every_miss() -> None:
    hit = Figure(name="a", paper=1.0, value=1.0, least=0.5, greatest=1.5)
    miss = Figure(name="b", paper=None, value=9.0, least=0.0, greatest=2.0)
    shown = Figure(name="c", paper=3.0, value=4.0)

    text = render([[hit, miss, shown], [hit, miss, shown]], [hit, miss, shown])

    assert "missed: b, median 9.000, wanted <= 2" in text
    assert "the shipped fit misses: b, 9.000" in text
    assert "not judged" in text
    assert "no misses" not in text
    assert render([[hit]], [hit]).endswith("no misses")


def test_the_docs_print_the_recorded_medians(shipped_figures: tuple[Figure, ...]) -> None:
    text = (RESULTS.parents[1] / "docs" / "calibration.md").read_text()
    printed = {line[:35].strip(): line.split() for line in text.splitlines()}
    fits = json.loads((RESULTS / "rtx3080ti.json").read_text())["fits"]

    medians = {
        line.name: f"{np.median([fit['figures'][line.name.strip()] for fit in fits]):.3f}"
        for line in shipped_figures
        if line.is_met(line.value) is not None
    }

    assert [] == [name for name, value in medians.items() if value not in printed[name]]
