"""GPUs read for whoever scrapes: not too often, none waiting for another."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from tests.watched_gpu import WatchedGpu, left_behind

from joulewise.control.journal import JournalEntry, damaged_journal, write_journal
from joulewise.control.lease import hold
from joulewise.control.lock import FileLock, Kind
from joulewise.domain.control import ControlledGpu, Holder
from joulewise.domain.errors import DeviceLost
from joulewise.domain.measurement import GpuSample
from joulewise.domain.ports import Timer
from joulewise.workflow.metrics import FRESH_S, GpuPlace, GpuWatch, with_lease


class SteppedTimer:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.time_s = 100.0

    def now_s(self) -> float:
        return self.time_s

    def sleep(self, duration_s: float) -> None:
        self.time_s += duration_s


class ReadGpu(WatchedGpu):
    """A GPU that fails as told, or waits until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.failure: Exception | None = None
        self.answers = threading.Event()
        self.answers.set()
        self.opened_count = 0

    @property
    def read_count(self) -> int:
        return self.touches.count("sample")

    def sample(self) -> GpuSample:
        seen = super().sample()
        assert self.answers.wait(10)
        if self.failure is not None:
            raise self.failure
        return seen


def place(gpu: ReadGpu, uuid: str) -> GpuPlace:
    known = ControlledGpu(uuid=uuid, name="GPU", device=f"nvml:{uuid}", is_simulated=True, index=0)
    gpu.identity = replace(gpu.identity, uuid=uuid)

    def opened() -> ReadGpu:
        gpu.opened_count += 1
        return gpu

    return GpuPlace(known=known, open=opened)


Watch = Callable[..., GpuWatch]


@pytest.fixture
def watch() -> Iterator[Watch]:
    """Watches GPUs until the test ends."""
    with ExitStack() as stack:

        def start(*gpus: ReadGpu, timer: Timer | None = None, patience_s: float = 10.0) -> GpuWatch:
            places = [place(gpu, f"GPU-{number}") for number, gpu in enumerate(gpus)]
            made = GpuWatch(places, lambda gpu: gpu, timer=timer, patience_s=patience_s)
            stack.callback(made.close)
            return made

        yield start


def up(gpus: Sequence[ControlledGpu]) -> list[bool]:
    return [gpu.sample is not None for gpu in gpus]


def test_nothing_is_opened_or_read_before_somebody_asks(watch: Watch) -> None:
    gpu = ReadGpu()

    watched = watch(gpu)
    assert (0, 0) == (gpu.opened_count, gpu.read_count)

    (seen,) = watched.gpus()
    assert seen.sample is not None
    assert gpu.identity.caveats == seen.caveats
    assert ("GPU-0", 0, gpu.identity.name) == (seen.uuid, seen.index, seen.name)


def test_many_scrapes_within_a_moment_read_once(watch: Watch) -> None:
    gpu, timer = ReadGpu(), SteppedTimer()
    watched = watch(gpu, timer=timer)

    for _ in range(5):
        timer.sleep(FRESH_S / 6)
        watched.gpus()
    assert 1 == gpu.read_count

    timer.sleep(FRESH_S)
    watched.gpus()
    assert (1, 2) == (gpu.opened_count, gpu.read_count)


def test_scrapers_at_once_share_one_reading(watch: Watch) -> None:
    gpu = ReadGpu()
    gpu.answers.clear()
    watched = watch(gpu, timer=SteppedTimer())
    seen: list[bool] = []
    scrapers = [threading.Thread(target=lambda: seen.extend(up(watched.gpus()))) for _ in range(4)]
    for scraper in scrapers:
        scraper.start()

    gpu.answers.set()
    for scraper in scrapers:
        scraper.join()

    assert [True] * 4 == seen
    assert 1 == gpu.read_count


def test_a_gpu_that_takes_too_long_is_down_and_holds_up_no_other(watch: Watch) -> None:
    slow, quick = ReadGpu(), ReadGpu()
    slow.answers.clear()
    watched = watch(slow, quick, patience_s=0.2)

    assert [False, True] == up(watched.gpus())
    # It is not asked twice while it is still at the first question.
    assert [False, True] == up(watched.gpus())
    assert 1 == slow.read_count

    slow.answers.set()
    until_up(watched)


def until_up(watched: GpuWatch) -> None:
    pause = threading.Event()
    while not all(up(watched.gpus())):
        pause.wait(0.01)


def test_a_lost_gpu_is_down_and_opened_anew_until_it_answers(watch: Watch) -> None:
    gpu, timer = ReadGpu(), SteppedTimer()
    watched = watch(gpu, timer=timer)
    gpu.failure = DeviceLost("the GPU is lost")

    for _ in range(2):
        assert [False] == up(watched.gpus())
        timer.sleep(FRESH_S)
    assert (2, 2) == (gpu.opened_count, gpu.read_count)

    gpu.failure = None
    assert [True] == up(watched.gpus())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_fault_of_ours_ends_no_later_reading(watch: Watch) -> None:
    gpu, timer = ReadGpu(), SteppedTimer()
    watched = watch(gpu, timer=timer)
    gpu.failure = RuntimeError("a fault of ours")
    assert [False] == up(watched.gpus())
    gpu.failure = None

    pause = threading.Event()
    while up(watched.gpus()) != [True]:
        timer.sleep(FRESH_S)
        pause.wait(0.01)


def test_who_holds_a_gpu_is_told_and_what_a_dead_holder_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOULEWISE_STATE_DIR", str(tmp_path))
    gpu = WatchedGpu(is_shared=True)
    known = ControlledGpu(
        uuid=gpu.identity.uuid, name=gpu.identity.name, device="nvml:0", is_simulated=True
    )

    with hold(gpu, state_dir=tmp_path):
        held = with_lease(known)
    freed = with_lease(known)
    left_behind(gpu, tmp_path)
    left = with_lease(known)

    assert held.holder is not None
    assert held.left_set is None
    assert (None, None) == (freed.holder, freed.left_set)
    assert left.left_set is not None
    assert "may still be set" in left.left_set
    assert left.is_control_known


@pytest.mark.skipif(os.name != "posix", reason="accounts and modes are of Unix")
def test_who_may_not_look_into_the_folder_of_leases_tells_nothing_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "state"
    monkeypatch.setenv("JOULEWISE_STATE_DIR", str(folder))
    known = ControlledGpu(uuid="GPU-1", name="GPU", device="nvml:0", is_simulated=True)
    assert with_lease(known).is_control_known
    folder.mkdir(mode=0)

    child = os.fork()
    if child == 0:
        is_known = True
        try:
            if os.geteuid() == 0:
                os.setuid(65534)
            is_known = with_lease(known).is_control_known
        finally:
            os._exit(int(is_known))

    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(os.name != "posix", reason="elsewhere every process counts as alive")
@pytest.mark.parametrize(
    ("kind", "lock_pid"),
    [(Kind.GUARD, os.getpid()), (Kind.HOLDER, 999999999)],
    ids=["guard", "dead"],
)
def test_what_a_guard_process_gives_back_counts_as_left_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind, lock_pid: int
) -> None:
    """Of a holder that ended, or of one that lives and was refused at the end."""
    monkeypatch.setenv("JOULEWISE_STATE_DIR", str(tmp_path))
    leave_journal(tmp_path, "GPU-1")
    lock = FileLock(tmp_path / "GPU-1.lock")
    lock.acquire("it", Holder(pid=4242, user="alice", command="train.py"))
    fields = json.loads((tmp_path / "GPU-1.lock").read_bytes())
    fields |= {"kind": kind.value, "lock_pid": lock_pid}
    (tmp_path / "GPU-1.lock").write_text(json.dumps(fields), encoding="utf-8")
    seen = with_lease(known("GPU-1"))
    lock.release()

    assert seen.holder is None
    said = str(seen.left_set)
    assert said.startswith("Being given back by the guard of process 4242 (alice: train.py)")
    if kind is Kind.GUARD:
        assert f" (process {lock_pid}), which tries until " in said


def test_no_program_can_pass_for_the_idle_policy_or_hide_who_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOULEWISE_STATE_DIR", str(tmp_path))
    posing = Holder(pid=4242, user="joulewised", command="idle policy) through joulewised\n(")
    idle = replace(posing, is_idle_policy=True)
    seen = []
    for holder in (posing, idle):
        lock = FileLock(tmp_path / "GPU-1.lock")
        lock.acquire("it", holder)
        seen.append(with_lease(known("GPU-1")))
        lock.release()

    assert [posing, idle] == [one.holder for one in seen]
    assert [False, True] == [one.is_lowered_idle for one in seen]


def test_a_holder_in_the_words_of_an_older_joulewise_is_there_but_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOULEWISE_STATE_DIR", str(tmp_path))
    lock = FileLock(tmp_path / "GPU-1.lock")
    lock.acquire("it", Holder(pid=1))
    (tmp_path / "GPU-1.lock").write_text("process 7 (joulewised: idle policy)\n7\n")
    seen = with_lease(known("GPU-1"))
    lock.release()

    assert (None, False, False) == (seen.holder, seen.is_control_known, seen.is_lowered_idle)


def test_a_damaged_journal_leaves_no_clocks_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOULEWISE_STATE_DIR", str(tmp_path))
    damaged_journal(tmp_path / "GPU-1.journal.json").write_bytes(b"{")
    seen = with_lease(known("GPU-1"))

    assert seen.left_set is None
    assert "a power limit may still be lowered" in str(seen.left_open)


def known(uuid: str) -> ControlledGpu:
    return ControlledGpu(uuid=uuid, name="GPU", device="nvml:0", is_simulated=True)


def leave_journal(folder: Path, uuid: str) -> None:
    entry = JournalEntry(
        device="nvml:0", device_name="GPU", uuid=uuid, holder="it", touched=("sm_clock_mhz",)
    )
    write_journal(folder / f"{uuid}.journal.json", entry)
