"""How a Jetson is set right now: governor, bounds, memory lock, power mode."""

from __future__ import annotations

from dataclasses import dataclass

from joulewise.device.jetson_emc import EmcClock
from joulewise.device.jetson_files import BoardFiles
from joulewise.device.jetson_modes import PowerMode, power_mode
from joulewise.domain.board_state import HZ_PER_MHZ, BoardState


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSettings:
    """What the GPU's devfreq node says: clocks as labels in MHz, the listed ones ascending."""

    board: str
    governor: str | None
    stock_governor: str | None
    listed_mhz: tuple[int, ...]
    least_mhz: int | None
    most_mhz: int | None


def board_state(files: BoardFiles, gpu: GpuSettings, emc: EmcClock) -> BoardState:
    """The state of the board; what it does not tell is `None`."""
    mode = power_mode(files)
    ceiling_mhz = sm_clock_ceiling_mhz(gpu.listed_mhz, mode)
    return BoardState(
        board=gpu.board,
        governor=gpu.governor,
        stock_governor=gpu.stock_governor,
        sm_clock_floor_mhz=gpu.listed_mhz[0],
        sm_clock_min_mhz=gpu.least_mhz,
        sm_clock_max_mhz=gpu.most_mhz,
        sm_clock_ceiling_mhz=ceiling_mhz,
        is_mem_lock_known=emc.is_lock_known,
        mem_clock_locked_mhz=emc.locked_mhz(),
        power_mode=None if mode is None else mode.name,
        power_mode_index=None if mode is None else mode.index,
        gated_tpc_count=None if mode is None else mode.gated_tpc_count,
        is_jetson_clocks_on=_is_jetson_clocks_on(gpu, ceiling_mhz),
    )


def sm_clock_ceiling_mhz(listed_mhz: tuple[int, ...], mode: PowerMode | None) -> int:
    """The highest listed GPU clock that a power mode allows; the lowest where it allows none.

    Caps need not be listed: TX2's modes say 1120 MHz, and its list 1122.
    """
    cap_hz = None if mode is None else mode.gpu_cap_hz
    if cap_hz is None:
        return listed_mhz[-1]
    cap_mhz = cap_hz // HZ_PER_MHZ
    return max((clock for clock in listed_mhz if clock <= cap_mhz), default=listed_mhz[0])


def _is_jetson_clocks_on(gpu: GpuSettings, ceiling_mhz: int) -> bool | None:
    """jetson_clocks pins the highest clock that the mode allows; another pin is somebody else's.

    CPU cores that are offline say nothing of it (jetson_stats 187).
    """
    if gpu.least_mhz is None or gpu.most_mhz is None:
        return None
    return gpu.least_mhz == gpu.most_mhz == ceiling_mhz
