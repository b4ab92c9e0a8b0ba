"""The meters of one GPU, read in one call where the driver lets them be."""

from __future__ import annotations

from dataclasses import dataclass

from joulewise.device.nvml import NvmlDevice, code_text
from joulewise.device.nvml_reply import LOST, UNTOLD, Code, Reply
from joulewise.device.nvml_values import duration_s, energy_j, power_w
from joulewise.domain.ports import Timer

GPU_SCOPE, MODULE_SCOPE, MEMORY_SCOPE = 0, 1, 2


class Field:
    """Fields of nvmlDeviceGetFieldValues that are read here, and their units in NVML.

    Plain numbers: hashing an `IntEnum` ten times a second is most of what a reading costs.
    """

    POWER_CAPPED = 74  # ns
    THERMAL = 75  # ns, before fields 269 and 270 there was only this one
    SYNC_BOOSTED = 76  # ns
    ENERGY = 83  # mJ
    POWER_AVERAGE = 185  # mW
    POWER_INSTANT = 186  # mW
    POWER_SMOOTHING = 251  # 0, 1
    SW_THERMAL = 269  # ns
    HW_THERMAL = 270  # ns
    POWER_BRAKED = 271  # ns
    ACCUMULATED_CLOCK = 272  # POWER_SYNC_BALANCING_FREQ, of no stated unit
    ACCUMULATED_ACTIVITY = 273  # POWER_SYNC_BALANCING_AF, of no stated unit
    MMA_STALL = 297  # %
    MEMORY_CLOCK_SWITCH = 298  # 0 not at all, 1 after a driver reload, 2 at once
    MEMORY_CLOCK_INTERVAL = 299  # ms


# Energy first: what is read first is nearest to the time of the sample.
_WANTED = (
    Field.ENERGY,
    Field.POWER_INSTANT,
    Field.POWER_AVERAGE,
    Field.POWER_CAPPED,
    Field.SW_THERMAL,
    Field.HW_THERMAL,
    Field.THERMAL,
    Field.POWER_BRAKED,
    Field.SYNC_BOOSTED,
)
_THERMALS = frozenset({Field.SW_THERMAL, Field.HW_THERMAL})
_POWERS = frozenset({Field.POWER_INSTANT, Field.POWER_AVERAGE})
# A field that a driver does not know at all is an invalid argument to it; one without data may
# have some later.
_LACKING_FIELD = (UNTOLD | {Code.INVALID_ARGUMENT}) - {Code.NO_DATA}
# A field that never told anything is given up after so many readings, whatever it answers.
_SILENT_COUNT = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Meters:
    """What the meters read; as in `GpuSample`."""

    time_s: float
    energy_j: float | None
    power_w: float | None
    average_power_w: float | None
    power_capped_s: float | None
    thermally_throttled_s: float | None
    power_braked_s: float | None
    sync_boosted_s: float | None


class MeterReader:
    """Reads the meters that this GPU has; what it lacks is asked for once only."""

    def __init__(
        self, device: NvmlDevice, timer: Timer, *, scope: int, greatest_limit_w: float | None
    ) -> None:
        """Read powers of this scope; more than thrice `greatest_limit_w` counts as absurd."""
        self._device = device
        self._timer = timer
        self._scope = scope
        self._greatest_limit_w = greatest_limit_w
        self._wanted: tuple[int, ...] = _WANTED
        self._told: set[int] = set()
        self._read_count = 0
        self._is_call_lacking: dict[str, bool] = {}

    def read(self) -> Meters:
        """Read all of them. Raises DeviceLost, DeviceError."""
        before_s = self._timer.now_s()
        values = self._fields()
        if Field.ENERGY not in self._wanted:
            before_s = self._timer.now_s()
            values[Field.ENERGY] = self._scalar("nvmlDeviceGetTotalEnergyConsumption")
        time_s = (before_s + self._timer.now_s()) / 2
        if Field.POWER_INSTANT not in self._wanted:
            # Instant up to Turing and on GA100; the nearest that there is elsewhere.
            values[Field.POWER_INSTANT] = self._scalar("nvmlDeviceGetPowerUsage")
        return Meters(
            time_s=time_s,
            energy_j=energy_j(values.get(Field.ENERGY)),
            power_w=power_w(values.get(Field.POWER_INSTANT), self._greatest_limit_w),
            average_power_w=power_w(values.get(Field.POWER_AVERAGE), self._greatest_limit_w),
            power_capped_s=duration_s(values.get(Field.POWER_CAPPED)),
            thermally_throttled_s=self._thermal_s(values),
            power_braked_s=duration_s(values.get(Field.POWER_BRAKED)),
            sync_boosted_s=duration_s(values.get(Field.SYNC_BOOSTED)),
        )

    def read_energy_j(self) -> float | None:
        """The energy counter alone (nvmlDeviceGetTotalEnergyConsumption), for polling."""
        energy_mj = self._scalar("nvmlDeviceGetTotalEnergyConsumption")
        if energy_mj is None and Field.ENERGY in self._wanted:
            return self.read().energy_j
        return energy_j(energy_mj)

    def _fields(self) -> dict[int, float | None]:
        wanted = self._wanted
        if not wanted:
            return {}
        reply = self._device.fields(tuple((field, self._scope_of(field)) for field in wanted))
        got = reply.known(self._device.title)
        if got is None:
            self._wanted = ()
            return {}
        values = {field: value for field, (_, value) in zip(wanted, got, strict=True)}
        if None in values.values() or self._read_count < _SILENT_COUNT:
            # A mark for what is not known tells nothing either.
            self._told |= {field for field, raw in values.items() if duration_s(raw) is not None}
            self._drop_lacking({field: code for field, (code, _) in zip(wanted, got, strict=True)})
        return values

    def _drop_lacking(self, codes: dict[int, int]) -> None:
        """Ask no more for what this GPU lacks. Raises DeviceLost."""
        for field, code in codes.items():
            if code in LOST:
                lost: Reply[float] = Reply(call=f"field {field}", code=code, text=code_text(code))
                raise lost.error(self._device.title)
        self._read_count += 1
        lacking = {field for field, code in codes.items() if code in _LACKING_FIELD}
        if self._read_count >= _SILENT_COUNT:
            lacking |= codes.keys() - self._told
        # The sum of the two stands for the older counter.
        if _THERMALS & self._told:
            lacking.add(Field.THERMAL)
        self._wanted = tuple(field for field in codes if field not in lacking)

    def _thermal_s(self, values: dict[int, float | None]) -> float | None:
        """Software and hardware slowdowns together; the older counter where there is neither.

        A sum that loses a part and finds it again would show a slowdown that never was: it is
        `None` unless all parts are known that are known at times.
        """
        fields = _THERMALS & (self._told | set(self._wanted))
        if not fields:
            return duration_s(values.get(Field.THERMAL))
        parts_s = [duration_s(values.get(field)) for field in fields]
        known_s = [part for part in parts_s if part is not None]
        return sum(known_s) if len(known_s) == len(fields) else None

    def _scope_of(self, field: int) -> int:
        return self._scope if field in _POWERS else GPU_SCOPE

    def _scalar(self, function: str) -> float | None:
        if self._is_call_lacking.get(function):
            return None
        reply = self._device.number(function)
        value = reply.known(self._device.title)
        self._is_call_lacking[function] = value is None and reply.code != Code.NO_DATA
        return None if value is None else float(value)
