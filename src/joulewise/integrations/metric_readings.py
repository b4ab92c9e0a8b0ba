"""Which numbers of which records Prometheus gets, and empty families of metrics for them.

Names and factors come from the registry of quantities.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from joulewise.domain.measurement import GpuActivity, GpuSample
from joulewise.domain.points import KnobState, OperatingPoint
from joulewise.domain.quantities import (
    Behaviour,
    metric_name,
    metric_unit,
    metric_value,
    quantity_of,
)

Family = CounterMetricFamily | GaugeMetricFamily


def family(
    name: str,
    tells: str,
    labels: Sequence[str],
    behaviour: Behaviour = Behaviour.GAUGE,
    *,
    unit: str = "",
) -> Family:
    """An empty family. The client library wants a counter's name without its `_total`."""
    if behaviour is Behaviour.COUNTER:
        return CounterMetricFamily(name.removesuffix("_total"), tells, labels=labels, unit=unit)
    return GaugeMetricFamily(name, tells, labels=labels, unit=unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A number of a record as a metric; `about` stands before the field's name in its own."""

    record: type
    field: str
    tells: str
    about: str = ""
    behaviour: Behaviour | None = None
    """`None`: as most of its quantity."""

    @property
    def name(self) -> str:
        """The metric's name, base unit included."""
        return metric_name(self._field, self.behaviour)

    def family(self, labels: Sequence[str]) -> Family:
        """An empty family for it."""
        behaviour = self.behaviour or quantity_of(self.field).behaviour
        return family(self.name, self.tells, labels, behaviour, unit=metric_unit(self.field))

    def value(self, record: object) -> float | None:
        """What the record tells, in the base unit."""
        value: float | None = getattr(record, self.field)
        if value is None or not math.isfinite(value):
            return None
        return metric_value(self.field, value)

    @property
    def _field(self) -> str:
        return f"{self.about}_{self.field}" if self.about else self.field


READINGS = (
    Reading(
        record=GpuSample,
        field="energy_j",
        tells="Energy that the GPU drew since its driver was loaded.",
    ),
    Reading(
        record=GpuSample,
        field="power_w",
        tells="Power drawn, as near to now as the GPU tells.",
    ),
    Reading(
        record=GpuSample,
        field="average_power_w",
        tells="Power drawn, as the GPU's own slower mean.",
    ),
    Reading(record=GpuSample, field="sm_clock_mhz", tells="SM clock now."),
    Reading(record=GpuSample, field="mem_clock_mhz", tells="Memory clock now."),
    Reading(record=GpuSample, field="temp_c", tells="Temperature of the GPU."),
    Reading(
        record=GpuSample,
        field="power_limit_w",
        tells="Power limit in force, whoever set it.",
    ),
    Reading(
        record=GpuSample,
        field="power_capped_s",
        tells="Time spent below the clocks asked for because of the power limit.",
    ),
    Reading(
        record=GpuSample,
        field="thermally_throttled_s",
        tells="Time spent below the clocks asked for because of heat.",
    ),
    Reading(
        record=GpuSample,
        field="power_braked_s",
        tells="Time slowed down from outside, by the power brake.",
    ),
    Reading(
        record=GpuSample,
        field="sync_boosted_s",
        tells="Time held down to the clock of other GPUs in a group.",
    ),
    Reading(
        record=GpuSample,
        field="other_process_count",
        behaviour=Behaviour.GAUGE,
        tells="Compute processes on the GPU beside the one that reads.",
    ),
    Reading(
        record=GpuSample,
        field="busy_ratio",
        tells="Share of a recent time in which the GPU ran anything (Jetson).",
    ),
    Reading(
        record=GpuSample,
        field="over_current_count",
        tells="Times that a supply drew more than it may, since the board started (Jetson).",
    ),
    Reading(
        record=OperatingPoint,
        field="sm_clock_mhz",
        about="asked",
        tells="SM clock that the lease's holder asked for; absent: left to the driver.",
    ),
    Reading(
        record=OperatingPoint,
        field="mem_clock_mhz",
        about="asked",
        tells="Memory clock that the lease's holder asked for; absent: left to the driver.",
    ),
    Reading(
        record=OperatingPoint,
        field="power_limit_w",
        about="asked",
        tells="Power limit that the lease's holder asked for; absent: left to the driver.",
    ),
    Reading(
        record=KnobState,
        field="power_limit_w",
        about="found",
        tells="Power limit as it was before the lease's holder touched anything.",
    ),
    Reading(
        record=GpuActivity,
        field="sm_time_ratio",
        about="activity",
        tells="Share of time that SMs were busy (GPM, Hopper and later).",
    ),
    Reading(
        record=GpuActivity,
        field="sm_cycle_ratio",
        about="activity",
        tells="Share of cycles that SMs were busy (GPM, Hopper and later).",
    ),
    Reading(
        record=GpuActivity,
        field="occupancy_ratio",
        about="activity",
        tells="Share of warps that were resident (GPM, Hopper and later).",
    ),
    Reading(
        record=GpuActivity,
        field="tensor_ratio",
        about="activity",
        tells="Share of cycles that tensor cores were busy (GPM, Hopper and later).",
    ),
    Reading(
        record=GpuActivity,
        field="dram_ratio",
        about="activity",
        tells="Share of the memory's bandwidth in use (GPM, Hopper and later).",
    ),
)
