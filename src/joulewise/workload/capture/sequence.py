"""One iteration taken apart: launches with passes and kernels, units, regions and gaps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from joulewise.domain.passes import Pass
from joulewise.domain.trace import KernelSignature, MeasuredWork, ProfilerTrace
from joulewise.workload.capture.intervals import (
    NS_PER_S,
    Cover,
    IntColumn,
    Nanoseconds,
    cover,
    nanoseconds,
)
from joulewise.workload.capture.iteration import Iteration
from joulewise.workload.capture.kernel_traits import is_product_name
from joulewise.workload.capture.keys import plain_signature
from joulewise.workload.capture.passes import is_communication, pass_of_signature
from joulewise.workload.capture.passes import passes_of_launches as passes_of
from joulewise.workload.capture.regions import Composition, composition_of
from joulewise.workload.capture.units import Gap, Unit, gaps_of, listed_units, units_of
from joulewise.workload.capture.uses import KernelUse


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LaunchSequence:
    """N launches of an iteration by start; `start_ns` counts from the first.

    `kernels` names the kernel of each launch by the index of its first signature. `units` cover
    all busy time in order, `compositions` says which of them are regions, `gaps` are the rest of
    `duration_ns`.
    """

    kernels: tuple[int, ...]
    passes: tuple[Pass, ...]
    streams: tuple[int, ...]
    is_graph_launch: tuple[bool, ...]
    start_ns: IntColumn
    end_ns: IntColumn
    signatures: Mapping[int, KernelSignature]
    measured: Mapping[int, MeasuredWork]
    link_kernels: frozenset[int]
    units: tuple[Unit, ...]
    compositions: tuple[Composition | None, ...]
    gaps: tuple[Gap, ...]
    duration_ns: Nanoseconds
    cover: Cover

    @property
    def durations_ns(self) -> IntColumn:
        """How long each launch took."""
        return self.end_ns - self.start_ns

    @property
    def gap_s(self) -> float:
        """Time in which no kernel ran."""
        return sum(gap.duration_ns for gap in self.gaps) / NS_PER_S


def sequence_of(trace: ProfilerTrace, kernels: IntColumn, iteration: Iteration) -> LaunchSequence:
    """The launches of an iteration, and what they are made of.

    Args:
        trace: What a reader made.
        kernels: The kernel of every signature.
        iteration: Its launches and end.
    """
    own = iteration.launches
    own_kernels = tuple(kernels[trace.signature_index[own]].tolist())
    signatures = {one: plain_signature(trace.signatures[one]) for one in dict.fromkeys(own_kernels)}
    start_ns, end_ns = nanoseconds(trace.start_s[own]), nanoseconds(trace.duration_s[own])
    if trace.is_timeline:
        end_ns = end_ns + start_ns
        first_ns = int(start_ns.min())
        start_ns, end_ns = start_ns - first_ns, end_ns - first_ns
        units = units_of(start_ns, end_ns, trace.stream[own])
        duration_ns = iteration.end_ns - first_ns
    else:
        units = listed_units(end_ns.tolist())
        start_ns = np.array([unit.start_ns for unit in units], dtype=np.int64)
        end_ns = np.array([unit.end_ns for unit in units], dtype=np.int64)
        duration_ns = units[-1].end_ns
    products = {one for one, signature in signatures.items() if is_product_name(signature.name)}
    named = {one: pass_of_signature(signature) for one, signature in signatures.items()}
    return LaunchSequence(
        kernels=own_kernels,
        passes=passes_of(
            [trace.passes[launch] for launch in own.tolist()],
            [named[kernel] for kernel in own_kernels],
            [kernel in products for kernel in own_kernels],
        ),
        streams=tuple(trace.stream[own].tolist()),
        is_graph_launch=tuple(trace.is_graph_launch[own].tolist()),
        start_ns=start_ns,
        end_ns=end_ns,
        signatures=signatures,
        measured={one: trace.measured[one] for one in signatures} if trace.measured else {},
        link_kernels=frozenset(
            one for one, signature in signatures.items() if is_communication(signature)
        ),
        units=units,
        compositions=tuple(
            composition_of(own_kernels[member] for member in unit.members)
            if len(unit.members) > 1
            else None
            for unit in units
        ),
        gaps=gaps_of(units, duration_ns),
        duration_ns=duration_ns,
        cover=cover(start_ns, end_ns),
    )


def kernel_uses(sequence: LaunchSequence) -> dict[int, KernelUse]:
    """Every kernel with the sum of its launches' durations, in order of first launch."""
    times: dict[int, list[int]] = {kernel: [] for kernel in sequence.signatures}
    for kernel, duration_ns in zip(sequence.kernels, sequence.durations_ns.tolist(), strict=True):
        times[kernel].append(duration_ns)
    return {
        kernel: KernelUse(
            signature=signature,
            measured=sequence.measured.get(kernel),
            launch_count=len(times[kernel]),
            time_s=sum(times[kernel]) / NS_PER_S,
            durations_s=tuple(time / NS_PER_S for time in times[kernel]),
        )
        for kernel, signature in sequence.signatures.items()
    }


def times_alone(sequence: LaunchSequence) -> dict[int, float]:
    """Mean time of the kernels that ran by themselves, tails that others cover left out."""
    times: dict[int, int] = {}
    counts: dict[int, int] = {}
    for unit in sequence.units:
        if len(unit.members) == 1:
            kernel = sequence.kernels[unit.members[0]]
            times[kernel] = times.get(kernel, 0) + unit.duration_ns
            counts[kernel] = counts.get(kernel, 0) + 1
    return {kernel: time / counts[kernel] / NS_PER_S for kernel, time in times.items()}
