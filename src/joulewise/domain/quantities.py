"""Every physical quantity that a record, table or file may hold, declared once."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Behaviour(Enum):
    """How a quantity runs with time, and so how it may be summed."""

    COUNTER = "counter"
    GAUGE = "gauge"
    LABEL = "label"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """One suffix, its unit for people and its behaviour."""

    suffix: str
    unit: str
    behaviour: Behaviour


TIME = Quantity(suffix="_s", unit="s", behaviour=Behaviour.COUNTER)
ENERGY = Quantity(suffix="_j", unit="J", behaviour=Behaviour.COUNTER)
POWER = Quantity(suffix="_w", unit="W", behaviour=Behaviour.GAUGE)
CLOCK = Quantity(suffix="_mhz", unit="MHz", behaviour=Behaviour.GAUGE)
TEMPERATURE = Quantity(suffix="_c", unit="°C", behaviour=Behaviour.GAUGE)
DATA = Quantity(suffix="_bytes", unit="B", behaviour=Behaviour.COUNTER)
RATIO = Quantity(suffix="_ratio", unit="", behaviour=Behaviour.GAUGE)
COUNT = Quantity(suffix="_count", unit="", behaviour=Behaviour.COUNTER)

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
)

# Numbers whose unit hangs on the objective (J, J·s, J·s²); their docstring says so.
OBJECTIVE_VALUES = ("product", "bound")
