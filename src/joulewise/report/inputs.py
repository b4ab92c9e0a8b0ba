"""What a report is made from."""

from __future__ import annotations

from dataclasses import dataclass

from joulewise.domain.plan import FrontierPoint, Plan, Verification
from joulewise.domain.sweep import Sweep


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Who made the figures, and when; the reader of files hands it in.

    `written_on` is a date as it shall be printed; `notes` are further (label, text) rows.
    """

    joulewise_version: str
    written_on: str | None = None
    seed: int | None = None
    notes: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportInputs:
    """The records behind one report.

    `sweep` is the table that `plan` was made from and holds every cell that it uses. The
    frontiers are per iteration and against the same baseline, time ascending; an empty one
    is left out. They are drawn only. `rivals` is the table that the plan's rivals are judged by
    where it is not the sweep itself: cells measured afresh beside the plan, or the sweep as the
    plan saw it, calmed by the model; `rivals_basis` says which. `best_pass` is the best plan on
    that table with one operating point per pass, within `report.compare.equal_slowdown_ratio`;
    `None` where none is that fast. Static points, comparison and saving by kernel follow from
    these (`report.compare`).
    """

    plan: Plan
    sweep: Sweep
    verification: Verification | None = None
    kernel_frontier: tuple[FrontierPoint, ...] = ()
    pass_frontier: tuple[FrontierPoint, ...] = ()
    rivals: Sweep | None = None
    best_pass: FrontierPoint | None = None
    rivals_basis: str = "sweep"
    provenance: Provenance
