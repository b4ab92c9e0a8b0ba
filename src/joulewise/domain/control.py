"""Who controls a GPU, and what came of it: for status, metrics and refusals."""

from __future__ import annotations

from dataclasses import dataclass

from joulewise.domain.caveats import Caveat
from joulewise.domain.measurement import GpuSample
from joulewise.domain.points import KnobState, OperatingPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who holds a lease: a process, and through which daemon, where one stands between.

    `user` and `command` are for people: `None` where the system does not tell.
    """

    pid: int
    user: str | None = None
    command: str | None = None
    daemon_pid: int | None = None

    @property
    def text(self) -> str:
        """As errors name it: `process 4242 (alice: train.py) through joulewised (process 7)`."""
        said = ": ".join(part for part in (self.user, self.command) if part)
        through = "" if self.daemon_pid is None else " through joulewised"
        if self.daemon_pid is not None and self.daemon_pid != self.pid:
            through += f" (process {self.daemon_pid})"
        return f"process {self.pid}{f' ({said})' if said else ''}{through}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledGpu:
    """One GPU as whoever controls or watches it sees it.

    `device` is the device string that opens it. `holder` is `None` where nobody holds it, and
    `asked` what the holder asked for last: `None` before that. `found` is what could be read
    back before the first touch. `caveats` say what is not as asked: a foreign change, a clock
    not held, a cap. `left_set` is a sentence on clocks that a dead holder left set. `sample` is
    the last reading; `None`: there was none, or the GPU no longer answers.
    """

    uuid: str
    name: str
    device: str
    is_simulated: bool
    holder: Holder | None = None
    asked: OperatingPoint | None = None
    touched: tuple[str, ...] = ()
    found: KnobState | None = None
    sample: GpuSample | None = None
    caveats: tuple[Caveat, ...] = ()
    left_set: str | None = None
    is_lowered_idle: bool = False
    """Whether the idle policy has lowered its clocks."""
