"""The sweep: a table kernels x operating points of time and energy, with doubts attached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from joulewise.domain.caveats import Caveat
from joulewise.domain.points import AUTO, OperatingPoint

FloatTable = NDArray[np.float64]
BoolTable = NDArray[np.bool_]
IntTable = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSource:
    """Where a sweep comes from."""

    device: str
    """The device string that `--device` takes, or the importer's name for foreign data."""
    device_name: str
    tool: str
    workload: str | None = None
    is_simulated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sweep:
    """Time and energy per launch of K kernels at P operating points.

    Tables have the shape (K, P). `is_present` says which cells were measured; the others hold
    +inf in `time_s` and `energy_j`, so that no minimum ever picks them. `*_std_*` is the
    standard deviation of one window, not of the median; `None`: the source had no scatter.
    `window_count` is 0 where absent. `baseline` is the column that savings are against.
    Optional tables are `None` where the source had none; in them absent cells hold 0.
    """

    kernels: tuple[str, ...]
    points: tuple[OperatingPoint, ...]
    baseline: OperatingPoint
    source: SweepSource
    is_present: BoolTable
    time_s: FloatTable
    energy_j: FloatTable
    time_std_s: FloatTable | None = None
    energy_std_j: FloatTable | None = None
    window_count: IntTable | None = None
    energy_above_idle_j: FloatTable | None = None
    sm_clock_held_mhz: FloatTable | None = None
    temp_c: FloatTable | None = None
    cell_caveats: Mapping[tuple[str, OperatingPoint], tuple[Caveat, ...]] = field(
        default_factory=dict
    )
    caveats: tuple[Caveat, ...] = ()

    def __post_init__(self) -> None:
        """Check shapes and the baseline; make the tables read-only."""
        shape = (len(self.kernels), len(self.points))
        for name in _TABLES:
            table = getattr(self, name)
            if table is None:
                continue
            if table.shape != shape:
                raise ValueError(f"{name} has the shape {table.shape}, want {shape}")
            table.setflags(write=False)
        if self.baseline not in self.points:
            raise ValueError(f"baseline {self.baseline.label} is not among the points")

    @property
    def baseline_index(self) -> int:
        """Column of the baseline."""
        return self.points.index(self.baseline)

    @property
    def has_auto_baseline(self) -> bool:
        """Whether savings are against what users have by default."""
        return self.baseline == AUTO

    @property
    def is_noise_free(self) -> bool:
        """Whether several windows of every cell agreed to the last digits.

        No device does that; a virtual one without noise does, and a computed table.
        """
        if self.time_std_s is None or self.energy_std_j is None or self.window_count is None:
            return False
        present = self.is_present
        is_repeated = bool((self.window_count[present] > 1).all())
        time = self.time_std_s[present] <= _ROUNDING_RATIO * self.time_s[present]
        energy = self.energy_std_j[present] <= _ROUNDING_RATIO * self.energy_j[present]
        return is_repeated and bool(time.all() and energy.all())


_ROUNDING_RATIO = 1e-12
_TABLES = (
    "is_present",
    "time_s",
    "energy_j",
    "time_std_s",
    "energy_std_j",
    "window_count",
    "energy_above_idle_j",
    "sm_clock_held_mhz",
    "temp_c",
)
