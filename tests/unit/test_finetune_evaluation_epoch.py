"""One epoch of a job on its true curve: the same rule and the same cost as in the job itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.finetuning_curves import Law, curve

from joulewise.domain.finetuning import ClockCurve
from joulewise.finetune.evaluation_epoch import JobEpoch, Picked, job_epoch, true_cost
from joulewise.finetune.learning_cost import LiveSettings, learning_cost

CURVE = curve()
SETTINGS = LiveSettings(probe_clocks_mhz=(408, 714, 1122), top_mhz=1300)
PICKED = Picked(advised_mhz=816, probed_mhz=714)


def lived(
    step_count: int | None,
    *,
    found: ClockCurve = CURVE,
    settings: LiveSettings = SETTINGS,
    picked: Picked = PICKED,
    noise: float = 0.01,
) -> JobEpoch:
    return job_epoch(found, settings, picked, step_count=step_count, block_energy_ratio=noise)


def time_s(sm_clock_mhz: int | None) -> float:
    return true_cost(CURVE, sm_clock_mhz).time_s


def saving_ratio(sm_clock_mhz: int | None) -> float:
    return true_cost(CURVE, sm_clock_mhz).energy_j / CURVE.baseline.energy_j


def test_every_step_of_an_epoch_is_paid_for_at_its_clock() -> None:
    cost = learning_cost(5000, time_s, SETTINGS, chosen_mhz=714)
    blocks = (*cost.probe_blocks, *cost.pair_blocks)
    assert (3, 12) == (len(cost.probe_blocks), len(cost.pair_blocks))

    found = lived(5000)

    rest = 5000 - 5 - sum(one.step_count for one in blocks)
    total = 5 * saving_ratio(816) + rest * (0.99 * saving_ratio(714) + 0.01)
    total += sum(one.step_count * saving_ratio(one.sm_clock_mhz) for one in blocks)
    assert (714, True) == (found.held_mhz, found.is_probed)
    assert found.energy_ratio == pytest.approx(total / 5000)


@given(st.integers(1, 20_000))
def test_a_job_is_probed_exactly_where_the_live_rule_says_so(step_count: int) -> None:
    found = lived(step_count)

    cost = learning_cost(step_count, time_s, SETTINGS, chosen_mhz=None)
    assert cost.is_probing is found.is_probed
    assert found.held_mhz == (714 if found.is_probed else 816)
    assert min(saving_ratio(816), saving_ratio(714)) <= found.energy_ratio < 1.0


def test_an_epoch_too_short_for_three_pairs_keeps_the_advice_unchecked() -> None:
    found = lived(15)

    assert (816, False) == (found.held_mhz, found.is_probed)
    assert found.energy_ratio == pytest.approx(saving_ratio(816))


def test_what_pairs_do_not_show_goes_back_to_the_governor_after_a_second_look() -> None:
    close = _with_baseline(1.004)
    noisy = lived(5000, found=close)
    exact = lived(5000, found=close, noise=0.0)

    assert (None, 714) == (noisy.held_mhz, exact.held_mhz)
    assert noisy.energy_ratio > exact.energy_ratio
    # Once as many pairs again have room, and show it.
    assert 714 == lived(50_000, found=_with_baseline(1.010)).held_mhz
    assert lived(1200, found=_with_baseline(1.010)).held_mhz is None


def test_a_clock_beyond_the_budget_goes_back_to_the_governor() -> None:
    tight = replace(SETTINGS, max_slowdown_ratio=0.1)

    assert lived(5000, settings=tight).held_mhz is None
    assert 714 == lived(5000, settings=replace(tight, max_slowdown_ratio=2.0)).held_mhz


def test_a_job_that_loses_at_every_clock_pays_for_its_learning_alone() -> None:
    host = curve(law=Law(scaled_s=0.01, fixed_s=0.2), governor_mhz=306)

    found = lived(5000, found=host)

    assert found.held_mhz is None
    assert 1.0 < found.energy_ratio < 1.1


def test_in_a_job_without_an_end_learning_does_not_matter() -> None:
    found = lived(None)

    assert (714, True) == (found.held_mhz, found.is_probed)
    assert found.energy_ratio == pytest.approx(0.99 * saving_ratio(714) + 0.01)
    left = lived(None, picked=Picked(advised_mhz=714, probed_mhz=None))
    assert (None, 1.0) == (left.held_mhz, left.energy_ratio)


def test_a_clock_that_was_never_measured_is_refused() -> None:
    with pytest.raises(ValueError, match="500 MHz"):
        true_cost(CURVE, 500)


def _with_baseline(over_chosen: float) -> ClockCurve:
    """The governor takes so much more than the chosen clock."""
    energy_j = over_chosen * true_cost(CURVE, 714).energy_j
    return replace(CURVE, baseline=replace(CURVE.baseline, energy_j=energy_j))
