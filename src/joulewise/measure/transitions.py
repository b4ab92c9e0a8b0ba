"""A transition model measured on the device it is for."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from joulewise.domain.errors import InputError, MeasurementError
from joulewise.domain.points import OperatingPoint
from joulewise.domain.ports import Lease, Progress, no_progress
from joulewise.domain.session import DeviceSession
from joulewise.domain.transition import (
    TransitionCost,
    TransitionDomain,
    TransitionModel,
    changed_domain,
)
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
) -> TransitionModel:
    """Measure what changes between these points cost; see `model_of` for what is made of it.

    Args:
        session: The device and what runs on it.
        lease: The right to set its clocks.
        kernel: A short one: the shorter, the finer stalls are seen.
        points: A few points that the device holds under load; every pair is measured.
        settings: Windows per pair, their length, warm-up and patience.
        progress: Told after every pair.

    Raises:
        InputError: fewer than two points, or a kernel that cannot run.
        MeasurementError: no change could be seen, or no trustworthy number came out.
        DeviceError: the device refused a point, has no energy counter, or was lost.
    """
    changes = measure_changes(session, lease, kernel, points, settings=settings, progress=progress)
    stall_power_w = measure_idle_power_w(session.gpu, settings)
    return model_of(changes, device=session.gpu.identity.name, stall_power_w=stall_power_w)


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
    changes: Sequence[MeasuredChange], *, device: str, stall_power_w: float | None
) -> TransitionModel:
    """One cost per domain: the largest of the measured pairs, and what was not seen as zero.

    A stall or an energy that did not stand out is 0. Where a stall stands out and its energy
    does not, the energy is the stall at `stall_power_w`, power without load; `None` leaves it
    at 0. `source` says all of that. Domains that no pair changes have no entry, so that a plan
    that needs them is refused.

    Raises:
        MeasurementError: there are no changes.
    """
    if not changes:
        raise MeasurementError("a transition model needs at least one measured change")
    costs, notes = [], []
    for domain in TransitionDomain:
        own = [change for change in changes if change.domain is domain]
        if not own:
            notes.append(f"{domain}: not measured")
            continue
        cost, note = _cost_of(domain, own, stall_power_w)
        costs.append(cost)
        notes.append(f"{domain}: {note}")
    return TransitionModel(
        name="measured",
        source=f"measured on {device} with joulewise measure-transitions; {'; '.join(notes)}",
        costs=tuple(costs),
        is_measured=True,
    )


def domains_between(points: Sequence[OperatingPoint]) -> tuple[TransitionDomain, ...]:
    """The domains that changes between these points move."""
    moved = {changed_domain(a, b) for a, b in combinations(points, 2)}
    return tuple(domain for domain in TransitionDomain if domain in moved)


def _cost_of(
    domain: TransitionDomain, own: Sequence[MeasuredChange], stall_power_w: float | None
) -> tuple[TransitionCost, str]:
    lag_s = max(change.lag_s for change in own)
    stalled = [change for change in own if change.is_stall_seen]
    stall_s = max((change.stall_s for change in stalled), default=0.0)
    energy_j, energy_note = _energy_of(own, stall_s, stall_power_w)
    if stalled:
        least_s = min(change.stall_s for change in stalled)
        stall_note = f"stall {_ms(least_s)} to {_ms(stall_s)}"
    else:
        stall_note = f"no stall seen, below {_ms(max(one.stall_least_s for one in own))}"
    cost = TransitionCost(domain=domain, lag_s=lag_s, stall_s=stall_s, energy_j=energy_j)
    return cost, f"lag up to {_ms(lag_s)}, {stall_note}, {energy_note}, {len(own)} pairs"


def _energy_of(
    own: Sequence[MeasuredChange], stall_s: float, stall_power_w: float | None
) -> tuple[float, str]:
    seen_j = [change.energy_j for change in own if change.is_energy_seen]
    if seen_j:
        return max(seen_j), f"energy {min(seen_j) * 1e3:.3g} to {max(seen_j) * 1e3:.3g} mJ"
    unseen = f"below {max(change.energy_least_j for change in own) * 1e3:.3g} mJ"
    if stall_s and stall_power_w is not None:
        return (
            stall_power_w * stall_s,
            f"energy {unseen}, taken as the stall at {stall_power_w:.0f} W, the power without load",
        )
    return 0.0, f"no energy seen, {unseen}"


def _ms(time_s: float) -> str:
    return f"{time_s * 1e3:.3g} ms"
