from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from joulewise.control.journal import JournalEntry, read_journal, replay, write_journal
from joulewise.control.lease import hold
from joulewise.control.state import state_file
from joulewise.domain.errors import DeviceError
from joulewise.domain.measurement import GpuSample
from joulewise.domain.points import AUTO, ClockGrid, KnobState, OperatingPoint
from joulewise.domain.ports import GpuIdentity

FOUND_W = 380.0
KNOBS = ("sm_clock_mhz", "mem_clock_mhz", "power_limit_w")
points = st.builds(
    OperatingPoint,
    sm_clock_mhz=st.none() | st.integers(200, 2000),
    mem_clock_mhz=st.none() | st.integers(400, 10000),
    power_limit_w=st.none() | st.floats(100.0, 400.0),
)
entries = st.builds(
    JournalEntry,
    device=st.text(),
    device_name=st.text(),
    uuid=st.text(),
    holder=st.text(),
    touched=st.lists(st.sampled_from(KNOBS), unique=True).map(tuple),
    found=st.none() | st.builds(KnobState, power_limit_w=st.none() | st.floats(1.0, 1000.0)),
)


class Killed(BaseException):
    pass


@dataclass(slots=True)
class ToyGpu:
    """Clocks that stay as set until reset, and a process that dies after so many steps."""

    point: OperatingPoint = AUTO
    limit_w: float | None = FOUND_W
    found_w: float | None = FOUND_W
    """As this handle found the limit when it was opened."""
    steps_to_live: int | None = None
    refusals: int = 0
    resets: int = 0
    identity: GpuIdentity = field(
        default_factory=lambda: GpuIdentity(
            spec="toy", name="Toy", uuid="GPU-toy", is_simulated=False
        )
    )
    energy_counter_period_s: float = 0.1

    def clock_grid(self) -> ClockGrid:
        return ClockGrid(sm_clocks_mhz=(1000,), mem_clocks_mhz=(1000,))

    def knob_state(self) -> KnobState:
        return KnobState(power_limit_w=self.limit_w)

    def sample(self) -> GpuSample:
        self._step()
        return GpuSample(
            time_s=0.0,
            energy_j=None,
            power_w=None,
            sm_clock_mhz=None,
            mem_clock_mhz=None,
            temp_c=None,
            power_capped_s=None,
            thermally_throttled_s=None,
            other_process_count=None,
        )

    def now_s(self) -> float:
        return 0.0

    def clocks_mhz(self) -> tuple[int | None, int | None]:
        return None, None

    def wait_for_energy_tick(self, timeout_s: float) -> GpuSample:
        self.wait(timeout_s)
        return self.sample()

    def wait(self, duration_s: float) -> None:
        pass

    def request(self, point: OperatingPoint) -> None:
        self._step()
        self.point = replace(point, power_limit_w=None)
        self.limit_w = point.power_limit_w or self.found_w
        self._step()

    def reset(self, found: KnobState | None = None) -> None:
        self._step()
        self.resets += 1
        if self.refusals:
            self.refusals -= 1
            raise DeviceError("not now")
        self.point = AUTO
        self.limit_w = self.found_w if found is None else found.power_limit_w
        self._step()

    def _step(self) -> None:
        """The process dies here, before or after the device did as asked."""
        if self.steps_to_live is not None:
            if self.steps_to_live == 0:
                raise Killed
            self.steps_to_live -= 1


def _die_holding(gpu: ToyGpu, state_dir: Path, asked: list[OperatingPoint]) -> None:
    """Hold, ask and be killed; a killed process runs nothing more, so nothing is undone."""
    try:
        with hold(gpu, state_dir=state_dir) as lease:
            for point in asked:
                lease.apply(point)
    except Killed:
        pass


@given(asked=st.lists(points, max_size=4), steps=st.integers(0, 12), replays=st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_wherever_a_holder_dies_the_next_one_finds_clocks_with_the_driver(
    asked: list[OperatingPoint], steps: int, replays: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        gpu = ToyGpu(steps_to_live=steps)
        _die_holding(gpu, Path(folder), asked)
        # Whoever comes next finds what was left, and knows no better.
        gpu.steps_to_live, gpu.found_w = None, gpu.limit_w
        for _ in range(replays):
            with hold(gpu, state_dir=Path(folder)):
                assert (gpu.point, gpu.limit_w) == (AUTO, FOUND_W)
        assert not state_file(gpu.identity, Path(folder), ".journal.json").exists()


@given(entry=entries, left=points, replays=st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_replaying_a_journal_again_changes_nothing_more(
    entry: JournalEntry, left: OperatingPoint, replays: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "toy.json"
        gpu = ToyGpu(point=left)
        write_journal(journal, entry)
        undone = [replay(journal, gpu) for _ in range(replays)]
    assert undone == [True] + [False] * (replays - 1)
    assert (gpu.point, gpu.resets) == (AUTO, 1)


@given(refusals=st.integers(0, 5), left=points)
@settings(max_examples=40, deadline=None)
def test_a_refused_replay_is_tried_until_it_succeeds(refusals: int, left: OperatingPoint) -> None:
    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "toy.json"
        write_journal(journal, JournalEntry(device="", device_name="", uuid="", holder=""))
        gpu = ToyGpu(point=left, refusals=refusals)
        tries = 0
        while journal.exists():
            tries += 1
            try:
                replay(journal, gpu)
            except DeviceError:
                assert journal.exists()
    assert tries == refusals + 1
    assert gpu.point == AUTO


@given(content=st.binary(max_size=60), left=points)
@settings(max_examples=40, deadline=None)
def test_any_journal_at_all_means_that_clocks_are_given_back(
    content: bytes, left: OperatingPoint
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "toy.json"
        journal.write_bytes(content)
        gpu = ToyGpu(point=left)
        assert replay(journal, gpu) is True
        assert gpu.point == AUTO
        assert not journal.exists()


@given(entry=entries)
@settings(max_examples=40, deadline=None)
def test_a_journal_reads_back_as_written(entry: JournalEntry) -> None:
    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "toy.json"
        write_journal(journal, entry)
        assert read_journal(journal) == entry
