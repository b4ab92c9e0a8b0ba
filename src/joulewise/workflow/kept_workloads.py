"""The copy of a workload in a run folder: a plan of no built-in one can be run from there."""

from __future__ import annotations

from pathlib import Path

from joulewise.domain.errors import InputError
from joulewise.domain.plan import Plan
from joulewise.domain.workload import Workload
from joulewise.store.atomic import require_place, write_atomically
from joulewise.store.documents import read_workload, write_workload
from joulewise.store.files import read_bytes
from joulewise.workflow.workloads import is_huggingface, refuse_other_launches, workload_file
from joulewise.workload.builtin import is_builtin

WORKLOAD_NAME = "workload.json"


def require_place_of_copy(folder: Path, asked: str) -> None:
    """See that the copy of an asked workload can be written, where there will be one.

    Raises InputError.
    """
    if _needs_copy(folder, asked):
        require_place(folder / WORKLOAD_NAME)


def keep_workload(workload: Workload, asked: str, folder: Path) -> None:
    """Write a workload that came from a file into a run folder, where it does not lie there yet.

    Raises InputError.
    """
    source, place = workload_file(asked), folder / WORKLOAD_NAME
    if source is None or not _needs_copy(folder, asked):
        return
    if is_huggingface(asked):
        write_workload(workload, place)
    else:
        # Groups stay groups: written out, a million launches make a large file.
        write_atomically(place, read_bytes(source))


def workload_beside(plan: Plan, file: Path) -> Workload | None:
    """The workload in the folder of a plan, if it is the plan's; `None` for a built-in one.

    Raises InputError where what lies there cannot be read.
    """
    path = file.parent / WORKLOAD_NAME
    if is_builtin(plan.workload) or not path.is_file():
        return None
    workload = read_workload(path)
    try:
        refuse_other_launches(plan, workload, file)
    except InputError:
        return None
    return workload if workload.name == plan.workload else None


def _needs_copy(folder: Path, asked: str) -> bool:
    source, place = workload_file(asked), folder / WORKLOAD_NAME
    if source is None:
        return False
    return not (place.exists() and source.exists() and place.samefile(source))
