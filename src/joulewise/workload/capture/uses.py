"""How often the kernels of an iteration ran, and how long."""

from __future__ import annotations

from dataclasses import dataclass

from joulewise.domain.trace import KernelSignature, MeasuredWork


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelUse:
    """A kernel of the iteration: how often it ran, and how long altogether and each time."""

    signature: KernelSignature
    measured: MeasuredWork | None
    launch_count: int
    time_s: float
    durations_s: tuple[float, ...] = ()

    @property
    def mean_s(self) -> float:
        """Duration of one launch."""
        return self.time_s / self.launch_count
