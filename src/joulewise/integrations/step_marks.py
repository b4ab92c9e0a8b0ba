"""Marks the steps of a training loop, so that joulewise can measure and steer them.

A loop of one's own calls it; the Transformers trainer has `JoulewiseCallback`. Nothing beyond the
standard library is needed, and nothing happens where joulewise did not start the program:

    marker = StepMarker.from_environment()
    marker.begin()
    for batch in batches:
        train(batch)
        marker.step()
        if marker.is_over:
            break
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path

from joulewise.finetune.step_marks import LIMIT_VARIABLE, STEPS_VARIABLE, STOP_VARIABLE

# How launchers number the processes of a job: torchrun, MPI, Slurm. The first that is set counts.
_RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")


class StepMarker:
    """Appends a mark for each optimizer step, and tells when training shall end.

    Of several ranks the first one writes, and all of them end. A mark that cannot be written
    (a full disk) is lost, and never ends the training.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        limit_count: int | None = None,
        stop_path: Path | None = None,
    ) -> None:
        """Mark steps in the file `path`, if any; end after `limit_count` steps, if given.

        Training also ends once there is a file at `stop_path`.
        """
        self._path = path
        self._limit_count = limit_count
        self._stop_path = stop_path
        self._step_count = 0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> StepMarker:
        """As joulewise asks for it, where that started this program; else it does nothing."""
        environment = os.environ if environment is None else environment
        path, stop = environment.get(STEPS_VARIABLE), environment.get(STOP_VARIABLE)
        is_first = _rank(environment) == 0
        return cls(
            Path(path) if path and is_first else None,
            limit_count=_limit_count(environment.get(LIMIT_VARIABLE)),
            stop_path=Path(stop) if stop else None,
        )

    @property
    def step_count(self) -> int:
        """Steps that have ended since the last `begin`."""
        return self._step_count

    @property
    def is_over(self) -> bool:
        """Whether training shall end now."""
        if self._limit_count is not None and self._step_count >= self._limit_count:
            return True
        return self._stop_path is not None and self._stop_path.exists()

    def begin(self, planned_count: int | None = None) -> None:
        """The first step begins now; `planned_count` is how many are meant to come."""
        self._step_count = 0
        self._write(planned_count)

    def step(self) -> None:
        """A step has ended."""
        self._step_count += 1
        self._write()

    def resume(self) -> None:
        """The next step begins now: what went on since the last one was no training."""
        self._write()

    def _write(self, planned_count: int | None = None) -> None:
        if self._path is None:
            return
        mark: dict[str, float] = {
            "step": self._step_count,
            "time_s": time.monotonic(),
            # Two programs that were started with one file are told apart by it.
            "pid": os.getpid(),
        }
        if planned_count is not None:
            mark["planned"] = planned_count
        try:
            # Opened each time: the file may be cut or removed meanwhile. One write per line, so
            # that lines of several programs do not mix.
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                os.write(descriptor, (json.dumps(mark) + "\n").encode())
            finally:
                os.close(descriptor)
        except OSError:
            # Marks are ours; the training is not.
            return


def _rank(environment: Mapping[str, str]) -> int:
    """Of this process in its job; 0 where nothing tells."""
    told = next((environment[name] for name in _RANK_VARIABLES if environment.get(name)), "0")
    return int(told) if told.isdecimal() else 0


def _limit_count(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
