"""A device that is kept busy from a thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from joulewise.domain.caveats import CaveatKind
from joulewise.domain.errors import InputError, MeasurementError, NotSupported
from joulewise.domain.ports import GpuIdentity
from joulewise.domain.workload import Launch, Workload
from joulewise.integrations.feeder import DEPTH_COUNT, Fed, Feeder
from joulewise.integrations.torch_runner import TorchRunners, bare_uuid, works_of
from joulewise.workload.builtin import builtin_workload

BATCH_S = 0.01


class SteppedLane:
    """A device on which a batch takes 10 ms of a clock that only batches move.

    It goes on to the next batch when the test lets it.
    """

    def __init__(self) -> None:
        self.batch_count = 0
        self.over_count = 0
        self.most_queued_count = 0
        self.kept: set[int] = set()
        self.turns = threading.Semaphore(0)

    def batch(self) -> None:
        self.batch_count += 1
        self.most_queued_count = max(self.most_queued_count, self.batch_count - self.over_count)

    @contextmanager
    def entered(self) -> Iterator[None]:
        yield

    def mark(self) -> int:
        self.kept.add(self.batch_count)
        return self.batch_count

    def wait(self, mark: int) -> None:
        self.turns.acquire()
        self.over_count = mark

    def elapsed_s(self, first: int, last: int) -> float:
        assert {first, last} <= self.kept
        return (last - first) * BATCH_S

    def mean_mhz(self, first: int, last: int) -> float | None:
        """As if every batch had run at a clock 1 MHz higher than the one before."""
        assert {first, last} <= self.kept
        return 1000.0 + (first + last) / 2

    def forget(self, mark: int) -> None:
        self.kept.remove(mark)

    def go_on(self, batch_count: int) -> None:
        self.turns.release(batch_count)


@contextmanager
def feeding(lane: SteppedLane) -> Iterator[Feeder]:
    """Lets the device run freely when the block ends, so that it can stop."""
    with Feeder(lane, lane.batch) as feeder:
        try:
            yield feeder
        finally:
            lane.go_on(10_000)


def test_a_window_lasts_from_the_end_of_a_batch_to_the_end_of_another() -> None:
    lane = SteppedLane()
    with feeding(lane) as feeder:
        feeder.begin()
        lane.go_on(2)
        fed = feeder.end()

    assert Fed(batch_count=1, elapsed_s=BATCH_S, mean_sm_clock_mhz=1001.5) == fed


def test_a_window_that_nobody_ended_keeps_no_marks() -> None:
    lane = SteppedLane()
    with feeding(lane) as feeder:
        feeder.begin()
        lane.go_on(100)
        feeder.begin()
        lane.go_on(100)

    assert set() == lane.kept


def test_no_more_is_queued_than_keeps_the_device_busy_and_no_mark_is_kept() -> None:
    lane = SteppedLane()
    with feeding(lane) as feeder:
        feeder.begin()
        lane.go_on(500)
        feeder.end()

    assert DEPTH_COUNT == lane.most_queued_count
    assert set() == lane.kept
    assert lane.batch_count == lane.over_count


def test_what_the_device_raises_reaches_who_waits() -> None:
    lane = SteppedLane()

    def fail() -> None:
        raise RuntimeError("out of memory")

    with Feeder(lane, fail) as feeder:
        feeder.begin()
        for call in (feeder.end, feeder.check):
            with pytest.raises(MeasurementError, match="out of memory"):
                call()


def test_a_workload_that_does_not_say_what_its_kernels_do_cannot_be_stood_in_for() -> None:
    works = builtin_workload("gpt3-xl").works[:2]
    launches = tuple(Launch(kernel=work.kernel) for work in works)

    assert works == works_of(Workload(name="w", launches=launches, works=works))
    with pytest.raises(InputError, match="does not say") as caught:
        works_of(Workload(name="w", launches=launches, works=works[:1]))
    assert "workload" == caught.value.field


def test_kernels_that_stood_in_are_said_to_have() -> None:
    assert [CaveatKind.KERNELS_STOOD_IN] == [one.kind for one in TorchRunners().caveats]


def test_without_pytorch_there_is_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from joulewise.device.real_time import MonotonicTimer

    monkeypatch.setitem(sys.modules, "torch", None)
    identity = GpuIdentity(spec="nvml:0", name="a GPU", uuid="GPU-0", is_simulated=False)
    with pytest.raises(NotSupported, match="PyTorch") as caught:
        TorchRunners().open(identity, 0, builtin_workload("gpt3-xl"), MonotonicTimer())
    assert 'pip install "joulewise[torch]"' in str(caught.value.hint)


def test_uuids_are_compared_as_both_sides_write_them() -> None:
    assert bare_uuid("GPU-4AD1-x") == bare_uuid("4ad1-x") == "4ad1-x"
