"""Sample reports: small roofline-like tables, planned by a plain sweep over multipliers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.plan import (
    FrontierPoint,
    Granularity,
    Interval,
    Objective,
    Plan,
    PlannedLaunch,
    PlannedRequest,
    PlanRequest,
    Status,
    Verification,
    VerificationPair,
)
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.sweep import FloatTable, Sweep, SweepSource
from joulewise.domain.transition import TransitionModel
from joulewise.domain.workload import Launch, Pass
from joulewise.report.compare import equal_slowdown_ratio
from joulewise.report.inputs import Provenance, ReportInputs

SM_CLOCKS_MHZ: tuple[int | None, ...] = (None, 630, 1050, 1470, 1890)
MEM_CLOCKS_MHZ: tuple[int | None, ...] = (None, 5001, 9501)
LAYER_COUNT = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What kind of report a test wants."""

    kernels: tuple[str, ...] = ("embedding", "gemm", "softmax", "gelu", "gradient", "update")
    sm_clocks_mhz: tuple[int | None, ...] = SM_CLOCKS_MHZ
    mem_clocks_mhz: tuple[int | None, ...] = MEM_CLOCKS_MHZ
    granularity: Granularity = Granularity.KERNEL
    max_slowdown_ratio: float | None = 0.006
    status: Status = Status.OPTIMAL
    is_verified: bool = True
    is_simulated: bool = True
    transition: TransitionModel | None = None


@pytest.fixture
def make_inputs() -> Callable[..., ReportInputs]:
    """Build the inputs of a report; arguments are the fields of `Wish`."""
    return lambda **wished: sample_inputs(Wish(**wished))


def sample_inputs(wish: Wish) -> ReportInputs:
    """Sweep, plan, frontiers and, where wished, a verification that fit together."""
    sweep = sample_sweep(wish)
    launches = sample_launches(wish.kernels)
    plan = _plan(wish, sweep, launches)
    by_kernel = [{launch.kernel} for launch in launches]
    by_pass = [{other.kernel for other in launches if other.pass_ is p} for p in Pass]
    verification = _verification(plan) if wish.is_verified else None
    limit_ratio = equal_slowdown_ratio(plan, verification)
    passes = _frontier(sweep, launches, [kernels for kernels in by_pass if kernels])
    return ReportInputs(
        plan=plan,
        sweep=sweep,
        verification=verification,
        kernel_frontier=_frontier(sweep, launches, by_kernel),
        pass_frontier=passes,
        best_pass=min(
            (trade for trade in passes if trade.slowdown_ratio <= limit_ratio),
            key=lambda trade: trade.energy_j,
            default=None,
        ),
        provenance=Provenance(joulewise_version="0.1.0", written_on="2026-01-31", seed=7),
    )


def sample_launches(kernels: Sequence[str]) -> tuple[Launch, ...]:
    """First kernel once, the middle ones per layer forward, the last two backward."""
    forward, backward = kernels[1:-2], kernels[-2:]
    return (
        Launch(kernel=kernels[0]),
        *(Launch(kernel=kernel) for _ in range(LAYER_COUNT) for kernel in forward),
        *(
            Launch(kernel=kernel, pass_=Pass.BACKWARD)
            for _ in range(LAYER_COUNT)
            for kernel in backward
        ),
    )


def sample_sweep(wish: Wish) -> Sweep:
    """Kernels from memory-bound to compute-bound on a made-up board."""
    points = tuple(
        OperatingPoint(sm_clock_mhz=sm, mem_clock_mhz=mem)
        for mem in wish.mem_clocks_mhz
        for sm in wish.sm_clocks_mhz
    )
    share = np.linspace(0.15, 0.95, len(wish.kernels))[:, None]
    sm = np.array([point.sm_clock_mhz or 1890 for point in points]) / 1890
    mem = np.array([point.mem_clock_mhz or 9501 for point in points]) / 9501
    time_s = 2e-3 * ((share / sm) ** 4 + ((1.1 - share) / mem) ** 4) ** 0.25
    # Auto is the highest clock here, to the last bit: processors differ in how they round.
    time_s = np.round(time_s, 14)
    forced = np.array([1.06 if point.mem_clock_mhz is None else 1.0 for point in points])
    power_w = 90 + 60 * mem + 190 * sm**2.4 * forced * (0.6 + 0.4 * share)
    baseline = AUTO if AUTO in points else points[-1]
    powered = Caveat(kind=CaveatKind.POWER_CAPPED, seen="capped for 12 % of the window")
    return Sweep(
        kernels=wish.kernels,
        points=points,
        baseline=baseline,
        source=SweepSource(
            device="virtual:sample" if wish.is_simulated else "sample",
            device_name="Sample GPU",
            tool="joulewise 0.1.0",
            workload="sample",
            is_simulated=wish.is_simulated,
        ),
        is_present=np.ones(time_s.shape, dtype=np.bool_),
        time_s=time_s,
        energy_j=np.round(time_s * power_w, 12),
        window_count=np.full(time_s.shape, 3, dtype=np.int64),
        cell_caveats={(wish.kernels[-1], baseline): (powered,)},
    )


def _plan(wish: Wish, sweep: Sweep, launches: Sequence[Launch]) -> Plan:
    by_kernel = [{kernel} for kernel in wish.kernels]
    classes = {
        Granularity.KERNEL: by_kernel,
        Granularity.REGION: by_kernel,
        Granularity.PASS: [
            {launch.kernel for launch in launches if launch.pass_ is p} for p in Pass
        ],
        Granularity.ITERATION: [set(wish.kernels)],
    }[wish.granularity]
    limit = np.inf if wish.max_slowdown_ratio is None else 1 + wish.max_slowdown_ratio
    choices = _choices(sweep, launches, [kernels for kernels in classes if kernels])
    base_time_s, base_energy_j = _total(
        sweep, launches, dict.fromkeys(wish.kernels, sweep.baseline)
    )
    chosen = dict.fromkeys(wish.kernels, sweep.baseline)
    if wish.status is not Status.NO_GAIN:
        within = [c for c in choices if _total(sweep, launches, c)[0] <= limit * base_time_s]
        chosen = min([*within, chosen], key=lambda choice: _total(sweep, launches, choice)[1])
    time_s, energy_j = _total(sweep, launches, chosen)
    planned = tuple(
        PlannedLaunch(kernel=launch.kernel, pass_=launch.pass_, point=chosen[launch.kernel])
        for launch in launches
    )
    requests, stalled_s, spent_j = _changes(planned, wish.transition)
    time_s, energy_j = time_s + stalled_s, energy_j + spent_j
    caveats = (Caveat(kind=CaveatKind.SIMULATED_DEVICE, seen="Sample GPU is a virtual device."),)
    return Plan(
        status=wish.status,
        request=PlanRequest(
            objective=Objective.ENERGY,
            granularity=wish.granularity,
            max_slowdown_ratio=wish.max_slowdown_ratio,
            transition=wish.transition,
        ),
        device=sweep.source.device,
        device_name=sweep.source.device_name,
        workload="sample",
        sweep_sha256="5a" * 32,
        baseline=sweep.baseline,
        time_s=time_s,
        energy_j=energy_j,
        baseline_time_s=base_time_s,
        baseline_energy_j=base_energy_j,
        slowdown_ratio=time_s / base_time_s,
        saving_ratio=1 - energy_j / base_energy_j,
        bound_gap_ratio=0.0,
        guard_band_ratio=0.001,
        launches=planned,
        requests=requests,
        transition_time_s=stalled_s,
        transition_energy_j=spent_j,
        caveats=caveats if wish.is_simulated else (),
    )


def _changes(
    launches: Sequence[PlannedLaunch], model: TransitionModel | None
) -> tuple[tuple[PlannedRequest, ...], float, float]:
    """Requests around the iteration, and what their changes take in time and energy."""
    requests, stalled_s, spent_j = [], 0.0, 0.0
    for index, launch in enumerate(launches):
        cost = model.cost(launches[index - 1].point, launch.point) if model else None
        if launches[index - 1].point != launch.point:
            lead_s = 0.0 if cost is None else cost.lag_s
            requests.append(PlannedRequest(launch_index=index, lead_s=lead_s, point=launch.point))
        if cost is not None:
            stalled_s, spent_j = stalled_s + cost.stall_s, spent_j + cost.energy_j
    return tuple(requests), stalled_s, spent_j


def _verification(plan: Plan) -> Verification:
    slowdown_ratio, saving_ratio = plan.slowdown_ratio + 0.001, plan.saving_ratio - 0.005
    pair = VerificationPair(
        baseline_time_s=plan.baseline_time_s,
        baseline_energy_j=plan.baseline_energy_j,
        plan_time_s=plan.baseline_time_s * slowdown_ratio,
        plan_energy_j=plan.baseline_energy_j * (1 - saving_ratio),
    )
    budget_ratio = plan.request.max_slowdown_ratio
    return Verification(
        plan_sha256="c3" * 32,
        device=plan.device,
        device_name=plan.device_name,
        pairs=(pair,) * 10,
        promised_slowdown_ratio=plan.slowdown_ratio,
        promised_saving_ratio=plan.saving_ratio,
        slowdown_ratio=slowdown_ratio,
        slowdown_interval=Interval(
            low_ratio=slowdown_ratio - 0.0004, high_ratio=slowdown_ratio + 0.0005
        ),
        saving_ratio=saving_ratio,
        saving_interval=Interval(low_ratio=saving_ratio - 0.003, high_ratio=saving_ratio + 0.002),
        max_slowdown_ratio=budget_ratio,
        is_within_budget=None if budget_ratio is None else slowdown_ratio <= 1 + budget_ratio,
        caveats=plan.caveats,
    )


def _frontier(
    sweep: Sweep, launches: Sequence[Launch], classes: Sequence[set[str]]
) -> tuple[FrontierPoint, ...]:
    baseline = dict.fromkeys(sweep.kernels, sweep.baseline)
    base_time_s, base_energy_j = _total(sweep, launches, baseline)
    totals = sorted(
        {_total(sweep, launches, choice) for choice in _choices(sweep, launches, classes)}
    )
    kept: list[FrontierPoint] = []
    for time_s, energy_j in totals:
        if kept and energy_j >= kept[-1].energy_j:
            continue
        kept.append(
            FrontierPoint(
                time_s=time_s,
                energy_j=energy_j,
                slowdown_ratio=time_s / base_time_s,
                saving_ratio=1 - energy_j / base_energy_j,
            )
        )
    return tuple(kept)


def _choices(
    sweep: Sweep, launches: Sequence[Launch], classes: Sequence[set[str]]
) -> list[dict[str, OperatingPoint]]:
    """The best point of every class at many prices of time."""
    counts: dict[str, int] = {}
    for launch in launches:
        counts[launch.kernel] = counts.get(launch.kernel, 0) + 1
    rows = {kernel: row for row, kernel in enumerate(sweep.kernels)}
    choices = []
    for price_w in (0.0, *np.geomspace(1, 1e4, 160)):
        chosen: dict[str, OperatingPoint] = {}
        for kernels in classes:
            cost: FloatTable = np.zeros(len(sweep.points))
            for kernel in sorted(kernels):
                row = rows[kernel]
                cost = cost + counts[kernel] * (sweep.energy_j[row] + price_w * sweep.time_s[row])
            chosen |= dict.fromkeys(kernels, sweep.points[int(np.argmin(cost))])
        choices.append(chosen)
    return choices


def _total(
    sweep: Sweep, launches: Sequence[Launch], choice: dict[str, OperatingPoint]
) -> tuple[float, float]:
    rows = {kernel: row for row, kernel in enumerate(sweep.kernels)}
    columns = {point: column for column, point in enumerate(sweep.points)}
    cells = [(rows[launch.kernel], columns[choice[launch.kernel]]) for launch in launches]
    return (
        float(sum(sweep.time_s[cell] for cell in cells)),
        float(sum(sweep.energy_j[cell] for cell in cells)),
    )
