"""What a workload is made of: kernels and passes with their launches, work, time and energy."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from joulewise.domain.trace import IterationTrace, TracedLaunch
from joulewise.domain.workload import KernelKind, KernelWork, Launch, Pass, Workload
from joulewise.report.workload_amounts import Amounts, listed_amounts, traced_amounts

Works = Mapping[str, KernelWork]
Counts = Mapping[str, Counter[Pass]]


class TimeSource(StrEnum):
    """Where the times of a workload's kernels come from."""

    TRACED = "traced"
    SIMULATED = "simulated"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCost:
    """Time and energy of one launch of a kernel on a device, free of noise."""

    time_s: float
    energy_j: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCosts:
    """What each kernel of a workload costs on one virtual device at one operating point."""

    device: str
    device_name: str
    is_calibrated: bool
    costs: Mapping[str, KernelCost]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFacts:
    """One kernel of an iteration; figures are of all its launches together, `None` if unknown.

    `flop_per_byte_ratio` is FLOPs over bytes. `passes` are those that it is launched in, the
    commonest first. `is_work_estimated` says that FLOPs and bytes were guessed, in whole or in
    part, from the time that a profiler saw.
    """

    kernel: str
    kind: KernelKind | None
    passes: tuple[Pass, ...]
    launch_count: int
    time_s: float | None
    time_share_ratio: float | None
    flop_count: float | None
    traffic_bytes: float | None
    flop_per_byte_ratio: float | None
    energy_j: float | None
    is_work_estimated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PassFacts:
    """One pass of an iteration: all its launches, but not the gaps after them.

    `is_work_estimated` says that some of the FLOPs were guessed from times. `known_flop_count`
    is of those kernels whose FLOPs are known; `flop_count` is unknown unless all are.
    """

    pass_: Pass
    launch_count: int
    time_s: float | None
    flop_count: float | None
    energy_j: float | None
    is_work_estimated: bool = False
    known_flop_count: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadFacts:
    """A workload as tables show it.

    `kernels` are without gaps, those of the most time first, else of the most FLOPs; `passes`
    come in the order of an iteration. `time_s` is that of an iteration: in `busy_s` of it at
    least one kernel runs, in `overlap_s` more than one, in `gap_s` none. `flop_count` and
    `traffic_bytes` are of one GPU's iteration, and only of the kernels whose work is known.
    `traced_time_s` is what a profiler saw, whatever the device that the other times are of.
    """

    workload: Workload
    time_source: TimeSource | None
    device: str | None
    device_name: str | None
    kernels: tuple[KernelFacts, ...]
    passes: tuple[PassFacts, ...]
    launch_count: int
    gap_count: int
    time_s: float | None
    busy_s: float | None
    overlap_s: float | None
    gap_s: float | None
    traced_time_s: float | None
    flop_count: float | None
    traffic_bytes: float | None
    energy_j: float | None

    @property
    def kernel_count(self) -> int:
        """Distinct kernels, gaps left out."""
        return len(self.kernels)

    @property
    def is_work_estimated(self) -> bool:
        """Whether FLOPs and bytes of any kernel were guessed from times."""
        return any(kernel.is_work_estimated for kernel in self.kernels)


def workload_facts(workload: Workload, on_device: DeviceCosts | None = None) -> WorkloadFacts:
    """The facts of a workload.

    Args:
        workload: Where it has a trace, kernels and times are those that the profiler saw, each
            on its own, unless a device is given.
        on_device: Costs of each kernel of the workload, gaps and regions among them. Launches
            run one after another then, as they are planned.
    """
    works = {work.kernel: work for work in workload.works}
    if workload.trace is not None and on_device is None:
        return _traced(workload, workload.trace, works)
    return _listed(workload, works, on_device)


def _traced(workload: Workload, trace: IterationTrace, works: Works) -> WorkloadFacts:
    """Kernels as the profiler saw them, each on its own."""
    counts = _counts(trace.launches)
    times: dict[Pass, list[float]] = defaultdict(list)
    for launch in trace.launches:
        times[launch.pass_].append(launch.duration_s)
    kernel_time_s = math.fsum(kernel.time_s for kernel in trace.kernels)
    amounts = traced_amounts(trace, works)
    kernels = [
        _kernel(
            kernel.kernel,
            counts[kernel.kernel],
            amounts[kernel.kernel],
            kernel.time_s,
            kernel_time_s,
        )
        for kernel in trace.kernels
        if kernel.kernel in counts
    ]
    passes = [
        PassFacts(
            pass_=pass_,
            launch_count=len(times[pass_]),
            time_s=math.fsum(times[pass_]),
            flop_count=_sum_in(pass_, counts, lambda kernel: _flop_count(amounts, kernel)),
            energy_j=None,
            is_work_estimated=_is_estimated_in(pass_, counts, amounts),
            known_flop_count=_known_flop_count(pass_, counts, amounts),
        )
        for pass_ in Pass
        if pass_ in times
    ]
    gaps = _gaps(works)
    return WorkloadFacts(
        workload=workload,
        time_source=TimeSource.TRACED,
        device=None,
        device_name=trace.device_name,
        kernels=_longest_first(kernels),
        passes=tuple(passes),
        launch_count=len(trace.launches),
        gap_count=sum(launch.kernel in gaps for launch in workload.launches),
        time_s=trace.duration_s,
        busy_s=trace.busy_s,
        overlap_s=trace.overlap_s,
        gap_s=trace.gap_s,
        traced_time_s=trace.duration_s,
        flop_count=_known_sum(work.flop_count for work in _launched(workload, works)),
        traffic_bytes=_known_sum(work.traffic_bytes for work in _launched(workload, works)),
        energy_j=None,
    )


def _listed(workload: Workload, works: Works, on_device: DeviceCosts | None) -> WorkloadFacts:
    """Kernels as the workload lists them, one after another."""
    costs = on_device.costs if on_device else {}
    amounts = listed_amounts(workload)
    every = _counts(workload.launches)
    gaps = _gaps(works)
    counts = {kernel: by for kernel, by in every.items() if kernel not in gaps}
    busy_s = _total(counts, costs, lambda cost: cost.time_s) if on_device else None
    gap_s = math.fsum(
        by.total() * (costs[kernel].time_s if on_device else works[kernel].wait_s)
        for kernel, by in every.items()
        if kernel in gaps
    )
    return WorkloadFacts(
        workload=workload,
        time_source=TimeSource.SIMULATED if on_device else None,
        device=on_device.device if on_device else None,
        device_name=on_device.device_name if on_device else None,
        kernels=_longest_first(
            [
                _listed_kernel(kernel, by, amounts.get(kernel), costs.get(kernel), busy_s)
                for kernel, by in counts.items()
            ]
        ),
        passes=tuple(_listed_passes(counts, amounts, costs)),
        launch_count=sum(by.total() for by in counts.values()),
        gap_count=len(workload.launches) - sum(by.total() for by in counts.values()),
        time_s=None if busy_s is None else busy_s + gap_s,
        busy_s=busy_s,
        overlap_s=None if busy_s is None else 0.0,
        gap_s=gap_s,
        traced_time_s=workload.trace.duration_s if workload.trace else None,
        flop_count=_known_sum(work.flop_count for work in _launched(workload, works)),
        traffic_bytes=_known_sum(work.traffic_bytes for work in _launched(workload, works)),
        energy_j=_total(every, costs, lambda cost: cost.energy_j) if on_device else None,
    )


def _listed_passes(
    counts: Counts, amounts: Mapping[str, Amounts], costs: Mapping[str, KernelCost]
) -> Iterable[PassFacts]:
    for pass_ in Pass:
        launch_count = sum(by[pass_] for by in counts.values())
        if launch_count:
            yield PassFacts(
                pass_=pass_,
                launch_count=launch_count,
                time_s=_sum_in(pass_, counts, lambda kernel: _time_s(costs, kernel)),
                flop_count=_sum_in(pass_, counts, lambda kernel: _flop_count(amounts, kernel)),
                energy_j=_sum_in(pass_, counts, lambda kernel: _energy_j(costs, kernel)),
                is_work_estimated=_is_estimated_in(pass_, counts, amounts),
                known_flop_count=_known_flop_count(pass_, counts, amounts),
            )


def _listed_kernel(
    kernel: str,
    by: Counter[Pass],
    amounts: Amounts | None,
    cost: KernelCost | None,
    busy_s: float | None,
) -> KernelFacts:
    time_s = cost.time_s * by.total() if cost else None
    energy_j = cost.energy_j * by.total() if cost else None
    return _kernel(kernel, by, amounts, time_s, busy_s, energy_j)


def _kernel(
    kernel: str,
    by: Counter[Pass],
    amounts: Amounts | None,
    time_s: float | None,
    kernel_time_s: float | None,
    energy_j: float | None = None,
) -> KernelFacts:
    count = by.total()
    flop_count = _times(amounts.flop_count, count) if amounts else None
    traffic_bytes = _times(amounts.traffic_bytes, count) if amounts else None
    return KernelFacts(
        kernel=kernel,
        kind=amounts.kind if amounts else None,
        passes=tuple(pass_ for pass_, _ in by.most_common()),
        launch_count=count,
        time_s=time_s,
        time_share_ratio=time_s / kernel_time_s if time_s is not None and kernel_time_s else None,
        flop_count=flop_count,
        traffic_bytes=traffic_bytes,
        flop_per_byte_ratio=flop_count / traffic_bytes if flop_count and traffic_bytes else None,
        energy_j=energy_j,
        is_work_estimated=amounts is not None and amounts.is_estimated,
    )


def _times(each: float | None, count: int) -> float | None:
    return None if each is None else each * count


def _counts(launches: Iterable[Launch | TracedLaunch]) -> dict[str, Counter[Pass]]:
    """Launches of each kernel by pass, in order of first launch."""
    counts: dict[str, Counter[Pass]] = defaultdict(Counter)
    for launch in launches:
        counts[launch.kernel][launch.pass_] += 1
    return dict(counts)


def _gaps(works: Works) -> frozenset[str]:
    return frozenset(name for name, work in works.items() if work.kind is KernelKind.GAP)


def _flop_count(amounts: Mapping[str, Amounts], kernel: str) -> float | None:
    return amounts[kernel].flop_count if kernel in amounts else None


def _known_flop_count(pass_: Pass, counts: Counts, amounts: Mapping[str, Amounts]) -> float | None:
    """FLOPs of a pass, kernels left out whose FLOPs are unknown."""
    return _known_sum(
        flop_count * by[pass_]
        for kernel, by in counts.items()
        if by[pass_] and (flop_count := _flop_count(amounts, kernel)) is not None
    )


def _is_estimated_in(pass_: Pass, counts: Counts, amounts: Mapping[str, Amounts]) -> bool:
    """Whether the work of any kernel that is launched in a pass was guessed."""
    return any(
        by[pass_] and kernel in amounts and amounts[kernel].is_estimated
        for kernel, by in counts.items()
    )


def _time_s(costs: Mapping[str, KernelCost], kernel: str) -> float | None:
    return costs[kernel].time_s if kernel in costs else None


def _energy_j(costs: Mapping[str, KernelCost], kernel: str) -> float | None:
    return costs[kernel].energy_j if kernel in costs else None


def _sum_in(pass_: Pass, counts: Counts, each: Callable[[str], float | None]) -> float | None:
    """Over all launches of a pass; unknown once one of its kernels is."""
    parts = []
    for kernel, by in counts.items():
        if by[pass_]:
            value = each(kernel)
            if value is None:
                return None
            parts.append(value * by[pass_])
    return math.fsum(parts)


def _total(
    counts: Counts, costs: Mapping[str, KernelCost], pick: Callable[[KernelCost], float]
) -> float:
    return math.fsum(pick(costs[kernel]) * by.total() for kernel, by in counts.items())


def _longest_first(kernels: Sequence[KernelFacts]) -> tuple[KernelFacts, ...]:
    """By time where it is known, then by FLOPs, then by bytes; equals as they were launched."""
    return tuple(
        sorted(
            kernels,
            key=lambda one: (
                -(one.time_s or 0.0),
                -(one.flop_count or 0.0),
                -(one.traffic_bytes or 0.0),
            ),
        )
    )


def _launched(workload: Workload, works: Mapping[str, KernelWork]) -> Iterable[KernelWork]:
    return (works[launch.kernel] for launch in workload.launches if launch.kernel in works)


def _known_sum(values: Iterable[float]) -> float | None:
    """The sum; unknown where there is nothing to add up."""
    listed = list(values)
    return math.fsum(listed) if listed else None
