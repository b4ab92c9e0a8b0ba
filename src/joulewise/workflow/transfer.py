"""`transfer`: how a plan's clocks fare on another batch size or tensor-parallel degree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from joulewise.domain.caveats import Caveat, CaveatKind, first_of_each_kind
from joulewise.domain.errors import InputError
from joulewise.domain.plan import Interval, Plan, PlannedLaunch
from joulewise.domain.points import OperatingPoint
from joulewise.domain.ports import HardwareRunners, Progress, no_progress
from joulewise.domain.session import DeviceSession
from joulewise.domain.workload import Pass, Workload
from joulewise.measure.settings import MeasureSettings
from joulewise.measure.verify import verify_plan
from joulewise.plan.requests import planned_requests
from joulewise.plan.solve import BUDGET_TOLERANCE_RATIO
from joulewise.simulator.device_string import is_virtual
from joulewise.store.documents import plan_sha256, read_plan
from joulewise.workflow.baseline_state import baseline_doubts, with_baseline_doubts
from joulewise.workflow.devices import open_session
from joulewise.workflow.leasing import lease_on
from joulewise.workflow.truth import is_noise_free, replanned_on_truth, true_iterations
from joulewise.workflow.verifying import refuse_impossible_points, refuse_other_device
from joulewise.workflow.workloads import is_named, load_workload, refuse_other_launches
from joulewise.workload.builtin import is_builtin
from joulewise.workload.gpt3_xl import gpt3_xl
from joulewise.workload.published_transfer import (
    PublishedStudy,
    PublishedTransfer,
    gpt3_xl_transfer,
)

_STUDIED = "gpt3-xl"
_FIGURE_OF_DEGREES = "figure 8"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferJob:
    """What `transfer` was asked for; without `targets`, those of the published study."""

    plan: Path
    device: str | None
    targets: tuple[str, ...]
    pair_count: int
    is_replanned: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedOutcome:
    """What a plan comes to on one workload, against the baseline of the same runs.

    Figures are medians over pairs with 95 % intervals; without noise they are exact, and the
    intervals `None`.
    """

    baseline_time_s: float
    baseline_energy_j: float
    slowdown_ratio: float
    saving_ratio: float
    slowdown_interval: Interval | None = None
    saving_interval: Interval | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replanned:
    """What a plan that is made for the target itself comes to, free of noise."""

    slowdown_ratio: float
    saving_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferRow:
    """One target. `is_own` marks the workload that the plan was made for.

    `is_within_budget` is `None` where the plan has no budget, and where the pairs show neither
    that the budget is kept nor that it is broken: it lies within the interval.
    """

    label: str
    workload: str
    is_own: bool
    carried: CarriedOutcome
    is_within_budget: bool | None
    published: PublishedTransfer | None = None
    replanned: Replanned | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferResult:
    """A plan on every target. `study` is what was published beside it, if anything was."""

    plan: Plan
    device: str
    is_truth: bool
    rows: tuple[TransferRow, ...]
    study: PublishedStudy | None
    caveats: tuple[Caveat, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """A workload, by what it is called, and the row of the study that it stands beside."""

    label: str
    workload: Workload
    published: PublishedTransfer | None


def transfer_plan(
    job: TransferJob,
    progress: Progress = no_progress,
    *,
    hardware: HardwareRunners | None = None,
) -> TransferResult:
    """Run baseline and plan on every target, side by side.

    On a virtual device without noise the figures are its truth; else each target is measured
    in `pair_count` pairs, as `verify` does. A plan with a transition model is always replayed.

    Raises:
        InputError: A plan or target that cannot be used; names file and field.
        DeviceError: The device refused a point or was lost.
        MeasurementError: No trustworthy number came out.
    """
    plan = read_plan(job.plan)
    if is_named(plan.workload):
        refuse_other_launches(plan, load_workload(plan.workload), job.plan)
    targets = _targets(job, plan)
    device = job.device if job.device is not None else plan.device
    if job.is_replanned and not is_virtual(device):
        raise InputError(
            "planning anew for a target needs a table of it, which only a virtual device gives "
            "at once",
            field="replan",
            hint="Measure the target with joulewise measure, and plan on that sweep.",
        )
    carried = {
        target.workload.name: carried_plan(plan, target.workload, job.plan) for target in targets
    }
    works = {target.workload.name: target.workload for target in targets}
    is_truth = plan.request.transition is None and is_noise_free(device)
    outcomes: dict[str, CarriedOutcome] = {}
    caveats: list[Caveat] = []
    for number, (name, one) in enumerate(carried.items()):
        session = open_session(device, works[name], plan.request.transition, hardware=hardware)
        refuse_other_device(plan, session.gpu.identity, job.plan)
        refuse_impossible_points(plan, session.gpu, job.plan)
        if is_truth:
            outcomes[name] = _truth(device, works[name], one)
            caveats += session.gpu.identity.caveats
            progress("targets", number + 1, len(carried))
        else:
            step = _shifted(progress, number, len(carried))
            outcomes[name], doubts = _measured(session, one, job.pair_count, step)
            caveats += doubts
    rows = tuple(_row(job, device, plan, target, outcomes, carried) for target in targets)
    doubts = (*_of_promise(plan, rows), *caveats, *_of_changes(plan))
    return TransferResult(
        plan=plan,
        device=device,
        is_truth=is_truth,
        rows=rows,
        study=gpt3_xl_transfer() if any(row.published for row in rows) else None,
        caveats=first_of_each_kind(*doubts),
    )


def carried_plan(plan: Plan, workload: Workload, file: Path) -> Plan:
    """The plan with the launches of another workload, each at the point of its kernel.

    Where the launches are the same, points are carried over one by one; else by kernel and
    pass, which needs one point for each. Requests are those that lead to these points; each is
    made as long ahead as its change lags, whatever the launches take. Figures stay those of the
    plan's own workload.

    Raises:
        InputError: Kernels differ, or points differ from launch to launch and the launches are
            not the same.
    """
    own = [(launch.kernel, launch.pass_) for launch in plan.launches]
    asked = [(launch.kernel, launch.pass_) for launch in workload.launches]
    launches = plan.launches
    if workload.name == plan.workload:
        refuse_other_launches(plan, workload, file)
    if own != asked:
        _refuse_other_kernels(plan, workload, file)
        points = _points_by_kernel(plan, workload, file)
        launches = tuple(
            PlannedLaunch(kernel=kernel, pass_=pass_, point=points[kernel, pass_])
            for kernel, pass_ in asked
        )
    requests = planned_requests(tuple(launch.point for launch in launches), plan.request.transition)
    return replace(plan, workload=workload.name, launches=launches, requests=requests)


def _refuse_other_kernels(plan: Plan, workload: Workload, file: Path) -> None:
    own = {(launch.kernel, launch.pass_): None for launch in plan.launches}
    asked = {(launch.kernel, launch.pass_): None for launch in workload.launches}
    for having, lacking, what in (
        (asked, own, f"{workload.name} launches {{}} ({{}} pass), which the plan does not"),
        (own, asked, f"the plan launches {{}} ({{}} pass), which {workload.name} does not"),
    ):
        for kernel, pass_ in having:
            if (kernel, pass_) not in lacking:
                raise InputError(
                    what.format(repr(kernel), pass_.value),
                    file=str(file),
                    field="launches",
                    hint="A plan carries over to workloads of the same kernels only: other batch "
                    "sizes and degrees of the same model.",
                )


def _points_by_kernel(
    plan: Plan, workload: Workload, file: Path
) -> dict[tuple[str, Pass], OperatingPoint]:
    if plan.request.transition is not None:
        raise InputError(
            f"the plan was made launch by launch for {len(plan.launches)} launches, and "
            f"{workload.name} has others ({len(workload.launches)})",
            file=str(file),
            field="launches",
            hint="Plan for that workload itself, or plan without --transition.",
        )
    points: dict[tuple[str, Pass], OperatingPoint] = {}
    for launch in plan.launches:
        key = (launch.kernel, launch.pass_)
        if points.setdefault(key, launch.point) != launch.point:
            raise InputError(
                f"the plan runs {launch.kernel!r} at several points, and {workload.name} does "
                "not launch the same kernels in the same order",
                file=str(file),
                field="launches",
                hint="Plan for that workload itself, or plan at kernel granularity.",
            )
    return points


def _targets(job: TransferJob, plan: Plan) -> list[_Target]:
    rows = gpt3_xl_transfer().rows
    studied = [(gpt3_xl(row.batch_count, row.tensor_parallel_count), row) for row in rows]
    if not job.targets:
        _refuse_unstudied(plan, job.plan)
        return [
            _Target(label=_label(row), workload=workload, published=row)
            for workload, row in studied
        ]
    beside: dict[str, PublishedTransfer] = {}
    for workload, row in studied:
        beside.setdefault(workload.name, row)
    loaded = [load_workload(text) for text in job.targets]
    return [
        _Target(
            label=workload.name,
            workload=workload,
            published=beside.get(workload.name) if is_builtin(workload.name) else None,
        )
        for workload in loaded
    ]


def _refuse_unstudied(plan: Plan, file: Path) -> None:
    """Other batch sizes and degrees were published of one workload alone."""
    if plan.workload.partition(",")[0] == _STUDIED:
        return
    why = f"the plan's workload ({plan.workload}) is not built in, so nothing says what "
    hint = "Name each with --to FILE."
    if is_named(plan.workload):
        why = f"the plan is for {plan.workload}, of which no study says what "
        hint = f"Name each, as in --to {plan.workload.partition(',')[0]},batch=2."
    raise InputError(
        f"{why}its other batch sizes and degrees are",
        file=str(file),
        field="workload",
        hint=hint,
    )


def _label(row: PublishedTransfer) -> str:
    """By the axis of the figure that the row is from."""
    if row.figure == _FIGURE_OF_DEGREES:
        return f"tp {row.tensor_parallel_count}"
    return f"batch {row.batch_count}"


def _row(
    job: TransferJob,
    device: str,
    plan: Plan,
    target: _Target,
    outcomes: dict[str, CarriedOutcome],
    carried: dict[str, Plan],
) -> TransferRow:
    name = target.workload.name
    budget = plan.request.max_slowdown_ratio
    replanned = None
    if job.is_replanned:
        best = replanned_on_truth(device, target.workload, carried[name])
        replanned = Replanned(slowdown_ratio=best.slowdown_ratio, saving_ratio=best.saving_ratio)
    return TransferRow(
        label=target.label,
        workload=name,
        is_own=name == plan.workload,
        carried=outcomes[name],
        is_within_budget=None if budget is None else _keeps(budget, outcomes[name]),
        published=target.published,
        replanned=replanned,
    )


def _keeps(budget: float, seen: CarriedOutcome) -> bool | None:
    """By the whole interval; `None` where the budget lies within it."""
    limit_ratio = (1.0 + budget) * (1.0 + BUDGET_TOLERANCE_RATIO)
    interval = seen.slowdown_interval
    if interval is None:
        return seen.slowdown_ratio <= limit_ratio
    if interval.high_ratio <= limit_ratio:
        return True
    return False if interval.low_ratio > limit_ratio else None


def _of_promise(plan: Plan, rows: Sequence[TransferRow]) -> tuple[Caveat, ...]:
    """Targets whose pairs do not show that the budget is kept, told once for all."""
    budget = plan.request.max_slowdown_ratio
    highest = [
        row.carried.slowdown_interval.high_ratio
        for row in rows
        if row.carried.slowdown_interval is not None and row.is_within_budget is not True
    ]
    if budget is None or not highest:
        return ()
    seen = (
        f"On {len(highest)} of {len(rows)} targets the slowdown may be beyond the budget of "
        f"{budget:.2%}, as large as {max(highest) - 1.0:.2%}."
    )
    return (Caveat(kind=CaveatKind.PROMISE_NOT_SHOWN, seen=seen),)


def _truth(device: str, workload: Workload, plan: Plan) -> CarriedOutcome:
    baseline, planned = true_iterations(device, workload, plan)
    return CarriedOutcome(
        baseline_time_s=baseline[0],
        baseline_energy_j=baseline[1],
        slowdown_ratio=planned[0] / baseline[0],
        saving_ratio=1.0 - planned[1] / baseline[1],
    )


def _measured(
    session: DeviceSession, plan: Plan, pair_count: int, progress: Progress
) -> tuple[CarriedOutcome, tuple[Caveat, ...]]:
    with lease_on(session.gpu) as lease:
        doubts = baseline_doubts(session.gpu)
        seen = verify_plan(
            session,
            lease,
            plan,
            pair_count=pair_count,
            settings=MeasureSettings(),
            plan_sha256=plan_sha256(plan),
            progress=progress,
        )
    outcome = CarriedOutcome(
        baseline_time_s=median(pair.baseline_time_s for pair in seen.pairs),
        baseline_energy_j=median(pair.baseline_energy_j for pair in seen.pairs),
        slowdown_ratio=seen.slowdown_ratio,
        saving_ratio=seen.saving_ratio,
        slowdown_interval=seen.slowdown_interval,
        saving_interval=seen.saving_interval,
    )
    return outcome, with_baseline_doubts(seen.caveats, doubts)


def _shifted(progress: Progress, number: int, target_count: int) -> Progress:
    """One bar for all targets, which take equally many steps."""

    def report(what: str, done_count: int, total_count: int) -> None:
        progress(what, number * total_count + done_count, target_count * total_count)

    return report


def _of_changes(plan: Plan) -> tuple[Caveat, ...]:
    point_count = len({launch.point for launch in plan.launches})
    if plan.request.transition is not None or point_count == 1:
        return ()
    seen = f"The plan uses {point_count} operating points; changing between them is free in it."
    return (Caveat(kind=CaveatKind.TRANSITIONS_NOT_COUNTED, seen=seen),)
