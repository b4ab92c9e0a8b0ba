from __future__ import annotations

import math

import numpy as np
import pytest

from joulewise.domain.errors import MeasurementError
from joulewise.domain.plan import Interval
from joulewise.measure.statistics import log_ratio_interval, median, median_interval, std


def test_the_median_of_an_even_number_of_values_is_the_middle_of_two() -> None:
    assert median([4.0, 1.0, 3.0, 2.0]) == 2.5


def test_no_values_have_no_median() -> None:
    with pytest.raises(MeasurementError, match="no values"):
        median([])


def test_one_value_has_no_scatter() -> None:
    assert std([2.0]) is None


def test_scatter_is_that_of_one_value_not_of_the_mean() -> None:
    assert std([1.0, 2.0, 3.0, 4.0]) == pytest.approx(math.sqrt(5 / 3))


def test_the_same_seed_gives_the_same_interval() -> None:
    values = [1.0, 3.0, 2.0, 5.0, 4.0, 6.0, 2.5]
    assert median_interval(values, seed=3) == median_interval(values, seed=3)


def test_equal_values_have_an_interval_without_width() -> None:
    assert median_interval([2.0] * 9) == (2.0, 2.0)


@pytest.mark.parametrize("values", [[1.0], []])
def test_an_interval_of_fewer_than_two_values_is_refused(values: list[float]) -> None:
    with pytest.raises(MeasurementError, match="no interval"):
        median_interval(values)


def test_an_interval_with_a_number_missing_is_refused() -> None:
    with pytest.raises(MeasurementError, match="finite"):
        median_interval([1.0, math.nan, 2.0])


def test_few_values_get_the_t_interval_of_their_mean() -> None:
    low, high = median_interval([1.0, 2.0, 3.0])
    # t with two degrees of freedom is 4.3027 at 97.5 % (any printed table).
    half = 4.302652729911275 / math.sqrt(3)
    assert (low, high) == pytest.approx((2.0 - half, 2.0 + half))


@pytest.mark.parametrize(("count", "least_coverage"), [(3, 0.91), (6, 0.92), (10, 0.92)])
def test_intervals_of_normal_values_cover_the_truth_about_as_often_as_they_say(
    count: int, least_coverage: float
) -> None:
    rng = np.random.default_rng(5)
    trial_count = 250
    intervals = [median_interval(list(rng.normal(size=count))) for _ in range(trial_count)]
    coverage = sum(low <= 0.0 <= high for low, high in intervals) / trial_count
    # The standard error of a share of 95 % in 250 trials is 1.4 points.
    assert least_coverage <= coverage <= 0.995


def test_pairs_that_share_a_factor_have_an_exact_ratio() -> None:
    baseline = [1.0, 1.3, 0.7, 1.1, 0.9, 2.0, 1.7]
    ratio, interval = log_ratio_interval([2.0 * value for value in baseline], baseline)
    assert (ratio, interval.low_ratio, interval.high_ratio) == pytest.approx((2.0, 2.0, 2.0))


def test_equal_pairs_have_the_ratio_one_exactly() -> None:
    values = [1.0, 1.3, 0.7, 1.1]
    assert log_ratio_interval(values, values) == (1.0, Interval(low_ratio=1.0, high_ratio=1.0))


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan])
def test_a_ratio_of_anything_but_positive_numbers_is_refused(bad: float) -> None:
    with pytest.raises(MeasurementError, match="positive"):
        log_ratio_interval([1.0, bad], [1.0, 1.0])


def test_pairs_of_unequal_number_are_refused() -> None:
    with pytest.raises(MeasurementError, match="as many"):
        log_ratio_interval([1.0, 2.0], [1.0])
