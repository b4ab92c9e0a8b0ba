"""What transitions leave of a saving: one row for each latency, and the sentence on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from joulewise.domain.caveats import Caveat
from joulewise.domain.points import OperatingPoint
from joulewise.report.wording import change, percent

_SEEN_RATIO = 0.0005  # below 0.05 points two savings read the same
_TOLERANCE_RATIO = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class TransitionCostRow:
    """One latency: the plan that counts it, and the plan that does not.

    Times and energies are per iteration, changes included. `naive_…` is the kernel plan made as
    if changes were free, carried out at this latency; `None` where it runs a launch at a point
    at which that was never measured. `static_…` is the best single point, which makes no changes.
    Where no plan keeps the budget the plan's fields are `None`.

    A bound gap is how far the plan's energy may lie above the least that is possible within the
    budget at this latency, as a share of its own; `None` where no bound was proven, and for a
    naive plan that breaks the budget.
    """

    latency_s: float
    saving_ratio: float | None
    slowdown_ratio: float | None
    change_count: int | None
    bound_gap_ratio: float | None
    time_s: float | None
    energy_j: float | None
    naive_saving_ratio: float | None
    naive_slowdown_ratio: float | None
    naive_change_count: int
    naive_bound_gap_ratio: float | None
    naive_time_s: float | None
    naive_energy_j: float | None
    static_saving_ratio: float | None
    static_slowdown_ratio: float | None
    static_change_count: int | None
    static_bound_gap_ratio: float | None
    static_time_s: float | None
    static_energy_j: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransitionCosts:
    """A whole table, with what it is of.

    `stall_power_w` is `None` in the lag model, in which work goes on. `static_point` is the best
    single point within the budget, for which latency is no matter; `None` where there is none.
    """

    workload: str
    device_name: str
    is_simulated: bool
    model: str
    stall_power_w: float | None
    max_slowdown_ratio: float
    baseline_time_s: float
    baseline_energy_j: float
    static_point: OperatingPoint | None
    rows: tuple[TransitionCostRow, ...]
    caveats: tuple[Caveat, ...] = ()


def transition_cost_sentence(costs: TransitionCosts) -> str:
    """What stays of the saving, how long changes pay, and where the naive plan breaks."""
    rows = [row for row in costs.rows if row.saving_ratio is not None]
    budget = change(1.0 + costs.max_slowdown_ratio)
    if not rows:
        return f"At no latency does any plan keep a budget of {budget} time."
    first = rows[0]
    saved = percent(first.saving_ratio or 0.0, digit_count=1)
    parts = (
        f"Within {budget} time, {saved} less energy at latency {latency_text(first.latency_s)}",
        _what_is_left(rows),
        _where_naive_breaks(costs.rows, costs.max_slowdown_ratio),
    )
    return "; ".join(part for part in parts if part) + "."


def _what_is_left(rows: Sequence[TransitionCostRow]) -> str:
    """The longest latency at which changing clocks still betters the best single point."""
    paying = [row for row in rows if _lead_ratio(row) > _SEEN_RATIO]
    if not paying:
        return "changing clocks never betters the best single point"
    last = paying[-1]
    saved = percent(last.saving_ratio or 0.0, digit_count=1)
    text = "" if last is rows[0] else f"{saved} are left at {latency_text(last.latency_s)}"
    beyond = [row for row in rows if row.latency_s > last.latency_s]
    if beyond:
        more = f"from {latency_text(beyond[0].latency_s)} on changing clocks pays no more"
        text = f"{text}, and {more}" if text else more
    return text


def _where_naive_breaks(rows: Sequence[TransitionCostRow], max_slowdown_ratio: float) -> str:
    limit = (1.0 + max_slowdown_ratio) * (1.0 + _TOLERANCE_RATIO)
    broken = [
        row
        for row in rows
        if row.naive_slowdown_ratio is not None and row.naive_slowdown_ratio > limit
    ]
    if not broken:
        return "the plan that does not count changes keeps the budget as well"
    worst = max(broken, key=lambda row: row.naive_slowdown_ratio or 0.0)
    return (
        "the plan that does not count changes breaks the budget from "
        f"{latency_text(broken[0].latency_s)} on and takes "
        f"{change(worst.naive_slowdown_ratio or 1.0, digit_count=0)} time at worst"
    )


def _lead_ratio(row: TransitionCostRow) -> float:
    return (row.saving_ratio or 0.0) - max(row.static_saving_ratio or 0.0, 0.0)


def latency_text(latency_s: float) -> str:
    """`1e-05` as `10 µs`: as short as it was asked for."""
    for least_s, scale, unit in ((1.0, 1.0, "s"), (1e-3, 1e3, "ms"), (1e-15, 1e6, "µs")):
        if latency_s >= least_s:
            return f"{latency_s * scale:g}\N{NARROW NO-BREAK SPACE}{unit}"
    return "0"
