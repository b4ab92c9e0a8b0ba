"""Operating points: one setting of the knobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatingPoint:
    """SM clock, memory clock and power limit; `None` leaves that knob to the driver (*auto*).

    A clock is the integer MHz label that the device lists; set, it is a maximum.
    Equal points are the same point.
    """

    sm_clock_mhz: int | None = None
    mem_clock_mhz: int | None = None
    power_limit_w: float | None = None

    def __post_init__(self) -> None:
        """Refuse a setting that no driver would take."""
        for name in ("sm_clock_mhz", "mem_clock_mhz", "power_limit_w"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be positive or None (auto), got {value}")

    @property
    def is_auto(self) -> bool:
        """Whether every knob is left to the driver."""
        return self == AUTO

    @property
    def label(self) -> str:
        """`SM / memory` in MHz, as people write it: `1680/9501`, `auto/5001`."""
        sm = "auto" if self.sm_clock_mhz is None else str(self.sm_clock_mhz)
        mem = "auto" if self.mem_clock_mhz is None else str(self.mem_clock_mhz)
        limit = "" if self.power_limit_w is None else f"@{self.power_limit_w:g}W"
        return f"{sm}/{mem}{limit}"


AUTO = OperatingPoint()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockGrid:
    """The clocks a device lists: never computed, always its own list, ascending."""

    sm_clocks_mhz: tuple[int, ...]
    mem_clocks_mhz: tuple[int, ...]

    def points(
        self,
        sm_clocks_mhz: Sequence[int | None],
        mem_clocks_mhz: Sequence[int | None],
    ) -> tuple[OperatingPoint, ...]:
        """Every pair of the given clocks, memory clock outermost, in the order given."""
        return tuple(
            OperatingPoint(sm_clock_mhz=sm, mem_clock_mhz=mem)
            for mem in mem_clocks_mhz
            for sm in sm_clocks_mhz
        )
