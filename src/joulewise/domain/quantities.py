"""Every physical quantity that a record, table or file may hold, declared once.

Prometheus has names of its own: base units in full, counters that end in `_total`. They follow
from the name of the field and what is declared here: `energy_j` is `joulewise_energy_joules_total`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum


class Behaviour(Enum):
    """How a quantity runs with time, and so how it may be summed."""

    COUNTER = "counter"
    GAUGE = "gauge"
    LABEL = "label"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """One suffix, its unit for people, its behaviour and how Prometheus names and scales it.

    `base_unit` is the base unit in full, empty for what is counted one by one, and
    `base_unit_count` how many of them make one of ours.
    """

    suffix: str
    unit: str
    behaviour: Behaviour
    base_unit: str
    base_unit_count: float = 1.0


TIME = Quantity(suffix="_s", unit="s", behaviour=Behaviour.COUNTER, base_unit="seconds")
ENERGY = Quantity(suffix="_j", unit="J", behaviour=Behaviour.COUNTER, base_unit="joules")
POWER = Quantity(suffix="_w", unit="W", behaviour=Behaviour.GAUGE, base_unit="watts")
CLOCK = Quantity(
    suffix="_mhz", unit="MHz", behaviour=Behaviour.GAUGE, base_unit="hertz", base_unit_count=1e6
)
TEMPERATURE = Quantity(suffix="_c", unit="°C", behaviour=Behaviour.GAUGE, base_unit="celsius")
DATA = Quantity(suffix="_bytes", unit="B", behaviour=Behaviour.COUNTER, base_unit="bytes")
RATIO = Quantity(suffix="_ratio", unit="", behaviour=Behaviour.GAUGE, base_unit="ratio")
COUNT = Quantity(suffix="_count", unit="", behaviour=Behaviour.COUNTER, base_unit="")

ALL = (TIME, ENERGY, POWER, CLOCK, TEMPERATURE, DATA, RATIO, COUNT)

# Numbers that are names, not quantities.
LABELS = (
    "schema_version",
    "seed",
    "window",
    "row",
    "baseline_index",
    "exponent",
    "stage",
    "chunk",
    "micro_batch",
    "launch_index",
    "launches_index",
    "index",
    "code",
    "first_launch",
    "last_launch",
    "pid",
    "uid",
    "gid",
    "daemon_pid",
    "guard_pid",
    "gpu",
    "step",
    "stream",
    "rank",
    "zero_stage",
    "signature_index",
    "step_index",
    "power_mode_index",
    "grid",
    "block",
    "shape",
    "descriptor",
    "lock_descriptor",
    "threshold",
    "clock_index",
    "column_index",
    "pid_descriptor",
)

# Numbers whose unit hangs on the objective (J, J·s, J·s²); their docstring says so.
OBJECTIVE_VALUES = ("product", "bound")

METRIC_PREFIX = "joulewise"
# Metrics are read far from the code, so they say in full what fields shorten.
_IN_FULL = {"mem": "memory", "temp": "temperature"}


def quantity_of(field: str) -> Quantity:
    """The quantity that a field holds, by its suffix. Raises ValueError for one that has none."""
    found = next((quantity for quantity in ALL if field.endswith(quantity.suffix)), None)
    # Watts per degree end in another unit, and are of neither quantity.
    if found is None or "_per_" in field:
        raise ValueError(f"the field {field!r} says no registered unit")
    return found


def metric_unit(field: str) -> str:
    """The base unit in which Prometheus gets this field, in full; empty for counts."""
    return quantity_of(field).base_unit


def metric_name(field: str, behaviour: Behaviour | None = None) -> str:
    """How Prometheus names a field: `sm_clock_mhz` is `joulewise_sm_clock_hertz`.

    Args:
        field: Name of a record field, with its unit suffix.
        behaviour: How this field runs with time, where not as most of its quantity.

    Raises:
        ValueError: the field says no registered unit.
    """
    quantity = quantity_of(field)
    words = [_IN_FULL.get(word, word) for word in field.removesuffix(quantity.suffix).split("_")]
    if quantity is COUNT:
        words[-1] = _plural(words[-1])
    else:
        words.append(quantity.base_unit)
    if (behaviour or quantity.behaviour) is Behaviour.COUNTER:
        words.append("total")
    return "_".join((METRIC_PREFIX, *words))


def metric_value(field: str, value: float) -> float:
    """A field's value in the base unit of its metric."""
    return value * quantity_of(field).base_unit_count


def _plural(word: str) -> str:
    return f"{word}es" if re.search(r"(s|x|ch|sh)\Z", word) else f"{word}s"
