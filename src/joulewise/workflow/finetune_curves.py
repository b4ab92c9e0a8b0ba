"""Curves out of measured cells: one job at each clock, with what the device told meanwhile."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from joulewise.domain.caveats import Caveat, CaveatKind, first_of_each_kind
from joulewise.domain.finetuning import ClockCost, ClockCurve, JobFeatures
from joulewise.domain.measurement import CellMeasurement, GpuSample
from joulewise.domain.points import ClockGrid, KnobState, OperatingPoint, Touched
from joulewise.domain.ports import Gpu, GpuIdentity
from joulewise.measure.statistics import median, std

_FEWEST_FOR_SCATTER_COUNT = 2


class ListeningGpu:
    """A GPU that keeps what its samples tell beside power: what it is busy with, its memory."""

    def __init__(self, gpu: Gpu) -> None:
        """Nothing is heard yet."""
        self._gpu = gpu
        self.samples: list[GpuSample] = []

    @property
    def identity(self) -> GpuIdentity:
        """As the GPU says."""
        return self._gpu.identity

    @property
    def energy_counter_period_s(self) -> float | None:
        """As the GPU says."""
        return self._gpu.energy_counter_period_s

    def clock_grid(self) -> ClockGrid:
        """As the GPU says."""
        return self._gpu.clock_grid()

    def knob_state(self) -> KnobState:
        """As the GPU says. Raises DeviceLost."""
        return self._gpu.knob_state()

    def sample(self) -> GpuSample:
        """Read everything once, and keep it. Raises DeviceLost."""
        sample = self._gpu.sample()
        self.samples.append(sample)
        return sample

    def now_s(self) -> float:
        """As the GPU says."""
        return self._gpu.now_s()

    def clocks_mhz(self) -> tuple[int | None, int | None]:
        """As the GPU says. Raises DeviceLost."""
        return self._gpu.clocks_mhz()

    def wait_for_energy_tick(self, timeout_s: float) -> GpuSample:
        """As the GPU does. Raises MeasurementError, NotSupported, DeviceLost."""
        return self._gpu.wait_for_energy_tick(timeout_s)

    def wait(self, duration_s: float) -> None:
        """As the GPU does."""
        self._gpu.wait(duration_s)

    def request(self, point: OperatingPoint) -> None:
        """As the GPU does. Raises NotPermitted, NotSupported, DeviceLost."""
        self._gpu.request(point)

    def reset(self, touched: Touched | None = None) -> None:
        """As the GPU does. Raises NotPermitted, DeviceLost."""
        self._gpu.reset(touched)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRun:
    """One measuring run of one job at one point: time and energy of a step."""

    job: str
    point: OperatingPoint
    time_s: float
    energy_j: float
    time_error_s: float | None
    energy_error_j: float | None
    step_count: int
    busy_ratio: float | None
    mem_clock_mhz: int | None
    caveats: tuple[Caveat, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveSource:
    """What all curves of one sweep have in common."""

    device: str
    device_name: str
    is_simulated: bool
    caveats: tuple[Caveat, ...] = field(default=())


def job_run(cell: CellMeasurement, samples: Sequence[GpuSample]) -> JobRun:
    """What one measuring run came to: medians of its windows, and what samples told.

    `samples` are those of its windows and its warm-up, all under load.
    """
    times_s = [window.time_s for window in cell.windows]
    energies_j = [window.energy_j for window in cell.windows]
    busy = [one.busy_ratio for one in samples if one.busy_ratio is not None]
    memory = Counter(one.mem_clock_mhz for one in samples if one.mem_clock_mhz is not None)
    return JobRun(
        job=cell.kernel,
        point=cell.point,
        time_s=median(times_s),
        energy_j=median(energies_j),
        time_error_s=_standard_error(times_s),
        energy_error_j=_standard_error(energies_j),
        step_count=sum(window.launch_count for window in cell.windows),
        busy_ratio=sum(busy) / len(busy) if busy else None,
        mem_clock_mhz=memory.most_common(1)[0][0] if memory else None,
        caveats=first_of_each_kind(
            *(caveat for window in cell.windows for caveat in window.caveats)
        ),
    )


def curves_of(
    features: Sequence[tuple[str, JobFeatures | None]],
    runs: Sequence[JobRun],
    source: CurveSource,
) -> tuple[ClockCurve, ...]:
    """One curve a job, in the order given.

    Runs at one clock are averaged. The error of a cost is the larger of what windows scatter
    within its runs and what runs scatter among each other, over the root of the number of runs:
    windows of one run share its shift, and so do not show it. How runs scatter is taken from
    all that were repeated, of all jobs together.

    Raises:
        ValueError: a job without a run under the governor, or without one at a clock.
    """
    scatter = run_scatter(runs)
    return tuple(
        _assembled(job, known, [run for run in runs if run.job == job], source, scatter)
        for job, known in features
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunScatter:
    """Standard deviation of one run, as a share of its value; `None`: nothing was repeated."""

    time_ratio: float | None
    energy_ratio: float | None


def run_scatter(runs: Sequence[JobRun]) -> RunScatter:
    """How runs of the same job at the same point differ, pooled over all that were repeated."""
    groups: dict[tuple[str, OperatingPoint], list[JobRun]] = {}
    for run in runs:
        groups.setdefault((run.job, run.point), []).append(run)
    repeated = [group for group in groups.values() if len(group) >= _FEWEST_FOR_SCATTER_COUNT]
    return RunScatter(
        time_ratio=_pooled([[run.time_s for run in group] for group in repeated]),
        energy_ratio=_pooled([[run.energy_j for run in group] for group in repeated]),
    )


def _pooled(groups: Sequence[Sequence[float]]) -> float | None:
    """Standard deviation of the logarithm within groups."""
    freedom_count = sum(len(group) - 1 for group in groups)
    if not freedom_count:
        return None
    squares = 0.0
    for group in groups:
        logs = [math.log(value) for value in group]
        mean = sum(logs) / len(logs)
        squares += sum((value - mean) ** 2 for value in logs)
    return math.sqrt(squares / freedom_count)


def _assembled(
    job: str,
    features: JobFeatures | None,
    runs: Sequence[JobRun],
    source: CurveSource,
    scatter: RunScatter,
) -> ClockCurve:
    clocks = sorted({run.point.sm_clock_mhz for run in runs if run.point.sm_clock_mhz is not None})
    baseline = _cost([run for run in runs if run.point.sm_clock_mhz is None], scatter)
    costs = [_cost([r for r in runs if r.point.sm_clock_mhz == clock], scatter) for clock in clocks]
    shared = _shared((baseline, *costs))
    kinds = {caveat.kind for caveat in shared}
    if features is not None:
        features = replace(features, gpu_busy_ratio=baseline.busy_ratio)
    return ClockCurve(
        job=job,
        device=source.device,
        device_name=source.device_name,
        is_simulated=source.is_simulated,
        features=features,
        baseline=_without(baseline, kinds),
        costs=tuple(_without(cost, kinds) for cost in costs),
        caveats=first_of_each_kind(*source.caveats, *shared, *_memory_moved(baseline, costs)),
    )


def _cost(runs: Sequence[JobRun], scatter: RunScatter) -> ClockCost:
    if not runs:
        raise ValueError("a curve needs runs under the governor and at its clocks")
    time_s = sum(run.time_s for run in runs) / len(runs)
    energy_j = sum(run.energy_j for run in runs) / len(runs)
    busy = [run.busy_ratio for run in runs if run.busy_ratio is not None]
    memory = Counter(run.mem_clock_mhz for run in runs if run.mem_clock_mhz is not None)
    return ClockCost(
        sm_clock_mhz=runs[0].point.sm_clock_mhz,
        time_s=time_s,
        energy_j=energy_j,
        step_count=sum(run.step_count for run in runs),
        time_error_s=_error([run.time_error_s for run in runs], scatter.time_ratio, time_s),
        energy_error_j=_error([run.energy_error_j for run in runs], scatter.energy_ratio, energy_j),
        busy_ratio=sum(busy) / len(busy) if busy else None,
        mem_clock_mhz=memory.most_common(1)[0][0] if memory else None,
        caveats=first_of_each_kind(*(caveat for run in runs for caveat in run.caveats)),
    )


def _error(
    within: Sequence[float | None], between_ratio: float | None, value: float
) -> float | None:
    """Standard error of a mean of runs: what windows and what repeated runs show of it."""
    known = [error for error in within if error is not None]
    shown = [math.sqrt(sum(error**2 for error in known) / len(known))] if known else []
    if between_ratio is not None:
        shown.append(between_ratio * value)
    return max(shown) / math.sqrt(len(within)) if shown else None


def _standard_error(values: Sequence[float]) -> float | None:
    spread = std(values)
    return None if spread is None else spread / math.sqrt(len(values))


def _shared(costs: Sequence[ClockCost]) -> tuple[Caveat, ...]:
    """Doubts that every cost has: they are the curve's."""
    kinds = set.intersection(*({caveat.kind for caveat in cost.caveats} for cost in costs))
    return tuple(caveat for caveat in costs[0].caveats if caveat.kind in kinds)


def _without(cost: ClockCost, kinds: set[CaveatKind]) -> ClockCost:
    return replace(cost, caveats=tuple(one for one in cost.caveats if one.kind not in kinds))


def _memory_moved(baseline: ClockCost, costs: Sequence[ClockCost]) -> tuple[Caveat, ...]:
    """MemoryClockMoved where not all costs saw one memory clock."""
    seen = {cost.mem_clock_mhz for cost in (baseline, *costs) if cost.mem_clock_mhz is not None}
    if len(seen) < _FEWEST_FOR_SCATTER_COUNT:
        return ()
    clocks = ", ".join(map(str, sorted(seen)))
    text = f"the memory ran at {clocks} MHz, {baseline.mem_clock_mhz} MHz under the governor"
    return (Caveat(kind=CaveatKind.MEMORY_CLOCK_MOVED, seen=text),)
