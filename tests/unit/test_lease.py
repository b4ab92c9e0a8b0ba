from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.watched_gpu import WatchedGpu, journal_of, left_behind, within_lease

from joulewise.control.guard import NoGuard
from joulewise.control.journal import is_left
from joulewise.control.lease import GpuLease, hold, take_lease
from joulewise.control.state import default_state_dir, state_file
from joulewise.domain.control import Holder
from joulewise.domain.errors import (
    BusyError,
    DeviceError,
    DeviceLost,
    InputError,
    NotPermitted,
    NotSupported,
)
from joulewise.domain.points import AUTO, OperatingPoint, Touched
from joulewise.domain.ports import Lease

LOW = OperatingPoint(sm_clock_mhz=1200)
BOTH = OperatingPoint(sm_clock_mhz=1200, mem_clock_mhz=9501)
posix_only = pytest.mark.skipif(os.name != "posix", reason="signals of Unix")


def _fail(_lease: Lease) -> None:
    raise ZeroDivisionError


def _apply_low(lease: Lease) -> None:
    lease.apply(LOW)


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


def test_an_error_inside_gives_the_clocks_back_and_goes_on(tmp_path: Path) -> None:
    gpu = WatchedGpu()
    with pytest.raises(ZeroDivisionError):
        within_lease(gpu, tmp_path, _apply_low, _fail)
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


@posix_only
def test_files_of_killed_virtual_gpus_are_cleared_away(tmp_path: Path) -> None:
    """Of every virtual GPU and at once, but for those of processes that live."""
    gpu, other = WatchedGpu(), WatchedGpu("virtual:rtx3080ti,seed=7")
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    living = os.getppid()
    kept, names = [], (".lock", ".journal.json", ".journal.json.copy")
    for one in (gpu, other):
        for name in names:
            (tmp_path / f"{one.identity.uuid}.{dead.pid}{name}").touch()
            kept.append(tmp_path / f"{one.identity.uuid}.{living}{name}")
    kept += [tmp_path / "GPU-4ad1.journal.json", tmp_path / "GPU-4ad1.lock"]
    for path in kept:
        path.touch()
    with hold(gpu, state_dir=tmp_path):
        pass
    assert set(tmp_path.iterdir()) == set(kept)


def test_files_of_virtual_gpus_are_cleared_away_after_a_day_whoever_lives(tmp_path: Path) -> None:
    gpu = WatchedGpu()
    old = tmp_path / f"{gpu.identity.uuid}.{os.getppid()}.lock"
    old.touch()
    os.utime(old, (0, 0))
    with hold(gpu, state_dir=tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_undone_is_an_error_and_stays_to_be_undone(tmp_path: Path) -> None:
    gpu = WatchedGpu(is_shared=True)
    journal = left_behind(gpu, tmp_path)
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
    assert journal_of(gpu, tmp_path).exists()
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
        within_lease(gpu, tmp_path, _apply_low, lose_device_then_fail)
    assert "could not be given back" in caught.value.__notes__[0]
    assert journal_of(gpu, tmp_path).exists()


def test_a_lost_device_is_the_error_where_there_was_no_other(tmp_path: Path) -> None:
    gpu = WatchedGpu("virtual:rtx3080ti,lost_after=10", is_shared=True)
    with pytest.raises(DeviceLost):
        within_lease(gpu, tmp_path, _apply_low, lambda _lease: gpu.wait(20.0))


def test_an_account_that_may_set_nothing_leaves_nothing_behind(tmp_path: Path) -> None:
    gpu = WatchedGpu("virtual:rtx3080ti,control=denied")
    with hold(gpu, state_dir=tmp_path) as lease:
        for _ in range(2):
            with pytest.raises(NotPermitted):
                lease.apply(LOW)
            # Killed from here on, it leaves nothing that it could not undo either.
            assert not is_left(journal_of(gpu, tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_what_was_taken_before_another_knob_was_refused_stays_to_be_undone(tmp_path: Path) -> None:
    class HalfRefusingGpu(WatchedGpu):
        """Takes the power limit, and then no clock, and not the limit back either."""

        def request(self, point: OperatingPoint) -> None:
            super().request(OperatingPoint(power_limit_w=point.power_limit_w))
            self.refusal = NotPermitted("not for you")
            raise self.refusal

    gpu = HalfRefusingGpu(is_shared=True)
    with pytest.raises(NotPermitted) as caught, hold(gpu, state_dir=tmp_path) as lease:
        lease.apply(OperatingPoint(sm_clock_mhz=1200, power_limit_w=200.0))
    assert is_left(journal_of(gpu, tmp_path))
    assert "power limit of" in caught.value.__notes__[-1]
    gpu.refusal = None
    with hold(gpu, state_dir=tmp_path):
        assert gpu.knob_state().power_limit_w == 350.0
    assert not is_left(journal_of(gpu, tmp_path))


def test_a_refused_clock_gives_everything_back(tmp_path: Path) -> None:
    gpu = WatchedGpu()
    unlisted = OperatingPoint(sm_clock_mhz=1201)
    with pytest.raises(NotSupported):
        within_lease(gpu, tmp_path, _apply_low, lambda lease: lease.apply(unlisted))
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
            within_lease(gpu, tmp_path, _apply_low, lambda _lease: signal.raise_signal(number))
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


def test_threads_may_share_a_lease_until_one_of_them_ends_it(tmp_path: Path) -> None:
    gpu = WatchedGpu()
    refused: list[str] = []

    def work() -> None:
        try:
            while True:
                lease.apply(LOW)
        except DeviceError as error:
            refused.append(error.message)

    with hold(gpu, state_dir=tmp_path) as lease:
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        lease.apply(LOW)
        lease.release()
        for thread in threads:
            thread.join()
    assert refused == ["the lease on this GPU is over"] * 3
    # Nothing was asked of the device once it was given back.
    assert gpu.touches[-3:] == ["1200/auto", "reset", "sample"]
    assert list(tmp_path.iterdir()) == []


def test_what_was_asked_and_touched_can_be_told(tmp_path: Path) -> None:
    with hold(WatchedGpu(), state_dir=tmp_path) as lease:
        assert (lease.asked, lease.touched.knobs) == (None, frozenset())
        lease.apply(LOW)
        with pytest.raises(NotSupported):
            lease.apply(OperatingPoint(sm_clock_mhz=1))
        assert (lease.asked, lease.touched.knobs) == (LOW, frozenset({"sm_clock_mhz"}))


def test_a_lease_can_be_taken_without_a_block_and_without_signals(tmp_path: Path) -> None:
    gpu = WatchedGpu(is_shared=True)
    before = signal.getsignal(signal.SIGTERM)
    holder = Holder(pid=7, user="alice", command="train.py", daemon_pid=os.getpid())
    lease = take_lease(gpu, state_dir=tmp_path, guard=NoGuard(), holder=holder)
    lease.apply(LOW)
    assert signal.getsignal(signal.SIGTERM) == before
    with pytest.raises(BusyError, match=re.escape(f"held by {holder.text}")):
        take_lease(gpu, state_dir=tmp_path, guard=NoGuard())
    lease.release()
    assert gpu.touches[-2:] == ["reset", "sample"]
    assert not journal_of(gpu, tmp_path).exists()


@posix_only
def test_a_forked_child_may_neither_set_nor_give_back(tmp_path: Path) -> None:
    gpu = WatchedGpu()
    with hold(gpu, state_dir=tmp_path) as lease:
        lease.apply(LOW)
        child = os.fork()
        if child == 0:
            lease.release()
            os._exit(len(gpu.touches) * 10 + _refusals_in_child(lease))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 12
        assert journal_of(gpu, tmp_path).exists()


def _refusals_in_child(lease: GpuLease) -> int:
    said = f"of process {os.getppid()}, not of its forked child"
    count = 0
    for act in (_apply_low, lambda lease: lease.yield_knob("sm_clock_mhz")):
        try:
            act(lease)
        except DeviceError as error:
            count += said in str(error)
    return count
