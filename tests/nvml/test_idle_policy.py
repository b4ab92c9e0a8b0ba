"""The idle policy fed with what NVML tells, under a real lease."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fake_nvml import DriverMaker

from joulewise.control.idle import LOWERED_SAMPLE_PERIOD_S, IdleAct, IdlePolicy
from joulewise.control.lease import hold
from joulewise.device.nvml_gpu import NvmlGpu, open_nvml
from joulewise.simulator.fake_driver import FakeDriver, FakeKernel

AFTER_S = 60.0
KERNEL = FakeKernel(
    compute_cycle_count=0.017,
    memory_bytes=1e9,
    core_j=0.5,
    memory_j=0.1,
    set_point_ratio=1.0,
    overlap_exponent_ratio=3.0,
)


def looks(driver: FakeDriver, gpu: NvmlGpu, policy: IdlePolicy, count: int) -> list[IdleAct]:
    """Look so often, as often as one has to, and say what was to be done each time."""
    acts = []
    for _ in range(count):
        driver.timer.sleep(LOWERED_SAMPLE_PERIOD_S if policy.is_lowered else 1.0)
        acts.append(policy.feed(gpu.sample(), now_s=gpu.now_s(), is_leased=False))
    return acts


@pytest.mark.parametrize("profile", ["rtx3080ti", "h100-sxm"])
def test_a_gpu_is_lowered_while_it_idles_and_given_back_at_the_first_look_under_load(
    profile: str, make_driver: DriverMaker, tmp_path: Path
) -> None:
    driver = make_driver(profile)
    gpu = open_nvml("nvml:0", timer=driver.timer)
    policy = IdlePolicy(after_s=AFTER_S, grid=gpu.clock_grid())
    driver.run(0, [(driver.add_kernel(0, KERNEL), 1)])
    assert {IdleAct.NOTHING} == set(looks(driver, gpu, policy, 100))
    clock_mhz = driver.true_sm_clock_mhz(0)
    driver.run(0, [])

    acts = looks(driver, gpu, policy, 70)
    assert 60 <= acts.index(IdleAct.LOWER) <= 63
    with hold(gpu, state_dir=tmp_path) as lease:
        lease.apply(policy.point)
        assert {IdleAct.NOTHING} == set(looks(driver, gpu, policy, 100))
        assert gpu.clock_grid().sm_clocks_mhz[0] == driver.true_locks(0).sm_max_mhz
        driver.run(0, [(driver.add_kernel(0, KERNEL), 1)])
        assert [IdleAct.GIVE_BACK] == looks(driver, gpu, policy, 1)

    driver.timer.sleep(10.0)
    assert driver.true_locks(0).sm_max_mhz is None
    assert clock_mhz == pytest.approx(driver.true_sm_clock_mhz(0), rel=0.02)
