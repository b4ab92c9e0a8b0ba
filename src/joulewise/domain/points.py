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
KNOBS = ("sm_clock_mhz", "mem_clock_mhz", "power_limit_w")
"""Names of the knobs, as in OperatingPoint."""
CLOCK_KNOBS = ("sm_clock_mhz", "mem_clock_mhz")
"""Those that are clocks: they cannot be read back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLimitRange:
    """Power limits that may be set: down to what the board takes, never above the one found.

    `enforced_w` is the limit that was in force when the first point was asked for, or is now
    where none was. It is lower than the one set where something beside the
    driver, such as the management of the machine, keeps it down; `None`: not known.
    """

    least_w: float
    found_w: float
    enforced_w: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSetting:
    """One setting of a device that is a file: which knob it belongs to, and what it read.

    `knob` is named as in OperatingPoint, `path` is the file as this process sees it, and `text`
    what it said, without its last line break. Frequencies stay as the device lists them: a label
    in MHz is not always all of it.
    """

    knob: str
    path: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobState:
    """What can be read back of the knobs: how a device was found, and is left.

    Clock locks have no read-back on NVIDIA's discrete GPUs, so they are given back to the driver;
    a power limit is put back to what it was. `None`: the device has no such knob. `settings` are
    the files that set clocks, in the order in which they are to be put back; empty where clocks
    cannot be read back.
    """

    power_limit_w: float | None = None
    settings: tuple[FoundSetting, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Touched:
    """Knobs that somebody set and has not given back, with what a power limit is judged by.

    Nothing beside `knobs` (names as in OperatingPoint) is to be given back: a lock that was
    never touched may be somebody else's.
    """

    knobs: frozenset[str]
    found: KnobState | None = None
    """How the knobs read before the first touch; `None`: not known."""
    asked_limits_w: tuple[float, ...] | None = ()
    """Every power limit asked for: another one that is in force is somebody else's.
    `None`: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockGrid:
    """What a device takes: clocks from its own list, never computed, ascending; power limits.

    `power_limits` is `None` where the device has no power limit that can be set.
    `read_mem_clocks_mhz` are clocks that the memory may run at, where it takes none of them: a
    lock of somebody else shows against them. `is_governed` says that a governor moves clocks with
    the load where they are left to it, so that a low one there is no sign of a lock.
    """

    sm_clocks_mhz: tuple[int, ...]
    mem_clocks_mhz: tuple[int, ...]
    power_limits: PowerLimitRange | None = None
    read_mem_clocks_mhz: tuple[int, ...] = ()
    is_governed: bool = False

    @property
    def known_mem_clocks_mhz(self) -> tuple[int, ...]:
        """Memory clocks that readings may show, whether or not they can be asked for."""
        return self.mem_clocks_mhz or self.read_mem_clocks_mhz

    def points(
        self,
        sm_clocks_mhz: Sequence[int | None],
        mem_clocks_mhz: Sequence[int | None],
        power_limits_w: Sequence[float | None] = (None,),
    ) -> tuple[OperatingPoint, ...]:
        """Every combination, power limit outermost, then memory clock, in the order given."""
        return tuple(
            OperatingPoint(sm_clock_mhz=sm, mem_clock_mhz=mem, power_limit_w=limit)
            for limit in power_limits_w
            for mem in mem_clocks_mhz
            for sm in sm_clocks_mhz
        )
