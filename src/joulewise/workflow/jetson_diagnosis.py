"""The doctor on a Jetson: what its files tell, what they take, and how the board is set."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from joulewise.device.jetson_string import parse_jetson
from joulewise.domain.board_state import BoardState
from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.errors import JoulewiseError
from joulewise.domain.measurement import GpuSample
from joulewise.domain.points import ClockGrid, KnobState
from joulewise.domain.ports import GpuIdentity
from joulewise.workflow.baseline_state import doubts_of_state, mode_text, with_baseline_doubts
from joulewise.workflow.findings import Availability, Diagnosis, Finding, GpuDiagnosis
from joulewise.workflow.jetson_boards import open_board
from joulewise.workflow.jetson_time import FakeTree, fake_tree
from joulewise.workflow.lease_findings import (
    NO_LEASE,
    LeaseTrace,
    lease_findings,
    lease_trace,
    state_dir_finding,
)

if TYPE_CHECKING:
    from joulewise.device.jetson_gpu import JetsonGpu

_AS_ROOT = "Run as root: these files belong to root."


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenBoard:
    """What could be read of a board, and why the rest could not.

    `writable` are the files that set clocks, by path, and whether this account may write them.
    """

    identity: GpuIdentity
    knobs: KnobState | None = None
    writable: dict[str, bool] | None = None
    grid: ClockGrid | None = None
    state: BoardState | None = None
    sample: GpuSample | None = None
    trouble: JoulewiseError | None = None
    lease: LeaseTrace = NO_LEASE
    is_memory_lock_allowed: bool = False


def see_board(device: str) -> SeenBoard:
    """Read a board; sets nothing, and needs no rights. Raises as `open_jetson` does."""
    options = parse_jetson(device, os.environ)
    return seen_of(open_board(device), is_memory_lock_allowed=options.is_memory_lock_allowed)


def seen_of(gpu: JetsonGpu, *, is_memory_lock_allowed: bool = False) -> SeenBoard:
    """Read a board that is open already; what went wrong meanwhile is told, not raised."""
    knobs = grid = state = sample = trouble = None
    try:
        sample = gpu.sample()
        knobs = gpu.knob_state()
        state = gpu.board_state()
        grid = gpu.clock_grid()
    except JoulewiseError as error:
        trouble = error
    return SeenBoard(
        identity=gpu.identity,
        knobs=knobs,
        writable=None if knobs is None else _writable(knobs),
        grid=grid,
        state=state,
        sample=sample,
        trouble=trouble,
        lease=lease_trace(gpu.identity.uuid),
        is_memory_lock_allowed=is_memory_lock_allowed,
    )


def _writable(knobs: KnobState) -> dict[str, bool]:
    by_effective = os.access in os.supports_effective_ids
    return {
        one.path: os.access(one.path, os.W_OK, effective_ids=by_effective) for one in knobs.settings
    }


def examine_board(device: str) -> Diagnosis:
    """The whole diagnosis of one board. Raises as `open_jetson` does."""
    seen, tree = see_board(device), fake_tree(device)
    return diagnose_board(seen, tree, state_dir=state_dir_finding())


def diagnose_board(
    seen: SeenBoard, tree: FakeTree | None, *, state_dir: Finding | None = None
) -> Diagnosis:
    """Judge what was read; nothing is read here."""
    board = board_diagnosis(seen, state_dir=state_dir)
    simulated = "simulated " if seen.identity.is_simulated else ""
    read = "it can be read" if board.can_read else "it tells no power"
    if seen.trouble is not None:
        read = f"not all of it can be read: {seen.trouble.message.rstrip('.')}"
    limited = dict.fromkeys(
        one.subject for one in board.findings if one.status is Availability.LIMITED
    )
    look = f" Look at: {', '.join(limited)}." if limited else ""
    return Diagnosis(
        verdict=f"1 {simulated}Jetson board; {read}; {_setting(board, state_dir)}.{look}",
        hint=None,
        can_read=board.can_read,
        can_set=board.can_set,
        machine=(*_tree(tree), *([] if state_dir is None else [state_dir])),
        gpus=(board,),
        caveats=tuple(
            one for one in seen.identity.caveats if one.kind is CaveatKind.SIMULATED_DEVICE
        ),
    )


def board_diagnosis(seen: SeenBoard, *, state_dir: Finding | None = None) -> GpuDiagnosis:
    """The findings of one board."""
    clocks = _clocks_finding(seen)
    can_set = clocks.status is Availability.OK and state_dir is None
    return GpuDiagnosis(
        device=seen.identity.spec,
        name=seen.identity.name,
        can_read=seen.sample is not None and seen.sample.power_w is not None,
        can_set=can_set,
        findings=(
            *_trouble(seen.trouble),
            *lease_findings(seen.lease),
            *_lists(seen.grid),
            clocks,
            _memory(seen),
            *_state_findings(seen),
            *_meters(seen),
        ),
    )


def _setting(board: GpuDiagnosis, state_dir: Finding | None) -> str:
    if board.can_set:
        return "clocks may be set"
    if state_dir is not None:
        return f"clocks may not be set ({state_dir.seen})"
    return "clocks may not be set by this account"


def _tree(tree: FakeTree | None) -> Iterator[Finding]:
    if tree is None:
        return
    like = "" if tree.board is None else f", like {tree.board}"
    seen = f"a tree of files in {tree.root}{like}"
    if tree.pid is not None:
        moved = f"{seen}; process {tree.pid} moves it in real time"
        yield Finding(subject="fake board", status=Availability.OK, seen=moved)
        return
    yield Finding(
        subject="fake board",
        status=Availability.LIMITED,
        seen=f"{seen}; its time stands still",
        why="Commands take real time; workloads run in virtual time here.",
        helps=f"To run commands: python -m joulewise.simulator.fake_jetson {tree.root}"
        f"{'' if tree.board is None else f' --board {tree.board}'}",
    )


def _trouble(trouble: JoulewiseError | None) -> Iterator[Finding]:
    if trouble is not None:
        yield Finding(
            subject="reading",
            status=Availability.ABSENT,
            seen=trouble.message,
            why="What is not read is not shown below.",
            helps=trouble.hint,
        )


def _lists(grid: ClockGrid | None) -> Iterator[Finding]:
    if grid is None:
        return
    memory = grid.known_mem_clocks_mhz
    yield Finding(
        subject="clock lists",
        status=Availability.OK if memory else Availability.LIMITED,
        seen=f"GPU {_clocks(grid.sm_clocks_mhz)}; "
        + (f"memory {_clocks(memory)}" if memory else "no memory clocks"),
        why=None if memory else "Clocks of the memory are told by debugfs, if at all.",
        helps=None if memory else _AS_ROOT,
    )


def _clocks(listed: tuple[int, ...]) -> str:
    if len(listed) == 1:
        return f"{listed[0]} MHz"
    return f"{listed[0]} to {listed[-1]} MHz ({len(listed)})"


def _clocks_finding(seen: SeenBoard) -> Finding:
    subject = "GPU clock"
    paths = [] if seen.knobs is None else _paths(seen.knobs, "sm_clock_mhz")
    if seen.grid is None or not paths:
        return Finding(
            subject=subject,
            status=Availability.ABSENT,
            seen="no devfreq node of a GPU tells its clocks",
            why="Without a list and its two bounds there is nothing to pin.",
        )
    node = Path(paths[-1]).parent
    if not _may_write(seen, "sm_clock_mhz"):
        return Finding(
            subject=subject,
            status=Availability.ABSENT,
            seen=f"not permitted; with rights: each listed clock, pinned in {node}",
            why="This account may not write there.",
            helps=f"{_AS_ROOT} In a container, mount /sys read-write.",
        )
    return Finding(
        subject=subject, status=Availability.OK, seen=f"each listed clock, pinned in {node}"
    )


def _memory(seen: SeenBoard) -> Finding:
    subject = "memory clock lock"
    paths = [] if seen.knobs is None else _paths(seen.knobs, "mem_clock_mhz")
    listed = () if seen.grid is None else seen.grid.known_mem_clocks_mhz
    if not paths or not listed:
        return Finding(
            subject=subject,
            status=Availability.ABSENT,
            seen="this account sees nothing that locks it",
            why="It is set through debugfs, which is mounted for root.",
            helps=f"{_AS_ROOT} In a container, mount /sys/kernel/debug.",
        )
    if not _may_write(seen, "mem_clock_mhz"):
        return Finding(
            subject=subject,
            status=Availability.ABSENT,
            seen=f"not permitted; with rights: {len(listed)} clocks",
            why="This account may not write there.",
            helps=_AS_ROOT,
        )
    opt_in = "" if seen.is_memory_lock_allowed else "; only where the device string says so"
    said = f"{', '.join(map(str, listed))} MHz{opt_in}: {seen.identity.spec}"
    lock = "" if seen.is_memory_lock_allowed else ",memory_lock=on"
    return Finding(subject=subject, status=Availability.OK, seen=f"{said}{lock}")


def _paths(knobs: KnobState, knob: str) -> list[str]:
    return [one.path for one in knobs.settings if one.knob == knob]


def _may_write(seen: SeenBoard, knob: str) -> bool:
    writable = seen.writable or {}
    return seen.knobs is not None and all(
        writable.get(path, False) for path in _paths(seen.knobs, knob)
    )


def _state_findings(seen: SeenBoard) -> Iterator[Finding]:
    state = seen.state
    if state is None:
        return
    told = with_baseline_doubts(doubts_of_state(state), seen.identity.caveats)
    doubts = {one.kind: one for one in told}
    yield _clock_state(state, doubts.get(CaveatKind.BASELINE_PINNED))
    yield _power_mode(state, doubts.get(CaveatKind.POWER_MODE_CAPS))
    if state.gated_tpc_count is not None:
        yield _judged("groups of SMs", doubts.get(CaveatKind.TPCS_GATED), "none is switched off")
    if state.is_jetson_clocks_on is not None:
        yield Finding(
            subject="jetson_clocks",
            status=Availability.LIMITED if state.is_jetson_clocks_on else Availability.OK,
            seen="on, or as if it were: the clock is pinned at the highest of the power mode"
            if state.is_jetson_clocks_on
            else "off",
        )
    yield _memory_state(state)


def _clock_state(state: BoardState, pinned: Caveat | None) -> Finding:
    subject = "state of the clocks"
    least, most = state.sm_clock_min_mhz, state.sm_clock_max_mhz
    governor = f"governor {state.governor or 'unknown'}"
    if pinned is None and None in {least, most, state.governor, state.stock_governor}:
        bounds = "unknown bounds" if least is None or most is None else f"{least} to {most} MHz"
        return Finding(
            subject=subject,
            status=Availability.UNKNOWN,
            seen=f"{bounds}, {governor}",
            why=f"{state.untold}.",
        )
    return _judged(subject, pinned, f"as the board starts: {least} to {most} MHz, {governor}")


def _power_mode(state: BoardState, capped: Caveat | None) -> Finding:
    if state.power_mode is None:
        return Finding(
            subject="power mode",
            status=Availability.UNKNOWN,
            seen="neither /var/lib/nvpmodel/status nor /etc/nvpmodel.conf tells",
            why="A power mode caps clocks and may switch part of the GPU off.",
            helps="See nvpmodel -q as root; in a container, mount both files.",
        )
    said = f"{mode_text(state).removeprefix('power mode ')}: GPU up to "
    return _judged("power mode", capped, f"{said}{state.sm_clock_ceiling_mhz} MHz")


def _memory_state(state: BoardState) -> Finding:
    subject = "memory clock"
    if not state.is_mem_lock_known:
        return Finding(
            subject=subject,
            status=Availability.UNKNOWN,
            seen="whether somebody locked it cannot be read",
            why="The GPU runs slower at a lower memory clock, which is then part of every figure.",
            helps=_AS_ROOT,
        )
    if state.mem_clock_locked_mhz is None:
        return Finding(subject=subject, status=Availability.OK, seen="left to the board")
    return Finding(
        subject=subject,
        status=Availability.LIMITED,
        seen=f"locked at {state.mem_clock_locked_mhz} MHz",
        why="A baseline with a locked memory clock is not the one that users have.",
    )


def _judged(subject: str, doubt: Caveat | None, fine: str) -> Finding:
    if doubt is None:
        return Finding(subject=subject, status=Availability.OK, seen=fine)
    return Finding(
        subject=subject,
        status=Availability.LIMITED,
        seen=doubt.seen,
        why=doubt.why,
        helps=doubt.helps,
    )


def _meters(seen: SeenBoard) -> Iterator[Finding]:
    sample = seen.sample
    if sample is None:
        return
    yield _rails(sample, seen.identity.caveats)
    busy, temp_c = sample.busy_ratio, sample.temp_c
    yield _reading("utilisation", None if busy is None else f"{busy:.1%}")
    yield _reading("temperature", None if temp_c is None else f"{temp_c:.0f} °C")
    count = sample.over_current_count
    if count is not None:
        yield Finding(
            subject="over-current",
            status=Availability.LIMITED if count else Availability.OK,
            seen=f"{count} events since the board started" if count else "no event",
            why="The board slows itself down when its supply draws too much or sags."
            if count
            else None,
            helps="Look at the supply and its cable." if count else None,
        )


def _reading(subject: str, said: str | None) -> Finding:
    status = Availability.ABSENT if said is None else Availability.OK
    return Finding(subject=subject, status=status, seen=said or "this board does not tell")


def _rails(sample: GpuSample, caveats: Iterable[Caveat]) -> Finding:
    subject = "power of the module"
    scope = next((one.seen for one in caveats if one.kind is CaveatKind.ENERGY_OF_MODULE), None)
    if not sample.rails or sample.power_w is None:
        return Finding(
            subject=subject,
            status=Availability.ABSENT,
            seen="no rail is measured here that makes up the module's power",
            why=f"Without power there is no energy{'.' if scope is None else f': {scope}.'}",
            helps="In a container, mount /sys/class/hwmon and /sys/bus/i2c.",
        )
    counted = [f"{one.rail} {one.power_w:.2f}" for one in sample.rails if one.is_counted]
    others = [f"{one.rail} {one.power_w:.2f}" for one in sample.rails if not one.is_counted]
    beside = f"; beside it, and not counted: {', '.join(others)}" if others else ""
    return Finding(
        subject=subject,
        status=Availability.OK,
        seen=f"{sample.power_w:.2f} W = {' + '.join(counted)} W{beside}",
        why=scope,
    )
