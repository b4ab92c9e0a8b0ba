"""The best clock of a curve, the band around it, and what errors leave of both."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.domain.finetuning import ClockCost, ClockCurve
from joulewise.finetune.characterisation import NEAR_RATIO, characterise
from joulewise.report.ucurve import CurveCharacter, CurveEdge

ORIN_MHZ = (306, 408, 510, 612, 714, 816, 918, 1020, 1122, 1224, 1300)
# DeBERTa-v2-xlarge on AGX Orin, J, github.com/esainulab/slmdvfs at 9e14047: two of its plots.
QNLI_J = (
    *(693591.48, 596669.90, 545930.79, 536503.90, 539312.18, 549624.25),
    *(572217.63, 610475.85, 641276.34, 698390.84, 737041.01),
)
SST2_J = (
    *(55292.41, 47512.24, 43025.92, 41044.05, 40927.33, 40981.54),
    *(42053.11, 44378.81, 46298.01, 49986.88, 52475.58),
)
SST2_GOVERNOR_J = 52317.17


def curve(
    energies_j: Sequence[float],
    *,
    base_j: float = 100.0,
    errors_j: Sequence[float | None] | None = None,
    base_error_j: float | None = None,
) -> ClockCurve:
    errors = errors_j or [None] * len(energies_j)
    costs = tuple(
        ClockCost(
            sm_clock_mhz=clock,
            time_s=1000.0 / clock,
            energy_j=energy_j,
            energy_error_j=error_j,
        )
        for clock, energy_j, error_j in zip(
            ORIN_MHZ[: len(energies_j)], energies_j, errors, strict=True
        )
    )
    return ClockCurve(
        job="a/b",
        device="virtual:agx-orin",
        device_name="AGX Orin",
        is_simulated=True,
        features=None,
        baseline=ClockCost(
            sm_clock_mhz=None, time_s=1.0, energy_j=base_j, energy_error_j=base_error_j
        ),
        costs=costs,
    )


def test_the_published_curves_have_the_bands_that_were_read_off_them() -> None:
    qnli, sst2 = characterise(curve(QNLI_J)), characterise(curve(SST2_J, base_j=SST2_GOVERNOR_J))

    assert (612, (510, 612, 714)) == (qnli.best.sm_clock_mhz, qnli.band_mhz)
    assert (714, (612, 714, 816)) == (sst2.best.sm_clock_mhz, sst2.band_mhz)
    assert pytest.approx(0.2178, abs=1e-4) == sst2.saving_ratio
    assert pytest.approx(0.2721, abs=1e-4) == qnli.highest_saving_ratio


energies = st.lists(st.floats(min_value=1.0, max_value=1000.0), min_size=1, max_size=11)


@given(energies, st.floats(min_value=0.0, max_value=0.5))
def test_band_and_near_clocks_are_what_counting_says(
    energies_j: list[float], near_ratio: float
) -> None:
    found = characterise(curve(energies_j), near_ratio=near_ratio)

    least = min(energies_j)
    near = {
        clock
        for clock, energy_j in zip(ORIN_MHZ, energies_j, strict=False)
        if energy_j <= least * (1 + near_ratio)
    }
    assert near == set(found.near_mhz)
    assert found.best.energy_j == least
    # The band is the longest run without a gap that holds the best clock.
    band = set(found.band_mhz)
    clocks = ORIN_MHZ[: len(energies_j)]
    first, last = clocks.index(min(band)), clocks.index(max(band))
    assert band == set(clocks[first : last + 1])
    assert band <= near
    assert found.best.sm_clock_mhz in band
    assert first == 0 or clocks[first - 1] not in near
    assert last == len(clocks) - 1 or clocks[last + 1] not in near


@given(energies, st.floats(min_value=0.1, max_value=10.0))
def test_ratios_do_not_depend_on_the_unit(energies_j: list[float], factor: float) -> None:
    own = characterise(curve(energies_j))
    scaled = characterise(curve([factor * one for one in energies_j], base_j=factor * 100.0))

    assert pytest.approx(own.saving_ratio) == scaled.saving_ratio
    assert pytest.approx(own.highest_saving_ratio) == scaled.highest_saving_ratio


def test_of_two_equal_clocks_the_faster_one_is_best() -> None:
    assert 510 == characterise(curve([9.0, 5.0, 5.0, 7.0])).best.sm_clock_mhz


def test_a_second_valley_is_near_but_not_in_the_band() -> None:
    found = characterise(curve([5.05, 9.0, 5.0, 5.02, 9.0]))

    assert (510, 612) == found.band_mhz
    assert (306, 510, 612) == found.near_mhz


@pytest.mark.parametrize(
    ("energies_j", "edge"),
    [
        ([5.0, 6.0, 7.0], CurveEdge.LOWEST),
        ([7.0, 6.0, 5.0], CurveEdge.HIGHEST),
        ([7.0, 5.0, 6.0], None),
        ([5.0], None),
    ],
)
def test_an_optimum_at_an_end_of_the_clocks_says_so(
    energies_j: list[float], edge: CurveEdge | None
) -> None:
    assert edge == characterise(curve(energies_j)).edge


def test_clocks_within_two_errors_of_the_best_cannot_be_told_from_it() -> None:
    found = characterise(curve([10.0, 10.5, 11.0], errors_j=[0.2, 0.2, 0.2]))

    assert (408,) == found.alike_mhz


def _shown(best_j: float, error_j: float | None) -> CurveCharacter:
    return characterise(curve([best_j], errors_j=[error_j], base_error_j=error_j))


def test_a_saving_is_shown_only_beyond_two_of_its_errors() -> None:
    assert _shown(90.0, 1.0).is_saving_shown is True
    assert _shown(98.0, 1.0).is_saving_shown is False
    assert _shown(120.0, 1.0).is_saving_shown is False
    assert _shown(90.0, None).is_saving_shown is None
    assert _shown(90.0, None).alike_mhz is None


def test_a_saving_against_the_highest_clock_is_shown_only_beyond_two_of_its_errors() -> None:
    far = characterise(curve([90.0, 100.0], errors_j=[1.0, 1.0], base_error_j=1.0))
    near = characterise(curve([98.0, 100.0], errors_j=[1.0, 1.0], base_error_j=1.0))

    assert (True, False) == (far.is_highest_saving_shown, near.is_highest_saving_shown)
    assert pytest.approx(0.1) == far.told_highest_saving_ratio
    assert near.told_highest_saving_ratio is None
    # The best clock beside itself: no saving, whatever its error.
    alone = _shown(90.0, 1.0)
    assert (0.0, False) == (alone.highest_saving_error_ratio, alone.is_highest_saving_shown)


def test_the_error_of_a_saving_is_that_of_the_ratio() -> None:
    # To first order: 0.9 * sqrt((1 / 90)^2 + (1 / 100)^2).
    assert pytest.approx(0.013454, abs=1e-6) == _shown(90.0, 1.0).saving_error_ratio


def test_power_is_energy_over_time_at_every_clock() -> None:
    found = characterise(curve([10.0, 20.0]))

    assert pytest.approx((10.0 * 0.306, 20.0 * 0.408)) == found.powers_w
    assert 100.0 == found.baseline_power_w


def test_a_band_of_less_than_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="near_ratio"):
        characterise(curve([1.0]), near_ratio=-0.01)
    assert NEAR_RATIO == 0.02


@given(energies)
def test_no_clock_within_two_percent_of_the_least_energy_is_faster_than_the_fast_one(
    energies_j: list[float],
) -> None:
    found = characterise(curve(energies_j))

    near = [cost for cost in found.curve.costs if cost.sm_clock_mhz in found.near_mhz]
    assert found.fast in near
    assert found.fast.time_s == min(cost.time_s for cost in near)
    assert found.fast_saving_ratio == 1.0 - found.fast.energy_j / found.curve.baseline.energy_j
