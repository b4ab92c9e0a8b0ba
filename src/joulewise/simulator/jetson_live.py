"""A fake board that lives in real time: a process moves it, and others set and load it by files."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from joulewise.domain.errors import BusyError, InputError, JoulewiseError
from joulewise.domain.points import ClockGrid, OperatingPoint
from joulewise.domain.workload import KernelWork
from joulewise.simulator.device_string import VirtualOptions
from joulewise.simulator.jetson_board import TreeBoard, tree_options
from joulewise.simulator.jetson_layouts import (
    BoardLayout,
    TreeMarker,
    layout,
    read_marker,
    write_layout,
    write_marker,
)
from joulewise.simulator.jetson_spec import spec_of_tree
from joulewise.simulator.noise import QUIET, WindowKey, window_noise
from joulewise.simulator.operations import Operation, Operations
from joulewise.simulator.spec import GpuSpec

LOAD_PATH = "/joulewise-load.json"
"""Says what runs on the board; nothing does where there is no such file."""

DEFAULT_BOARD = "agx-orin-jp6"

_LOOK_EVERY_S = 0.2
_MOST_WORKS = 64
# A window of power noise: as long as a block of steps takes.
_NOISE_WINDOW_S = 1.0


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What runs back to back on a board: `pid` is who says so, and it ends with that process."""

    kernel: str
    work: KernelWork
    pid: int | None = None


def write_load(root: Path, load: Load | None) -> None:
    """Have this run on the board from now on; `None`: nothing."""
    file = root / LOAD_PATH.lstrip("/")
    if load is None:
        file.unlink(missing_ok=True)
        return
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    beside.write_bytes(msgspec.json.encode(load))
    beside.replace(file)


class LiveOperations:
    """An `OperationTable` to which works are added while the board runs."""

    def __init__(self, spec: GpuSpec) -> None:
        """Know no work yet."""
        self._spec = spec
        self._idle = Operations(spec, ())
        self._by_kernel: dict[str, tuple[KernelWork, Operations]] = {}

    @property
    def kernels(self) -> tuple[str, ...]:
        """Kernels that ran so far."""
        return tuple(self._by_kernel)

    def add(self, work: KernelWork) -> None:
        """Take this work for its kernel from now on. Raises NotSupported for its arithmetic."""
        known = self._by_kernel.pop(work.kernel, None)
        is_new = known is None or known[0] != work
        entry = (work, Operations(self._spec, [work])) if is_new or known is None else known
        entry[1].running(work.kernel, OperatingPoint())
        self._by_kernel[work.kernel] = entry
        if len(self._by_kernel) > _MOST_WORKS:
            del self._by_kernel[next(iter(self._by_kernel))]

    def grid(self) -> ClockGrid:
        """Clocks that the board lists."""
        return self._idle.grid()

    def check_point(self, point: OperatingPoint) -> None:
        """Raise NotSupported for a point that the device does not take."""
        self._idle.check_point(point)

    def check_kernel(self, kernel: str) -> None:
        """Raise InputError for a kernel that is not known."""
        self._of(kernel).check_kernel(kernel)

    def running(self, kernel: str, point: OperatingPoint) -> Operation:
        """The kernel at the point."""
        return self._of(kernel).running(kernel, point)

    def throttled(self, kernel: str, point: OperatingPoint, power_w: float) -> Operation:
        """The kernel at the point with its power held down by heat."""
        return self._of(kernel).throttled(kernel, point, power_w)

    def idle(self, point: OperatingPoint) -> Operation:
        """Nothing running at the point."""
        return self._idle.idle(point)

    def _of(self, kernel: str) -> Operations:
        known = self._by_kernel.get(kernel)
        return self._idle if known is None else known[1]


class LivingBoard:
    """A board behind a tree that follows the machine's clock, whenever it is told to.

    It takes the tree: the marker says which process it is. Leaving, it says that time stands
    still again.
    """

    def __init__(self, root: Path, board: BoardLayout, options: VirtualOptions) -> None:
        """Move the tree, which has to be there, from now on."""
        self._root = root
        self._operations = LiveOperations(spec_of_tree(root, board))
        self._tree = TreeBoard(root, board, self._operations, options, is_read_meanwhile=True)
        self._options = options
        self._start_s = time.monotonic()
        self._load_file = root / LOAD_PATH.lstrip("/")
        self._load: Load | None = None
        self._stamp: tuple[int, int] | None = None
        self._pid_seen_s = 0.0
        self._load_count = 0
        self._noise_window = -1
        self.trouble: str | None = None
        """Why the load that was last asked for does not run; `None`: it does."""
        write_marker(root, TreeMarker(board=board.name, time="real", pid=os.getpid()))

    @property
    def is_there(self) -> bool:
        """Whether the tree is still there, and still moved by this process."""
        try:
            marker = read_marker(self._root)
        except InputError:
            return False
        return marker is not None and marker.pid == os.getpid()

    def follow(self) -> None:
        """Come up to the present."""
        self._take_load()
        behind_s = time.monotonic() - self._start_s - self._tree.time_s
        self._blur()
        self._tree.sleep(behind_s)

    def leave(self) -> None:
        """Let time stand still from now on."""
        if self.is_there:
            board = self._tree.layout.name
            write_marker(self._root, TreeMarker(board=board, time="virtual"))

    def _take_load(self) -> None:
        stamp = self._load_stamp()
        if stamp != self._stamp:
            self._stamp = stamp
            self.trouble = None
            self._run(None if stamp is None else self._read_load())
        elif self._is_abandoned():
            self._run(None)

    def _run(self, load: Load | None) -> None:
        """Run this from now on; a load that cannot run is none."""
        try:
            if load is not None:
                self._operations.add(load.work)
        except JoulewiseError as error:
            self.trouble, load = f"{load.kernel if load else ''} does not run: {error}", None
        self._load = load
        self._load_count += 1
        self._noise_window = -1
        kernel = None if load is None else load.work.kernel
        self._tree.virtual.load(kernel)
        self._tree.expect(kernel)

    def _load_stamp(self) -> tuple[int, int] | None:
        """Another one for every load that is written; `None` where there is none."""
        try:
            state = self._load_file.stat()
        except OSError:
            return None
        return state.st_ino, state.st_mtime_ns

    def _read_load(self) -> Load | None:
        try:
            return msgspec.json.decode(self._load_file.read_bytes(), type=Load)
        except (OSError, msgspec.MsgspecError) as error:
            self.trouble = f"{self._load_file} is no load: {error}"
            return None

    def _is_abandoned(self) -> bool:
        """Whether whoever loaded the board is gone; looked at now and then."""
        now_s, load = time.monotonic(), self._load
        if load is None or load.pid is None or now_s < self._pid_seen_s + _LOOK_EVERY_S:
            return False
        self._pid_seen_s = now_s
        return not is_process(load.pid)

    def _blur(self) -> None:
        """Blur what is drawn, anew from time to time."""
        window = int(self._tree.time_s / _NOISE_WINDOW_S)
        if window == self._noise_window:
            return
        self._noise_window = window
        virtual = self._tree.virtual
        if self._load is None:
            virtual.blur(QUIET)
            return
        key = WindowKey(
            seed=self._options.seed,
            run=f"load {self._load_count}",
            kernel=self._load.work.kernel,
            point_label=virtual.point.label,
            window=window,
            is_power_capped=virtual.operation.is_power_capped,
            is_host_time=virtual.operation.is_host_time,
        )
        virtual.blur(window_noise(self._options.noise_level, key))


def start_living(
    root: Path, layout_name: str | None, *, options: str = "", power_mode: int | None = None
) -> LivingBoard:
    """Move a tree in real time, written where the folder is empty or not there.

    Raises:
        InputError: no such board, mode or option; or a folder with anything else in it.
        BusyError: another process moves it.
    """
    marker = read_marker(root)
    if marker is None:
        if root.exists() and any(root.iterdir()):
            raise InputError(
                f"{root} is not empty and no fake board", hint="Name an empty or a new folder."
            )
        board = layout(layout_name or DEFAULT_BOARD)
        parsed = tree_options(board, options)
        root.mkdir(parents=True, exist_ok=True)
        write_layout(board, root, power_mode=power_mode)
        return LivingBoard(root, board, parsed)
    if layout_name not in (None, marker.board):
        raise InputError(
            f"{root} is a fake {marker.board}, not {layout_name}",
            field="board",
            hint="Name another folder, or the board that is there.",
        )
    if marker.pid is not None and marker.pid != os.getpid() and is_process(marker.pid):
        raise BusyError(
            f"process {marker.pid} moves the fake board in {root}",
            hint="End that process first, or name another folder.",
        )
    board = layout(marker.board)
    return LivingBoard(root, board, tree_options(board, options))


def run_living(
    board: LivingBoard, wait: Callable[[float], bool], tell: Callable[[str], None], period_s: float
) -> None:
    """Follow the machine's clock until `wait` says that it is over, or the tree is gone.

    `tell` is told once of every load that cannot run.
    """
    told: str | None = None
    next_check_s = 0.0
    try:
        while not wait(period_s):
            board.follow()
            if board.trouble != told and board.trouble is not None:
                tell(board.trouble)
            told = board.trouble
            if time.monotonic() >= next_check_s:
                if not board.is_there:
                    return
                next_check_s = time.monotonic() + _LOOK_EVERY_S
    finally:
        board.leave()


def is_process(pid: int) -> bool:
    """Whether there is such a process, whoever it belongs to; yes where nobody can tell."""
    if os.name != "posix":
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
