"""Published facts that the calibration fits, and those that it is judged by."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.workload import Pass

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

_FOLDER: Final = Path(__file__).parent / "facts"

SM_CLOCKS: Final = (None, *range(210, 2101, 210))
MEM_CLOCKS: Final = (405, 810, 5001, 9251, 9501, None)
SWEPT_POINTS: Final = tuple(
    OperatingPoint(sm_clock_mhz=sm, mem_clock_mhz=mem) for mem in MEM_CLOCKS for sm in SM_CLOCKS
)
"""The 66 pairs that the paper swept."""
BASELINE: Final = SWEPT_POINTS.index(AUTO)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KernelFacts:
    """Table 1 and figure 5, arrays of shape (46,); ratios are to the baseline.

    `chosen` is the column of the point that the paper's global strict plan gives the kernel.
    """

    kernels: tuple[str, ...]
    launch_count: FloatArray
    chosen: IntArray
    chosen_time_ratio: FloatArray
    chosen_energy_ratio: FloatArray
    time_s: FloatArray
    least_time_ratio: FloatArray
    greatest_time_ratio: FloatArray
    energy_j: FloatArray
    least_energy_ratio: FloatArray
    greatest_energy_ratio: FloatArray

    @property
    def is_gemm(self) -> BoolArray:
        """Whether a kernel is a matrix product, by its name."""
        return np.array(["_gemm_" in kernel for kernel in self.kernels])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PassFacts:
    """Figures 3 and 4 without the baseline, arrays of shape (130,); ratios are to it."""

    is_forward: BoolArray
    point: IntArray
    time_ratio: FloatArray
    energy_ratio: FloatArray
    is_inset: BoolArray


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierFact:
    """One point of figure 6: energy ratio at a tolerated slowdown."""

    slowdown_ratio: float
    global_energy_ratio: float
    local_energy_ratio: float


def kernel_facts() -> KernelFacts:
    """Read table 1 and figure 5."""
    rows = _read("rtx3080ti_kernels.toml")["rows"]
    names, counts, sm_clocks, mem_clocks, *numbers = zip(*rows, strict=True)
    d_time, d_energy, auto, least, greatest, auto_j, least_j, greatest_j = np.array(numbers)
    chosen = [
        SWEPT_POINTS.index(OperatingPoint(sm_clock_mhz=sm or None, mem_clock_mhz=mem or None))
        for sm, mem in zip(sm_clocks, mem_clocks, strict=True)
    ]
    return KernelFacts(
        kernels=tuple(names),
        launch_count=np.array(counts, dtype=np.float64),
        chosen=np.array(chosen),
        chosen_time_ratio=1 + d_time / 100,
        chosen_energy_ratio=1 + d_energy / 100,
        time_s=auto / 1e3,
        least_time_ratio=least / auto,
        greatest_time_ratio=greatest / auto,
        energy_j=auto_j,
        least_energy_ratio=least_j / auto_j,
        greatest_energy_ratio=greatest_j / auto_j,
    )


def pass_facts() -> PassFacts:
    """Read figures 3 and 4."""
    document = _read("rtx3080ti_passes.toml")
    rows = [
        (
            series["pass"] == Pass.FORWARD,
            SWEPT_POINTS.index(
                OperatingPoint(
                    sm_clock_mhz=sm or None, mem_clock_mhz=series["mem_clock_mhz"] or None
                )
            ),
            1 + d_time / 100,
            1 + d_energy / 100,
            is_inset,
        )
        for series in document["series"]
        for sm, d_time, d_energy, is_inset in zip(
            document["sm_clocks_mhz"],
            series["time_change_pct"],
            series["energy_change_pct"],
            series["is_inset"],
            strict=True,
        )
    ]
    is_forward, point, time_ratio, energy_ratio, is_inset = (
        np.array(column) for column in zip(*(r for r in rows if r[1] != BASELINE), strict=True)
    )
    return PassFacts(
        is_forward=is_forward,
        point=point,
        time_ratio=time_ratio,
        energy_ratio=energy_ratio,
        is_inset=is_inset,
    )


def frontier_facts() -> tuple[FrontierFact, ...]:
    """Read figure 6; only the evaluation may call this."""
    return tuple(
        FrontierFact(
            slowdown_ratio=1 + slowdown / 100,
            global_energy_ratio=1 + global_change / 100,
            local_energy_ratio=1 + local_change / 100,
        )
        for slowdown, global_change, local_change in _read("rtx3080ti_frontier.toml")["rows"]
    )


def _read(name: str) -> dict[str, list]:  # type: ignore[type-arg]
    return tomllib.loads((_FOLDER / name).read_text(encoding="utf-8"))
