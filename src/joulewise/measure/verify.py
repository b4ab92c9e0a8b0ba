"""Verification: the plan against the baseline, in fresh pairs that it was not chosen from."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.errors import InputError
from joulewise.domain.measurement import ReplayWindow, Window
from joulewise.domain.plan import Interval, Plan, Verification, VerificationPair
from joulewise.domain.ports import Lease, Progress, no_progress
from joulewise.domain.session import DeviceSession
from joulewise.measure.doubts import tally
from joulewise.measure.fresh import interleaved, measure_in_turn
from joulewise.measure.replayed_pairs import (
    assumed_transitions,
    changes_point,
    replayed_pairs,
    uncounted_transitions,
)
from joulewise.measure.settings import MeasureSettings
from joulewise.measure.statistics import log_ratio_interval
from joulewise.measure.table import CellKey

FEWEST_PAIRS_COUNT = 2


def verify_plan(  # noqa: PLR0913 - what, where, how, and whom to tell
    session: DeviceSession,
    lease: Lease,
    plan: Plan,
    *,
    pair_count: int = 10,
    settings: MeasureSettings,
    plan_sha256: str,
    progress: Progress = no_progress,
) -> Verification:
    """Measure baseline and plan side by side, `pair_count` times.

    Each pair is one measuring run, so that the time shift of a run cancels within it.

    A plan that makes no changes of clocks, or was made without counting them, is measured
    kernel by kernel: one window at the baseline and at each point planned for the kernel, directly
    after one another, in an order that turns around from pair to pair. Where the plan keeps
    the baseline, both sides share one window. Sums over the launches of the iteration make
    the pair.

    A plan that changes its point and has a transition model is carried out: both sides run
    whole iterations, the plan's with its requests, so that what changes cost is in the figures.

    Args:
        session: The device and what runs on it.
        lease: The right to set its clocks.
        plan: What to verify.
        pair_count: At least 2; fewer than 6 give wide intervals.
        settings: Length of a window, warm-up and patience.
        plan_sha256: Names the plan.
        progress: Told after every cell or pair.

    Returns:
        Medians over pairs with 95 % intervals of the paired log-ratios (see
        `statistics.median_interval`). `is_within_budget` says whether the median slowdown
        keeps the budget; where the interval reaches beyond it, the caveat PromiseNotShown
        is attached.

    Raises:
        InputError: too few pairs, an empty plan, or requests that do not lead to its points.
        NotSupported: the plan counts its changes, and the device runs no whole iterations.
        MeasurementError: no trustworthy number came out of a cell.
        DeviceError: the device refused a point, has no energy counter, or was lost.
    """
    if pair_count < FEWEST_PAIRS_COUNT:
        raise InputError(
            f"a verification needs at least {FEWEST_PAIRS_COUNT} pairs, got {pair_count}",
            field="pairs",
        )
    if not plan.launches:
        raise InputError("the plan has no launches", field="launches")
    measured = _measured_pairs(session, lease, plan, pair_count, settings, progress)
    pairs: list[VerificationPair] = []
    windows: list[Window | ReplayWindow] = []
    for pair, seen in measured:
        pairs.append(pair)
        windows.extend(seen)
    return _verdict(session, plan, pairs, windows, plan_sha256)


def _measured_pairs(
    session: DeviceSession,
    lease: Lease,
    plan: Plan,
    pair_count: int,
    settings: MeasureSettings,
    progress: Progress,
) -> Iterator[tuple[VerificationPair, Sequence[Window | ReplayWindow]]]:
    """Pairs with the windows that they come from."""
    if plan.request.transition is None or not changes_point(plan):
        yield from _cell_pairs(session, lease, plan, pair_count, settings, progress)
        return
    progress("verifying", 0, pair_count)
    replayed = replayed_pairs(session, lease, plan, pair_count, settings=settings)
    for done_count, (pair, seen) in enumerate(replayed, start=1):
        progress("verifying", done_count, pair_count)
        yield pair, seen


def _cell_pairs(
    session: DeviceSession,
    lease: Lease,
    plan: Plan,
    pair_count: int,
    settings: MeasureSettings,
    progress: Progress,
) -> Iterator[tuple[VerificationPair, Sequence[Window]]]:
    """Pairs that are sums of cells."""
    counts = Counter((launch.kernel, launch.point) for launch in plan.launches)
    cells = _cells(plan, counts)
    for number in range(pair_count):
        run = f"verify/{number}"
        order = interleaved(cells, seed=settings.seed, label="verify", round_number=number)
        seen: dict[CellKey, Window] = {}
        for key, window in measure_in_turn(session, lease, order, run, 0, settings):
            seen[key] = window
            progress("verifying", number * len(cells) + len(seen), pair_count * len(cells))
        yield _pair(plan, counts, seen), tuple(seen.values())


def _cells(plan: Plan, counts: Mapping[CellKey, int]) -> tuple[CellKey, ...]:
    """Every kernel at the baseline and at each of its planned points, once."""
    return tuple(
        dict.fromkeys(
            cell for kernel, point in counts for cell in ((kernel, plan.baseline), (kernel, point))
        )
    )


def _pair(
    plan: Plan, counts: Mapping[CellKey, int], seen: Mapping[CellKey, Window]
) -> VerificationPair:
    planned = [(seen[key], count) for key, count in counts.items()]
    baseline = [(seen[kernel, plan.baseline], count) for (kernel, _), count in counts.items()]
    return VerificationPair(
        baseline_time_s=math.fsum(window.time_s * count for window, count in baseline),
        baseline_energy_j=math.fsum(window.energy_j * count for window, count in baseline),
        plan_time_s=math.fsum(window.time_s * count for window, count in planned),
        plan_energy_j=math.fsum(window.energy_j * count for window, count in planned),
    )


def _verdict(
    session: DeviceSession,
    plan: Plan,
    pairs: Sequence[VerificationPair],
    windows: Sequence[Window | ReplayWindow],
    plan_sha256: str,
) -> Verification:
    slowdown_ratio, slowdown_interval = log_ratio_interval(
        [pair.plan_time_s for pair in pairs], [pair.baseline_time_s for pair in pairs]
    )
    energy_ratio, energy_interval = log_ratio_interval(
        [pair.plan_energy_j for pair in pairs], [pair.baseline_energy_j for pair in pairs]
    )
    budget = plan.request.max_slowdown_ratio
    gpu = session.gpu
    return Verification(
        plan_sha256=plan_sha256,
        device=gpu.identity.spec,
        device_name=gpu.identity.name,
        pairs=tuple(pairs),
        promised_slowdown_ratio=plan.slowdown_ratio,
        promised_saving_ratio=plan.saving_ratio,
        slowdown_ratio=slowdown_ratio,
        slowdown_interval=slowdown_interval,
        saving_ratio=1.0 - energy_ratio,
        saving_interval=Interval(
            low_ratio=1.0 - energy_interval.high_ratio, high_ratio=1.0 - energy_interval.low_ratio
        ),
        max_slowdown_ratio=budget,
        is_within_budget=None if budget is None else slowdown_ratio <= 1.0 + budget,
        caveats=(
            *gpu.identity.caveats,
            *tally(windows),
            *_promise_not_shown(budget, slowdown_interval),
            *uncounted_transitions(plan),
            *assumed_transitions(session, plan),
        ),
    )


def _promise_not_shown(budget: float | None, slowdown: Interval) -> tuple[Caveat, ...]:
    if budget is None or slowdown.high_ratio <= 1.0 + budget:
        return ()
    # Where the whole interval lies beyond the budget, more pairs would show the same.
    is_broken = slowdown.low_ratio > 1.0 + budget
    return (
        Caveat(
            kind=CaveatKind.PROMISE_NOT_SHOWN,
            seen=f"the slowdown may be as large as {slowdown.high_ratio - 1.0:.2%}, "
            f"beyond the budget of {budget:.2%}",
            advice="Plan for a smaller budget." if is_broken else None,
        ),
    )
