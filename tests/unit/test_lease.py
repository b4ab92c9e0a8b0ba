from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from joulewise.control.journal import JournalEntry, read_journal, write_journal
from joulewise.control.lease import hold
from joulewise.control.state import default_state_dir, state_file
from joulewise.domain.errors import (
    BusyError,
    DeviceError,
    DeviceLost,
    InputError,
    NotPermitted,
    NotSupported,
)
from joulewise.domain.measurement import GpuSample
from joulewise.domain.points import AUTO, ClockGrid, KnobState, OperatingPoint, Touched
from joulewise.domain.ports import Gpu, Lease
from joulewise.simulator.virtual import open_virtual

LOW = OperatingPoint(sm_clock_mhz=1200)
BOTH = OperatingPoint(sm_clock_mhz=1200, mem_clock_mhz=9501)
LIMITED = OperatingPoint(power_limit_w=200.0)
posix_only = pytest.mark.skipif(os.name != "posix", reason="signals of Unix")


class WatchedGpu:
    """A virtual GPU that notes every touch; `is_shared` lets other processes reach it."""

    def __init__(self, device: str = "virtual:rtx3080ti", *, is_shared: bool = False) -> None:
        self._gpu: Gpu = open_virtual(device, []).gpu
        self.touches: list[str] = []
        self.given_back: list[Touched | None] = []
        self.refusal: DeviceError | None = None
        self.identity = replace(self._gpu.identity, is_in_process=not is_shared)

    @property
    def energy_counter_period_s(self) -> float | None:
        return self._gpu.energy_counter_period_s

    def clock_grid(self) -> ClockGrid:
        return self._gpu.clock_grid()

    def knob_state(self) -> KnobState:
        return self._gpu.knob_state()

    def sample(self) -> GpuSample:
        self.touches.append("sample")
        return self._gpu.sample()

    def now_s(self) -> float:
        return self._gpu.now_s()

    def clocks_mhz(self) -> tuple[int | None, int | None]:
        return self._gpu.clocks_mhz()

    def wait_for_energy_tick(self, timeout_s: float) -> GpuSample:
        return self._gpu.wait_for_energy_tick(timeout_s)

    def wait(self, duration_s: float) -> None:
        self._gpu.wait(duration_s)

    def request(self, point: OperatingPoint) -> None:
        self.touches.append(point.label)
        self._gpu.request(point)

    def reset(self, touched: Touched | None = None) -> None:
        self.touches.append("reset")
        self.given_back.append(touched)
        if self.refusal is not None:
            raise self.refusal
        self._gpu.reset(touched)


def _within_lease(gpu: WatchedGpu, state_dir: Path, *steps: Callable[[Lease], object]) -> None:
    with hold(gpu, state_dir=state_dir) as lease:
        for step in steps:
            step(lease)


def _fail(_lease: Lease) -> None:
    raise ZeroDivisionError


def _apply_low(lease: Lease) -> None:
    lease.apply(LOW)


def _journal(gpu: WatchedGpu, state_dir: Path) -> Path:
    return state_file(gpu.identity, state_dir, ".journal.json")


def _left_behind(gpu: WatchedGpu, state_dir: Path) -> Path:
    """A journal as a killed holder leaves it."""
    state_dir.mkdir(exist_ok=True)
    journal = _journal(gpu, state_dir)
    entry = JournalEntry(
        device="d",
        device_name="n",
        uuid=gpu.identity.uuid,
        holder="process 1",
        touched=("sm_clock_mhz",),
    )
    write_journal(journal, entry)
    return journal


def test_taking_and_ending_a_lease_touches_nothing(tmp_path: Path) -> None:
    gpu = WatchedGpu()
    with hold(gpu, state_dir=tmp_path):
        pass
    assert gpu.touches == []


def test_clocks_are_given_back_and_checked_at_the_end(tmp_path: Path) -> None:
    gpu = WatchedGpu()
    with hold(gpu, state_dir=tmp_path) as lease:
        lease.apply(LOW)
        lease.apply(AUTO)
        lease.apply(BOTH)
    assert gpu.touches == ["1200/auto", "auto/auto", "1200/9501", "reset", "sample"]
    assert list(tmp_path.iterdir()) == []


def test_the_journal_is_on_disk_before_the_device_hears_of_it(tmp_path: Path) -> None:
    gpu = WatchedGpu()
    seen: list[JournalEntry | None] = []

    class LookingGpu(WatchedGpu):
        def request(self, point: OperatingPoint) -> None:
            seen.append(read_journal(_journal(self, tmp_path)))
            super().request(point)

    gpu = LookingGpu()
    with hold(gpu, state_dir=tmp_path) as lease:
        assert not _journal(gpu, tmp_path).exists()
        lease.apply(LOW)
        lease.apply(BOTH)
    touched = [None if entry is None else entry.touched for entry in seen]
    assert touched == [("sm_clock_mhz",), ("mem_clock_mhz", "sm_clock_mhz")]
    assert seen[0] is not None
    assert seen[0].holder == f"process {os.getpid()}"
    assert not _journal(gpu, tmp_path).exists()


def test_every_power_limit_is_on_disk_before_the_device_hears_of_it(tmp_path: Path) -> None:
    seen: list[tuple[float, ...] | None] = []

    class LookingGpu(WatchedGpu):
        def request(self, point: OperatingPoint) -> None:
            entry = read_journal(_journal(self, tmp_path))
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
        assert not _journal(gpu, tmp_path).exists()
    assert gpu.touches == ["auto/auto"]


def test_the_device_itself_says_what_it_took_of_what_was_asked_for(tmp_path: Path) -> None:
    """A refused memory clock is no reason to reset a memory lock of somebody else."""
    gpu = WatchedGpu()
    unlisted = OperatingPoint(mem_clock_mhz=1)
    with pytest.raises(NotSupported):
        _within_lease(gpu, tmp_path, lambda lease: lease.apply(unlisted))
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
            entry = read_journal(_journal(gpu, tmp_path))
            assert entry is not None
            founds.append(entry.found and entry.found.power_limit_w)
        lease.apply(AUTO)
    assert founds == [None, 300.0, 300.0, 250.0]


def test_only_what_the_journal_names_is_given_back(tmp_path: Path) -> None:
    gpu = WatchedGpu(is_shared=True)
    _left_behind(gpu, tmp_path)
    with hold(gpu, state_dir=tmp_path):
        pass
    assert gpu.given_back == [Touched(knobs=frozenset({"sm_clock_mhz"}))]


def test_a_journal_of_an_older_joulewise_is_read_and_undone(tmp_path: Path) -> None:
    gpu = WatchedGpu(is_shared=True)
    journal = _left_behind(gpu, tmp_path)
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
        return KnobState(power_limit_w=self.left_w if self.touches else 350.0)


def test_a_limit_that_is_left_as_it_was_asked_for_is_an_error(tmp_path: Path) -> None:
    gpu = StubbornGpu(is_shared=True)
    gpu.left_w = 200.0
    with pytest.raises(DeviceError, match="is 200 W, and it was 350 W before"):
        _within_lease(gpu, tmp_path, lambda lease: lease.apply(LIMITED))
    assert _journal(gpu, tmp_path).exists()


@pytest.mark.parametrize("left_w", [250.0, 350.0, 400.0])
def test_a_limit_that_somebody_else_set_is_none(left_w: float, tmp_path: Path) -> None:
    gpu = StubbornGpu(is_shared=True)
    gpu.left_w = left_w
    _within_lease(gpu, tmp_path, lambda lease: lease.apply(LIMITED))
    assert not _journal(gpu, tmp_path).exists()


def test_a_device_whose_journal_cannot_be_written_is_not_asked(tmp_path: Path) -> None:
    gpu = WatchedGpu()
    with pytest.raises(InputError):
        _within_lease(gpu, tmp_path, lambda _lease: _journal(gpu, tmp_path).mkdir(), _apply_low)
    assert gpu.touches == []


def test_an_error_inside_gives_the_clocks_back_and_goes_on(tmp_path: Path) -> None:
    gpu = WatchedGpu()
    with pytest.raises(ZeroDivisionError):
        _within_lease(gpu, tmp_path, _apply_low, _fail)
    assert gpu.touches == ["1200/auto", "reset", "sample"]
    assert list(tmp_path.iterdir()) == []


def test_release_is_harmless_when_repeated_and_apply_is_refused_after_it(tmp_path: Path) -> None:
    gpu = WatchedGpu()
    with hold(gpu, state_dir=tmp_path) as lease:
        lease.apply(LOW)
        lease.release()
        lease.release()
        with pytest.raises(DeviceError, match="over"):
            lease.apply(LOW)
    assert gpu.touches == ["1200/auto", "reset", "sample"]


def test_a_second_holder_is_told_who_has_it(tmp_path: Path) -> None:
    gpu, other = WatchedGpu(is_shared=True), WatchedGpu(is_shared=True)
    with hold(gpu, state_dir=tmp_path) as lease:
        lease.apply(LOW)
        with (
            pytest.raises(BusyError, match=f"held by process {os.getpid()}"),
            hold(other, state_dir=tmp_path),
        ):
            pass
    assert other.touches == []
    with hold(other, state_dir=tmp_path):
        pass


def test_two_gpus_can_be_held_at_once(tmp_path: Path) -> None:
    gpus = [WatchedGpu(f"virtual:rtx3080ti,seed={seed}") for seed in (1, 2)]
    with hold(gpus[0], state_dir=tmp_path) as one, hold(gpus[1], state_dir=tmp_path) as two:
        one.apply(LOW)
        two.apply(LOW)
    assert [gpu.touches[-2:] for gpu in gpus] == [["reset", "sample"]] * 2


def test_virtual_gpus_of_two_processes_keep_separate_files(tmp_path: Path) -> None:
    virtual, real = WatchedGpu(), WatchedGpu(is_shared=True)
    assert str(os.getpid()) in state_file(virtual.identity, tmp_path, ".lock").name
    assert state_file(real.identity, tmp_path, ".lock").name == f"{real.identity.uuid}.lock"


def test_old_files_of_killed_virtual_gpus_are_cleared_away(tmp_path: Path) -> None:
    gpu = WatchedGpu()
    old, recent = (tmp_path / f"{gpu.identity.uuid}.{pid}.lock" for pid in (1, 2))
    for path in (old, recent):
        path.touch()
    os.utime(old, (0, 0))
    with hold(gpu, state_dir=tmp_path):
        pass
    assert list(tmp_path.iterdir()) == [recent]


def test_what_a_killed_holder_left_is_undone_once(tmp_path: Path) -> None:
    gpu = WatchedGpu(is_shared=True)
    journal = _left_behind(gpu, tmp_path)
    for _ in range(2):
        with hold(gpu, state_dir=tmp_path):
            assert gpu.touches == ["reset", "sample"]
    assert not journal.exists()


def test_a_journal_that_cannot_be_read_is_undone_too(tmp_path: Path) -> None:
    gpu = WatchedGpu(is_shared=True)
    _journal(gpu, tmp_path).write_text('{"schema_version": 1, "dev', encoding="utf-8")
    with hold(gpu, state_dir=tmp_path):
        assert gpu.touches == ["reset", "sample"]


def test_what_cannot_be_undone_is_an_error_and_stays_to_be_undone(tmp_path: Path) -> None:
    gpu = WatchedGpu(is_shared=True)
    journal = _left_behind(gpu, tmp_path)
    gpu.refusal = NotPermitted("not for you")
    with pytest.raises(NotPermitted) as caught, hold(gpu, state_dir=tmp_path):
        pass
    assert "left with clocks set by process 1" in caught.value.__notes__[0]
    assert journal.exists()
    gpu.refusal = None
    with hold(gpu, state_dir=tmp_path):
        pass
    assert not journal.exists()


def test_clocks_that_cannot_be_given_back_are_an_error_and_the_next_lease_tries_again(
    tmp_path: Path,
) -> None:
    gpu = WatchedGpu(is_shared=True)
    gpu.refusal = DeviceError("busy")
    with pytest.raises(DeviceError, match="busy"), hold(gpu, state_dir=tmp_path) as lease:
        lease.apply(LOW)
    assert _journal(gpu, tmp_path).exists()
    gpu.refusal = None
    gpu.touches.clear()
    with hold(gpu, state_dir=tmp_path):
        assert gpu.touches == ["reset", "sample"]


def test_a_lost_device_does_not_hide_the_error_that_came_first(tmp_path: Path) -> None:
    gpu = WatchedGpu("virtual:rtx3080ti,lost_after=10", is_shared=True)

    def lose_device_then_fail(_lease: Lease) -> None:
        with pytest.raises(DeviceLost):
            gpu.wait(20.0)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        _within_lease(gpu, tmp_path, _apply_low, lose_device_then_fail)
    assert "could not be given back" in caught.value.__notes__[0]
    assert _journal(gpu, tmp_path).exists()


def test_a_lost_device_is_the_error_where_there_was_no_other(tmp_path: Path) -> None:
    gpu = WatchedGpu("virtual:rtx3080ti,lost_after=10", is_shared=True)
    with pytest.raises(DeviceLost):
        _within_lease(gpu, tmp_path, _apply_low, lambda _lease: gpu.wait(20.0))


def test_an_account_that_may_set_nothing_leaves_nothing_behind(tmp_path: Path) -> None:
    gpu = WatchedGpu("virtual:rtx3080ti,control=denied")
    with pytest.raises(NotPermitted), hold(gpu, state_dir=tmp_path) as lease:
        lease.apply(LOW)
    assert list(tmp_path.iterdir()) == []


def test_a_refused_clock_gives_everything_back(tmp_path: Path) -> None:
    gpu = WatchedGpu()
    unlisted = OperatingPoint(sm_clock_mhz=1201)
    with pytest.raises(NotSupported):
        _within_lease(gpu, tmp_path, _apply_low, lambda lease: lease.apply(unlisted))
    assert gpu.touches[-2:] == ["reset", "sample"]
    assert list(tmp_path.iterdir()) == []


def test_a_state_folder_that_cannot_be_made_is_bad_input(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.touch()
    with (
        pytest.raises(InputError) as caught,
        hold(WatchedGpu(), state_dir=in_the_way / "state"),
    ):
        pass
    assert caught.value.hint == "Name a folder you may write to in JOULEWISE_STATE_DIR."


def test_the_state_folder_is_for_its_owner_only(tmp_path: Path) -> None:
    state_dir = tmp_path / "a" / "b"
    with hold(WatchedGpu(), state_dir=state_dir):
        if os.name == "posix":
            assert state_dir.stat().st_mode & 0o077 == 0


def test_the_state_folder_can_be_named_by_a_variable(tmp_path: Path) -> None:
    assert default_state_dir({"JOULEWISE_STATE_DIR": str(tmp_path)}) == tmp_path
    assert default_state_dir({"JOULEWISE_STATE_DIR": ""}).name == "joulewise"


def test_a_state_folder_of_nobody_is_bad_input() -> None:
    with pytest.raises(InputError, match="no home folder"):
        default_state_dir({"JOULEWISE_STATE_DIR": "~no-such-account-here/state"})


def test_the_journal_says_what_it_is(tmp_path: Path) -> None:
    gpu = WatchedGpu()
    with hold(gpu, state_dir=tmp_path) as lease:
        lease.apply(BOTH)
        lease.apply(LIMITED)
        lease.apply(replace(LIMITED, power_limit_w=250.0))
        lease.apply(LIMITED)
        fields = json.loads(_journal(gpu, tmp_path).read_text(encoding="utf-8"))
    assert fields == {
        "schema_version": 1,
        "device": "virtual:rtx3080ti",
        "device_name": gpu.identity.name,
        "uuid": gpu.identity.uuid,
        "holder": f"process {os.getpid()}",
        "touched": ["mem_clock_mhz", "power_limit_w", "sm_clock_mhz"],
        "found": {"power_limit_w": 350.0},
        "asked_limits_w": [200.0, 250.0],
    }


@contextmanager
def _handlers_as_found() -> Iterator[Mapping[signal.Signals, object]]:
    numbers = (signal.SIGINT, signal.SIGTERM)
    found = {number: signal.getsignal(number) for number in numbers}
    yield found
    for number, handler in found.items():
        signal.signal(number, handler)


@posix_only
@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]
)
def test_a_signal_unwinds_and_gives_the_clocks_back(
    number: signal.Signals, error: type[BaseException], tmp_path: Path
) -> None:
    gpu = WatchedGpu()
    with _handlers_as_found() as found:
        with pytest.raises(error):
            _within_lease(gpu, tmp_path, _apply_low, lambda _lease: signal.raise_signal(number))
        assert signal.getsignal(number) == found[number]
    assert gpu.touches == ["1200/auto", "reset", "sample"]


@posix_only
def test_a_signal_while_the_clocks_are_given_back_waits(tmp_path: Path) -> None:
    class InterruptedGpu(WatchedGpu):
        def reset(self, touched: Touched | None = None) -> None:
            signal.raise_signal(signal.SIGINT)
            super().reset(touched)

    gpu = InterruptedGpu()
    with (
        _handlers_as_found(),
        pytest.raises(KeyboardInterrupt),
        hold(gpu, state_dir=tmp_path) as lease,
    ):
        lease.apply(LOW)
    assert gpu.touches == ["1200/auto", "reset", "sample"]
    assert list(tmp_path.iterdir()) == []


@posix_only
def test_a_handler_of_the_program_is_left_alone(tmp_path: Path) -> None:
    seen: list[int] = []
    with _handlers_as_found():
        signal.signal(signal.SIGTERM, lambda number, _frame: seen.append(number))
        with hold(WatchedGpu(), state_dir=tmp_path):
            signal.raise_signal(signal.SIGTERM)
    assert seen == [signal.SIGTERM]


def test_a_lease_in_another_thread_leaves_signals_alone(tmp_path: Path) -> None:
    handlers: list[object] = []
    gpu = WatchedGpu()

    def work() -> None:
        with hold(gpu, state_dir=tmp_path) as lease:
            lease.apply(LOW)
            handlers.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(timeout=30.0)
    assert handlers == [before]
    assert gpu.touches == ["1200/auto", "reset", "sample"]
