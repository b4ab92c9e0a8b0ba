"""What joulewised lets this account set: asked, for where it answers nothing goes past it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from joulewise.control.daemon.messages import GpuState, May, State, Status
from joulewise.control.remote import DaemonConnection, reach
from joulewise.domain.control import Holder
from joulewise.domain.errors import JoulewiseError
from joulewise.domain.gpu_facts import GpuFacts
from joulewise.workflow.findings import Availability, Finding
from joulewise.workflow.leasing import SOCKET_VARIABLE, socket_path

_SUBJECT = "joulewised"


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonView:
    """What joulewised says to this account.

    `finding` is `None` where there is none and nobody said that there should be one. `may_set`
    tells by UUID whether it lets clocks be set, and `holders` who holds what.
    """

    finding: Finding | None = None
    may_set: Mapping[str, bool] = field(default_factory=dict)
    holders: Mapping[str, Holder] = field(default_factory=dict)


def daemon_view(gpus: Sequence[GpuFacts]) -> DaemonView:
    """Ask joulewised where it listens; sets nothing."""
    path = socket_path()
    if path is None:
        return DaemonView()
    try:
        connection = reach(path)
        if connection is None:
            return DaemonView(finding=_nobody(path))
        with closing(connection):
            return _view(connection, path, gpus)
    except JoulewiseError as error:
        seen = f"at {path}: {error.message}"
        return DaemonView(
            finding=Finding(
                subject=_SUBJECT, status=Availability.LIMITED, seen=seen, helps=error.hint
            )
        )


def _nobody(path: Path) -> Finding | None:
    """Where a socket was named, somebody counts on it."""
    if SOCKET_VARIABLE not in os.environ:
        return None
    return Finding(
        subject=_SUBJECT,
        status=Availability.ABSENT,
        seen=f"none answers at {path}",
        why=f"{SOCKET_VARIABLE} names that socket.",
        helps=f"Start joulewised, or set {SOCKET_VARIABLE}=off to do without it.",
    )


def _view(connection: DaemonConnection, path: Path, gpus: Sequence[GpuFacts]) -> DaemonView:
    answer = connection.ask(Status())
    states = answer.gpus if isinstance(answer, State) else ()
    asked = {uuid: _Asked.of(connection, gpu, uuid) for gpu, uuid in _named(gpus)}
    return DaemonView(
        finding=_finding(path, asked),
        may_set={uuid: one.refusal is None for uuid, one in asked.items()},
        holders={state.gpu: holder for state in states for holder in _holder(state)},
    )


def _named(gpus: Sequence[GpuFacts]) -> Iterator[tuple[GpuFacts, str]]:
    return ((gpu, gpu.uuid.value) for gpu in gpus if gpu.uuid.value is not None)


def _holder(state: GpuState) -> Iterator[Holder]:
    told = state.held_by
    if told is not None:
        yield Holder(
            pid=told.pid,
            user=told.user,
            command=told.command,
            daemon_pid=told.daemon_pid,
            is_idle_policy=state.is_lowered_idle,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What it answered about one GPU: why no clock may be set, or which bounds there are."""

    refusal: JoulewiseError | None
    bounds: tuple[str, ...] = ()

    @classmethod
    def of(cls, connection: DaemonConnection, gpu: GpuFacts, uuid: str) -> _Asked:
        refusal = _refusal(connection, May(gpu=uuid))
        listed = gpu.sm_clocks_mhz.value
        if refusal is not None or not listed:
            return cls(refusal=refusal)
        ends = (May(gpu=uuid, sm_clock_mhz=clock_mhz) for clock_mhz in (listed[0], listed[-1]))
        refused = (_refusal(connection, question) for question in ends)
        # The rule and its bound stand at the end of what joulewised says.
        said = [one.message.rpartition(" here: ")[2] for one in refused if one is not None]
        return cls(refusal=None, bounds=tuple(dict.fromkeys(said)))


def _refusal(connection: DaemonConnection, question: May) -> JoulewiseError | None:
    try:
        connection.ask(question)
    except JoulewiseError as error:
        return error
    return None


def _finding(path: Path, asked: Mapping[str, _Asked]) -> Finding:
    answers = f"answers at {path}"
    refused = [(uuid, one.refusal) for uuid, one in asked.items() if one.refusal is not None]
    if refused:
        is_all = len(refused) == len(asked)
        which = "any GPU here" if is_all else ", ".join(uuid for uuid, _ in refused)
        first = refused[0][1]
        return Finding(
            subject=_SUBJECT,
            status=Availability.ABSENT if is_all else Availability.LIMITED,
            seen=f"{answers}, and does not let this account set clocks of {which}",
            why=f"{first.message}.",
            helps=first.hint,
        )
    bounds = "; ".join(dict.fromkeys(bound for one in asked.values() for bound in one.bounds))
    within = f" ({bounds})" if bounds else ""
    return Finding(
        subject=_SUBJECT,
        status=Availability.OK,
        seen=f"{answers}, and lets this account set SM clocks{within}",
    )
