"""Kernels and iterations on a board behind a tree of files, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from joulewise.domain.errors import InputError
from joulewise.domain.measurement import IterationTiming, LoopTiming
from joulewise.domain.plan import PlannedLaunch, PlannedRequest
from joulewise.domain.points import OperatingPoint
from joulewise.domain.ports import IterationLoop, KernelLoop
from joulewise.domain.transition import TransitionModel
from joulewise.domain.workload import KernelWork
from joulewise.simulator.jetson_board import TreeBoard, tree_options
from joulewise.simulator.jetson_layouts import layout, tree_layout, write_layout
from joulewise.simulator.jetson_spec import spec_of_tree
from joulewise.simulator.operations import Operations
from joulewise.simulator.virtual import VirtualRunner
from joulewise.simulator.virtual_time import duration_units, seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeSession:
    """What an adapter on the tree needs to be a device: its time, and what runs on it.

    `runner` runs kernels and iterations alike.
    """

    timer: TreeBoard
    runner: TreeRunner
    transition: TransitionModel


def open_tree_session(
    root: Path,
    layout_name: str | None = None,
    works: Sequence[KernelWork] = (),
    *,
    options: str = "",
) -> TreeSession:
    """Put a virtual board behind a tree of files.

    Args:
        root: folder of the tree, which is written where there is none yet; what one says is how
            the board was found.
        layout_name: which board it is; `None`: as the tree says.
        works: one work per kernel that can run.
        options: of the virtual board, as in its device string: `noise=0,seed=3,lost_after=10`.

    Raises:
        InputError: no such board or option, a kernel with two works, or a folder that says
            nothing of a board or of another one.
        NotSupported: a kernel computes what the board cannot.
    """
    found = tree_layout(root)
    board = layout(layout_name) if layout_name is not None else found
    if board is None:
        raise InputError(
            f"there is no fake board below {root}",
            field="root",
            hint="Say which board shall be written there.",
        )
    if found is None:
        write_layout(board, root)
    elif found != board:
        raise InputError(
            f"{root} is the tree of {found.name}, not of {board.name}",
            field="board",
            hint="Choose another folder, or the board that is there.",
        )
    parsed = tree_options(board, options)
    operations = Operations(spec_of_tree(root, board), works)
    tree = TreeBoard(root, board, operations, parsed)
    runner = TreeRunner(tree, VirtualRunner(operations, tree.virtual, parsed))
    return TreeSession(timer=tree, runner=runner, transition=tree.virtual.driver.transition)


class TreeRunner:
    """A `KernelRunner` and an `IterationRunner` on one board behind a tree."""

    def __init__(self, tree: TreeBoard, runner: VirtualRunner) -> None:
        """Run on the board in motion, and have the tree follow it."""
        self._tree = tree
        self._runner = runner

    @property
    def kernels(self) -> tuple[str, ...]:
        """Kernels that can run."""
        return self._runner.kernels

    def loop(self, kernel: str, *, run: str) -> AbstractContextManager[KernelLoop]:
        """Run `kernel` back to back inside the block."""
        return self._loop(kernel, run)

    def iterate(
        self,
        launches: Sequence[PlannedLaunch],
        requests: Sequence[PlannedRequest],
        ask: Callable[[OperatingPoint], None],
        *,
        run: str,
    ) -> AbstractContextManager[IterationLoop]:
        """Run these launches over and over inside the block."""
        return self._iterate(launches, requests, ask, run)

    @contextmanager
    def _loop(self, kernel: str, run: str) -> Iterator[KernelLoop]:
        tree = self._tree
        with tree.leaving(), self._runner.loop(kernel, run=run) as loop:
            tree.expect(kernel)
            tree.show()
            try:
                yield TreeLoop(tree, loop)
            finally:
                tree.expect(None)
        tree.show()

    @contextmanager
    def _iterate(
        self,
        launches: Sequence[PlannedLaunch],
        requests: Sequence[PlannedRequest],
        ask: Callable[[OperatingPoint], None],
        run: str,
    ) -> Iterator[IterationLoop]:
        tree = self._tree

        def ask_in_files(point: OperatingPoint) -> None:
            with tree.asking():
                ask(point)
                tree.look()

        # The board is set for the first launch by the time it begins, as files say.
        tree.expect(None, is_iteration=True)
        try:
            with (
                tree.leaving(),
                self._runner.iterate(launches, requests, ask_in_files, run=run) as loop,
            ):
                yield TreeIterationLoop(tree, loop)
        finally:
            tree.expect(None)
        tree.show()


class TreeLoop:
    """A `KernelLoop` that reads control files before time passes, and shows sensors after."""

    def __init__(self, tree: TreeBoard, loop: KernelLoop) -> None:
        """Follow this loop."""
        self._tree = tree
        self._loop = loop

    def begin_window(self, window: int) -> None:
        """Start a window."""
        with self._tree.leaving():
            self._loop.begin_window(window)
        self._tree.show()

    def run_for(self, duration_s: float) -> None:
        """Keep the GPU loaded that long."""
        duration = duration_units(duration_s)
        self._tree.advance(duration, lambda part: self._loop.run_for(seconds(part)))

    def end_window(self) -> LoopTiming:
        """Launches finished and their time."""
        with self._tree.leaving():
            timing = self._loop.end_window()
        self._tree.show()
        return timing


class TreeIterationLoop:
    """An `IterationLoop` that reads control files before time passes, and shows sensors after."""

    def __init__(self, tree: TreeBoard, loop: IterationLoop) -> None:
        """Follow this loop."""
        self._tree = tree
        self._loop = loop

    def run_for(self, duration_s: float) -> None:
        """Keep the GPU loaded that long."""
        duration = duration_units(duration_s)
        self._tree.advance(duration, lambda part: self._loop.run_for(seconds(part)))

    def run_iterations(self, iteration_count: int) -> None:
        """Go on until so many more iterations have ended."""
        self._tree.look()
        with self._tree.leaving():
            self._loop.run_iterations(iteration_count)
        self._tree.show()

    def begin_window(self, window: int) -> None:
        """Start a window at the start of an iteration."""
        self._tree.look()
        with self._tree.leaving():
            self._loop.begin_window(window)
        self._tree.show()

    def end_window(self) -> IterationTiming:
        """Iterations that ended, and their time."""
        with self._tree.leaving():
            timing = self._loop.end_window()
        self._tree.show()
        return timing
