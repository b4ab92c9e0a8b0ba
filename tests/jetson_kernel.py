"""A board's files in memory, with the manners of its kernel: what it refuses, rounds or ignores."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from functools import cache

from joulewise.device.jetson_gpu import JetsonGpu, open_jetson
from joulewise.device.jetson_nodes import FAKE_MARK
from joulewise.domain.errors import DeviceError, NotPermitted
from joulewise.simulator.jetson_layout_files import layout_files, layout_links
from joulewise.simulator.jetson_layouts import layout

DEBUGFS = "/sys/kernel/debug"


class VirtualTimer:
    """A `Timer` that calls `tick` whenever time passes."""

    def __init__(self, tick: Callable[[float], None] = lambda _now_s: None) -> None:
        self.time_s = 0.0
        self.tick = tick

    def now_s(self) -> float:
        return self.time_s

    def sleep(self, duration_s: float) -> None:
        self.time_s += duration_s
        self.tick(self.time_s)


class KernelFiles:
    """A `BoardFiles` of one of the fake layouts, under load; every write is kept in `written`.

    `refusals` are words with which the next writes of a file fail. `is_strict` kernels refuse a
    least clock above the most; the clock follows at once where `is_following`.
    """

    def __init__(self, name: str, *, power_mode: int | None = None, is_root: bool = True) -> None:
        self.layout = layout(name)
        files, links = _at_rest(name, power_mode)
        self.files, self.links = dict(files), dict(links)
        self.is_root = is_root
        self.is_strict = True
        self.is_following = True
        self.refusals: dict[str, list[str]] = {}
        self.written: list[tuple[str, str]] = []
        self.bounds_hz: list[tuple[int, int]] = []
        """Least and most after every write."""
        self.timer = VirtualTimer()
        self.writer: Callable[[str, str], None] = self.take

    @property
    def node(self) -> str:
        return self.layout.devfreq_folder

    def open(self, options: str = "") -> JetsonGpu:
        return open_jetson(f"jetson{options}", files=self, timer=self.timer)

    def at_node(self, name: str) -> str:
        return self.files[f"{self.node}/{name}"]

    def put(self, name: str, text: str) -> None:
        """Another program writes a file of the GPU's node."""
        self.files[f"{self.node}/{name}"] = text

    def pin_found(self, least: int, most: int) -> None:
        self.put("min_freq", str(least))
        self.put("max_freq", str(most))

    def remove(self, folder: str) -> dict[str, str]:
        """Take a folder away; what was in it, to bring it back."""
        gone = {path: text for path, text in self.files.items() if path.startswith(f"{folder}/")}
        for path in gone:
            del self.files[path]
        return gone

    def run_at(self, clock_hz: int) -> None:
        """The GPU works, at this clock."""
        self.put("cur_freq", str(clock_hz))
        for path in list(self.files):
            if path.endswith("/pto_counter"):
                self.files[path] = str(clock_hz)

    def work(self) -> None:
        if self.layout.load_path is not None:
            self.files[self._resolved(self.layout.load_path)] = "990"

    def read(self, path: str) -> str | None:
        self._check(path)
        text = self.files.get(self._resolved(path))
        return None if text is None else text.strip("\0 \t\r\n")

    def write(self, path: str, text: str) -> None:
        self.writer(path, text)

    def take(self, path: str, text: str) -> None:
        """What a write does, unless a test puts another `writer` in place."""
        place, name = self._resolved(path), posixpath.basename(path)
        if not self.is_root:
            raise NotPermitted(f"this account may not write {path}", hint="Run as root.")
        if self.refusals.get(name):
            raise DeviceError(
                f"{text} could not be written to {path}: {self.refusals[name].pop(0)}"
            )
        if place not in self.files:
            raise DeviceError(f"{text} could not be written to {path}: no such file or directory")
        before = self.files[place]
        self.files[place] = text
        least, most = int(self.at_node("min_freq")), int(self.at_node("max_freq"))
        if least > most and self.is_strict:
            self.files[place] = before
            raise DeviceError(f"{text} could not be written to {path}: invalid argument")
        self.written.append((name, text))
        self.bounds_hz.append((least, most))
        if self.is_following:
            self.run_at(most)

    def names(self, path: str) -> tuple[str, ...]:
        self._check(path)
        folder = self._resolved(path)
        below = [*self.files, *self.links]
        start = f"{folder}/"
        return tuple(
            sorted({one[len(start) :].split("/")[0] for one in below if one.startswith(start)})
        )

    def exists(self, path: str) -> bool:
        place = self._resolved(path)
        if not self.is_root and path.startswith(f"{DEBUGFS}/"):
            return False
        return place in self.files or any(one.startswith(f"{place}/") for one in self.files)

    def place(self, path: str) -> str:
        return f"/board{path}"

    def _check(self, path: str) -> None:
        if not self.is_root and path.startswith(DEBUGFS):
            raise NotPermitted(f"this account may not read {path}", hint="Run as root.")

    def _resolved(self, path: str) -> str:
        while True:
            link = next(
                (one for one in self.links if path == one or path.startswith(f"{one}/")), None
            )
            if link is None:
                return path
            path = self.links[link] + path[len(link) :]


@cache
def _at_rest(name: str, power_mode: int | None) -> tuple[dict[str, str], dict[str, str]]:
    board = layout(name)
    return layout_files(board, board.mode(power_mode)) | {FAKE_MARK: "{}"}, layout_links(board)
