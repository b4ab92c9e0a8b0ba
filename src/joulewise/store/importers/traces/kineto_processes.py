"""Which call launched a kernel, and which operation is meant, in traces of several processes.

Ranks of a job number their calls and operations alike, and a trace that was put together from
theirs says a kernel's GPU, not its process.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from joulewise.store.importers.traces.kineto_columns import ABSENT

IntColumn = NDArray[np.int64]
BoolColumn = NDArray[np.bool_]

# Assumed: a process that launched fewer of a GPU's kernels than this does not use it; the
# numbers of kernels whose own launch was not recorded meet those of other processes by chance.
_LEAST_SHARE_RATIO = 0.1
AMBIGUOUS = -2


def processes_of(owners: tuple[tuple[object, object], ...]) -> IntColumn:
    """A number for the process of each owner, which is a process and a thread."""
    numbers: dict[object, int] = {}
    found = [numbers.setdefault(process, len(numbers)) for process, _ in owners]
    return np.array(found, dtype=np.int64)


def first_rows(wanted: IntColumn, keys: IntColumn) -> IntColumn:
    """Row of the first equal key for each number wanted, -1 where there is none."""
    if not len(keys):
        return np.full(len(wanted), ABSENT, dtype=np.int64)
    order = np.argsort(keys, kind="stable")
    position = np.minimum(np.searchsorted(keys[order], wanted, side="left"), len(keys) - 1)
    row = order[position]
    return np.where((keys[row] == wanted) & (wanted != ABSENT), row, ABSENT)


def rows_of_process(
    wanted: IntColumn, wanted_process: IntColumn, keys: IntColumn, process: IntColumn
) -> IntColumn:
    """As `first_rows`, among the keys of each one's own process.

    Where that is not known (-1), the key must be of one process only, else `AMBIGUOUS`.
    """
    pairs = _Pairs(keys, process)
    is_known = wanted_process != ABSENT
    return np.where(is_known, pairs.rows(wanted, wanted_process), pairs.only_rows(wanted))


def launch_rows(
    correlation: IntColumn, gpu: IntColumn, keys: IntColumn, process: IntColumn
) -> IntColumn:
    """The call that launched each kernel, -1 where none was recorded.

    A number that several processes use is of the one that uses the kernel's GPU, as numbers tell
    that only one process has; where they tell none or several, it is `AMBIGUOUS`.

    Args:
        correlation: The number of each kernel's launch, of shape (kernels,), -1 for none.
        gpu: The GPU of each.
        keys: Numbers of the calls, of shape (calls,).
        process: The process of each call, from `processes_of`.
    """
    pairs = _Pairs(keys, process)
    found = pairs.only_rows(correlation)
    if pairs.process_count < 2:  # noqa: PLR2004 - there is nothing to confuse
        return found
    for one in np.unique(gpu).tolist():
        own = np.flatnonzero(gpu == one)
        users = _users(process, found[own])
        if len(users) == 1:
            user = np.full(len(own), users[0], dtype=np.int64)
            found[own] = pairs.rows(correlation[own], user)
    return found


def _users(process: IntColumn, launch: IntColumn) -> list[int]:
    """Processes that launched more of a GPU's kernels than chance."""
    numbers, counts = np.unique(process[launch[launch >= 0]], return_counts=True)
    users: list[int] = numbers[counts >= _LEAST_SHARE_RATIO * counts.sum()].tolist()
    return users


class _Pairs:
    """The first row of each key in each process."""

    def __init__(self, keys: IntColumn, process: IntColumn) -> None:
        self.process_count = int(process.max()) + 1 if len(process) else 0
        self._keys, number = np.unique(keys, return_inverse=True)
        joined = number.reshape(-1) * self.process_count + process
        self._joined, self._row = np.unique(joined, return_index=True)

    def rows(self, wanted: IntColumn, process: IntColumn) -> IntColumn:
        """The row of each key in each one's process, -1 where there is none."""
        number = self._number(wanted)
        row = first_rows(number * self.process_count + process, self._joined)
        is_found = (number != ABSENT) & (process != ABSENT) & (row != ABSENT)
        return np.where(is_found, np.append(self._row, ABSENT)[row], ABSENT)

    def only_rows(self, wanted: IntColumn) -> IntColumn:
        """The row of each key, -1 for none, `AMBIGUOUS` where several processes have it."""
        number = self._number(wanted)
        first = np.searchsorted(self._joined, number * self.process_count, side="left")
        past = np.searchsorted(self._joined, (number + 1) * self.process_count, side="left")
        rows = np.append(self._row, ABSENT)[first]
        return np.where(number == ABSENT, ABSENT, np.where(past - first > 1, AMBIGUOUS, rows))

    def _number(self, wanted: IntColumn) -> IntColumn:
        return first_rows(wanted, self._keys)
