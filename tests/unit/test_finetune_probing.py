"""Three clocks probed, one chosen."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.finetuning_curves import ORIN_MHZ, Law, curve

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.errors import InputError, MeasurementError
from joulewise.domain.finetuning import ClockCost, ClockCurve
from joulewise.finetune.evaluation_noise import HARD_NOISE, USUAL_NOISE, probed_costs
from joulewise.finetune.policies.policy import nearest_listed
from joulewise.finetune.probing import FLAT_RATIO, ProbeSpread, choose_by_probing, probe_clocks
from joulewise.finetune.probing_fit import SWITCHING_EXPONENT_RATIO, Fitter, fit_parabola, fit_steps

CLOCK_LISTS = st.lists(st.integers(50, 3000), min_size=3, max_size=30, unique=True)


def costs_at(found: ClockCurve, *clocks: int) -> tuple[ClockCost, ...]:
    return tuple(cost for cost in found.costs if cost.sm_clock_mhz in clocks)


def by_fitted_law(fixed_s: float, fixed_w: float) -> ClockCurve:
    """A curve that the fitted law describes exactly."""

    def cost(clock: int) -> ClockCost:
        time_s = 0.1 * 1000 / clock + fixed_s
        power_w = fixed_w + 20 * (clock / 1000) ** SWITCHING_EXPONENT_RATIO
        return ClockCost(sm_clock_mhz=clock, time_s=time_s, energy_j=time_s * power_w)

    costs = tuple(cost(clock) for clock in ORIN_MHZ)
    return replace(curve(), costs=costs, baseline=replace(costs[-1], sm_clock_mhz=None))


@given(CLOCK_LISTS, st.none() | st.integers(1, 5000))
def test_three_different_listed_clocks_are_probed_the_advised_one_among_them(
    clocks: list[int], advised: int | None
) -> None:
    probed = probe_clocks(advised, clocks)

    low, middle, high = probed
    assert low < middle < high
    assert set(probed) <= set(clocks)
    begins_at = sorted(clocks)[len(clocks) // 2] if advised is None else advised
    assert nearest_listed(begins_at, clocks) in probed


def test_probes_around_the_usual_optimum_of_an_orin() -> None:
    assert (408, 714, 1122) == probe_clocks(714, ORIN_MHZ)
    assert (408, 714, 1122) == probe_clocks(700, ORIN_MHZ)
    assert (510, 816, 1224) == probe_clocks(None, ORIN_MHZ)


def test_a_wider_spread_probes_clocks_farther_apart() -> None:
    assert (306, 714, 1224) == probe_clocks(
        714, ORIN_MHZ, spread=ProbeSpread(low_ratio=0.4, high_ratio=1.7)
    )


def test_a_parabola_goes_through_three_blocks_and_finds_the_least_between_them() -> None:
    found = curve()
    costs = costs_at(found, 408, 714, 1122)

    fit = fit_parabola(costs)

    for one in costs:
        assert one.sm_clock_mhz is not None
        assert fit.energy_j(one.sm_clock_mhz) == pytest.approx(one.energy_j)
    chosen = choose_by_probing(costs, ORIN_MHZ, fitter=fit_parabola)
    picked = found.at(chosen.sm_clock_mhz)
    assert picked is not None
    assert picked.energy_j <= found.best.energy_j * 1.01


def test_at_an_end_of_the_list_both_other_clocks_lie_where_there_is_room() -> None:
    assert (306, 510, 714) == probe_clocks(306, ORIN_MHZ)
    assert (612, 816, 1224) == probe_clocks(1224, ORIN_MHZ)
    assert (612, 918, 1300) == probe_clocks(1300, ORIN_MHZ)


def test_two_clocks_cannot_be_probed() -> None:
    with pytest.raises(InputError, match="3 SM clocks"):
        probe_clocks(510, (306, 510, 510))


@given(st.floats(0.0, 0.3), st.floats(1.0, 60.0), st.sampled_from(ORIN_MHZ))
def test_of_exact_blocks_the_choice_costs_no_more_than_a_flat_curve_may(
    fixed_s: float, fixed_w: float, advised: int
) -> None:
    found = by_fitted_law(fixed_s, fixed_w)
    probed = probe_clocks(advised, ORIN_MHZ)

    chosen = choose_by_probing(costs_at(found, *probed), ORIN_MHZ)

    places = [ORIN_MHZ.index(clock) for clock in probed]
    reachable = found.costs[max(0, min(places) - 1) : max(places) + 2]
    picked = found.at(chosen.sm_clock_mhz)
    assert picked in reachable
    least_j = min(cost.energy_j for cost in reachable)
    assert picked is not None
    assert picked.energy_j <= least_j * (1 + FLAT_RATIO + 1e-6)
    faster = [one for one in reachable if one.time_s < picked.time_s * (1 - 1e-9)]
    assert all(one.energy_j > least_j * (1 + FLAT_RATIO - 1e-6) for one in faster)


@given(st.floats(0.5, 2.0), st.floats(0.5, 2.0), st.sampled_from(ORIN_MHZ))
def test_what_shifts_a_whole_run_changes_no_choice(
    time_ratio: float, energy_ratio: float, advised: int
) -> None:
    costs = costs_at(curve(), *probe_clocks(advised, ORIN_MHZ))
    shifted = [
        replace(one, time_s=one.time_s * time_ratio, energy_j=one.energy_j * energy_ratio)
        for one in costs
    ]

    chosen = choose_by_probing(costs, ORIN_MHZ).sm_clock_mhz

    assert chosen == choose_by_probing(shifted, ORIN_MHZ).sm_clock_mhz


def test_the_choice_lies_at_most_one_level_beyond_the_probed_clocks() -> None:
    lazy = curve(law=Law(fixed_s=3.0, fixed_w=1.0, scaled_w=60.0))
    assert 306 == lazy.best.sm_clock_mhz

    chosen = choose_by_probing(costs_at(lazy, 816, 1020, 1224), ORIN_MHZ)

    assert 714 == chosen.sm_clock_mhz
    assert CaveatKind.EXTRAPOLATED in {one.kind for one in chosen.caveats}


def test_a_budget_is_kept_against_the_governor_or_else_the_highest_clock() -> None:
    found = curve()
    costs = costs_at(found, 408, 714, 1122)

    for baseline in (found.baseline, None):
        for budget in (0.0, 0.1, 0.3, 1.0):
            chosen = choose_by_probing(
                costs, ORIN_MHZ, baseline=baseline, max_slowdown_ratio=budget
            )
            picked = found.at(chosen.sm_clock_mhz)
            assert picked is not None
            assert picked.time_s <= found.baseline.time_s * (1 + budget) * 1.005


def test_where_nothing_fits_the_budget_the_governor_or_the_highest_clock_stays() -> None:
    found = curve()
    costs = costs_at(found, 306, 408, 510)

    left = choose_by_probing(costs, ORIN_MHZ, baseline=found.baseline, max_slowdown_ratio=0.01)
    held = choose_by_probing(costs, ORIN_MHZ, max_slowdown_ratio=0.01)

    assert (None, 1300) == (left.sm_clock_mhz, held.sm_clock_mhz)
    assert "no probed clock is within the time budget" in left.reason
    assert "no probed clock is within the time budget" in held.reason


def test_a_governor_that_does_better_than_every_clock_is_left_alone() -> None:
    found = curve()
    good = replace(found.baseline, energy_j=0.9 * found.best.energy_j)

    chosen = choose_by_probing(costs_at(found, 408, 714, 1122), ORIN_MHZ, baseline=good)

    assert chosen.sm_clock_mhz is None
    assert "would save nothing" in chosen.reason


def test_expectations_are_against_the_baseline() -> None:
    found = by_fitted_law(0.02, 8.0)

    chosen = choose_by_probing(costs_at(found, 408, 714, 1122), ORIN_MHZ, baseline=found.baseline)

    picked = found.at(chosen.sm_clock_mhz)
    assert picked is not None
    assert chosen.energy_ratio == pytest.approx(picked.energy_j / found.baseline.energy_j)
    assert chosen.slowdown_ratio == pytest.approx(picked.time_s / found.baseline.time_s)


def test_scatter_of_the_blocks_tells_which_clocks_may_be_best() -> None:
    exact = costs_at(curve(), 408, 714, 1122)
    scattered = [replace(one, energy_error_j=0.02 * one.energy_j, step_count=10) for one in exact]

    assert "lies between" not in choose_by_probing(exact, ORIN_MHZ).reason
    told = choose_by_probing(scattered, ORIN_MHZ).reason
    assert "for 30 steps" in told
    assert "the best clock lies between" in told


def test_doubts_about_blocks_are_handed_on() -> None:
    doubt = Caveat(kind=CaveatKind.MEMORY_CLOCK_MOVED, seen="2133 and 3199 MHz")
    costs = [replace(one, caveats=(doubt,)) for one in costs_at(curve(), 408, 714, 1122)]

    assert (doubt,) == choose_by_probing(costs, ORIN_MHZ).caveats


def test_blocks_that_make_no_curve_are_refused() -> None:
    costs = costs_at(curve(), 408, 714, 1122)

    with pytest.raises(InputError, match="2 clocks"):
        choose_by_probing(costs[:2], ORIN_MHZ)
    with pytest.raises(InputError, match="500 MHz"):
        choose_by_probing((replace(costs[0], sm_clock_mhz=500), *costs[1:]), ORIN_MHZ)
    with pytest.raises(InputError, match="auto"):
        choose_by_probing((replace(costs[0], sm_clock_mhz=None), *costs[1:]), ORIN_MHZ)
    for bad in (0.0, -1.0, float("nan")):
        with pytest.raises(MeasurementError, match="408 MHz"):
            choose_by_probing((replace(costs[0], energy_j=bad), *costs[1:]), ORIN_MHZ)


def test_a_clock_that_is_none_cannot_be_probed() -> None:
    for clock in (0, -5):
        with pytest.raises(InputError, match=f"{clock} MHz is no SM clock"):
            probe_clocks(clock, ORIN_MHZ)
        with pytest.raises(InputError, match=f"{clock} MHz is no SM clock"):
            probe_clocks(510, (clock, *ORIN_MHZ))


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, 1e308, 5e-324])
@pytest.mark.parametrize("field", ["time_s", "energy_j"])
def test_blocks_of_the_governor_that_nothing_measured_are_refused(field: str, bad: float) -> None:
    costs = costs_at(curve(), 408, 714, 1122)
    time_s, energy_j = (bad, 1.0) if field == "time_s" else (1.0, bad)
    block = ClockCost(sm_clock_mhz=None, time_s=time_s, energy_j=energy_j)

    with pytest.raises(MeasurementError, match="under the governor"):
        choose_by_probing(costs, ORIN_MHZ, baseline=block)
    with pytest.raises(MeasurementError, match="408 MHz"):
        choose_by_probing((replace(block, sm_clock_mhz=408), *costs[1:]), ORIN_MHZ)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0, 1e308])
def test_an_error_that_cannot_be_one_is_not_known_and_changes_no_choice(bad: float) -> None:
    exact = costs_at(curve(), 408, 714, 1122)

    told = choose_by_probing([replace(one, energy_error_j=bad) for one in exact], ORIN_MHZ)

    assert choose_by_probing(exact, ORIN_MHZ) == told


def test_a_budget_that_is_no_number_is_refused() -> None:
    with pytest.raises(InputError, match="budget of nan"):
        choose_by_probing(costs_at(curve(), 408, 714, 1122), ORIN_MHZ, max_slowdown_ratio=math.nan)


AMOUNTS = st.floats(1e-9, 1e9)


@given(
    st.lists(st.tuples(AMOUNTS, AMOUNTS), min_size=3, max_size=3),
    st.lists(st.integers(1, 5000), min_size=3, max_size=3, unique=True),
    st.sampled_from((fit_steps, fit_parabola)),
)
def test_blocks_however_unlike_are_chosen_from_or_refused_in_words(
    blocks: list[tuple[float, float]], clocks: list[int], fitter: Fitter
) -> None:
    costs = [
        ClockCost(sm_clock_mhz=clock, time_s=time_s, energy_j=energy_j)
        for clock, (time_s, energy_j) in zip(sorted(clocks), blocks, strict=True)
    ]

    try:
        chosen = choose_by_probing(costs, clocks, fitter=fitter)
    except MeasurementError:
        return
    assert chosen.sm_clock_mhz in clocks
    assert chosen.slowdown_ratio is not None
    assert math.isfinite(chosen.slowdown_ratio)


def test_blocks_too_unlike_for_a_curve_are_refused_in_words() -> None:
    blocks = ((408, 0.01, 1833.0), (714, 91.25, 0.125), (1122, 0.01, 1875.0))
    costs = [
        ClockCost(sm_clock_mhz=clock, time_s=time_s, energy_j=energy_j)
        for clock, time_s, energy_j in blocks
    ]

    with pytest.raises(MeasurementError, match="no curve goes through"):
        choose_by_probing(costs, ORIN_MHZ)


@given(
    # Blocks more unlike than these may make no curve: probing refuses them.
    st.lists(st.tuples(st.floats(0.05, 5), st.floats(1, 1e3)), min_size=3, max_size=3),
)
def test_no_part_of_a_fit_is_below_zero_whatever_the_noise(
    blocks: list[tuple[float, float]],
) -> None:
    costs = [
        ClockCost(sm_clock_mhz=clock, time_s=time_s, energy_j=energy_j)
        for clock, (time_s, energy_j) in zip((408, 714, 1122), blocks, strict=True)
    ]

    fit = fit_steps(costs)

    assert min(fit.scaled_s, fit.fixed_s, fit.fixed_w, fit.scaled_w) >= 0
    assert fit.scaled_s + fit.fixed_s > 0
    assert fit.scaled_w + fit.fixed_w > 0


@pytest.mark.parametrize(("noise", "most_ratio"), [(USUAL_NOISE, 0.005), (HARD_NOISE, 0.012)])
def test_noise_of_blocks_costs_little(noise: object, most_ratio: float) -> None:
    assert noise in (USUAL_NOISE, HARD_NOISE)
    level = USUAL_NOISE if noise is USUAL_NOISE else HARD_NOISE
    rng = np.random.default_rng(1)
    regrets = []
    for fixed_s in (0.0, 0.05, 0.2):
        found = curve(law=Law(fixed_s=fixed_s))
        for advised in (510, 714, 918):
            for _ in range(40):
                costs = probed_costs(found, probe_clocks(advised, ORIN_MHZ), level, rng)
                picked = found.at(choose_by_probing(costs, ORIN_MHZ).sm_clock_mhz)
                assert picked is not None
                regrets.append(picked.energy_j / found.best.energy_j - 1)

    assert float(np.mean(regrets)) <= most_ratio


@pytest.mark.parametrize("task", ["QNLI", "SST-2"])
@pytest.mark.parametrize("advised", [510, 612, 714, 816])
def test_on_the_published_curves_of_deberta_probing_finds_the_optimum(
    measured_data: Path, task: str, advised: int
) -> None:
    table = measured_data / "slmdvfs2026" / "slmdvfs_energy_j.csv"
    if not table.exists():
        pytest.skip(f"{table} is not here")
    energies = {
        int(row["gpu_mhz_config"]): float(row["energy_j"])
        for row in csv.DictReader(table.read_text(encoding="utf-8").splitlines())
        if row["task"] == task and row["config"] == "pinned" and row["model"].startswith("DeBERTa")
    }
    # Only energies are published; times as of a job that the clock scales wholly.
    costs = [
        ClockCost(sm_clock_mhz=clock, time_s=1000 / clock, energy_j=energies[clock])
        for clock in probe_clocks(advised, ORIN_MHZ)
    ]

    chosen = choose_by_probing(costs, ORIN_MHZ).sm_clock_mhz

    assert chosen is not None
    assert energies[chosen] <= 1.01 * min(energies.values())
