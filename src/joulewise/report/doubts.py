"""All caveats behind a report, each kind told once."""

from __future__ import annotations

import re
from dataclasses import dataclass

from joulewise.domain.caveats import Caveat, CaveatKind, gravity
from joulewise.report.inputs import ReportInputs
from joulewise.report.wording import count


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """One kind of caveat with everything that was seen of it."""

    title: str
    seen: tuple[str, ...]
    why: str
    helps: str


def gathered_doubts(inputs: ReportInputs) -> tuple[Doubt, ...]:
    """Caveats of plan, sweep, cells and verification, by gravity.

    Equal sightings are told once; cells are counted, not listed.
    """
    seen: dict[CaveatKind, list[str]] = {}
    stated = [*inputs.plan.caveats, *inputs.sweep.caveats]
    if inputs.verification is not None:
        # A plan says so before it is run; here it was.
        stated = [caveat for caveat in stated if caveat.kind is not CaveatKind.NOT_VERIFIED]
        stated += inputs.verification.caveats
    examples: dict[CaveatKind, Caveat] = {}
    for caveat in stated:
        examples.setdefault(caveat.kind, caveat)
        sightings = seen.setdefault(caveat.kind, [])
        if caveat.seen not in sightings:
            sightings.append(caveat.seen)
    for caveat, text in _of_cells(inputs):
        examples.setdefault(caveat.kind, caveat)
        seen.setdefault(caveat.kind, []).append(text)
    ordered = sorted(seen, key=gravity)
    return tuple(
        Doubt(
            title=title(kind),
            seen=tuple(seen[kind]),
            why=examples[kind].why,
            helps=examples[kind].helps,
        )
        for kind in ordered
    )


def title(kind: CaveatKind) -> str:
    """`PowerCapped` as `Power capped`."""
    words = re.sub(r"(?<!^)(?=[A-Z])", " ", kind.value)
    return (words[0] + words[1:].lower()).replace("gpu", "GPU").replace("Tpcs", "TPCs")


def _of_cells(inputs: ReportInputs) -> list[tuple[Caveat, str]]:
    """Count the cells of the sweep that carry each kind, and those that the plan uses."""
    used = {(launch.kernel, launch.point) for launch in inputs.plan.launches}
    cells: dict[CaveatKind, set[tuple[str, object]]] = {}
    examples: dict[CaveatKind, Caveat] = {}
    for cell, caveats in inputs.sweep.cell_caveats.items():
        for caveat in caveats:
            cells.setdefault(caveat.kind, set()).add(cell)
            examples.setdefault(caveat.kind, caveat)
    measured_count = int(inputs.sweep.is_present.sum())
    return [
        (
            examples[kind],
            (
                f"In {count(len(found))} of the {count(measured_count)} cells of the sweep; "
                f"the plan uses {count(len(found & used))} of them."
            ),
        )
        for kind, found in cells.items()
    ]
