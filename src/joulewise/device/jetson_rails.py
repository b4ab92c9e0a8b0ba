"""Supply rails of a Jetson: read by label, and which of them make up the module's power.

Rails lie inside one another: a board's input feeds all others, and a 5 V rail feeds the memory's.
Their plain sum counts part of the power twice (jetson_stats 51), and one of them alone is only
part of it (jetson_stats 344), so what is counted is told board by board.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from joulewise.device.jetson_files import BoardFiles
from joulewise.device.jetson_rails_hwmon import hwmon_rails
from joulewise.device.jetson_rails_iio import iio_rails
from joulewise.device.jetson_readings import RailSource
from joulewise.domain.measurement import RailPower

# Rails that carry all that their board draws: Nano; TX2, Xavier NX, Orin NX and Nano; Thor
# (NVIDIA's developer guides, "Software-based power consumption modeling"; jtop, core/power.py).
_TOTALS = ("POM_5V_IN", "VDD_IN", "VIN")
_CARRIER = "the carrier board is not measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class _RailSum:
    """Rails that make up a module together where no rail carries all of it."""

    rails: frozenset[str]
    inside: frozenset[str] = frozenset()
    """Rails that are fed by one of those, and so are in the sum already."""
    lacks: str = _CARRIER


# AGX Orin: VIN_SYS_5V0 feeds the memory and I/O; in 140,000 samples of Jetson-Energy-Monitor it
# never falls below VDDQ + 2.6 W. AGX Xavier: six rails beside one another. Thor: where the driver
# of its INA238 is missing, so that VIN is not there (jetson_stats 900).
_SUMS = (
    _RailSum(
        rails=frozenset({"VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"}),
        inside=frozenset({"VDDQ_VDD2_1V8AO"}),
    ),
    _RailSum(rails=frozenset({"GPU", "CPU", "SOC", "CV", "VDDRQ", "SYS5V"})),
    _RailSum(
        rails=frozenset({"VDD_GPU", "VDD_CPU_SOC_MSS", "VIN_SYS_5V0"}),
        lacks="VIN, which carries the whole board, cannot be read: what its other rails draw is "
        "missing",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RailScope:
    """Which rails are added up to the module's power, and what their sum does not cover.

    No rail is counted where it cannot be told which are all of a module: `left_out` says why.
    """

    counted: frozenset[str]
    left_out: str | None


def rail_scope(rails: Iterable[str]) -> RailScope:
    """What to count of rails by their labels, each of which a board has once.

    A rail that carries the whole board is counted alone. Part of a known sum is not counted, for
    it would pass for the whole; rails that are not known are never counted.
    """
    seen = tuple(rails)
    there = frozenset(seen)
    if len(there) < len(seen):
        twice = sorted({rail for rail in seen if seen.count(rail) > 1})
        return _nothing(f"more than one rail says that it is {_listed(twice)}")
    for total in _TOTALS:
        if total in there:
            return RailScope(counted=frozenset({total}), left_out=_lacks_of_total(total))
    for known in _SUMS:
        if known.rails <= there:
            unknown = there - known.rails - known.inside
            return RailScope(counted=known.rails, left_out=_with_unknown(known.lacks, unknown))
    return _nothing(_why_unknown(there))


def module_power_w(rails: Iterable[RailPower]) -> float | None:
    """Power of the module in W: the sum of rails that are counted; `None` where none is."""
    counted = [rail.power_w for rail in rails if rail.is_counted]
    return sum(counted) if counted else None


class RailReader:
    """The rails of one board; where they are read was looked up once."""

    def __init__(self, files: BoardFiles, sources: Sequence[RailSource]) -> None:
        """Keep the sources; nothing is read yet."""
        self._files = files
        self._sources = tuple(sources)
        self._scope = rail_scope(source.rail for source in sources)

    @property
    def counted(self) -> tuple[str, ...]:
        """Labels of the rails that make up the module's power, in the order of reading."""
        return tuple(one.rail for one in self._sources if one.rail in self._scope.counted)

    @property
    def left_out(self) -> str | None:
        """What the sum does not cover, in words; where nothing is counted, why."""
        return self._scope.left_out

    def read(self) -> tuple[RailPower, ...]:
        """Every rail that can be read at present.

        Where one that is counted cannot be, none is counted: a smaller sum would pass for the
        whole, so that `module_power_w` of them is `None`.
        """
        read = [(one.rail, one.power_w(self._files)) for one in self._sources]
        is_whole = not any(power is None for rail, power in read if rail in self._scope.counted)
        return tuple(
            RailPower(rail=rail, power_w=power, is_counted=is_whole and rail in self._scope.counted)
            for rail, power in read
            if power is not None
        )


def find_rails(files: BoardFiles) -> RailReader | None:
    """The rails that this board tells of; `None` where it tells of none at present.

    Numbers of hwmon folders change from one start of the board to the next, so rails are found
    by what they are called.
    """
    sources = (*hwmon_rails(files), *iio_rails(files))
    return RailReader(files, sources) if sources else None


def _nothing(why: str) -> RailScope:
    return RailScope(counted=frozenset(), left_out=why)


def _lacks_of_total(total: str) -> str:
    if total == "VIN":
        # Its sensor sits at the input of the board (Thor forum, 366461).
        return "whatever else draws power behind the input of the board counts as well"
    return _CARRIER


def _with_unknown(lacks: str, unknown: frozenset[str]) -> str:
    if not unknown:
        return lacks
    return f"{lacks}; not known, and so not counted: {_listed(sorted(unknown))}"


def _why_unknown(there: frozenset[str]) -> str:
    part = next((known for known in _SUMS if known.rails & there), None)
    if part is not None:
        lacking = sorted(part.rails - there)
        return f"{_listed(lacking)} cannot be read, so the module's power is not known"
    return f"it is not known which of {_listed(sorted(there))} make up the module's power"


def _listed(rails: Sequence[str]) -> str:
    return " and ".join((", ".join(rails[:-1]), rails[-1])) if len(rails) > 1 else "".join(rails)
