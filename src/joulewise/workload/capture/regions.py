"""Regions: launches that overlapped, as one kernel of their common work."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from joulewise.domain.passes import Pass
from joulewise.domain.workload import Dtype, KernelKind
from joulewise.workload.capture.fitting import RawWork
from joulewise.workload.capture.intervals import Cover, cover
from joulewise.workload.capture.labels import LONGEST_LABEL_COUNT, distinct, shortened
from joulewise.workload.capture.units import Unit

_NAMED_COUNT = 2
_BETWEEN = " + "
_NUMBER_COUNT = 5  # room for the number of regions that would be called alike: ` #123`

Composition = tuple[tuple[int, int], ...]
"""Which kernels a region holds, and how many launches of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionUse:
    """All regions of one composition: how many and how long.

    In `busy_s` of the time a kernel ran that is no link, in `link_s` at least one link, in
    `overlap_s` more than one kernel of any kind.
    """

    composition: Composition
    region_count: int
    time_s: float
    busy_s: float
    link_s: float
    overlap_s: float

    @property
    def launch_count(self) -> int:
        """Launches in one of them."""
        return sum(count for _, count in self.composition)


def composition_of(kernels: Iterable[int]) -> Composition:
    """The kernels of a region, in whatever order they came."""
    return tuple(sorted(Counter(kernels).items()))


def region_uses(
    units: Sequence[Unit],
    compositions: Sequence[Composition | None],
    starts_ns: Sequence[int],
    ends_ns: Sequence[int],
    is_link: Sequence[bool],
) -> dict[Composition, RegionUse]:
    """Regions by composition, in order of first launch.

    Args:
        units: The iteration's units.
        compositions: Of each unit; `None` for launches alone.
        starts_ns: Of every launch.
        ends_ns: Of every launch.
        is_link: Whether a launch is a communication kernel.
    """
    together: dict[Composition, list[Unit]] = defaultdict(list)
    for unit, composition in zip(units, compositions, strict=True):
        if composition is not None:
            together[composition].append(unit)
    return {
        composition: RegionUse(
            composition=composition,
            region_count=len(alike),
            time_s=sum(unit.duration_ns for unit in alike) / 1e9,
            busy_s=_cover(alike, starts_ns, ends_ns, lambda one: not is_link[one]).busy_s,
            link_s=_cover(alike, starts_ns, ends_ns, lambda one: is_link[one]).busy_s,
            overlap_s=_cover(alike, starts_ns, ends_ns, lambda _: True).overlap_s,
        )
        for composition, alike in together.items()
    }


def region_work(use: RegionUse, works: Mapping[int, RawWork]) -> RawWork:
    """FLOPs and bytes of all launches together; the time in which a link is in use.

    The format is that of most FLOPs of matrix products, the kind that of a matrix kernel where
    there are any.
    """
    members = [(works[kernel], count) for kernel, count in use.composition]
    by_format: dict[Dtype, float] = defaultdict(float)
    for work, count in members:
        if work.is_product:
            by_format[work.dtype] += work.flop_count * count
    is_link_only = all(work.kind is KernelKind.COLLECTIVE for work, _ in members)
    kind = KernelKind.GEMM if by_format else KernelKind.OTHER
    return RawWork(
        kind=KernelKind.COLLECTIVE if is_link_only else kind,
        dtype=max(by_format, key=lambda one: by_format[one]) if by_format else Dtype.FP32,
        flop_count=sum(work.flop_count * count for work, count in members),
        traffic_bytes=sum(work.traffic_bytes * count for work, count in members),
        link_s=use.link_s / use.region_count,
        is_estimated=any(work.is_estimated for work, _ in members),
        is_product=bool(by_format),
    )


def region_labels(
    uses: Mapping[Composition, RegionUse],
    labels: Mapping[int, str],
    times_s: Mapping[int, float],
) -> dict[Composition, str]:
    """Names of regions: how many launches, and the two kernels of the longest time in them.

    `times_s` is the mean time of each kernel.
    """
    texts = [_label(use, labels, times_s) for use in uses.values()]
    return dict(zip(uses, distinct(texts, labels.values()), strict=True))


def region_pass(
    unit: Unit, passes: Sequence[Pass], starts_ns: Sequence[int], ends_ns: Sequence[int]
) -> Pass:
    """The pass that runs for most of the region's time; other work before communication.

    So it is communication only where the link takes longer than the work beside it.
    """
    times: dict[Pass, int] = defaultdict(int)
    reached: dict[Pass, int] = {}
    for member in unit.members:
        pass_ = passes[member]
        begin = max(starts_ns[member], reached.get(pass_, unit.start_ns))
        reached[pass_] = max(begin, ends_ns[member])
        times[pass_] += reached[pass_] - begin
    return max(times, key=lambda one: (times[one], one is not Pass.COMMUNICATION))


def _cover(
    units: Sequence[Unit],
    starts_ns: Sequence[int],
    ends_ns: Sequence[int],
    is_meant: Callable[[int], bool],
) -> Cover:
    """What those members that are meant cover of units, which never overlap each other."""
    spans = [
        (max(starts_ns[one], unit.start_ns), ends_ns[one])
        for unit in units
        for one in unit.members
        if is_meant(one)
    ]
    both = np.array(spans, dtype=np.int64).reshape(-1, 2)
    return cover(both[:, 0], both[:, 1])


def _label(use: RegionUse, labels: Mapping[int, str], times_s: Mapping[int, float]) -> str:
    times = {kernel: times_s[kernel] * count for kernel, count in use.composition}
    longest = sorted(times, key=lambda one: (-times[one], labels[one]))[:_NAMED_COUNT]
    start = f"region of {use.launch_count}: "
    room = (LONGEST_LABEL_COUNT - _NUMBER_COUNT - len(start)) // len(longest) - len(_BETWEEN)
    return start + _BETWEEN.join(_brief(labels[one], room) for one in longest)


def _brief(label: str, longest_count: int) -> str:
    """A label, or its operation with the shape; beginning and end of what is still too long."""
    text = label if len(label) <= longest_count else label.partition(" ")[0]
    return shortened(text, longest_count)
