"""The truth of a virtual GPU: what its noisy measurements are blurred versions of."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from joulewise.domain.errors import InputError
from joulewise.domain.plan import PlannedLaunch
from joulewise.domain.points import OperatingPoint
from joulewise.domain.workload import KernelWork
from joulewise.simulator.device_string import parse_device
from joulewise.simulator.load_governor import governed_state
from joulewise.simulator.presets import preset
from joulewise.simulator.spec import GpuSpec


class Oracle:
    """Noise-free time and energy at thermal equilibrium, from the same physics.

    Sensors, noise, heat beyond the slowdown temperature and other processes have no part
    in it.
    """

    def __init__(self, spec: GpuSpec, works: Sequence[KernelWork]) -> None:
        """Know the works of these kernels."""
        self.spec = spec
        self.kernels = tuple(work.kernel for work in works)
        self._works = tuple(works)

    def table(
        self, points: Sequence[OperatingPoint]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Time (s) and energy (J) per launch, both of shape (kernels, points).

        Raises NotSupported for a point that the device does not take.
        """
        steady = governed_state(self.spec, self._works, points).table
        return steady.time_s, steady.energy_j

    def true_iteration(self, launches: Sequence[PlannedLaunch]) -> tuple[float, float]:
        """Time (s) and energy (J) of an iteration whose launches run one after another.

        Raises InputError for a kernel without work, NotSupported for an impossible point.
        """
        counts = Counter((launch.kernel, launch.point) for launch in launches)
        rows = {kernel: row for row, kernel in enumerate(self.kernels)}
        points = tuple(dict.fromkeys(point for _, point in counts))
        columns = {point: column for column, point in enumerate(points)}
        for kernel, _ in counts:
            if kernel not in rows:
                raise InputError(f"no work is known for the kernel {kernel!r}", field="kernel")
        time_s, energy_j = self.table(points)
        cells = [(rows[kernel], columns[point], n) for (kernel, point), n in counts.items()]
        return (
            math.fsum(float(time_s[row, column]) * n for row, column, n in cells),
            math.fsum(float(energy_j[row, column]) * n for row, column, n in cells),
        )


def open_oracle(device: str, works: Sequence[KernelWork]) -> Oracle:
    """The truth behind this virtual device. Raises InputError as `open_virtual` does."""
    return Oracle(preset(parse_device(device).preset), works)
