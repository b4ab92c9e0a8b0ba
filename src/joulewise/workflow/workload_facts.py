"""`workload show`: what a workload is made of, and what it costs on a virtual device."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.efficiency import Efficiency, efficiency, job_peak_flop_per_s
from joulewise.domain.points import AUTO
from joulewise.domain.workload import Workload
from joulewise.report.workload_facts import (
    DeviceCosts,
    KernelCost,
    WorkloadFacts,
    workload_facts,
)
from joulewise.report.workload_page import render_workload
from joulewise.simulator.oracle import open_oracle
from joulewise.store.atomic import require_place, write_atomically
from joulewise.workflow.devices import refuse_workless
from joulewise.workflow.memory_fit import memory_exceeded
from joulewise.workflow.traced_elsewhere import traced_elsewhere
from joulewise.workflow.workloads import load_workload, source_files


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowJob:
    """What `workload show` was asked for; `html` is where its page goes."""

    workload: str
    device: str | None = None
    html: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownWorkload:
    """The facts of a workload, the doubts about them, and what it comes to on the device.

    `efficiency` is `None` without a device, and where the size of the iteration is not known.
    """

    facts: WorkloadFacts
    caveats: tuple[Caveat, ...]
    workload: Workload
    efficiency: Efficiency | None = None


def show_workload(job: ShowJob) -> ShownWorkload:
    """Look a workload up, work out its facts, and write the page if asked to.

    Raises:
        InputError: no such workload, a device that is not virtual, a kernel whose work is not
            known although a device is named, or a place that cannot be written to.
    """
    if job.html is not None:
        require_place(job.html, sources=source_files(workload=job.workload))
    workload = load_workload(job.workload)
    costs = None if job.device is None else costs_on(job.device, workload)
    facts = workload_facts(workload, costs)
    caveats = (*workload.caveats, *_of_device(costs), *_on_device(workload, costs))
    if job.html is not None:
        write_atomically(job.html, render_workload(facts, caveats, costs).encode())
    return ShownWorkload(
        facts=facts,
        caveats=caveats,
        workload=workload,
        efficiency=_efficiency(workload, facts, costs),
    )


def _efficiency(
    workload: Workload, facts: WorkloadFacts, costs: DeviceCosts | None
) -> Efficiency | None:
    if costs is None or workload.size is None or facts.time_s is None or facts.energy_j is None:
        return None
    peak = job_peak_flop_per_s(workload.size, costs.device_name)
    found = efficiency(workload.size, facts.time_s, facts.energy_j, peak)
    return found if found.is_known else None


def costs_on(device: str, workload: Workload) -> DeviceCosts:
    """Time and energy of each kernel on a virtual device at auto clocks, free of noise.

    Raises InputError for another device, and for a kernel without work.
    """
    refuse_workless(workload)
    oracle = open_oracle(device, workload.works)
    time_s, energy_j = oracle.table((AUTO,))
    return DeviceCosts(
        device=device,
        device_name=oracle.spec.name,
        is_calibrated=oracle.spec.is_calibrated,
        costs={
            kernel: KernelCost(time_s=float(time_s[row, 0]), energy_j=float(energy_j[row, 0]))
            for row, kernel in enumerate(oracle.kernels)
        },
    )


def _on_device(workload: Workload, costs: DeviceCosts | None) -> tuple[Caveat, ...]:
    if costs is None:
        return ()
    time_s = sum(
        costs.costs[kernel].time_s * count for kernel, count in workload.launch_counts().items()
    )
    return (
        *memory_exceeded(workload, costs.device_name),
        *traced_elsewhere(workload, costs.device_name, time_s),
    )


def _of_device(costs: DeviceCosts | None) -> tuple[Caveat, ...]:
    if costs is None:
        return ()
    seen = f"The times are those of {costs.device_name}, a virtual device."
    simulated = Caveat(kind=CaveatKind.SIMULATED_DEVICE, seen=seen)
    if costs.is_calibrated:
        return (simulated,)
    seen = f"parameters of {costs.device_name} are estimates"
    return (simulated, Caveat(kind=CaveatKind.UNCALIBRATED, seen=seen))
