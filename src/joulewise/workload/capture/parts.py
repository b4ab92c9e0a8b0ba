"""The pieces of a captured workload: works and labels of kernels, regions and gaps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from joulewise.domain.gaps import gap_name
from joulewise.domain.gpu_peaks import GpuPeaks
from joulewise.domain.workload import Dtype, KernelKind, KernelWork, Launch
from joulewise.workload.capture.fitting import RawWork, fitted_kernel, fitted_region
from joulewise.workload.capture.intervals import NS_PER_S
from joulewise.workload.capture.regions import (
    Composition,
    RegionUse,
    region_labels,
    region_pass,
    region_uses,
    region_work,
)
from joulewise.workload.capture.sequence import LaunchSequence, times_alone
from joulewise.workload.capture.units import gap_class
from joulewise.workload.capture.uses import KernelUse


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Launches of the workload in order, the works they name, and the regions among them."""

    launches: tuple[Launch, ...]
    works: tuple[KernelWork, ...]
    regions: Mapping[Composition, RegionUse]


def parts_of(
    sequence: LaunchSequence,
    uses: Mapping[int, KernelUse],
    works: Mapping[int, RawWork],
    labels: Mapping[int, str],
    peaks: GpuPeaks | None,
) -> Parts:
    """Kernels, regions and gaps with their works, as one sequence of launches.

    Args:
        sequence: The iteration.
        uses: Its kernels.
        works: What one launch of each of them computes and moves.
        labels: What they are called.
        peaks: Those of the traced GPU, `None` where unknown.
    """
    regions = _regions(sequence)
    region_texts = region_labels(
        regions,
        labels,
        {kernel: use.mean_s for kernel, use in uses.items()},
    )
    gap_times = _gap_times(sequence)
    # No kernel is called so, see `kernel_labels`.
    gap_texts = {one: gap_name(2**one / NS_PER_S, 2 ** (one + 1) / NS_PER_S) for one in gap_times}
    made = [
        *(
            fitted_kernel(labels[kernel], works[kernel], time_s, peaks)
            for kernel, time_s in times_alone(sequence).items()
        ),
        *(
            _region(region_texts[composition], use, works, peaks)
            for composition, use in regions.items()
        ),
        *(_gap(gap_texts[one], time_s) for one, time_s in gap_times.items()),
    ]
    return Parts(
        launches=_launches(sequence, labels, region_texts, gap_texts),
        works=tuple(made),
        regions=regions,
    )


def _regions(sequence: LaunchSequence) -> dict[Composition, RegionUse]:
    return region_uses(
        sequence.units,
        sequence.compositions,
        sequence.start_ns.tolist(),
        sequence.end_ns.tolist(),
        [kernel in sequence.link_kernels for kernel in sequence.kernels],
    )


def _region(
    label: str, use: RegionUse, works: Mapping[int, RawWork], peaks: GpuPeaks | None
) -> KernelWork:
    return fitted_region(
        label,
        region_work(use, works),
        use.busy_s / use.region_count,
        use.time_s / use.region_count,
        peaks,
    )


def _gap_times(sequence: LaunchSequence) -> dict[int, float]:
    """Mean duration of the gaps of every class, shortest class first."""
    by_class: dict[int, list[int]] = defaultdict(list)
    for gap in sequence.gaps:
        by_class[gap_class(gap.duration_ns)].append(gap.duration_ns)
    return {one: sum(by_class[one]) / len(by_class[one]) / NS_PER_S for one in sorted(by_class)}


def _gap(label: str, wait_s: float) -> KernelWork:
    return KernelWork(
        kernel=label,
        kind=KernelKind.GAP,
        dtype=Dtype.FP32,
        flop_count=0.0,
        traffic_bytes=0.0,
        compute_efficiency_ratio=1.0,
        memory_efficiency_ratio=1.0,
        core_activity_ratio=1.0,
        memory_activity_ratio=1.0,
        wait_s=wait_s,
    )


def _launches(
    sequence: LaunchSequence,
    labels: Mapping[int, str],
    region_texts: Mapping[Composition, str],
    gap_texts: Mapping[int, str],
) -> tuple[Launch, ...]:
    starts_ns, ends_ns = sequence.start_ns.tolist(), sequence.end_ns.tolist()
    gap_behind = {gap.unit_index: gap_class(gap.duration_ns) for gap in sequence.gaps}
    launches: list[Launch] = []
    for index, (unit, composition) in enumerate(
        zip(sequence.units, sequence.compositions, strict=True)
    ):
        if composition is None:
            member = unit.members[0]
            label, pass_ = labels[sequence.kernels[member]], sequence.passes[member]
        else:
            label = region_texts[composition]
            pass_ = region_pass(unit, sequence.passes, starts_ns, ends_ns)
        launches.append(Launch(kernel=label, pass_=pass_))
        if index in gap_behind:
            launches.append(Launch(kernel=gap_texts[gap_behind[index]], pass_=pass_))
    return tuple(launches)
