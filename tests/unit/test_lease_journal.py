"""What a lease writes down before it touches a GPU, and what is given back by it."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.watched_gpu import WatchedGpu, journal_of, left_behind, within_lease

from joulewise.control.holder import mark_of, this_process
from joulewise.control.journal import JournalEntry, read_journal
from joulewise.control.lease import hold
from joulewise.control.state import lock_file
from joulewise.domain.errors import DeviceError, InputError, NotSupported
from joulewise.domain.points import AUTO, KnobState, OperatingPoint, Touched
from joulewise.domain.ports import Lease

LOW = OperatingPoint(sm_clock_mhz=1200)
BOTH = OperatingPoint(sm_clock_mhz=1200, mem_clock_mhz=9501)
LIMITED = OperatingPoint(power_limit_w=200.0)


def _apply_low(lease: Lease) -> None:
    lease.apply(LOW)


def test_the_journal_is_on_disk_before_the_device_hears_of_it(tmp_path: Path) -> None:
    gpu = WatchedGpu()
    seen: list[JournalEntry | None] = []

    class LookingGpu(WatchedGpu):
        def request(self, point: OperatingPoint) -> None:
            seen.append(read_journal(journal_of(self, tmp_path)))
            super().request(point)

    gpu = LookingGpu()
    with hold(gpu, state_dir=tmp_path) as lease:
        assert not journal_of(gpu, tmp_path).exists()
        lease.apply(LOW)
        lease.apply(BOTH)
    touched = [None if entry is None else entry.touched for entry in seen]
    assert touched == [("sm_clock_mhz",), ("mem_clock_mhz", "sm_clock_mhz")]
    assert seen[0] is not None
    assert seen[0].holder == this_process().text
    assert not journal_of(gpu, tmp_path).exists()


def test_every_power_limit_is_on_disk_before_the_device_hears_of_it(tmp_path: Path) -> None:
    seen: list[tuple[float, ...] | None] = []

    class LookingGpu(WatchedGpu):
        def request(self, point: OperatingPoint) -> None:
            entry = read_journal(journal_of(self, tmp_path))
            assert entry is not None
            assert KnobState(power_limit_w=350.0) == entry.found
            seen.append(entry.asked_limits_w)
            super().request(point)

    with hold(LookingGpu(), state_dir=tmp_path) as lease:
        for limit_w in (200.0, 300.0, 200.0):
            lease.apply(OperatingPoint(power_limit_w=limit_w))
    assert seen == [(200.0,), (200.0, 300.0), (200.0, 300.0)]


def test_points_that_touch_nothing_leave_nothing_to_give_back(tmp_path: Path) -> None:
    gpu = WatchedGpu()
    with hold(gpu, state_dir=tmp_path) as lease:
        lease.apply(AUTO)
        assert not journal_of(gpu, tmp_path).exists()
    assert gpu.touches == ["auto/auto"]


def test_the_device_itself_says_what_it_took_of_what_was_asked_for(tmp_path: Path) -> None:
    """A refused memory clock is no reason to reset a memory lock of somebody else."""
    gpu = WatchedGpu()
    unlisted = OperatingPoint(mem_clock_mhz=1)
    with pytest.raises(NotSupported):
        within_lease(gpu, tmp_path, lambda lease: lease.apply(unlisted))
    assert gpu.given_back == [None]


def test_the_limit_found_is_the_one_before_each_touch_and_not_before_the_lease(
    tmp_path: Path,
) -> None:
    """A virtual limit of 350 W that an administrator lowers while it is left to the driver."""

    class LoweredGpu(WatchedGpu):
        found_w = 350.0
        limit_w: float | None = None

        def request(self, point: OperatingPoint) -> None:
            super().request(point)
            self.limit_w = point.power_limit_w

        def knob_state(self) -> KnobState:
            return KnobState(power_limit_w=self.limit_w or self.found_w)

    gpu = LoweredGpu()
    founds = []
    with hold(gpu, state_dir=tmp_path) as lease:
        for found_w, point in ((350.0, LOW), (300.0, LIMITED), (250.0, AUTO), (250.0, LIMITED)):
            gpu.found_w = found_w
            lease.apply(point)
            entry = read_journal(journal_of(gpu, tmp_path))
            assert entry is not None
            founds.append(entry.found and entry.found.power_limit_w)
        lease.apply(AUTO)
    assert founds == [None, 300.0, 300.0, 250.0]


def test_only_what_the_journal_names_is_given_back(tmp_path: Path) -> None:
    gpu = WatchedGpu(is_shared=True)
    left_behind(gpu, tmp_path)
    with hold(gpu, state_dir=tmp_path):
        pass
    assert gpu.given_back == [Touched(knobs=frozenset({"sm_clock_mhz"}))]


def test_a_journal_of_an_older_joulewise_is_read_and_undone(tmp_path: Path) -> None:
    gpu = WatchedGpu(is_shared=True)
    journal = left_behind(gpu, tmp_path)
    fields = json.loads(journal.read_text(encoding="utf-8"))
    del fields["asked_limits_w"]
    fields |= {"touched": ["power_limit_w"], "found": {"power_limit_w": 300.0}}
    journal.write_text(json.dumps(fields), encoding="utf-8")
    with hold(gpu, state_dir=tmp_path):
        pass
    knobs, found = frozenset({"power_limit_w"}), KnobState(power_limit_w=300.0)
    assert gpu.given_back == [Touched(knobs=knobs, found=found, asked_limits_w=None)]
    assert not journal.exists()


class StubbornGpu(WatchedGpu):
    """A GPU whose power limit reads 350 W until it is touched, and then this."""

    left_w = 350.0

    def knob_state(self) -> KnobState:
        return KnobState(power_limit_w=self.left_w if {*self.touches} - {"reset"} else 350.0)


def test_a_limit_that_is_left_as_it_was_asked_for_is_an_error(tmp_path: Path) -> None:
    gpu = StubbornGpu(is_shared=True)
    gpu.left_w = 200.0
    with pytest.raises(DeviceError, match="is 200 W, and it was 350 W before"):
        within_lease(gpu, tmp_path, lambda lease: lease.apply(LIMITED))
    assert journal_of(gpu, tmp_path).exists()


@pytest.mark.parametrize("left_w", [250.0, 350.0, 400.0])
def test_a_limit_that_somebody_else_set_is_none(left_w: float, tmp_path: Path) -> None:
    gpu = StubbornGpu(is_shared=True)
    gpu.left_w = left_w
    within_lease(gpu, tmp_path, lambda lease: lease.apply(LIMITED))
    assert not journal_of(gpu, tmp_path).exists()


def test_a_device_whose_journal_cannot_be_written_is_not_asked(tmp_path: Path) -> None:
    gpu = WatchedGpu()
    with pytest.raises(InputError):
        within_lease(gpu, tmp_path, lambda _lease: journal_of(gpu, tmp_path).mkdir(), _apply_low)
    assert gpu.touches == []


def test_what_a_killed_holder_left_is_undone_once(tmp_path: Path) -> None:
    gpu = WatchedGpu(is_shared=True)
    journal = left_behind(gpu, tmp_path)
    for _ in range(2):
        with hold(gpu, state_dir=tmp_path):
            assert gpu.touches == ["reset", "sample"]
    assert not journal.exists()


def test_a_journal_that_cannot_be_read_is_undone_too(tmp_path: Path) -> None:
    gpu = WatchedGpu(is_shared=True)
    journal_of(gpu, tmp_path).write_text('{"schema_version": 1, "dev', encoding="utf-8")
    with hold(gpu, state_dir=tmp_path):
        assert gpu.touches == ["reset", "sample"]


def test_the_journal_says_what_it_is(tmp_path: Path) -> None:
    gpu = WatchedGpu()
    with hold(gpu, state_dir=tmp_path) as lease:
        lease.apply(BOTH)
        lease.apply(LIMITED)
        lease.apply(replace(LIMITED, power_limit_w=250.0))
        lease.apply(LIMITED)
        fields = json.loads(journal_of(gpu, tmp_path).read_text(encoding="utf-8"))
        found = lock_file(gpu.identity, tmp_path).stat()
        lock = f"{found.st_dev}:{found.st_ino}"
    assert fields == {
        "schema_version": 1,
        "device": "virtual:rtx3080ti",
        "device_name": gpu.identity.name,
        "uuid": gpu.identity.uuid,
        "holder": this_process().text,
        "touched": ["mem_clock_mhz", "power_limit_w", "sm_clock_mhz"],
        "found": {"power_limit_w": 350.0},
        "asked_limits_w": [200.0, 250.0],
        "author": mark_of(os.getpid()),
        "lock": lock,
    }
