"""The devfreq node of a Jetson's GPU: what it lists, how it is set, and setting it safely.

Frequencies are in Hz, as the kernel has them (Documentation/ABI/testing/sysfs-class-devfreq);
labels are in MHz, cut off as tegrastats prints them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from joulewise.device.jetson_files import BoardFiles
from joulewise.device.jetson_nodes import find_node, looked_at
from joulewise.domain.board_state import HZ_PER_MHZ
from joulewise.domain.errors import DeviceError, DeviceLost, NotPermitted, NotSupported
from joulewise.domain.ports import Timer

LEAST, MOST, GOVERNOR = "min_freq", "max_freq", "governor"
"""The files that set the clock."""
OTHERS_HINT = "Another controller (nvpmodel, jetson_clocks, a power daemon) may set it; stop it."

_LIST = "available_frequencies"
_THERMAL = "/sys/class/thermal"
_STOCK_GOVERNORS = ("nvhost_podgov", "simple_ondemand")
# The kernel keeps both bounds in whole kHz.
_SAME_HZ = 1000
_SHOWN_WITHIN_S = 0.05
_ASK_AGAIN_S = 0.002
_TORN_COUNT = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockRange:
    """The lower and the upper bound of the GPU clock, as texts in Hz."""

    least: str
    most: str

    @property
    def is_in_order(self) -> bool:
        """Whether the lower bound is no higher than the upper one."""
        return int(self.least) <= int(self.most)

    @property
    def in_order(self) -> ClockRange:
        """The same, with a lower bound no higher than the upper one."""
        return self if self.is_in_order else ClockRange(least=self.most, most=self.most)

    def is_same(self, other: ClockRange) -> bool:
        """Whether both are the same to the kernel."""
        return is_same_hz(self.least, other.least) and is_same_hz(self.most, other.most)

    def is_below(self, other: ClockRange) -> bool:
        """Whether neither bound is higher than the other's."""
        return int(self.least) <= int(other.least) and int(self.most) <= int(other.most)

    def __str__(self) -> str:
        """Render as `306 to 1300 MHz`."""
        return f"{label_mhz(self.least)} to {label_mhz(self.most)} MHz"


def label_mhz(text: str) -> int:
    """Hz to whole MHz, cut off: 1300500000 is 1300, 114750000 is 114."""
    return int(text) // HZ_PER_MHZ


def is_hz(text: str) -> bool:
    """Whether a text is a frequency as the kernel writes it."""
    return text.isascii() and text.isdecimal() and len(text) <= len(str(1 << 63))


def is_same_hz(one: str, other: str) -> bool:
    """Whether two frequencies are the same to the kernel."""
    return abs(int(one) - int(other)) < _SAME_HZ


class Devfreq:
    """The GPU's devfreq folder. Nothing is kept in mind: every answer is read when asked."""

    def __init__(self, files: BoardFiles, folder: str, timer: Timer, *, title: str) -> None:
        """Touch nothing; `title` names the board in errors."""
        self._files = files
        self._timer = timer
        self._folder = folder
        self.title = title

    @property
    def folder(self) -> str:
        """The folder, as the board names it."""
        return self._folder

    def place(self, name: str) -> str:
        """Where this process finds one of its files."""
        return self._files.place(f"{self._folder}/{name}")

    def text(self, name: str) -> str | None:
        """What one of its files says; `None` where it does not. Raises NotPermitted, DeviceLost.

        A file is empty while somebody writes it, so that it is read again.
        """
        path = f"{self._folder}/{name}"
        text = self._files.read(path)
        for _ in range(_TORN_COUNT):
            if text != "":
                break
            self._timer.sleep(_ASK_AGAIN_S)
            text = self._files.read(path)
        if text is None:
            self.check_present()
        return text or None

    def check_present(self) -> None:
        """Raise DeviceLost where the folder is gone."""
        if not self._files.exists(f"{self._folder}/{MOST}"):
            raise _lost(self.title, self._files.place(self._folder))

    def listed(self) -> Mapping[int, str]:
        """The clocks it lists, ascending: Hz as listed, by their labels in MHz.

        Of two with one label the higher one counts. Raises NotSupported where there are none;
        NotPermitted, DeviceLost.
        """
        clocks = sorted(filter(is_hz, (self.text(_LIST) or "").split()), key=int)
        listed = {label_mhz(one): one for one in clocks if label_mhz(one) > 0}
        if not listed:
            raise NotSupported(
                f"{self.title} lists no GPU clocks in {self.place(_LIST)}",
                hint="Clocks are never guessed; a kernel that was built without the GPU's table "
                "of clocks has none to set.",
            )
        return listed

    @property
    def governor(self) -> str | None:
        """The governor in force. Raises NotPermitted, DeviceLost."""
        return self.text(GOVERNOR)

    @property
    def governors(self) -> tuple[str, ...]:
        """Governors that it takes. Raises NotPermitted, DeviceLost."""
        return tuple((self.text("available_governors") or "").split())

    @property
    def stock_governor(self) -> str | None:
        """The governor that the board starts with; `None`: not known.

        NVIDIA's where the kernel has it, else the kernel's own that follows load; `userspace`
        and `performance` are what somebody set. Raises NotPermitted, DeviceLost.
        """
        taken = self.governors
        return next((one for one in _STOCK_GOVERNORS if one in taken), None)

    @property
    def clock_range(self) -> ClockRange | None:
        """The bounds in force; `None` where they do not read. Raises NotPermitted, DeviceLost."""
        least, most = self.text(LEAST), self.text(MOST)
        if least is None or most is None or not (is_hz(least) and is_hz(most)):
            return None
        return ClockRange(least=least, most=most)

    @property
    def is_held_down_by_heat(self) -> bool:
        """Whether the kernel cools by this node: then both bounds may read lower than they are set.

        Its cooling devices are `devfreq-…`, in older kernels `thermal-devfreq-0` (Linux,
        drivers/thermal/devfreq_cooling.c).
        """
        kinds = (f"devfreq-{self._folder.rpartition('/')[2]}", "thermal-devfreq-")
        try:
            devices = [one for one in self._files.names(_THERMAL) if one.startswith("cooling_")]
            return any(
                (self._files.read(f"{_THERMAL}/{one}/type") or "").startswith(kinds)
                and self._files.read(f"{_THERMAL}/{one}/cur_state") not in {None, "", "0"}
                for one in devices
            )
        except NotPermitted:
            return False

    def set_range(self, wanted: ClockRange) -> None:
        """Set both bounds and see that they are; at no moment is the lower above the upper one.

        Where that fails half-way, what was written is put back.

        Raises:
            NotPermitted: nothing is set.
            DeviceError: the kernel refuses it, or other bounds read back.
            DeviceLost.
        """
        before = self.clock_range
        try:
            self._write_range(wanted, before)
            if not self._shows(wanted):
                # Somebody may have written at the same moment: once more, and no fight.
                self._write_range(wanted, self.clock_range)
                self._see_range(wanted)
        except DeviceLost:
            raise
        except DeviceError as error:
            self._undo(before, error)
            raise

    def set_governor(self, governor: str) -> None:
        """Set the governor where it is another one. Raises as `set_range` does."""
        if self.governor == governor:
            return
        self._write(GOVERNOR, governor)
        now = self.governor
        if now != governor:
            raise DeviceError(
                f"{self.title}: asked for the GPU governor {governor}, and {now} is set",
                hint=OTHERS_HINT,
            )

    def _write_range(self, wanted: ClockRange, before: ClockRange | None) -> None:
        """What goes up begins with the upper bound, what goes down with the lower one."""
        if before is None or not before.is_in_order:
            # From the lowest clock on, either bound may be set.
            floor = next(iter(self.listed().values()))
            least = min(floor, wanted.least, key=int)
            self._write(LEAST, least)
            before = ClockRange(least=least, most=wanted.most)
        settings = [(MOST, wanted.most), (LEAST, wanted.least)]
        if int(wanted.most) < int(before.least):
            settings.reverse()
        for name, text in settings:
            self._write(name, text)

    def _see_range(self, wanted: ClockRange) -> None:
        if self._shows(wanted):
            return
        now = self.clock_range
        reads = "no clock reads" if now is None else f"{now} read"
        raise DeviceError(
            f"{self.title}: asked for a GPU clock of {wanted}, and {reads} back",
            hint=OTHERS_HINT,
        )

    def _shows(self, wanted: ClockRange) -> bool:
        """Whether these bounds read back before long; while the kernel cools, lower ones do."""
        until_s = self._timer.now_s() + _SHOWN_WITHIN_S
        while True:
            now = self.clock_range
            if now is not None and now.is_same(wanted):
                return True
            if now is not None and now.is_below(wanted) and self.is_held_down_by_heat:
                return True
            if self._timer.now_s() >= until_s:
                return False
            self._timer.sleep(_ASK_AGAIN_S)

    def _undo(self, before: ClockRange | None, error: DeviceError) -> None:
        """Put back what was there; that it fails, too, is a note to the first failure."""
        try:
            now = self.clock_range
            if before is not None and before.is_in_order and now != before:
                self._write_range(before, now)
        except DeviceError as other:
            error.add_note(f"Besides: what was there before could not be put back: {other}")

    def _write(self, name: str, text: str) -> None:
        try:
            self._files.write(f"{self._folder}/{name}", text)
        except NotPermitted:
            raise
        except DeviceError:
            self.check_present()
            raise


class GpuNode:
    """Finds the GPU's devfreq folder whenever it is asked for.

    A node may come later than whoever asks for it, and may come back under another name, so
    nothing is concluded from its absence but that it is not there now.
    """

    def __init__(self, files: BoardFiles, timer: Timer, *, title: str) -> None:
        """Look nowhere yet."""
        self._files = files
        self._timer = timer
        self._title = title
        self._folder: str | None = None

    def __call__(self) -> Devfreq:
        """The node. Raises NotSupported where none was ever seen, DeviceLost where it is gone."""
        folder = self._folder
        if folder is None or not self._files.exists(f"{folder}/{MOST}"):
            folder = find_node(self._files)
        if folder is None:
            raise self._absent()
        self._folder = folder
        return Devfreq(self._files, folder, self._timer, title=self._title)

    def if_there(self) -> Devfreq | None:
        """The node; `None` where none was seen so far. Raises DeviceLost where it is gone."""
        try:
            return self()
        except NotSupported:
            return None

    def _absent(self) -> DeviceError:
        if self._folder is not None:
            return _lost(self._title, self._files.place(self._folder))
        return NotSupported(
            f"{self._title} has no devfreq node of a GPU at present",
            hint=f"Looked for in {looked_at()}; it comes with the GPU's driver, which may load "
            "later than other services.",
        )


FindNode = Callable[[], Devfreq]
"""Finds the node anew at every call; see `GpuNode`."""


def _lost(title: str, place: str) -> DeviceLost:
    """The error for a GPU whose node is gone."""
    return DeviceLost(
        f"{title}: the GPU's folder {place} is gone",
        hint="Its driver was unloaded or failed; look at dmesg.",
    )
