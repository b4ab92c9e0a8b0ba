"""Transition models in and out of JSON files."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path

from joulewise.domain.errors import InputError
from joulewise.domain.transition import TransitionCost, TransitionModel
from joulewise.store.atomic import write_atomically
from joulewise.store.record_files import read_wire, record_document, record_of

# No change of clocks ever took this long or this much; beyond it sums are no numbers.
LONGEST_S = 1e6
MOST_J = 1e9
LONGEST_NAME_COUNT = 200


def read_transition(path: Path) -> TransitionModel:
    """Read `transition.json`.

    Whether the model knows every change of a plan is seen when planning.

    Raises:
        InputError: anything wrong with the file; names file, line or field.
    """
    wire, file = read_wire(path, TransitionModel), str(path)
    seen: dict[Hashable, int] = {}
    for index, part in enumerate(getattr(wire, "costs", ())):
        _refuse_second(record_of(part, TransitionCost, file), index, seen, file)
    model = record_of(wire, TransitionModel, file)
    check_transition(model, file)
    return model


def write_transition(model: TransitionModel, path: Path) -> None:
    """Write `transition.json`, whole or not at all.

    Raises:
        InputError: the place cannot be written to.
    """
    write_atomically(path, record_document(model))


def check_transition(model: TransitionModel, file: str, where: str = "") -> None:
    """Refuse what no model of changes says; `where` is the model's own path in the file.

    Raises:
        InputError: no name, no costs, or an impossible amount.
    """
    _check_name(model.name, "model", file, f"{where}name")
    if model.device_name is not None:
        _check_name(model.device_name, "device", file, f"{where}device_name")
    if not model.costs:
        raise InputError(
            "the model has no costs",
            file=file,
            field=f"{where}costs",
            hint="Give one entry for each of the domains sm, memory and both.",
        )
    _check_amount(model.dwell_s, LONGEST_S, file, f"{where}dwell_s")
    for index, cost in enumerate(model.costs):
        here = f"{where}costs[{index}]"
        _check_amount(cost.stall_s, LONGEST_S, file, f"{here}.stall_s")
        _check_amount(cost.lag_s, LONGEST_S, file, f"{here}.lag_s")
        _check_amount(cost.energy_j, MOST_J, file, f"{here}.energy_j")
        _check_amount(cost.unseen_stall_s, LONGEST_S, file, f"{here}.unseen_stall_s")
        _check_amount(cost.unseen_energy_j, MOST_J, file, f"{here}.unseen_energy_j")
    for index, lead in enumerate(model.leads):
        _check_amount(lead.lead_s, LONGEST_S, file, f"{where}leads[{index}].lead_s")


def _check_name(name: str, what: str, file: str, field: str) -> None:
    if not name.strip() or not name.isprintable():
        raise InputError(
            "the name is empty or cannot be shown",
            file=file,
            field=field,
            hint=f"Give the {what} a name of letters, digits and signs.",
        )
    if len(name) > LONGEST_NAME_COUNT:
        raise InputError(
            f"the name has {len(name)} letters, and {LONGEST_NAME_COUNT} are the most",
            file=file,
            field=field,
            hint=f"Give the {what} a shorter name; 'source' may be as long as needed.",
        )


def _refuse_second(cost: TransitionCost, index: int, seen: dict[Hashable, int], file: str) -> None:
    """One change has one cost; `seen` numbers what changes had one before."""
    number = seen.setdefault(cost.change, index)
    if number != index:
        target = "every target" if cost.target is None else cost.target.label
        raise InputError(
            f"costs[{number}] is for changes of {cost.domain} to {target} already",
            file=file,
            field=f"costs[{index}]",
            hint="Keep one of the two.",
        )


def _check_amount(value: float, most: float, file: str, field: str) -> None:
    if value > most:
        raise InputError(
            f"this must be at most {most:g}, not {value:g}; is the unit right?",
            file=file,
            field=field,
            hint="Times are in seconds, energies in joules.",
        )
