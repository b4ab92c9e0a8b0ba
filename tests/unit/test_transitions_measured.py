"""Transition models measured on virtual boards whose costs are known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from joulewise.control.lease import hold
from joulewise.domain.errors import InputError, MeasurementError, NotPermitted
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.ports import GpuIdentity
from joulewise.domain.transition import TransitionCost, TransitionDomain, TransitionModel
from joulewise.domain.workload import Dtype, KernelKind, KernelWork
from joulewise.measure.change_accounts import MeasuredChange
from joulewise.measure.settings import MeasureSettings
from joulewise.measure.transitions import measure_changes, measure_transitions, model_of
from joulewise.simulator.presets import preset
from joulewise.simulator.virtual import open_virtual

KERNEL = "copy"
WORKS = (
    KernelWork(
        kernel=KERNEL,
        kind=KernelKind.OTHER,
        dtype=Dtype.FP16,
        flop_count=1e8,
        traffic_bytes=1e8,
        compute_efficiency_ratio=0.6,
        memory_efficiency_ratio=0.8,
        core_activity_ratio=0.9,
        memory_activity_ratio=0.5,
    ),
)
SLOW = OperatingPoint(sm_clock_mhz=840, mem_clock_mhz=9501)
FAST = OperatingPoint(sm_clock_mhz=1155, mem_clock_mhz=9501)
LOW_MEMORY = OperatingPoint(sm_clock_mhz=840, mem_clock_mhz=5001)
FASTER = OperatingPoint(sm_clock_mhz=1500, mem_clock_mhz=9501)
SETTINGS = MeasureSettings(window_count=5)
A_GPU = GpuIdentity(spec="gpu:0", name="a GPU", uuid="GPU-0", is_simulated=False)


def _measure(
    options: str, state_dir: Path, points: tuple[OperatingPoint, ...] = (SLOW, FAST)
) -> TransitionModel:
    session = open_virtual(f"virtual:rtx3080ti,{options}", WORKS)
    with hold(session.gpu, state_dir=state_dir) as lease:
        model, _ = measure_transitions(session, lease, KERNEL, points, settings=SETTINGS)
    return model


def test_without_noise_lag_stall_and_energy_of_every_domain_are_found(tmp_path: Path) -> None:
    model = _measure("noise=0,stall=1ms,lag=5ms", tmp_path, (SLOW, FAST, LOW_MEMORY))
    assert (model.device_name, model.is_simulated) == (preset("rtx3080ti").name, True)
    targets = {(cost.domain, cost.target and cost.target.label) for cost in model.costs}
    assert targets == {
        *((TransitionDomain.SM, label) for label in ("840/auto", "1155/auto", None)),
        *((TransitionDomain.MEMORY, label) for label in ("auto/9501", "auto/5001", None)),
        *((TransitionDomain.BOTH, label) for label in ("1155/9501", "840/5001", None)),
    }
    for cost in model.costs:
        assert cost.lag_s == pytest.approx(0.005, rel=0.02)
        assert cost.stall_s == pytest.approx(0.001, rel=0.001)
        assert cost.energy_j == pytest.approx(0.06, rel=0.05)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_with_noise_lag_and_stall_are_found_within_a_few_per_cent(
    seed: int, tmp_path: Path
) -> None:
    """A window scatters by 0.05 %, a point is held for 12 ms: 8 µs of a stall of 1 ms."""
    cost = _measure(f"seed={seed},stall=1ms,lag=5ms", tmp_path).costs[-1]
    assert cost.lag_s == pytest.approx(0.005, rel=0.02)
    assert cost.stall_s == pytest.approx(0.001, rel=0.03)


def test_a_stall_of_turing_is_found_too(tmp_path: Path) -> None:
    cost = _measure("noise=0,transition=turing", tmp_path).costs[-1]
    assert cost.lag_s == 0.0
    assert cost.stall_s == pytest.approx(0.15, rel=0.001)
    assert cost.energy_j == pytest.approx(9.0, rel=0.01)


@pytest.mark.parametrize("stall_s", [0.6, 2.0, 9.0])
def test_a_stall_longer_than_a_hold_is_not_cut_off(stall_s: float, tmp_path: Path) -> None:
    cost = _measure(f"noise=0,stall={stall_s}s", tmp_path).costs[-1]

    assert cost.stall_s == pytest.approx(stall_s, rel=0.001)
    assert cost.energy_j == pytest.approx(60 * stall_s, rel=0.01)


def test_a_stall_too_long_to_be_measured_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match="does nothing for longer"):
        _measure("noise=0,stall=1000s", tmp_path)


@pytest.mark.parametrize("seed", range(1, 9))
def test_noise_that_a_long_lag_brings_is_not_taken_for_a_stall(seed: int, tmp_path: Path) -> None:
    """What may hide in it is charged, and is never less than the truth."""
    model = _measure(f"seed={seed},stall=20us,lag=200ms", tmp_path)

    for cost in model.costs:
        assert 20e-6 <= cost.stall_s + cost.unseen_stall_s < 2e-3
        assert cost.energy_j < 0.3
    assert "no stall seen, below" in model.source


@pytest.mark.parametrize("options", ["noise=0", "seed=1"])
def test_what_is_too_short_to_be_seen_is_zero_and_said_to_be(options: str, tmp_path: Path) -> None:
    model = _measure(options, tmp_path)
    cost = model.costs[-1]
    assert cost.lag_s == pytest.approx(0.01, rel=0.02)
    assert (cost.stall_s, cost.energy_j) == (0.0, 0.0)
    assert "no stall seen, below" in model.source
    assert "no energy seen, below" in model.source
    assert "memory: not measured" in model.source


def test_an_energy_lost_in_the_noise_is_taken_from_the_power_without_load(
    tmp_path: Path,
) -> None:
    model = _measure("seed=1,stall=1ms,stall_power=1W,lag=20ms", tmp_path)
    cost = model.costs[-1]
    assert "taken as the stall at" in model.source
    assert 20 < cost.energy_j / cost.stall_s < 120


def test_every_target_has_a_lag_of_its_own(tmp_path: Path) -> None:
    """Where a change leads matters more than where it begins (arXiv 2502.20075)."""
    lags_s = {SLOW: 0.004, FAST: 0.03, FASTER: 0.012}
    truth = TransitionModel(
        name="by target",
        source="made up",
        costs=(
            TransitionCost(domain=TransitionDomain.SM, lag_s=0.01),
            *(
                TransitionCost(domain=TransitionDomain.SM, target=target, lag_s=lag_s)
                for target, lag_s in lags_s.items()
            ),
        ),
    )
    session = open_virtual("virtual:rtx3080ti,noise=0", WORKS, truth)
    with hold(session.gpu, state_dir=tmp_path) as lease:
        model, changes = measure_transitions(
            session, lease, KERNEL, tuple(lags_s), settings=SETTINGS
        )

    assert 6 == len(changes)
    for cost in model.costs:
        wanted_s = max(lags_s.values()) if cost.target is None else None
        for target, lag_s in lags_s.items():
            if cost.target and cost.target.sm_clock_mhz == target.sm_clock_mhz:
                wanted_s = lag_s
        assert cost.lag_s == pytest.approx(wanted_s, rel=0.02)
        assert cost.stall_s == 0.0


def test_measuring_again_gives_the_same(tmp_path: Path) -> None:
    options = "seed=1,stall=1ms,lag=5ms"
    assert _measure(options, tmp_path) == _measure(options, tmp_path)


def test_fewer_than_two_points_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least two points"):
        _measure("noise=0", tmp_path, (SLOW, SLOW))


def test_clocks_that_read_alike_show_no_change(tmp_path: Path) -> None:
    """Left to the driver, or set to what it takes by itself: the board does the same."""
    top = OperatingPoint(mem_clock_mhz=9501)
    with pytest.raises(MeasurementError, match="read alike"):
        _measure("noise=0", tmp_path, (AUTO, top))


def test_without_rights_nothing_is_measured(tmp_path: Path) -> None:
    with pytest.raises(NotPermitted):
        _measure("noise=0,control=denied", tmp_path)


def test_an_unknown_kernel_is_refused(tmp_path: Path) -> None:
    session = open_virtual("virtual:rtx3080ti", WORKS)
    with (
        hold(session.gpu, state_dir=tmp_path) as lease,
        pytest.raises(InputError, match="nothing"),
    ):
        measure_changes(session, lease, "nothing", (SLOW, FAST), settings=SETTINGS)


def _change(
    stall_s: float,
    least_s: float,
    lag_s: float = 0.01,
    *,
    after: OperatingPoint = FAST,
    call_s: float = 0.0,
) -> MeasuredChange:
    return MeasuredChange(
        domain=TransitionDomain.SM,
        before=SLOW,
        after=after,
        call_s=call_s,
        worst_call_s=2 * call_s,
        lag_s=lag_s,
        worst_lag_s=2 * lag_s,
        stall_s=stall_s,
        stall_std_s=least_s / 3,
        stall_least_s=least_s,
        energy_j=0.0,
        energy_std_j=0.01,
        energy_least_j=0.03,
    )


def test_the_model_holds_the_largest_of_what_was_seen() -> None:
    changes = [_change(0.002, 0.001), _change(0.003, 0.001, lag_s=0.02), _change(0.004, 0.0001)]
    changes[2] = replace(changes[2], stall_s=0.00005)
    model = model_of(changes, A_GPU, stall_power_w=50.0)
    for cost in model.costs:
        assert (cost.stall_s, cost.lag_s) == (0.003, 0.02)
        assert cost.energy_j == pytest.approx(0.15)
    assert (model.device_name, model.is_simulated) == ("a GPU", False)


def test_a_stall_that_may_hide_in_the_noise_is_taken_to_be_there() -> None:
    (cost, *_) = model_of([_change(0.0002, 0.005)], A_GPU, stall_power_w=50.0).costs

    assert (cost.stall_s, cost.unseen_stall_s) == (0.005, 0.0)
    assert cost.energy_j == pytest.approx(0.25)


def test_what_is_not_counted_is_kept_and_said() -> None:
    model = model_of([_change(0.00002, 0.00008)], A_GPU, stall_power_w=50.0)

    for cost in model.costs:
        assert (cost.stall_s, cost.energy_j) == (0.0, 0.0)
        assert (cost.unseen_stall_s, cost.unseen_energy_j) == (0.00008, 0.03)
    assert "no stall seen, below 0.08 ms" in model.source


def test_every_target_has_what_was_measured_of_it_and_the_rest_the_largest() -> None:
    """Targets that were not measured are never taken to cost less than any that was."""
    changes = [_change(0.002, 0.001), _change(0.004, 0.001, lag_s=0.02, after=FASTER)]
    changes.append(replace(changes[0], before=FAST, after=SLOW, lag_s=0.03))
    model = model_of(changes, A_GPU, stall_power_w=50.0)

    # Of an SM target only the SM clock counts, at whatever memory clock.
    start = OperatingPoint(sm_clock_mhz=600, mem_clock_mhz=5001)
    other = OperatingPoint(sm_clock_mhz=1890, mem_clock_mhz=5001)
    costs = [
        model.cost(start, replace(target, mem_clock_mhz=5001))
        for target in (FAST, FASTER, SLOW, other)
    ]
    assert [(0.002, 0.01), (0.004, 0.02), (0.002, 0.03), (0.004, 0.03)] == [
        (cost.stall_s, cost.lag_s) for cost in costs if cost is not None
    ]
    assert [False, False, False, True] == [
        cost.target is None for cost in costs if cost is not None
    ]
    assert model.cost(SLOW, LOW_MEMORY) is None


def test_a_model_of_no_changes_is_refused() -> None:
    with pytest.raises(MeasurementError, match="at least one"):
        model_of((), A_GPU, stall_power_w=None)


def test_no_request_may_follow_sooner_than_the_longest_call_took() -> None:
    """`_change` takes the worst call to be twice the middle one."""
    changes = [_change(0.002, 0.001, call_s=0.004), _change(0.002, 0.001, call_s=0.005)]

    assert 0.01 == model_of(changes, A_GPU, stall_power_w=None).dwell_s
    assert 0.0 == model_of([_change(0.002, 0.001)], A_GPU, stall_power_w=None).dwell_s
