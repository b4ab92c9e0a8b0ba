"""Plans and verifications in and out of JSON files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import msgspec

from joulewise.domain.plan import Interval, Plan, Status, Verification
from joulewise.store.atomic import write_atomically
from joulewise.store.plan_checks import check_figures, check_schedule
from joulewise.store.record_files import read_record, record_document, require_positive, unlike
from joulewise.store.wire import to_builtins
from joulewise.store.workload_files import read_workload, write_workload
from joulewise.store.workload_works import check_size

__all__ = [
    "plan_sha256",
    "read_plan",
    "read_verification",
    "read_workload",
    "write_plan",
    "write_verification",
    "write_workload",
]

Caveats = Sequence[Mapping[str, object]]

_LATER_FIELDS = ("size", "requests", "transition_time_s", "transition_energy_j")
_LATER_REQUEST_FIELDS = ("transition", "max_region_count")
_PLANNED = (Status.OPTIMAL, Status.FEASIBLE, Status.NO_GAIN)
_PLAN_AMOUNTS = ("time_s", "energy_j", "baseline_time_s", "baseline_energy_j", "slowdown_ratio")
_PAIR_AMOUNTS = ("baseline_time_s", "baseline_energy_j", "plan_time_s", "plan_energy_j")


def read_plan(path: Path) -> Plan:
    """Read `plan.json`.

    Raises:
        InputError: anything wrong with the file; names file, line or field.
    """
    plan, file = read_record(path, Plan), str(path)
    if plan.status not in _PLANNED:
        raise unlike("a plan is never of this status", file, "status")
    if not plan.launches:
        raise unlike("the plan has no launches", file, "launches")
    require_positive(plan, _PLAN_AMOUNTS, "", file)
    check_figures(plan, file)
    check_schedule(plan, file)
    if plan.size is not None:
        check_size(plan.size, file)
    return plan


def write_plan(plan: Plan, path: Path) -> None:
    """Write `plan.json`, whole or not at all.

    Raises:
        InputError: the place cannot be written to.
    """
    write_atomically(path, record_document(plan))


def plan_sha256(plan: Plan) -> str:
    """Hash of what a plan says, as hexadecimal text; independent of the file's layout.

    What is said of transitions and of the job's size, and advice of a caveat's own, counts where
    something is said, so that a plan from before there was any keeps its name.
    """
    fields = to_builtins(plan)
    request = dict(cast("Mapping[str, object]", fields["request"]))
    for part, names in ((fields, _LATER_FIELDS), (request, _LATER_REQUEST_FIELDS)):
        for name in names:
            if not part[name]:
                del part[name]
    fields["request"] = request
    fields["caveats"] = [_said(caveat) for caveat in cast("Caveats", fields["caveats"])]
    return hashlib.sha256(msgspec.json.encode(fields, order="sorted")).hexdigest()


def _said(caveat: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in caveat.items() if value is not None}


def read_verification(path: Path) -> Verification:
    """Read `verification.json`.

    Raises:
        InputError: anything wrong with the file; names file, line or field.
    """
    seen, file = read_record(path, Verification), str(path)
    if not seen.pairs:
        raise unlike("the verification has no pairs", file, "pairs")
    for index, pair in enumerate(seen.pairs):
        require_positive(pair, _PAIR_AMOUNTS, f"pairs[{index}].", file)
    require_positive(seen, ("slowdown_ratio", "promised_slowdown_ratio"), "", file)
    for name in ("slowdown_interval", "saving_interval"):
        interval: Interval = getattr(seen, name)
        if interval.low_ratio > interval.high_ratio:
            raise unlike("the interval ends below its beginning", file, name)
    return seen


def write_verification(verification: Verification, path: Path) -> None:
    """Write `verification.json`, whole or not at all.

    Raises:
        InputError: the place cannot be written to.
    """
    write_atomically(path, record_document(verification))
