"""Device strings of virtual GPUs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.domain.errors import InputError
from joulewise.domain.transition_presets import STALL_POWER_W, transition_preset_names
from joulewise.simulator.device_string import OPTIONS, VirtualOptions, is_virtual, parse_device
from joulewise.simulator.noise import DEFAULT_NOISE, STRESS_NOISE
from joulewise.simulator.virtual import open_virtual


def test_a_bare_name_means_default_noise_and_seed_zero() -> None:
    expected = VirtualOptions(preset="rtx3080ti")
    actual = parse_device("virtual:rtx3080ti")
    assert expected == actual
    assert actual.noise_level == DEFAULT_NOISE


def test_every_option_is_read_with_its_unit() -> None:
    expected = VirtualOptions(
        preset="a100-sxm",
        noise="stress",
        seed=7,
        shift_ratio=0.0045,
        gain_ratio=0.05,
        is_control_denied=True,
        lag_s=0.02,
        stall_s=0.001,
        stall_power_w=55.5,
        counter_period_s=0.1,
        ambient_c=45.0,
        lost_after_s=90.0,
        foreign_from_s=10.0,
        foreign_to_s=20.5,
        counter_reset_s=30.0,
    )
    actual = parse_device(
        " virtual:a100-sxm , noise=stress, seed=7, shift=0.45%, gain=5%, control=denied,"
        "lag=20ms, stall=1ms, stall_power=55.5 W, counter_period=0.1, ambient=45C, lost_after=90s, foreign=10..20.5s,"
        "counter_reset=30"
    )
    assert expected == actual


def test_the_canonical_string_leaves_out_what_is_default() -> None:
    actual = parse_device("virtual:rtx3080ti,seed=0,noise=default,control=allowed").spec
    assert actual == "virtual:rtx3080ti"
    assert parse_device("virtual:rtx3080ti,seed=7,noise=0.0").spec == (
        "virtual:rtx3080ti,noise=0,seed=7"
    )
    assert parse_device("virtual:rtx3080ti,noise=1.0").spec == "virtual:rtx3080ti"
    assert parse_device("virtual:rtx3080ti,stall=1ms,stall_power=60W").spec == (
        "virtual:rtx3080ti,stall=0.001"
    )


_POSITIVE = st.floats(min_value=0.001, max_value=1e6)
_POWERS = st.floats(min_value=0, max_value=1e6).filter(lambda power: power != STALL_POWER_W)
_RATIOS = st.floats(min_value=0, max_value=0.5)
_NOISES = st.one_of(
    st.sampled_from(["default", "stress"]), st.sampled_from(["0", "2", "0.5", "1e-05"])
)


@st.composite
def _options(draw: st.DrawFn) -> VirtualOptions:
    start_s = draw(st.none() | _POSITIVE)
    transition = draw(st.none() | st.sampled_from(transition_preset_names()))
    stall_s = None if transition else draw(st.none() | _POSITIVE)
    return VirtualOptions(
        preset=draw(st.sampled_from(["rtx3080ti", "a100-sxm"])),
        noise=draw(_NOISES),
        seed=draw(st.integers(min_value=-(10**9), max_value=10**9)),
        shift_ratio=draw(st.none() | _RATIOS),
        gain_ratio=draw(st.none() | _RATIOS),
        is_control_denied=draw(st.booleans()),
        lag_s=None if transition else draw(st.none() | _POSITIVE),
        stall_s=stall_s,
        stall_power_w=None if stall_s is None else draw(st.none() | _POWERS),
        transition=transition,
        counter_period_s=draw(st.none() | _POSITIVE),
        ambient_c=draw(st.none() | st.floats(min_value=-40, max_value=120)),
        lost_after_s=draw(st.none() | _POSITIVE),
        foreign_from_s=start_s,
        foreign_to_s=None if start_s is None else start_s + draw(_POSITIVE),
        counter_reset_s=draw(st.none() | _POSITIVE),
    )


@given(_options())
def test_the_canonical_string_means_the_same_options(options: VirtualOptions) -> None:
    assert parse_device(options.spec) == options


@pytest.mark.parametrize(
    ("device", "field"),
    [
        ("virtual:", "device"),
        ("virtual", "device"),
        ("nvml:0", "device"),
        ("", "device"),
        ("virtual:rtx3080ti,colour=red", "colour"),
        ("virtual:rtx3080ti,", "device"),
        ("virtual:rtx3080ti,seed", "seed"),
        ("virtual:rtx3080ti,seed=", "seed"),
        ("virtual:rtx3080ti,seed=1.5", "seed"),
        ("virtual:rtx3080ti,seed=1,seed=2", "seed"),
        ("virtual:rtx3080ti,noise=loud", "noise"),
        ("virtual:rtx3080ti,noise=-1", "noise"),
        ("virtual:rtx3080ti,noise=nan", "noise"),
        ("virtual:rtx3080ti,noise=1e999", "noise"),
        ("virtual:rtx3080ti,shift=120%", "shift"),
        ("virtual:rtx3080ti,gain=-2%", "gain"),
        ("virtual:rtx3080ti,control=maybe", "control"),
        ("virtual:rtx3080ti,lag=-1", "lag"),
        ("virtual:rtx3080ti,lag=20min", "lag"),
        ("virtual:rtx3080ti,lag=inf", "lag"),
        ("virtual:rtx3080ti,stall=-1ms", "stall"),
        ("virtual:rtx3080ti,stall=1ms,stall_power=-3", "stall_power"),
        ("virtual:rtx3080ti,stall=1ms,stall_power=60kW", "stall_power"),
        ("virtual:rtx3080ti,stall_power=60", "stall_power"),
        ("virtual:rtx3080ti,transition=warp", "transition"),
        ("virtual:rtx3080ti,transition=hopper,lag=1ms", "lag"),
        ("virtual:rtx3080ti,transition=hopper,stall=1ms", "stall"),
        ("virtual:rtx3080ti,counter_period=0", "counter_period"),
        ("virtual:rtx3080ti,ambient=999", "ambient"),
        ("virtual:rtx3080ti,ambient=-300", "ambient"),
        ("virtual:rtx3080ti,lost_after=soon", "lost_after"),
        ("virtual:rtx3080ti,foreign=5", "foreign"),
        ("virtual:rtx3080ti,foreign=9..5", "foreign"),
        ("virtual:rtx3080ti,foreign=5..1e999", "foreign"),
        ("virtual:rtx3080ti,counter_reset=x", "counter_reset"),
    ],
)
def test_a_wrong_string_is_refused_with_its_field_and_a_hint(device: str, field: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_device(device)
    assert caught.value.field == field
    assert caught.value.hint


def test_an_unknown_option_names_the_known_ones() -> None:
    with pytest.raises(InputError) as caught:
        parse_device("virtual:rtx3080ti,colour=red")
    assert all(name in str(caught.value.hint) for name in OPTIONS)


def test_an_unknown_preset_names_the_known_ones() -> None:
    with pytest.raises(InputError, match="gtx9") as caught:
        open_virtual("virtual:gtx9", [])
    assert "rtx3080ti" in str(caught.value.hint)


def test_only_the_prefix_decides_whether_a_device_is_virtual() -> None:
    actual = [
        is_virtual(d) for d in ("virtual:x", "virtual", " virtual : x", "nvml:0", "virtually")
    ]
    assert actual == [True, True, True, False, False]


def test_noise_levels_scale_and_single_parts_can_be_set() -> None:
    assert parse_device("virtual:x,noise=2").noise_level == DEFAULT_NOISE.scaled(2.0)
    assert parse_device("virtual:x,noise=stress").noise_level == STRESS_NOISE
    quiet_but_shifted = parse_device("virtual:x,noise=0,shift=1%").noise_level
    assert quiet_but_shifted.run_shift_ratio == 0.01
    assert quiet_but_shifted.energy_ratio == 0.0


@pytest.mark.parametrize(
    "option", ["noise=1e300", "lag=1e300", "stall=1e300", "lost_after=1e300", "noise=101"]
)
def test_values_beyond_all_arithmetic_are_refused(option: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_device(f"virtual:rtx3080ti,{option}")

    assert option.partition("=")[0] == caught.value.field
