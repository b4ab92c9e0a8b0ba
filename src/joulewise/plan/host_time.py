"""Gaps take the time that their host needs: known, not measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from joulewise.domain.measurement import CellMeasurement
from joulewise.domain.sweep import Sweep
from joulewise.domain.workload import KernelKind, Workload


def host_waits(workload: Workload | None) -> Mapping[str, float]:
    """Seconds of every gap of the workload; empty where nothing is known of its works."""
    works = () if workload is None else workload.works
    return {work.kernel: work.wait_s for work in works if work.kind is KernelKind.GAP}


def with_host_waits(sweep: Sweep, waits: Mapping[str, float]) -> Sweep:
    """The sweep with gaps as long as they are in the iteration, at the power that was measured.

    What stands in for a gap on hardware is timed by the measuring host, and ends a little late
    or early; clocks have no part in that. Without scatter in time, then; a table that has none
    at all stays so.
    """
    is_gap = np.array([kernel in waits for kernel in sweep.kernels], dtype=np.bool_)[:, None]
    if not is_gap.any():
        return sweep
    wait_s = np.array([waits.get(kernel, np.nan) for kernel in sweep.kernels])[:, None]
    is_known = is_gap & sweep.is_present
    time_s = np.where(is_known, wait_s, sweep.time_s)
    scale = np.divide(time_s, sweep.time_s, out=np.ones_like(time_s), where=is_known)
    energy_std_j, above_idle_j = sweep.energy_std_j, sweep.energy_above_idle_j
    return replace(
        sweep,
        time_s=time_s,
        energy_j=sweep.energy_j * scale,
        time_std_s=None if sweep.time_std_s is None else np.where(is_known, 0.0, sweep.time_std_s),
        energy_std_j=None if energy_std_j is None else energy_std_j * scale,
        energy_above_idle_j=None if above_idle_j is None else above_idle_j * scale,
    )


def with_host_wait(cell: CellMeasurement, waits: Mapping[str, float]) -> CellMeasurement:
    """A cell as `with_host_waits` has it, window by window."""
    wait_s = waits.get(cell.kernel)
    if wait_s is None:
        return cell
    windows = tuple(
        replace(window, time_s=wait_s, energy_j=window.energy_j / window.time_s * wait_s)
        for window in cell.windows
    )
    return replace(cell, windows=windows)
