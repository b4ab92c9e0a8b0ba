"""The iteration as it runs under the plan: which clocks, from when to when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from joulewise.domain.plan import Plan, PlannedLaunch
from joulewise.domain.points import OperatingPoint
from joulewise.domain.sweep import Sweep
from joulewise.domain.workload import Pass
from joulewise.report.compare import CellReader
from joulewise.report.gaps import is_gap
from joulewise.report.launch_counts import launch_counts
from joulewise.report.regions import stalls_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Neighbouring launches of one pass at one operating point.

    The GPU waits `stall_s` before it, until the point is in force. Gaps between kernels are
    launches too: `gap_count` of them, `gap_s` together. The kernels named are the first and the
    last that are none, unless all are.
    """

    start_s: float
    end_s: float
    stall_s: float
    point: OperatingPoint
    pass_: Pass
    first_kernel: str
    last_kernel: str
    launch_count: int
    gap_count: int = 0
    gap_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PassBand:
    """A part of the iteration that belongs to one pass."""

    start_s: float
    end_s: float
    pass_: Pass


@dataclass(frozen=True, slots=True, kw_only=True)
class PointShare:
    """How much of the iteration runs at one operating point."""

    point: OperatingPoint
    launch_count: int
    time_s: float
    baseline_energy_j: float
    energy_j: float


def stretches(plan: Plan, sweep: Sweep) -> tuple[Stretch, ...]:
    """The launches in order, each as long as its cell says. Raises PlanError as `CellReader`.

    Between stretches lie the stalls of changes where the plan counts any; else changing clocks
    takes no time here, for the times are of kernels measured alone.
    """
    reader = CellReader.of(sweep)
    gaps = frozenset(kernel for kernel in sweep.kernels if is_gap(kernel))
    # A plan may hold millions of launches, but few kernels at few points.
    known_s: dict[OperatingPoint, dict[str, float]] = defaultdict(dict)
    waits_s = stalls_s(plan)
    now_s, first = 0.0, 0
    found: list[Stretch] = []
    for (point, pass_), group in groupby(plan.launches, key=_setting_and_pass):
        kernels = [launch.kernel for launch in group]
        stall_s = waits_s.get(first, 0.0)
        start_s = now_s + stall_s
        times_s = _times_s(reader, point, kernels, known_s[point])
        end_s = start_s + sum(times_s)
        gaps_s = [s for kernel, s in zip(kernels, times_s, strict=True) if kernel in gaps]
        named = [kernel for kernel in kernels if kernel not in gaps] or kernels
        found.append(
            Stretch(
                start_s=start_s,
                end_s=end_s,
                stall_s=stall_s,
                point=point,
                pass_=pass_,
                first_kernel=named[0],
                last_kernel=named[-1],
                launch_count=len(kernels),
                gap_count=len(gaps_s),
                gap_s=sum(gaps_s),
            )
        )
        now_s, first = end_s, first + len(kernels)
    return tuple(found)


def pass_bands(parts: Sequence[Stretch]) -> tuple[PassBand, ...]:
    """Runs of stretches that belong to one pass."""
    bands: list[PassBand] = []
    for pass_, group in groupby(parts, key=lambda part: part.pass_):
        members = list(group)
        bands.append(PassBand(start_s=members[0].start_s, end_s=members[-1].end_s, pass_=pass_))
    return tuple(bands)


def change_count(parts: Sequence[Stretch]) -> int:
    """Changes of the operating point in an iteration, the one back to its start included."""
    if not parts:
        return 0
    around = [*parts, parts[0]]
    return sum(before.point != after.point for before, after in pairwise(around))


def point_shares(plan: Plan, sweep: Sweep) -> tuple[PointShare, ...]:
    """Launches, time and energy by operating point, longest first."""
    reader = CellReader.of(sweep)
    by_point: dict[OperatingPoint, dict[str, int]] = defaultdict(dict)
    for (kernel, point), launch_count in launch_counts(plan.launches).items():
        by_point[point][kernel] = launch_count
    shares = [_share(reader, sweep.baseline, point, counts) for point, counts in by_point.items()]
    return tuple(sorted(shares, key=lambda share: -share.time_s))


def _times_s(
    reader: CellReader, point: OperatingPoint, kernels: Sequence[str], known_s: dict[str, float]
) -> list[float]:
    """How long each of these launches takes at the point; `known_s` learns what it lacks."""
    for kernel in dict.fromkeys(kernels):
        if kernel not in known_s:
            known_s[kernel] = reader.cell(kernel, point)[0]
    return [known_s[kernel] for kernel in kernels]


def _share(
    reader: CellReader, baseline: OperatingPoint, point: OperatingPoint, counts: Mapping[str, int]
) -> PointShare:
    cells = [(count, reader.cell(kernel, point)) for kernel, count in counts.items()]
    base = [(count, reader.cell(kernel, baseline)) for kernel, count in counts.items()]
    return PointShare(
        point=point,
        launch_count=sum(counts.values()),
        time_s=sum(count * time_s for count, (time_s, _) in cells),
        baseline_energy_j=sum(count * energy_j for count, (_, energy_j) in base),
        energy_j=sum(count * energy_j for count, (_, energy_j) in cells),
    )


def _setting_and_pass(launch: PlannedLaunch) -> tuple[OperatingPoint, Pass]:
    return launch.point, launch.pass_
