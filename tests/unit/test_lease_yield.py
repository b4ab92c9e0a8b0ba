"""A clock that somebody else has taken over is left alone, at the end and before."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.watched_gpu import WatchedGpu, journal_of

from joulewise.control.journal import is_left, read_journal
from joulewise.control.lease import hold
from joulewise.domain.points import OperatingPoint

BOTH = OperatingPoint(sm_clock_mhz=1200, mem_clock_mhz=9501)
LOW = OperatingPoint(sm_clock_mhz=1200)


def journalled(gpu: WatchedGpu, folder: Path) -> tuple[str, ...]:
    entry = read_journal(journal_of(gpu, folder))
    return () if entry is None else entry.touched


def test_a_yielded_clock_is_not_in_the_journal_and_not_given_back(tmp_path: Path) -> None:
    gpu = WatchedGpu()
    with hold(gpu, state_dir=tmp_path) as lease:
        lease.apply(BOTH)
        lease.yield_knob("sm_clock_mhz")
        assert journalled(gpu, tmp_path) == ("mem_clock_mhz",)
        assert lease.touched.knobs == {"mem_clock_mhz"}
    (given_back,) = gpu.given_back
    assert given_back is not None
    assert given_back.knobs == {"mem_clock_mhz"}
    assert not is_left(journal_of(gpu, tmp_path))


def test_with_every_clock_yielded_nothing_is_left_to_give_back(tmp_path: Path) -> None:
    gpu = WatchedGpu()
    with hold(gpu, state_dir=tmp_path) as lease:
        lease.apply(LOW)
        for _ in range(2):
            lease.yield_knob("sm_clock_mhz")
        assert not is_left(journal_of(gpu, tmp_path))
    assert gpu.touches == ["1200/auto"]


def test_other_knobs_can_be_set_beside_a_yielded_clock(tmp_path: Path) -> None:
    """The device hears the clock as it was asked last, which it leaves as it is."""
    gpu = WatchedGpu()
    with hold(gpu, state_dir=tmp_path) as lease:
        lease.apply(LOW)
        lease.yield_knob("sm_clock_mhz")
        lease.apply(OperatingPoint(power_limit_w=200.0))
        # Nothing else is asked for, so there is nothing to ask.
        lease.apply(OperatingPoint(power_limit_w=200.0))
        assert journalled(gpu, tmp_path) == ("power_limit_w",)
    assert gpu.touches[:2] == ["1200/auto", "1200/auto@200W"]
    assert gpu.touches[2:] == ["reset", "sample"]


def test_a_yielded_clock_that_is_asked_for_again_is_taken_again(tmp_path: Path) -> None:
    gpu = WatchedGpu()
    with hold(gpu, state_dir=tmp_path) as lease:
        lease.apply(LOW)
        lease.yield_knob("sm_clock_mhz")
        lease.apply(LOW)
        assert journalled(gpu, tmp_path) == ("sm_clock_mhz",)
    assert gpu.touches == ["1200/auto", "1200/auto", "reset", "sample"]
    assert gpu.given_back == [None]


def test_what_was_never_touched_or_is_over_needs_no_yielding(tmp_path: Path) -> None:
    gpu = WatchedGpu()
    with hold(gpu, state_dir=tmp_path) as lease:
        lease.apply(LOW)
        lease.yield_knob("mem_clock_mhz")
        assert journalled(gpu, tmp_path) == ("sm_clock_mhz",)
    lease.yield_knob("sm_clock_mhz")
    assert gpu.given_back == [None]


def test_a_power_limit_is_not_yielded_for_it_can_be_read(tmp_path: Path) -> None:
    with (
        hold(WatchedGpu(), state_dir=tmp_path) as lease,
        pytest.raises(ValueError, match="'power_limit_w' is no clock"),
    ):
        lease.yield_knob("power_limit_w")
