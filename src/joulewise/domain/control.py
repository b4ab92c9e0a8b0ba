"""Who controls a GPU, and what came of it: for status, metrics and refusals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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
    is_idle_policy: bool = False
    """Whether it is no program, but joulewised that lowers the clocks of an idle GPU."""

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
    not held, a cap. `left_set` is a sentence on clocks that a dead holder left set, and
    `left_open` one on what a damaged journal leaves open: no clocks, for those are given back.
    `sample` is the last reading; `None`: there was none, or the GPU no longer answers.
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
    left_open: str | None = None
    is_lowered_idle: bool = False
    """Whether the idle policy has lowered its clocks."""
    index: int | None = None
    """Its number for the driver, where that is known; it may change when the machine starts."""
    is_control_known: bool = True
    """Whether it could be seen who holds it and what is left set; where not, both are `None`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonCounts:
    """What a daemon has been asked and has done since it started, for metrics.

    `connection_count` are open now, `refused_connection_count` were turned away. `answer_count`
    counts by question and answer, as their messages are tagged: ("apply", "refused").
    `ended_lease_count` counts by why, in a few fixed words: never free text, for each makes a
    series of its own.
    """

    connection_count: int = 0
    refused_connection_count: int = 0
    answer_count: Mapping[tuple[str, str], int] = field(default_factory=dict)
    ended_lease_count: Mapping[str, int] = field(default_factory=dict)
