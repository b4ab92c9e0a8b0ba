"""Fake Jetson boards for tests: trees of files in virtual time, as root and as somebody else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from joulewise.device.jetson_files import BoardFiles, FolderFiles
from joulewise.device.jetson_gpu import open_jetson
from joulewise.domain.errors import NotPermitted
from joulewise.domain.session import DeviceSession
from joulewise.domain.workload import KernelWork
from joulewise.simulator.jetson_session import open_tree_session

DEBUGFS = "/sys/kernel/debug"


class UsersFiles(FolderFiles):
    """A tree as an account sees it that is not root's: nothing to write, and no debugfs."""

    def read(self, path: str) -> str | None:
        """What root alone may read is refused."""
        self._refuse_debugfs(path, "read")
        return super().read(path)

    def write(self, path: str, text: str) -> None:
        """Every file of a board belongs to root."""
        raise _denied(self.place(path), f"write {text} to")

    def names(self, path: str) -> tuple[str, ...]:
        """Folders below debugfs cannot be listed."""
        self._refuse_debugfs(path, "list")
        return super().names(path)

    def exists(self, path: str) -> bool:
        """Nothing shows of what lies below debugfs."""
        return not path.startswith(DEBUGFS) and super().exists(path)

    def _refuse_debugfs(self, path: str, what: str) -> None:
        if path.startswith(DEBUGFS):
            raise _denied(self.place(path), what)


def _denied(place: str, what: str) -> NotPermitted:
    return NotPermitted(f"this account may not {what} {place}", hint="Run as root.")


def open_tree(
    root: Path,
    layout_name: str | None,
    works: Sequence[KernelWork] = (),
    *,
    options: str = "noise=0",
    device_options: str = "",
    files: BoardFiles | None = None,
) -> DeviceSession:
    """The adapter on a fake board, which is written below `root` where there is none yet."""
    parts = open_tree_session(root, layout_name, works, options=options)
    gpu = open_jetson(f"jetson,root={root}{device_options}", files=files, timer=parts.timer)
    return DeviceSession(
        gpu=gpu, runner=parts.runner, iterations=parts.runner, transition=parts.transition
    )


@contextmanager
def living_tree(root: Path, layout_name: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A fake board in real time, moved by a process of its own until the block ends."""
    command = [sys.executable, "-m", "joulewise.simulator.fake_jetson", str(root)]
    process = subprocess.Popen(
        [*command, "--board", layout_name, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=dict(os.environ),
    )
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert "is alive" in said, said
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(10)
        if process.stdout is not None:
            process.stdout.close()


def training_command(root: Path, work: KernelWork, folder: Path, *arguments: str) -> list[str]:
    """What starts a stand-in for a training program, each step of which is this work."""
    file = folder / "work.json"
    file.write_bytes(msgspec.json.encode(work))
    module = "joulewise.simulator.fake_training"
    return [sys.executable, "-m", module, "--root", str(root), "--work", str(file), *arguments]
