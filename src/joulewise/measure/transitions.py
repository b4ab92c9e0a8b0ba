"""A transition model measured on the device it is for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

from joulewise.domain.errors import InputError, MeasurementError
from joulewise.domain.points import OperatingPoint
from joulewise.domain.ports import GpuIdentity, Lease, Progress, no_progress
from joulewise.domain.session import DeviceSession
from joulewise.domain.transition import TransitionCost, TransitionDomain, TransitionModel
from joulewise.measure.change_accounts import MeasuredChange
from joulewise.measure.change_leads import measured_leads, with_whole_lags
from joulewise.measure.changes import ChangeMeter
from joulewise.measure.settings import MeasureSettings
from joulewise.measure.steady import measure_idle_power_w

NEGLIGIBLE_STALL_S = 1e-4
"""Stalls below this count as none where they cannot be seen: a tenth of the shortest that the
literature gives for a GPU."""
NEGLIGIBLE_LAG_RATIO = 0.001
"""And so do those below this part of the lag, which no two changes come nearer than."""


def measure_transitions(
    session: DeviceSession,
    lease: Lease,
    kernel: str,
    points: Sequence[OperatingPoint],
    *,
    settings: MeasureSettings,
    progress: Progress = no_progress,
) -> tuple[TransitionModel, tuple[MeasuredChange, ...]]:
    """Measure what changes between these points cost; see `model_of` for what is made of it.

    Args:
        session: The device and what runs on it.
        lease: The right to set its clocks.
        kernel: A short one: the shorter, the finer stalls are seen.
        points: A few points that the device holds under load; every pair is measured.
        settings: Windows per pair, their length, warm-up and patience.
        progress: Told after every pair.

    Returns:
        The model, and the changes that it stands on.

    Raises:
        InputError: fewer than two points, or a kernel that cannot run.
        MeasurementError: no change could be seen, or no trustworthy number came out.
        DeviceError: the device refused a point, has no energy counter, or was lost.
    """
    changes = measure_changes(session, lease, kernel, points, settings=settings, progress=progress)
    stall_power_w = measure_idle_power_w(session.gpu, settings)
    return model_of(changes, session.gpu.identity, stall_power_w=stall_power_w), changes


def measure_changes(
    session: DeviceSession,
    lease: Lease,
    kernel: str,
    points: Sequence[OperatingPoint],
    *,
    settings: MeasureSettings,
    progress: Progress = no_progress,
) -> tuple[MeasuredChange, ...]:
    """Every change between two of the points, as far as it can be seen.

    Raises:
        InputError: fewer than two points, or a kernel that cannot run.
        MeasurementError: no change could be seen, or no trustworthy number came out.
        DeviceError: the device refused a point, has no energy counter, or was lost.
    """
    distinct = tuple(dict.fromkeys(points))
    if len(distinct) < 2:  # noqa: PLR2004 - a change has two ends
        raise InputError("changes need at least two points to change between", field="points")
    meter = ChangeMeter(session, lease, kernel, settings)
    pairs = list(combinations(distinct, 2))
    seen: list[MeasuredChange] = []
    for number, (before, after) in enumerate(pairs):
        progress("measuring changes", number, len(pairs))
        change = meter.measure(before, after)
        if change is not None:
            seen.extend(change)
    progress("measuring changes", len(pairs), len(pairs))
    if not seen:
        raise MeasurementError(
            "2 s after each change the clocks read alike at all points, so no change could be seen",
            hint="Take points that the device holds under load, well below its highest clocks.",
        )
    return tuple(seen)


def model_of(
    changes: Sequence[MeasuredChange], device: GpuIdentity, *, stall_power_w: float | None
) -> TransitionModel:
    """Costs by domain and target: the largest of the changes that lead there.

    An entry without a target, the largest of the domain, stands for targets that were not
    measured. A stall that did not stand out is 0 where what could have been seen is small
    (`NEGLIGIBLE_STALL_S`, `NEGLIGIBLE_LAG_RATIO`); else it is taken to be as long as it may.
    An energy that did not stand out is the stall at `stall_power_w`, power without load; `None`
    leaves it at 0. `unseen_stall_s` and `unseen_energy_j` hold what may come on top of either,
    and `source` says all of that. Domains that no pair changes have no entry,
    so that a plan that needs them is refused. `dwell_s` is the longest call: nobody asks again
    before the last call has returned. `leads` has the lag of every change in its own direction,
    and how long it is in force in parts only.

    Raises:
        MeasurementError: there are no changes.
    """
    if not changes:
        raise MeasurementError("a transition model needs at least one measured change")
    changes = with_whole_lags(changes)
    costs: list[TransitionCost] = []
    notes = []
    for domain in TransitionDomain:
        own = [change for change in changes if change.domain is domain]
        if not own:
            notes.append(f"{domain}: not measured")
            continue
        costs += _costs_of(domain, own, stall_power_w)
        notes.append(f"{domain}: {_note(own, stall_power_w)}")
    simulated = "simulated " if device.is_simulated else ""
    return TransitionModel(
        name="measured",
        source=f"measured on {simulated}{device.name} with joulewise probe transitions; "
        f"{'; '.join(notes)}",
        costs=tuple(costs),
        dwell_s=max(change.worst_call_s for change in changes),
        device_name=device.name,
        is_simulated=device.is_simulated,
        leads=measured_leads(changes),
    )


def _costs_of(
    domain: TransitionDomain, own: Sequence[MeasuredChange], stall_power_w: float | None
) -> list[TransitionCost]:
    """One entry for each target that was measured, and one for the rest."""
    by_target: dict[OperatingPoint, list[MeasuredChange]] = {}
    for change in own:
        # Ends in the order of the points.
        for end in (change.before, change.after):
            by_target.setdefault(_part_of(end, domain), [])
        by_target[_part_of(change.after, domain)].append(change)
    named = [
        _cost_of(domain, target, there, stall_power_w)
        for target, there in by_target.items()
        if there
    ]
    rest = TransitionCost(
        domain=domain,
        lag_s=max(cost.lag_s for cost in named),
        stall_s=max(cost.stall_s for cost in named),
        energy_j=max(cost.energy_j for cost in named),
        unseen_stall_s=max(cost.unseen_stall_s for cost in named),
        unseen_energy_j=max(cost.unseen_energy_j for cost in named),
    )
    return [*named, rest]


def _cost_of(
    domain: TransitionDomain,
    target: OperatingPoint,
    there: Sequence[MeasuredChange],
    stall_power_w: float | None,
) -> TransitionCost:
    """The largest of the changes that lead to the target."""
    stall_s = max(_stall_s(change) for change in there)
    energy_j = max(_energy_j(change, stall_power_w) for change in there)
    may_s = max(
        change.stall_s if change.is_stall_seen else change.stall_least_s for change in there
    )
    may_j = max(
        change.energy_j if change.is_energy_seen else change.energy_least_j for change in there
    )
    return TransitionCost(
        domain=domain,
        target=target,
        lag_s=max(change.lag_s for change in there),
        stall_s=stall_s,
        energy_j=energy_j,
        unseen_stall_s=max(0.0, may_s - stall_s),
        unseen_energy_j=max(0.0, may_j - energy_j),
    )


def _part_of(point: OperatingPoint, domain: TransitionDomain) -> OperatingPoint:
    """The clocks of a target that count in a domain."""
    match domain:
        case TransitionDomain.SM:
            return replace(point, mem_clock_mhz=None)
        case TransitionDomain.MEMORY:
            return OperatingPoint(mem_clock_mhz=point.mem_clock_mhz)
        case TransitionDomain.BOTH:
            return point


def _stall_s(change: MeasuredChange) -> float:
    """As seen; as long as it may be where it was not seen and that is not small."""
    if change.is_stall_seen:
        return change.stall_s
    return 0.0 if _is_negligible(change) else change.stall_least_s


def _is_negligible(change: MeasuredChange) -> bool:
    small_s = max(NEGLIGIBLE_STALL_S, NEGLIGIBLE_LAG_RATIO * change.lag_s)
    return change.stall_least_s <= small_s


def _energy_j(change: MeasuredChange, stall_power_w: float | None) -> float:
    if change.is_energy_seen:
        return change.energy_j
    return (stall_power_w or 0.0) * _stall_s(change)


def _note(own: Sequence[MeasuredChange], stall_power_w: float | None) -> str:
    """What was seen of the changes of one domain."""
    parts = [
        f"call up to {_ms(max(change.worst_call_s for change in own))}",
        f"lag up to {_ms(max(change.lag_s for change in own))}",
    ]
    seen_s = [change.stall_s for change in own if change.is_stall_seen]
    if seen_s:
        parts.append(f"stall {_ms(min(seen_s))} to {_ms(max(seen_s))}")
    unseen = [change for change in own if not change.is_stall_seen]
    if unseen:
        where = " in some changes" if seen_s else ""
        text = f"no stall seen{where}, below {_ms(max(one.stall_least_s for one in unseen))}"
        if not all(_is_negligible(change) for change in unseen):
            text += ", and taken to be that"
        parts.append(text)
    return ", ".join((*parts, _energy_note(own, stall_power_w), f"{len(own)} changes"))


def _energy_note(own: Sequence[MeasuredChange], stall_power_w: float | None) -> str:
    seen_j = [change.energy_j for change in own if change.is_energy_seen]
    unseen = f"below {max(change.energy_least_j for change in own) * 1e3:.3g} mJ"
    if len(seen_j) == len(own):
        return f"energy {min(seen_j) * 1e3:.3g} to {max(seen_j) * 1e3:.3g} mJ"
    if seen_j:
        return f"energy up to {max(seen_j) * 1e3:.3g} mJ, not seen in some changes, {unseen}"
    if stall_power_w is not None and any(_stall_s(change) for change in own):
        return (
            f"energy {unseen}, taken as the stall at {stall_power_w:.0f} W, the power without load"
        )
    return f"no energy seen, {unseen}"


def _ms(time_s: float) -> str:
    return f"{time_s * 1e3:.3g} ms"
