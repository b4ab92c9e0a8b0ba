"""What every device owes where it has fewer meters than a discrete GPU, and settings to read back."""

from __future__ import annotations

import math

import pytest

from joulewise.domain.errors import NotSupported
from joulewise.domain.points import OperatingPoint, Touched
from joulewise.domain.ports import ReadBackGpu
from joulewise.domain.session import DeviceSession

KNOBS = frozenset({"sm_clock_mhz", "mem_clock_mhz"})


def _low_point(session: DeviceSession) -> OperatingPoint:
    grid = session.gpu.clock_grid()
    mem = grid.mem_clocks_mhz[-1] if len(grid.mem_clocks_mhz) > 1 else None
    return OperatingPoint(sm_clock_mhz=grid.sm_clocks_mhz[1], mem_clock_mhz=mem)


def test_a_device_without_an_energy_counter_says_so_and_never_tells_an_energy(
    session: DeviceSession,
) -> None:
    gpu = session.gpu
    if gpu.energy_counter_period_s is not None:
        assert gpu.energy_counter_period_s > 0
        assert gpu.sample().energy_j is not None
        return
    with session.runner.loop("compute", run="contract") as loop:
        loop.run_for(2.0)
        sample = gpu.sample()
    assert sample.energy_j is None
    assert sample.power_w is not None
    with pytest.raises(NotSupported, match="energy counter"):
        gpu.wait_for_energy_tick(1.0)


def test_a_device_without_a_power_limit_says_so_and_takes_none(session: DeviceSession) -> None:
    gpu = session.gpu
    if gpu.clock_grid().power_limits is not None:
        pytest.skip("this device has a power limit that can be set")
    before = gpu.knob_state()
    assert before.power_limit_w is None
    assert gpu.sample().power_limit_w is None
    with pytest.raises(NotSupported, match="power limit"):
        gpu.request(OperatingPoint(power_limit_w=20.0))
    assert gpu.knob_state() == before


@pytest.mark.parametrize("kernel", ["compute", "memory"])
def test_power_is_the_sum_of_the_rails_that_are_counted(
    session: DeviceSession, kernel: str
) -> None:
    with session.runner.loop(kernel, run="contract") as loop:
        loop.run_for(2.0)
        sample = session.gpu.sample()
    if not sample.rails:
        pytest.skip("this device tells of no rails")
    counted_w = math.fsum(rail.power_w for rail in sample.rails if rail.is_counted)
    assert counted_w == pytest.approx(sample.power_w)
    assert len({rail.rail for rail in sample.rails}) == len(sample.rails)
    assert min(rail.power_w for rail in sample.rails) > 0
    # None that is not counted carries more than the module.
    assert max(rail.power_w for rail in sample.rails) <= counted_w * 1.001


def test_a_gpu_at_work_is_busy_where_the_device_tells(session: DeviceSession) -> None:
    idle = session.gpu.sample().busy_ratio
    with session.runner.loop("compute", run="contract") as loop:
        loop.run_for(2.0)
        busy = session.gpu.sample().busy_ratio
    if busy is None:
        assert idle is None
        return
    assert idle == 0.0
    assert 0.5 < busy <= 1.0


def test_settings_that_read_back_go_back_as_found(session: DeviceSession) -> None:
    gpu = session.gpu
    found = gpu.knob_state()
    if not found.settings:
        assert not isinstance(gpu, ReadBackGpu)
        pytest.skip("clocks of this device cannot be read back")
    assert isinstance(gpu, ReadBackGpu)
    gpu.request(_low_point(session))
    changed = gpu.knob_state()
    assert {one.knob for one in changed.settings} <= KNOBS
    assert changed != found
    gpu.reset(Touched(knobs=KNOBS, found=found))
    # A memory clock that is nobody's goes where the board wants it, and takes its time.
    gpu.wait(0.1)
    assert gpu.knob_state() == found


def test_a_board_in_its_stock_state_is_not_stock_while_it_is_pinned(
    session: DeviceSession,
) -> None:
    gpu = session.gpu
    if not isinstance(gpu, ReadBackGpu):
        pytest.skip("clocks of this device cannot be read back")
    assert gpu.board_state().off_stock is None
    point = _low_point(session)
    session.gpu.request(point)
    state = gpu.board_state()
    assert state.sm_clock_min_mhz == state.sm_clock_max_mhz == point.sm_clock_mhz
    assert state.mem_clock_locked_mhz == point.mem_clock_mhz
    assert "pinned" in (state.off_stock or "")
    session.gpu.reset()
    assert gpu.board_state().off_stock is None
