"""`joulewise status`: who controls which GPU here, and what came of it; reads alone."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from joulewise.control.daemon.messages import AskedPoint, GpuState, State, Status, state_of
from joulewise.control.drift import SETTLE_S, DriftWatch
from joulewise.control.remote import reach
from joulewise.device.jetson_string import is_jetson
from joulewise.device.nvml_gpu import open_nvml
from joulewise.device.real_time import MonotonicTimer
from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.clock_judgement import is_loaded
from joulewise.domain.control import ControlledGpu
from joulewise.domain.errors import JoulewiseError
from joulewise.domain.points import AUTO
from joulewise.simulator.fake_driver import loaded_driver
from joulewise.workflow.absent_gpus import traces_beside
from joulewise.workflow.baseline_state import baseline_doubts
from joulewise.workflow.jetson_boards import open_board
from joulewise.workflow.lease_findings import NO_LEASE, LeaseTrace, lease_trace
from joulewise.workflow.leasing import socket_path
from joulewise.workflow.metrics import GpuWatch, watch_board, watch_machine

# A clock that nothing explains is looked at again a few times before it is called a lock.
_LOOK_COUNT = 4
_LOOK_AGAIN_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenDaemon:
    """The joulewised that answered, or why the one at this socket did not: `problem`.

    `own_problems` are sentences of one that answered on what it cannot do.
    """

    socket: Path
    pid: int | None = None
    problem: str | None = None
    own_problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlStatus:
    """Who controls what on this machine.

    `daemon` is `None` where no joulewised answers. `left_elsewhere` and `held_elsewhere` are
    sentences on what leases left or hold of GPUs that do not answer, or are not here. `unknown`
    names GPUs of which it is not known who holds them.
    """

    gpus: tuple[GpuState, ...]
    daemon: SeenDaemon | None = None
    left_elsewhere: tuple[str, ...] = ()
    held_elsewhere: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


def control_status() -> ControlStatus:
    """Ask joulewised where it answers; elsewhere look at locks, journals and readings.

    Raises:
        NotSupported: there is no NVIDIA GPU here, and no joulewised that knows of any; who holds
            one all the same, or left it set, is noted.
    """
    daemon, gpus = _daemon()
    if gpus is not None:
        # One that did not answer when the daemon started may be anybody's.
        unknown = tuple(gpu.device for gpu in gpus if gpu.gpu == gpu.device)
        boards = tuple(map(_state, _seen_by(watch_board())))
        return _with_elsewhere(ControlStatus(gpus=(*gpus, *boards), daemon=daemon, unknown=unknown))
    try:
        seen = _seen_by(watch_machine())
    except JoulewiseError as error:
        absent = _with_elsewhere(ControlStatus(gpus=()))
        for said in (*absent.held_elsewhere, *absent.left_elsewhere):
            error.add_note(said)
        raise
    return _with_elsewhere(
        ControlStatus(
            gpus=tuple(map(_state, seen)),
            daemon=daemon,
            unknown=tuple(gpu.device for gpu in seen if not gpu.is_control_known),
        )
    )


def _seen_by(watch: GpuWatch) -> tuple[ControlledGpu, ...]:
    with closing(watch):
        return tuple(map(_with_drift, watch.gpus()))


def _daemon() -> tuple[SeenDaemon | None, tuple[GpuState, ...] | None]:
    """The daemon and its GPUs; it tells more than can be read from outside."""
    path = socket_path()
    if path is None:
        return None, None
    try:
        connection = reach(path)
        if connection is None:
            return None, None
        with closing(connection):
            answer = connection.ask(Status())
    except JoulewiseError as error:
        return SeenDaemon(socket=path, problem=error.message), None
    if not isinstance(answer, State):
        return SeenDaemon(socket=path, problem="it answers another question"), None
    seen = SeenDaemon(socket=path, pid=answer.pid, own_problems=answer.problems)
    return seen, answer.gpus


def _state(gpu: ControlledGpu) -> GpuState:
    """With what its journal tells: which knobs were touched, or that nobody can read it."""
    trace = lease_trace(gpu.uuid) if gpu.is_control_known else NO_LEASE
    entry = None if gpu.holder is None else trace.entry
    touched = gpu.touched if entry is None else entry.touched
    state = msgspec.structs.replace(state_of(gpu), touched=touched, left_open=trace.damage)
    if gpu.holder is None or state.asked is not None or not is_jetson(gpu.device):
        return state
    return msgspec.structs.replace(state, asked=_set_on_board(gpu.device, touched))


def _set_on_board(device: str, touched: Collection[str]) -> AskedPoint | None:
    """What a holder has set of a board, as far as its files tell: of clocks that it touched alone.

    Other devices do not tell what they were asked for.
    """
    try:
        board = open_board(device).board_state()
    except JoulewiseError:
        return None
    least_mhz, most_mhz = board.sm_clock_min_mhz, board.sm_clock_max_mhz
    is_pinned = "sm_clock_mhz" in touched and least_mhz == most_mhz
    sm_clock_mhz = most_mhz if is_pinned else None
    mem_clock_mhz = board.mem_clock_locked_mhz if "mem_clock_mhz" in touched else None
    if sm_clock_mhz is None and mem_clock_mhz is None:
        return None
    return AskedPoint(sm_clock_mhz=sm_clock_mhz, mem_clock_mhz=mem_clock_mhz)


def _with_drift(gpu: ControlledGpu) -> ControlledGpu:
    """With a doubt where nobody of ours holds it and its clock looks locked under load.

    What a holder outside of joulewised asked for is not known here, so nothing is said of that;
    nor of what a dead holder left set, which explains a low clock.
    """
    is_explained = gpu.holder is not None or gpu.left_set is not None
    if is_jetson(gpu.device):
        return gpu if is_explained else replace(gpu, caveats=(*gpu.caveats, *_pinned(gpu.device)))
    if is_explained or gpu.sample is None or not is_loaded(gpu.sample):
        return gpu
    return replace(gpu, caveats=(*gpu.caveats, *_foreign(gpu.device)))


def _pinned(device: str) -> tuple[Caveat, ...]:
    """What somebody has set on a board, which can be read without any load."""
    try:
        doubts = baseline_doubts(open_board(device))
    except JoulewiseError:
        return ()
    return tuple(one for one in doubts if one.kind is CaveatKind.BASELINE_PINNED)


def _foreign(device: str) -> tuple[Caveat, ...]:
    driver = loaded_driver()
    caveats: tuple[Caveat, ...] = ()
    try:
        gpu = open_nvml(device, timer=MonotonicTimer() if driver is None else driver.timer)
        grid = gpu.clock_grid()
        watch = DriftWatch(AUTO, grid, asked_s=gpu.now_s() - 2 * SETTLE_S)
        for _ in range(_LOOK_COUNT):
            gpu.wait(_LOOK_AGAIN_S)
            caveats = watch.feed(gpu.sample()).caveats
    except JoulewiseError:
        # It answered a moment ago; what is wrong with it now, says the doctor.
        return ()
    # A cap or heat within these moments is everyday where nobody asked for a clock.
    return tuple(one for one in caveats if one.kind is CaveatKind.FOREIGN_CONTROL)


def _with_elsewhere(seen: ControlStatus) -> ControlStatus:
    """With what leases hold or left of GPUs that do not answer: lost, taken out, or hidden here.

    Where the holder lives, nothing is left: it gives its clocks back itself.
    """
    traces = traces_beside({gpu.gpu for gpu in seen.gpus})
    return replace(
        seen,
        left_elsewhere=tuple(one.left_set for one in traces.values() if one.left_set is not None),
        held_elsewhere=tuple(
            _held(uuid, one) for uuid, one in traces.items() if one.holder is not None
        ),
    )


def _held(uuid: str, trace: LeaseTrace) -> str:
    name = "A GPU" if trace.entry is None else trace.entry.device_name
    return f"{name} ({uuid}), which does not answer here, is held by {trace.holder}."
