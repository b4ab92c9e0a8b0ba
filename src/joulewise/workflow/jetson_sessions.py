"""A Jetson board with what runs kernels on it: torch on a real one, physics behind a tree."""

from __future__ import annotations

from joulewise.device.real_time import MonotonicTimer
from joulewise.domain.errors import NotSupported
from joulewise.domain.ports import HardwareRunners
from joulewise.domain.session import DeviceSession
from joulewise.domain.workload import Workload
from joulewise.simulator.jetson_layouts import tree_layout
from joulewise.simulator.presets import preset
from joulewise.workflow.jetson_boards import open_board
from joulewise.workflow.jetson_time import FakeTree, fake_tree


def open_board_session(
    device: str, workload: Workload, hardware: HardwareRunners | None
) -> DeviceSession:
    """Open a board ready to run the kernels of a workload.

    A tree of files whose time stands still is moved in virtual time by this process.

    Raises:
        InputError: the device string cannot be used, or the tree is of no known board.
        NotSupported: no Jetson lies there, nothing runs kernels on it, or another process moves
            the tree in real time.
    """
    tree = fake_tree(device)
    if tree is not None:
        return _open_tree(device, tree, workload)
    gpu = open_board(device, () if hardware is None else hardware.caveats)
    if hardware is None:
        raise NotSupported(
            f"nothing here runs kernels on {gpu.identity.name}",
            hint="Install NVIDIA's build of torch for Jetson and joulewise with the extra torch.",
        )
    # A Jetson's GPU is the first that CUDA sees.
    runner, iterations, tracer = hardware.open(gpu.identity, 0, workload, MonotonicTimer())
    return DeviceSession(gpu=gpu, runner=runner, iterations=iterations, tracer=tracer)


def is_tree_calibrated(device: str) -> bool | None:
    """Whether the physics behind a tree was fitted to measurements; `None` for a real board."""
    tree = fake_tree(device)
    if tree is None:
        return None
    layout = tree_layout(tree.root)
    return layout is not None and layout.preset is not None and preset(layout.preset).is_calibrated


def _open_tree(device: str, tree: FakeTree, workload: Workload) -> DeviceSession:
    from joulewise.device.jetson_gpu import open_jetson  # noqa: PLC0415 - only where there is one
    from joulewise.simulator.jetson_session import (  # noqa: PLC0415 - likewise
        open_tree_session,
    )

    if tree.pid is not None:
        raise NotSupported(
            f"process {tree.pid} moves the fake board in {tree.root} in real time, and "
            "kernels run there in virtual time alone",
            hint="End that process first, or run a command there: joulewise run, apply or "
            "finetune run.",
        )
    session = open_tree_session(tree.root, works=workload.works)
    return DeviceSession(
        gpu=open_jetson(device, timer=session.timer),
        runner=session.runner,
        iterations=session.runner,
        transition=session.transition,
    )
