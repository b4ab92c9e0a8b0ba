"""Whatever happens to a GPU: it is lowered only when long idle, and always given back."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from hypothesis import given
from hypothesis import strategies as st

from joulewise.control.idle import LONGEST_GAP_S, IdleAct, IdlePolicy
from joulewise.domain.measurement import EventReason, GpuSample
from joulewise.domain.points import ClockGrid

AFTER_S = 3.0
GRID = ClockGrid(sm_clocks_mhz=(210, 1980), mem_clocks_mhz=())


class Seen(Enum):
    IDLE = "idle"
    BUSY = "busy"
    UNTOLD = "untold"
    LOST = "lost"
    LEASED = "leased"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    now_s: float
    seen: Seen
    act: IdleAct
    is_lowered: bool


def sample(seen: Seen) -> GpuSample | None:
    reasons = {Seen.IDLE: frozenset({EventReason.GPU_IDLE}), Seen.UNTOLD: None}
    if seen is Seen.LOST:
        return None
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
        event_reasons=reasons.get(seen, frozenset()),
    )


def run(steps: list[tuple[Seen, int, float]], *, does_fail: bool = False) -> list[Moment]:
    """Feed stretches (what is seen, how often, how far apart); maybe no lowering succeeds."""
    policy = IdlePolicy(after_s=AFTER_S, grid=GRID)
    now_s, moments = 0.0, []
    for seen, count, apart_s in steps:
        for _ in range(count):
            now_s += apart_s
            # A leased GPU idles, too: the lease alone must keep it from being lowered.
            read = sample(Seen.IDLE if seen is Seen.LEASED else seen)
            act = policy.feed(read, now_s=now_s, is_leased=seen is Seen.LEASED)
            if act is IdleAct.LOWER and does_fail:
                policy.not_lowered(now_s)
            moments.append(Moment(now_s=now_s, seen=seen, act=act, is_lowered=policy.is_lowered))
    return moments


stretches = st.lists(
    st.tuples(
        st.one_of(st.just(Seen.IDLE), st.sampled_from(Seen)),
        st.integers(min_value=1, max_value=12),
        st.sampled_from((0.25, 1.0, LONGEST_GAP_S, 2 * LONGEST_GAP_S + 0.25)),
    ),
    max_size=20,
)


@given(stretches)
def test_it_is_lowered_only_after_idling_free_and_watched_so_long(
    steps: list[tuple[Seen, int, float]],
) -> None:
    moments = run(steps)
    for index, moment in enumerate(moments):
        if moment.act is not IdleAct.LOWER:
            continue
        first = index
        while first and (
            moments[first - 1].seen is Seen.IDLE
            and moments[first].now_s - moments[first - 1].now_s <= 2 * LONGEST_GAP_S
        ):
            first -= 1
        assert moment.seen is Seen.IDLE
        assert moment.now_s - moments[first].now_s >= AFTER_S


@given(stretches)
def test_it_is_never_lowered_after_a_sample_that_is_not_idle(
    steps: list[tuple[Seen, int, float]],
) -> None:
    assert [] == [m for m in run(steps) if m.is_lowered and m.seen is not Seen.IDLE]


@given(stretches)
def test_every_lowering_is_followed_by_one_giving_back(
    steps: list[tuple[Seen, int, float]],
) -> None:
    moments = run([*steps, (Seen.BUSY, 1, 1.0)])

    acts = [moment.act for moment in moments if moment.act is not IdleAct.NOTHING]
    assert [IdleAct.LOWER, IdleAct.GIVE_BACK] * (len(acts) // 2) == acts


@given(stretches)
def test_what_cannot_be_lowered_is_never_given_back(
    steps: list[tuple[Seen, int, float]],
) -> None:
    moments = run(steps, does_fail=True)

    assert [] == [m for m in moments if m.is_lowered or m.act is IdleAct.GIVE_BACK]


@given(stretches)
def test_a_gpu_that_idles_on_is_lowered_in_the_end(
    steps: list[tuple[Seen, int, float]],
) -> None:
    longest_s = 16 * AFTER_S
    moments = run([*steps, (Seen.IDLE, int(longest_s) + 1, 1.0), (Seen.IDLE, 1, 1.0)])

    assert moments[-1].is_lowered
