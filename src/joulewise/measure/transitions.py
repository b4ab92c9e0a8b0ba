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
from joulewise.measure.changes import ChangeMeter, MeasuredChange
from joulewise.measure.settings import MeasureSettings
from joulewise.measure.steady import measure_idle_power_w


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
    """Every pair of points, both ways, as far as its change can be seen.

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
    seen = []
    for number, (before, after) in enumerate(pairs):
        progress("measuring changes", number, len(pairs))
        change = meter.measure(before, after)
        if change is not None:
            seen.append(change)
    progress("measuring changes", len(pairs), len(pairs))
    if not seen:
        raise MeasurementError(
            "the clocks read alike at all points, so no change could be seen",
            hint="Take points that the device holds under load, well below its highest clocks.",
        )
    return tuple(seen)


def model_of(
    changes: Sequence[MeasuredChange], device: GpuIdentity, *, stall_power_w: float | None
) -> TransitionModel:
    """Costs by domain and target: the largest of the pairs that have the target as an end.

    An entry without a target, the largest of the domain, stands for targets that were not
    measured. A stall or an energy that did not stand out is 0. Where a stall stands out and
    its energy does not, the energy is the stall at `stall_power_w`, power without load; `None`
    leaves it at 0. `source` says all of that. Domains that no pair changes have no entry, so
    that a plan that needs them is refused.

    Raises:
        MeasurementError: there are no changes.
    """
    if not changes:
        raise MeasurementError("a transition model needs at least one measured change")
    costs: list[TransitionCost] = []
    notes = []
    for domain in TransitionDomain:
        own = [change for change in changes if change.domain is domain]
        if not own:
            notes.append(f"{domain}: not measured")
            continue
        costs += _costs_of(domain, own, stall_power_w)
        notes.append(f"{domain}: {_note(own, stall_power_w)}")
    return TransitionModel(
        name="measured",
        source=f"measured on {device.name} with joulewise measure-transitions; {'; '.join(notes)}",
        costs=tuple(costs),
        device_name=device.name,
        is_simulated=device.is_simulated,
    )


def _costs_of(
    domain: TransitionDomain, own: Sequence[MeasuredChange], stall_power_w: float | None
) -> list[TransitionCost]:
    """One entry for each target that was measured, and one for the rest."""
    by_target: dict[OperatingPoint, list[MeasuredChange]] = {}
    for change in own:
        for end in (change.before, change.after):
            by_target.setdefault(_part_of(end, domain), []).append(change)
    named = [
        TransitionCost(
            domain=domain,
            target=target,
            lag_s=max(change.lag_s for change in there),
            stall_s=_stall_s(there),
            energy_j=_energy_j(there, stall_power_w),
        )
        for target, there in by_target.items()
    ]
    rest = TransitionCost(
        domain=domain,
        lag_s=max(cost.lag_s for cost in named),
        stall_s=max(cost.stall_s for cost in named),
        energy_j=max(cost.energy_j for cost in named),
    )
    return [*named, rest]


def _part_of(point: OperatingPoint, domain: TransitionDomain) -> OperatingPoint:
    """The clocks of a target that count in a domain."""
    match domain:
        case TransitionDomain.SM:
            return replace(point, mem_clock_mhz=None)
        case TransitionDomain.MEMORY:
            return OperatingPoint(mem_clock_mhz=point.mem_clock_mhz)
        case TransitionDomain.BOTH:
            return point


def _stall_s(changes: Sequence[MeasuredChange]) -> float:
    return max((change.stall_s for change in changes if change.is_stall_seen), default=0.0)


def _energy_j(changes: Sequence[MeasuredChange], stall_power_w: float | None) -> float:
    seen_j = [change.energy_j for change in changes if change.is_energy_seen]
    return max(seen_j) if seen_j else (stall_power_w or 0.0) * _stall_s(changes)


def _note(own: Sequence[MeasuredChange], stall_power_w: float | None) -> str:
    """What was seen of the changes of one domain."""
    stalls_s = [change.stall_s for change in own if change.is_stall_seen]
    if stalls_s:
        stall_note = f"stall {_ms(min(stalls_s))} to {_ms(max(stalls_s))}"
    else:
        stall_note = f"no stall seen, below {_ms(max(one.stall_least_s for one in own))}"
    lag_note = f"lag up to {_ms(max(change.lag_s for change in own))}"
    return f"{lag_note}, {stall_note}, {_energy_note(own, stall_power_w)}, {len(own)} pairs"


def _energy_note(own: Sequence[MeasuredChange], stall_power_w: float | None) -> str:
    seen_j = [change.energy_j for change in own if change.is_energy_seen]
    unseen = f"below {max(change.energy_least_j for change in own) * 1e3:.3g} mJ"
    if len(seen_j) == len(own):
        return f"energy {min(seen_j) * 1e3:.3g} to {max(seen_j) * 1e3:.3g} mJ"
    if seen_j:
        return f"energy up to {max(seen_j) * 1e3:.3g} mJ, not seen in some pairs, {unseen}"
    if stall_power_w is not None and _stall_s(own):
        return (
            f"energy {unseen}, taken as the stall at {stall_power_w:.0f} W, the power without load"
        )
    return f"no energy seen, {unseen}"


def _ms(time_s: float) -> str:
    return f"{time_s * 1e3:.3g} ms"
