"""The virtual GPUs that ship."""

from __future__ import annotations

import numpy as np
import pytest

from joulewise.domain.errors import InputError
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.workload import Dtype
from joulewise.simulator.physics import idle_power_w, steady_state
from joulewise.simulator.presets import nvml_preset_names, preset, preset_names
from joulewise.workload.gpt3_xl import gpt3_xl


def test_six_gpus_ship_and_four_of_them_are_calibrated() -> None:
    assert {
        "rtx3080ti": True,
        "a100-sxm": True,
        "h100-sxm": False,
        "rtx4090": False,
        "agx-orin": True,
        "orin-nano-super": True,
    } == {name: preset(name).is_calibrated for name in preset_names()}


def test_modules_with_rails_are_no_gpus_of_the_management_library() -> None:
    assert nvml_preset_names() == ("rtx3080ti", "a100-sxm", "h100-sxm", "rtx4090")


def test_an_unknown_gpu_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(InputError, match="'rtx9999'") as caught:
        preset("rtx9999")

    assert caught.value.hint == f"Known: {', '.join(preset_names())}."


@pytest.mark.parametrize(
    ("name", "sm_count", "top_sm_mhz", "mem_clocks_mhz"),
    [
        ("rtx3080ti", 127, 2100, (405, 810, 5001, 9251, 9501)),
        ("a100-sxm", 81, 1410, (1215,)),
        ("h100-sxm", 119, 1980, (2619,)),
        ("rtx4090", 194, 3105, (405, 810, 5001, 10251, 10501)),
    ],
)
def test_clock_lists_are_those_of_the_cards(
    name: str, sm_count: int, top_sm_mhz: int, mem_clocks_mhz: tuple[int, ...]
) -> None:
    grid = preset(name).grid

    assert (sm_count, 210, top_sm_mhz) == (
        len(grid.sm_clocks_mhz),
        grid.sm_clocks_mhz[0],
        grid.sm_clocks_mhz[-1],
    )
    assert mem_clocks_mhz == grid.mem_clocks_mhz


@pytest.mark.parametrize("name", preset_names())
def test_gpt3_xl_runs_on_every_gpu_within_its_power(name: str) -> None:
    spec, workload = preset(name), gpt3_xl()
    counts = np.array(list(workload.launch_counts().values()))

    two_thirds = [clock for clock in spec.grid.sm_clocks_mhz if clock < spec.sm_clock_max_mhz / 1.5]
    points = [AUTO, OperatingPoint(sm_clock_mhz=two_thirds[-1])]
    table = steady_state(spec, workload.works, points)
    time_s, energy_j = counts @ table.time_s, counts @ table.energy_j

    power_w = energy_j[0] / time_s[0]
    assert 0.5 * spec.default_power_limit_w < power_w <= spec.default_power_limit_w
    assert time_s[1] > time_s[0]
    assert energy_j[1] < energy_j[0]


@pytest.mark.parametrize("name", nvml_preset_names())
def test_an_idle_gpu_draws_less_than_a_quarter_of_its_limit(name: str) -> None:
    spec = preset(name)

    assert 10 < idle_power_w(spec, AUTO) < 0.25 * spec.default_power_limit_w


def test_only_the_newer_gpus_compute_in_fp8() -> None:
    assert {"h100-sxm", "rtx4090"} == {
        name
        for name in preset_names()
        if any(rate.dtype is Dtype.FP8 for rate in preset(name).peak_rates)
    }


@pytest.mark.parametrize(
    ("name", "peak_flop_per_s", "boost_mhz"),
    [
        ("rtx3080ti", 68.2e12, 1665),
        ("a100-sxm", 312e12, 1410),
        ("h100-sxm", 989.4e12, 1830),
        ("rtx4090", 165.2e12, 2520),
    ],
)
def test_peak_rates_match_the_data_sheets(
    name: str, peak_flop_per_s: float, boost_mhz: int
) -> None:
    rate = preset(name).peak_rate(Dtype.BF16).flop_count_per_cycle * boost_mhz * 1e6

    assert rate == pytest.approx(peak_flop_per_s, rel=2e-3)
