"""What the files of an embedded board look like: nodes, lists, rails, power modes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from joulewise.domain.board_state import HZ_PER_MHZ

NO_CAP = "-1"
"""What nvpmodel.conf says where a power mode does not cap a clock."""


class RailSensor(StrEnum):
    """How a rail is read: hwmon (JetPack 5 and later), iio (JetPack 4), one figure in µW."""

    INA3221 = "ina3221"
    INA3221_IIO = "ina3221x"
    INA238 = "ina238"


class EmcControl(StrEnum):
    """Where the memory clock is set: debugfs of the BPMP, of the Nano's manager, or devfreq."""

    BPMP = "bpmp"
    BWMGR = "bwmgr"
    DEVFREQ = "devfreq"


@dataclass(frozen=True, slots=True, kw_only=True)
class RailLayout:
    """One rail: the I2C device that measures it, and what it carries at which voltage.

    `share_ratio` is the rail's part of the module's power, for boards whose physics tells
    nothing of rails; of a total rail it is 1. It is assumed, but where the board's `source`
    says otherwise.
    """

    rail: str
    sensor: RailSensor
    device: str
    """Bus and address, as in `1-0040`."""
    index: int
    """Channel of that device."""
    voltage_mv: str
    share_ratio: float
    is_counted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EmcLayout:
    """The memory clock: rates that the board runs at, ascending, and where it is set."""

    control: EmcControl
    folder: str
    rates_hz: tuple[int, ...]
    cap_path: str | None = None
    """Where nvpmodel caps it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeLayout:
    """One power mode as nvpmodel.conf has it: caps in Hz, where -1 caps nothing."""

    index: int
    name: str
    gpu_cap: str = NO_CAP
    emc_cap: str = NO_CAP
    tpc_mask: str = "0"


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardLayout:
    """One kind of board with one JetPack.

    `gpu_folder` is the GPU's own folder and `devfreq_folder` the one that sets its clock; `links`
    lead to them by other names. `is_list_published` says whether the whole list of clocks was
    seen on a board, or only its ends. `preset` is the virtual GPU whose physics the board has.
    """

    name: str
    board: str
    source: str
    release: str
    """Linux for Tegra, as /etc/nv_tegra_release names it."""
    compatible: tuple[str, ...]
    serial: str
    gpu_folder: str
    devfreq_folder: str
    links: tuple[tuple[str, str], ...]
    sm_clocks_hz: tuple[int, ...]
    is_list_published: bool
    governors: tuple[str, ...]
    stock_governor: str
    emc: EmcLayout
    rails: tuple[RailLayout, ...]
    modes: tuple[ModeLayout, ...]
    default_mode: str
    active_mode: str
    mode_file: str
    thermal_zones: tuple[tuple[str, int | None], ...]
    """Type and millidegrees at rest; `None`: a dead sensor, which reads -256 °C."""
    gpu_zone: str
    hwmon_before_count: int
    """Chips of other drivers that come first: hwmon numbers change between boots."""
    load_path: str | None
    has_over_current: bool
    tpc_count: int
    """Groups of SMs that a power mode can switch off by a mask; 0: it cannot."""
    has_3d_scaling: bool
    has_measured_clock: bool
    has_usb_supply: bool = False
    other_devfreq: tuple[str, ...] = ()
    """Devfreq folders of other engines, which are not to be taken for the GPU's."""
    preset: str | None = None

    @property
    def sm_clocks_mhz(self) -> tuple[int, ...]:
        """Labels: whole megahertz, rounded down, as tegrastats prints them."""
        return tuple(clock // HZ_PER_MHZ for clock in self.sm_clocks_hz)

    @property
    def mem_clocks_mhz(self) -> tuple[int, ...]:
        """Labels of the memory clocks."""
        return tuple(rate // HZ_PER_MHZ for rate in self.emc.rates_hz)

    @property
    def has_tpc_mask(self) -> bool:
        """Whether power modes switch groups of SMs off."""
        return self.tpc_count > 0

    def living_tpc_ratio(self, mask: int) -> float:
        """Groups of SMs that this mask leaves on, as a share of the most that a mode leaves."""
        most = max(self.tpc_count - int(mode.tpc_mask).bit_count() for mode in self.modes)
        return (self.tpc_count - mask.bit_count()) / most if self.has_tpc_mask else 1.0

    def mode(self, index: int | None) -> ModeLayout:
        """The power mode of that number; `None`: the active one. Raises KeyError."""
        if index is None:
            return {mode.name: mode for mode in self.modes}[self.active_mode]
        return {mode.index: mode for mode in self.modes}[index]

    def ceiling_hz(self, mode: ModeLayout) -> int:
        """The highest listed clock that a power mode allows."""
        cap_hz = self.sm_clocks_hz[-1] if mode.gpu_cap == NO_CAP else int(mode.gpu_cap)
        return max(clock for clock in self.sm_clocks_hz if clock <= cap_hz)


def listed_hz(*clocks_mhz: float) -> tuple[int, ...]:
    """Clocks in MHz with their decimals, as whole Hz."""
    return tuple(round(clock * HZ_PER_MHZ) for clock in clocks_mhz)


def chip_rails(
    sensor: RailSensor, device: str, *parts: tuple[str, int, float, bool], first: int = 1
) -> tuple[RailLayout, ...]:
    """Rails of one chip, channel by channel: (label, millivolts, share of the module, counted)."""
    return tuple(
        RailLayout(
            rail=rail,
            sensor=sensor,
            device=device,
            index=index,
            voltage_mv=str(voltage_mv),
            share_ratio=share_ratio,
            is_counted=is_counted,
        )
        for index, (rail, voltage_mv, share_ratio, is_counted) in enumerate(parts, start=first)
    )
