"""How an embedded board is set: by its governor, its power mode and whoever pinned its clocks."""

from __future__ import annotations

from dataclasses import dataclass

HZ_PER_MHZ = 1_000_000
"""Boards tell clocks in Hz; a label is in whole MHz, cut off as tegrastats prints it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardState:
    """What can be read of a board's settings; `None` where it does not tell.

    `stock_governor` is the governor that the board starts with, and `sm_clock_ceiling_mhz` the
    highest clock that its power mode allows. `mem_clock_locked_mhz` is the memory clock that
    somebody locked; `None`: nobody did, or it cannot be read, which `is_mem_lock_known` tells
    apart. `gated_tpc_count` are groups of SMs that the power mode has switched off.
    """

    board: str
    governor: str | None
    stock_governor: str | None
    sm_clock_floor_mhz: int
    sm_clock_min_mhz: int | None
    sm_clock_max_mhz: int | None
    sm_clock_ceiling_mhz: int
    is_mem_lock_known: bool = False
    mem_clock_locked_mhz: int | None = None
    power_mode: str | None = None
    power_mode_index: int | None = None
    gated_tpc_count: int | None = None
    is_jetson_clocks_on: bool | None = None
    """Whether clocks are held at the highest that the power mode allows."""

    @property
    def off_stock(self) -> str | None:
        """Why this is not the state that the board starts with, in a sentence; `None`: it is.

        A baseline that is measured in another state is one of whoever set it.
        """
        least, most = self.sm_clock_min_mhz, self.sm_clock_max_mhz
        if least is not None and most is not None and least == most:
            return f"the GPU clock of {self.board} is pinned at {most} MHz"
        if most is not None and most < self.sm_clock_ceiling_mhz:
            return (
                f"the GPU clock of {self.board} is held at or below {most} MHz, "
                f"and its power mode allows {self.sm_clock_ceiling_mhz} MHz"
            )
        if least is not None and least > self.sm_clock_floor_mhz:
            return f"the GPU clock of {self.board} is held at or above {least} MHz"
        if (
            None not in (self.governor, self.stock_governor)
            and self.governor != self.stock_governor
        ):
            return (
                f"the GPU governor of {self.board} is {self.governor}, "
                f"and the board starts with {self.stock_governor}"
            )
        if self.mem_clock_locked_mhz is not None:
            return f"the memory clock of {self.board} is locked at {self.mem_clock_locked_mhz} MHz"
        return None

    @property
    def untold(self) -> str | None:
        """What does not read of how it is set, in a sentence; `None`: all of it does.

        Without it nobody knows that this is the state that the board starts with.
        """
        bounds = (self.sm_clock_min_mhz, self.sm_clock_max_mhz)
        told = {
            "the bounds of its GPU clock": None not in bounds,
            "its governor": self.governor is not None,
            "the governor that it starts with": self.stock_governor is not None,
            "whether its memory clock is locked": self.is_mem_lock_known,
        }
        untold = [what for what, is_told in told.items() if not is_told]
        return f"{self.board} does not tell {' or '.join(untold)}" if untold else None
