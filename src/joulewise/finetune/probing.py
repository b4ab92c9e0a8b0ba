"""Thirty training steps at three clocks, and the clock that they speak for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.errors import InputError, MeasurementError
from joulewise.domain.finetuning import ClockChoice, ClockCost
from joulewise.finetune.policies.policy import listed, nearest_listed
from joulewise.finetune.probing_fit import (
    Fitter,
    ProbedCurve,
    fit_steps,
    optimum_interval_mhz,
)

PROBE = "probe"
PROBE_CLOCK_COUNT = 3
PROBE_STEP_COUNT = 10
"""Steps at each clock; thirty in all, as in the thesis beside the paper (NUR 123456789/18744)."""
FLAT_RATIO = 0.005
"""Clocks within 0.5 % of the least energy count as equal, and the fastest of them is taken
(assumed: what a fit through noise of a per cent cannot tell apart)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSpread:
    """Where the other two clocks lie, as shares of the advised one.

    Far enough apart that noise of a per cent cannot turn the curve, near enough that one power law
    holds between them (assumed; `studies/finetune.py` tries nearer and farther ones).
    """

    low_ratio: float = 0.6
    high_ratio: float = 1.5


USUAL_SPREAD = ProbeSpread()

# Where the list has no room above or below the advised clock, both others lie on one side, about
# as far from one another as they would be (all of these are assumed).
_ROOM_RATIO = 1.2
_BELOW_RATIOS, _ABOVE_RATIOS = (0.5, 0.7), (1.5, 2.2)
_STD_ERROR_COUNT = 2.0
_ROUNDING_RATIO = 1e-9
# Times and energies of a step beyond these are none that anything measured (assumed; they are in
# seconds and joules alike).
_LEAST_AMOUNT, _MOST_AMOUNT = 1e-9, 1e9


def probe_clocks(
    advised_mhz: int | None, sm_clocks_mhz: Sequence[int], *, spread: ProbeSpread = USUAL_SPREAD
) -> tuple[int, int, int]:
    """Three listed clocks to probe: the advised one, one well below and one well above.

    At an end of the list both others lie on the side where there is room.

    Args:
        advised_mhz: What a policy picked; `None`: it left the clock to the governor, and the
            middle of the list stands in.
        sm_clocks_mhz: Clocks that the device lists, in MHz.
        spread: Where the other two lie.

    Returns:
        The three, ascending.

    Raises:
        InputError: the device lists fewer than three clocks, or one of the clocks is none.
    """
    clocks = listed(sm_clocks_mhz)
    for clock in (*clocks, *(() if advised_mhz is None else (advised_mhz,))):
        if clock <= 0:
            raise InputError(
                f"{clock} MHz is no SM clock",
                field="sm_clock_mhz",
                hint="Name one of those that joulewise probe lists.",
            )
    if len(clocks) < PROBE_CLOCK_COUNT:
        raise InputError(
            f"probing needs {PROBE_CLOCK_COUNT} SM clocks, and the device lists {len(clocks)}",
            hint="Use --no-probe.",
        )
    middle_mhz = clocks[len(clocks) // 2] if advised_mhz is None else advised_mhz
    advised = nearest_listed(middle_mhz, clocks)
    ratios = (spread.low_ratio, spread.high_ratio)
    if clocks[-1] < _ROOM_RATIO * advised:
        ratios = _BELOW_RATIOS
    elif clocks[0] * _ROOM_RATIO > advised:
        ratios = _ABOVE_RATIOS
    wanted = sorted((1.0, *ratios))
    return _distinct([nearest_listed(round(ratio * advised), clocks) for ratio in wanted], clocks)


def _distinct(wanted: Sequence[int], clocks: tuple[int, ...]) -> tuple[int, int, int]:
    """Ascending clocks moved apart where two are the same, the first one first."""
    places = [clocks.index(clock) for clock in wanted]
    for index in range(1, len(places)):
        places[index] = max(places[index], places[index - 1] + 1)
    most = len(clocks) - 1
    for index in reversed(range(len(places))):
        places[index] = min(places[index], most)
        most = places[index] - 1
    low, middle, high = (clocks[place] for place in places)
    return low, middle, high


def choose_by_probing(
    costs: Sequence[ClockCost],
    sm_clocks_mhz: Sequence[int],
    *,
    baseline: ClockCost | None = None,
    max_slowdown_ratio: float | None = None,
    fitter: Fitter = fit_steps,
) -> ClockChoice:
    """The clock of least energy by a curve through what was probed.

    Time is fitted as a/f + b and power as p0 + p1 f V(f)^2; see `probing_fit`. No clock more than
    one level beyond the probed ones is taken, for there the curve says little. Of clocks within
    0.5 % of the least energy the fastest is taken, for a flat curve gives time away for nothing.

    Args:
        costs: Steps at three clocks or more, of one run.
        sm_clocks_mhz: Clocks that the device lists, in MHz.
        baseline: Steps under the governor, in the same run; the clock is left to it where the
            curve promises no saving against it.
        max_slowdown_ratio: Most time that may be lost against the baseline, 0.05 for 5 %; without
            a baseline against the fitted time at the highest clock, which no governor beats.
        fitter: Fits the curve.

    Raises:
        InputError: a cost at a clock that is not listed, costs at fewer than three clocks, or a
            budget that is no number.
        MeasurementError: a cost that nothing measured has, or costs that no curve goes through.
    """
    clocks = listed(sm_clocks_mhz)
    _check(costs, clocks)
    _check_against(baseline, max_slowdown_ratio)
    costs = [_with_known_error(one) for one in costs]
    fit = _fitted(costs, clocks, fitter)
    probed = _Probed(
        fit=fit, costs=tuple(costs), baseline=baseline, top_s=fit.time_s(float(clocks[-1]))
    )
    candidates = _near(costs, clocks)
    if max_slowdown_ratio is not None:
        limit_s = probed.reference_s * (1.0 + max_slowdown_ratio) * (1.0 + _ROUNDING_RATIO)
        candidates = [clock for clock in candidates if probed.time_s(clock) <= limit_s]
        if not candidates:
            return _unfitting(clocks[-1], probed)
    least_j = min(fit.energy_j(clock) for clock in candidates)
    flat = [clock for clock in candidates if fit.energy_j(clock) <= least_j * (1.0 + FLAT_RATIO)]
    chosen = max(flat)
    if baseline is not None and fit.energy_j(chosen) >= baseline.energy_j:
        return _governor(chosen, probed)
    return _chosen(chosen, flat, clocks, probed)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Probed:
    """What was probed, what was fitted to it, and the fitted time at the highest clock."""

    fit: ProbedCurve
    costs: tuple[ClockCost, ...]
    baseline: ClockCost | None
    top_s: float

    @property
    def reference_s(self) -> float:
        """The time that a budget is against."""
        return self.top_s if self.baseline is None else self.baseline.time_s

    def time_s(self, sm_clock_mhz: int) -> float:
        """What was measured at a probed clock, else what was fitted."""
        found = [one.time_s for one in self.costs if one.sm_clock_mhz == sm_clock_mhz]
        return sum(found) / len(found) if found else self.fit.time_s(sm_clock_mhz)


def _near(costs: Sequence[ClockCost], clocks: tuple[int, ...]) -> list[int]:
    """Clocks between the probed ones, and one level beyond on either side."""
    places = [clocks.index(one.sm_clock_mhz) for one in costs if one.sm_clock_mhz is not None]
    return list(clocks[max(0, min(places) - 1) : max(places) + 2])


def _chosen(
    clock_mhz: int, flat: Sequence[int], clocks: tuple[int, ...], probed: _Probed
) -> ClockChoice:
    fit, baseline = probed.fit, probed.baseline
    steps = sum(one.step_count or 0 for one in probed.costs)
    where = ", ".join(str(one.sm_clock_mhz) for one in probed.costs)
    said = f"probed {where} MHz" + (f" for {steps} steps" if steps else "")
    equal = [str(clock) for clock in flat if clock != clock_mhz]
    if equal:
        said += f"; {', '.join(equal)} MHz would take as little energy and more time"
    energy_ratio = None if baseline is None else fit.energy_j(clock_mhz) / baseline.energy_j
    return ClockChoice(
        policy=PROBE,
        sm_clock_mhz=clock_mhz,
        reason=f"{said}{_range_text(probed, clocks)}",
        energy_ratio=energy_ratio,
        slowdown_ratio=probed.time_s(clock_mhz) / probed.reference_s,
        caveats=_doubts(clock_mhz, probed),
    )


def _range_text(probed: _Probed, clocks: tuple[int, ...]) -> str:
    """Which clocks may be best, as far as the scatter of the blocks tells."""
    near = _near(probed.costs, clocks)
    interval = optimum_interval_mhz(probed.fit, near, _STD_ERROR_COUNT)
    if interval is None or interval[0] == interval[1]:
        return ""
    return f"; by their scatter the best clock lies between {interval[0]} and {interval[1]} MHz"


def _governor(clock_mhz: int, probed: _Probed) -> ClockChoice:
    return ClockChoice(
        policy=PROBE,
        sm_clock_mhz=None,
        reason=f"the best of the fitted clocks, {clock_mhz} MHz, would save nothing against the "
        "governor, so the clock is left to it",
        energy_ratio=1.0,
        slowdown_ratio=1.0,
        caveats=_carried(probed),
    )


def _unfitting(top_mhz: int, probed: _Probed) -> ClockChoice:
    has_baseline = probed.baseline is not None
    instead = "it is left to the governor" if has_baseline else "the highest one is held"
    return ClockChoice(
        policy=PROBE,
        sm_clock_mhz=None if has_baseline else top_mhz,
        reason=f"no probed clock is within the time budget, so {instead}",
        energy_ratio=1.0 if has_baseline else None,
        slowdown_ratio=1.0,
        caveats=_carried(probed),
    )


def _doubts(clock_mhz: int, probed: _Probed) -> tuple[Caveat, ...]:
    probed_mhz = [one.sm_clock_mhz for one in probed.costs if one.sm_clock_mhz is not None]
    if min(probed_mhz) <= clock_mhz <= max(probed_mhz):
        return _carried(probed)
    seen = (
        f"{clock_mhz} MHz lies beyond the probed {min(probed_mhz)} to {max(probed_mhz)} MHz; "
        "one level is as far as the curve is trusted."
    )
    return (Caveat(kind=CaveatKind.EXTRAPOLATED, seen=seen), *_carried(probed))


def _carried(probed: _Probed) -> tuple[Caveat, ...]:
    """Doubts about the blocks, one of a kind."""
    kinds: dict[CaveatKind, Caveat] = {}
    for one in probed.costs:
        for caveat in one.caveats:
            kinds.setdefault(caveat.kind, caveat)
    return tuple(kinds.values())


def _check(costs: Sequence[ClockCost], clocks: tuple[int, ...]) -> None:
    for one in costs:
        if one.sm_clock_mhz not in clocks:
            raise InputError(
                f"a block was probed at {one.sm_clock_mhz or 'auto'} MHz, which the device does "
                "not list",
                field="sm_clock_mhz",
            )
        _check_amounts(one, f"the block at {one.sm_clock_mhz} MHz")
    found_count = len({one.sm_clock_mhz for one in costs})
    if found_count < PROBE_CLOCK_COUNT:
        raise InputError(
            f"blocks at {found_count} clocks do not make a curve; {PROBE_CLOCK_COUNT} do",
            field="sm_clock_mhz",
        )


def _check_against(baseline: ClockCost | None, max_slowdown_ratio: float | None) -> None:
    if baseline is not None:
        _check_amounts(baseline, "the block under the governor")
    if max_slowdown_ratio is not None and not math.isfinite(max_slowdown_ratio):
        raise InputError(
            f"a budget of {max_slowdown_ratio:g} is none",
            field="max-slowdown",
            hint="Write 0.05 for 5 %, or none for any time.",
        )


def _check_amounts(cost: ClockCost, what: str) -> None:
    amounts = (cost.time_s, cost.energy_j)
    if not all(_LEAST_AMOUNT <= value <= _MOST_AMOUNT for value in amounts):
        raise MeasurementError(
            f"{what} took {cost.time_s:g} s and {cost.energy_j:g} J",
            hint="Probe again with longer blocks.",
        )


def _with_known_error(cost: ClockCost) -> ClockCost:
    """A standard error that cannot be one is not known."""
    error_j = cost.energy_error_j
    if error_j is None or 0 <= error_j <= _MOST_AMOUNT:
        return cost
    return replace(cost, energy_error_j=None)


def _fitted(costs: Sequence[ClockCost], clocks: tuple[int, ...], fitter: Fitter) -> ProbedCurve:
    """The curve, if it says something at every clock that the device lists."""
    try:
        fit = fitter(costs)
        told = [value for clock in clocks for value in (fit.time_s(clock), fit.energy_j(clock))]
    except (ArithmeticError, ValueError) as error:
        raise _curveless() from error
    if not all(math.isfinite(value) and value > 0 for value in told):
        raise _curveless()
    return fit


def _curveless() -> MeasurementError:
    return MeasurementError(
        "no curve goes through the blocks: they are too unlike each other",
        hint="Probe again with longer blocks.",
    )
