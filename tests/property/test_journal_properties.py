from __future__ import annotations

import json
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field, replace
from dataclasses import fields as fields_of
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from joulewise.control.journal import (
    JournalEntry,
    is_left,
    read_journal,
    replay,
    still_set,
    write_journal,
)
from joulewise.control.lease import hold
from joulewise.control.state import state_file
from joulewise.domain.errors import DeviceError
from joulewise.domain.measurement import GpuSample
from joulewise.domain.points import (
    AUTO,
    CLOCK_KNOBS,
    KNOBS,
    ClockGrid,
    KnobState,
    OperatingPoint,
    Touched,
)
from joulewise.domain.ports import GpuIdentity

FOUND_W = 380.0
ROUNDING_W = 0.5
CLOCKS = frozenset({"sm_clock_mhz", "mem_clock_mhz"})
points = st.builds(
    OperatingPoint,
    sm_clock_mhz=st.none() | st.integers(200, 2000),
    mem_clock_mhz=st.none() | st.integers(400, 10000),
    power_limit_w=st.none() | st.floats(100.0, 400.0),
)
clocks = points.map(lambda point: replace(point, power_limit_w=None))
Entries = st.SearchStrategy[JournalEntry]
found_limits = st.builds(KnobState, power_limit_w=st.floats(1.0, 1000.0))
any_found = st.none() | st.just(KnobState()) | found_limits


def entries_with(knobs: tuple[str, ...], found: st.SearchStrategy[KnobState | None]) -> Entries:
    return st.builds(
        JournalEntry,
        device=st.text(),
        device_name=st.text(),
        uuid=st.just("GPU-toy"),
        holder=st.text(),
        touched=st.lists(st.sampled_from(knobs), unique=True, min_size=1).map(tuple),
        found=found,
        asked_limits_w=st.none() | st.lists(st.floats(1.0, 1000.0)).map(tuple),
        author=st.none() | st.text(),
        lock=st.none() | st.text(),
    )


# A power limit is never touched before it is known what to put back.
entries = entries_with(CLOCK_KNOBS, any_found) | entries_with(KNOBS, found_limits)


CLOCK = JournalEntry(
    device="toy", device_name="Toy", uuid="GPU-toy", holder="", touched=("sm_clock_mhz",)
)
NAMES = [one.name for one in fields_of(JournalEntry)]


class Killed(BaseException):
    pass


@dataclass(slots=True)
class ToyGpu:
    """Clocks that stay as set until reset, and a process that dies after so many steps."""

    point: OperatingPoint = AUTO
    limit_w: float | None = FOUND_W
    found_w: float | None = FOUND_W
    """As this handle found the limit before it first set it."""
    touched: set[str] = field(default_factory=set)
    """By this handle; the next are by any."""
    ever_touched: set[str] = field(default_factory=set)
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
        if "power_limit_w" not in self.touched:
            self.found_w = self.limit_w
        self.touched |= {knob for knob in KNOBS if getattr(point, knob) is not None}
        self.ever_touched |= self.touched
        for knob in CLOCKS & self.touched:
            self.point = replace(self.point, **{knob: getattr(point, knob)})
        if "power_limit_w" in self.touched:
            self.limit_w = point.power_limit_w or self.found_w
        self._step()

    def reset(self, touched: Touched | None = None) -> None:
        self._step()
        self.resets += 1
        if self.refusals:
            self.refusals -= 1
            raise DeviceError("not now")
        knobs = frozenset(self.touched if touched is None else touched.knobs)
        self.point = replace(self.point, **dict.fromkeys(CLOCKS & knobs))
        if "power_limit_w" in knobs:
            self._put_back(touched or Touched(knobs=frozenset(), asked_limits_w=None))
        self.touched -= knobs
        self._step()

    def _put_back(self, touched: Touched) -> None:
        found_w = self.found_w if touched.found is None else touched.found.power_limit_w
        asked_w, limit_w = touched.asked_limits_w, self.limit_w
        # Boards may round what they were asked for.
        if asked_w is None or (
            limit_w is not None and any(abs(limit_w - one_w) <= ROUNDING_W for one_w in asked_w)
        ):
            self.limit_w = found_w

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


@given(
    asked=st.lists(points, max_size=4),
    others=clocks,
    steps=st.integers(0, 12),
    lowered_w=st.none() | st.floats(50.0, 99.0),
    replays=st.integers(1, 4),
)
@settings(max_examples=60, deadline=None)
def test_wherever_a_holder_dies_the_next_one_gives_back_what_it_touched_and_nothing_else(
    asked: list[OperatingPoint],
    others: OperatingPoint,
    steps: int,
    lowered_w: float | None,
    replays: int,
) -> None:
    """`others` are locks of another controller; `lowered_w` is a limit that it set afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        gpu = ToyGpu(point=others, steps_to_live=steps)
        _die_holding(gpu, Path(folder), asked)
        gpu.limit_w = lowered_w or gpu.limit_w
        # Whoever comes next knows no better than the journal.
        gpu.steps_to_live, gpu.touched = None, set()
        for _ in range(replays):
            with hold(gpu, state_dir=Path(folder)):
                pass
        assert not state_file(gpu.identity, Path(folder), ".journal.json").exists()
    for knob in CLOCKS:
        kept, left = getattr(others, knob), getattr(gpu.point, knob)
        assert left is None if knob in gpu.ever_touched else left in (None, kept)
        # The first point asked for begins with free clocks; before it nothing is touched.
        assert asked or left == kept
    assert gpu.limit_w == (lowered_w or FOUND_W)


@given(entry=entries, left=clocks, replays=st.integers(1, 5))
@example(
    entry=replace(
        CLOCK, touched=KNOBS, found=KnobState(power_limit_w=381.0), asked_limits_w=(379.5,)
    ),
    left=AUTO,
    replays=1,
)
@settings(max_examples=40, deadline=None)
def test_replaying_a_journal_again_changes_nothing_more(
    entry: JournalEntry, left: OperatingPoint, replays: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "toy.json"
        gpu = ToyGpu(point=left)
        write_journal(journal, entry)
        undone = [replay(journal, gpu) for _ in range(replays)]
    given_back = dict.fromkeys(CLOCKS & frozenset(entry.touched))
    assert undone == [True] + [False] * (replays - 1)
    assert gpu.point == replace(left, **given_back)
    assert gpu.resets == 1


@given(refusals=st.integers(0, 5), left=clocks)
@settings(max_examples=40, deadline=None)
def test_a_refused_replay_is_tried_until_it_succeeds(refusals: int, left: OperatingPoint) -> None:
    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "toy.json"
        touched = ("mem_clock_mhz", "sm_clock_mhz")
        entry = JournalEntry(device="", device_name="", uuid="GPU-toy", holder="", touched=touched)
        write_journal(journal, entry)
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


@given(
    entry=entries,
    left=points,
    ends=st.lists(st.sampled_from(["refused", 0, 1, 2, 3]), max_size=4),
)
@settings(max_examples=80, deadline=None)
def test_replays_that_are_refused_or_killed_anywhere_end_where_one_replay_ends(
    entry: JournalEntry, left: OperatingPoint, ends: list[str | int]
) -> None:
    """A number is how many steps of the device a replay lives; each is one process's."""
    clocks_left = replace(left, power_limit_w=None)
    with tempfile.TemporaryDirectory() as folder:
        once, often = Path(folder) / "once.json", Path(folder) / "often.json"
        smooth, rough = (
            ToyGpu(point=clocks_left, limit_w=left.power_limit_w or FOUND_W) for _ in "ab"
        )
        write_journal(once, entry)
        replay(once, smooth)
        write_journal(often, entry)
        for end in ends:
            rough.refusals = 1 if end == "refused" else 0
            rough.steps_to_live = end if isinstance(end, int) else None
            with suppress(Killed, DeviceError):
                replay(often, rough)
        rough.refusals, rough.steps_to_live = 0, None
        replay(often, rough)
        assert not is_left(often)
    assert (rough.point, rough.limit_w) == (smooth.point, smooth.limit_w)


@given(entry=entries, content=st.binary(max_size=40), name=st.sampled_from(["", ".copy"]))
@settings(max_examples=40, deadline=None)
def test_one_damaged_file_of_two_changes_nothing(
    entry: JournalEntry, content: bytes, name: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "toy.json"
        write_journal(journal, entry)
        journal.with_name(f"toy.json{name}").write_bytes(content)
        assert read_journal(journal) == entry


@given(content=st.binary(max_size=60), left=clocks)
@example(content=b"[" * 100_000, left=AUTO)
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


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(entry=entries, name=st.sampled_from(NAMES), value=VALUES, left=clocks)
@example(entry=CLOCK, name="schema_version", value=float("inf"), left=AUTO)
@example(entry=CLOCK, name="schema_version", value=99, left=OperatingPoint(sm_clock_mhz=1200))
@example(entry=CLOCK, name="touched", value="sm_clock_mhz", left=OperatingPoint(sm_clock_mhz=1200))
@example(entry=CLOCK, name="touched", value=["fan_speed"], left=OperatingPoint(sm_clock_mhz=1200))
@example(entry=CLOCK, name="touched", value=[], left=OperatingPoint(sm_clock_mhz=1200))
@example(entry=CLOCK, name="uuid", value="GPU-other", left=OperatingPoint(mem_clock_mhz=5001))
@settings(max_examples=60, deadline=None)
def test_whatever_valid_json_says_it_is_understood_or_all_clocks_are_given_back(
    entry: JournalEntry, name: str, value: object, left: OperatingPoint
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "toy.json"
        write_journal(journal, entry)
        fields = json.loads(journal.read_text(encoding="utf-8"))
        fields[name] = value
        for one in (journal, journal.with_name("toy.json.copy")):
            one.write_text(json.dumps(fields), encoding="utf-8")
        read = read_journal(journal)
        gpu = ToyGpu(point=left)
        assert still_set(read, journal)
        assert replay(journal, gpu) is True
        assert not is_left(journal)
    is_obeyed = read is not None and read.uuid == "GPU-toy"
    given_back = CLOCKS & frozenset(read.touched) if read is not None and is_obeyed else CLOCKS
    assert gpu.point == replace(left, **dict.fromkeys(given_back))


@given(entry=entries)
@settings(max_examples=40, deadline=None)
def test_a_journal_reads_back_as_written(entry: JournalEntry) -> None:
    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "toy.json"
        write_journal(journal, entry)
        assert read_journal(journal) == entry
