"""A GPU whose clocks are files that any process can read and set, as on an embedded board."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from joulewise.domain.board_state import BoardState
from joulewise.domain.errors import NotPermitted
from joulewise.domain.measurement import GpuSample
from joulewise.domain.points import ClockGrid, FoundSetting, KnobState, OperatingPoint, Touched
from joulewise.domain.ports import GpuIdentity

HZ = {306: "306000000", 612: "612000000", 816: "816000000", 1300: "1300500000"}
STOCK = {"governor": "nvhost_podgov", "min_freq": HZ[306], "max_freq": HZ[1300]}
UNLOCKED = {"mrq_rate_locked": "0", "rate": "2133000000"}


class Killed(BaseException):
    """The process is dead: what follows does not run in it."""


class BoardGpu:
    """As plain as can be: what is asked is written, and put back as a lease says.

    It dies before the so-many-th write, and refuses so many writes before it dies.
    """

    energy_counter_period_s = None

    def __init__(self, folder: Path, *, steps_to_live: int | None = None) -> None:
        self.folder = folder
        self.identity = GpuIdentity(
            spec="board", name="Toy Orin", uuid="GPU-jetson-1", is_simulated=True
        )
        self.steps_to_live = steps_to_live
        self.is_denied = False
        self._found: dict[str, tuple[FoundSetting, ...]] = {}
        folder.mkdir(exist_ok=True)
        for name, text in {**STOCK, **UNLOCKED}.items():
            if not (folder / name).exists():
                self.put(name, text)

    def put(self, name: str, text: str) -> None:
        """As somebody else does."""
        (self.folder / name).write_text(f"{text}\n", encoding="ascii")

    def read(self, name: str) -> str:
        """What a file says."""
        return (self.folder / name).read_text(encoding="ascii").strip()

    def state(self) -> dict[str, str]:
        """All that sets clocks, as it reads."""
        return {name: self.read(name) for name in (*STOCK, *UNLOCKED)}

    def clock_grid(self) -> ClockGrid:
        return ClockGrid(sm_clocks_mhz=tuple(HZ), mem_clocks_mhz=(665, 2133, 3199))

    def knob_state(self) -> KnobState:
        return KnobState(
            settings=(
                *(self._setting("sm_clock_mhz", name) for name in STOCK),
                *(self._setting("mem_clock_mhz", name) for name in UNLOCKED),
            )
        )

    def _setting(self, knob: str, name: str) -> FoundSetting:
        return FoundSetting(knob=knob, path=str(self.folder / name), text=self.read(name))

    def board_state(self) -> BoardState:
        least, most = (int(self.read(name)) // 10**6 for name in ("min_freq", "max_freq"))
        return BoardState(
            board="Toy Orin",
            governor=self.read("governor"),
            stock_governor="nvhost_podgov",
            sm_clock_floor_mhz=306,
            sm_clock_min_mhz=least,
            sm_clock_max_mhz=most,
            sm_clock_ceiling_mhz=1300,
        )

    def sample(self) -> GpuSample:
        return GpuSample(
            time_s=time.monotonic(),
            energy_j=None,
            power_w=None,
            sm_clock_mhz=None,
            mem_clock_mhz=None,
            temp_c=None,
            power_capped_s=None,
            thermally_throttled_s=None,
            other_process_count=None,
        )

    def now_s(self) -> float:
        return time.monotonic()

    def clocks_mhz(self) -> tuple[int | None, int | None]:
        return None, None

    def wait_for_energy_tick(self, timeout_s: float) -> GpuSample:
        self.wait(timeout_s)
        return self.sample()

    def wait(self, duration_s: float) -> None:
        time.sleep(duration_s)

    def request(self, point: OperatingPoint) -> None:
        asked = {"sm_clock_mhz": point.sm_clock_mhz, "mem_clock_mhz": point.mem_clock_mhz}
        for knob, clock_mhz in asked.items():
            if clock_mhz is not None:
                now = self.knob_state().settings
                self._found.setdefault(knob, tuple(one for one in now if one.knob == knob))
        if point.sm_clock_mhz is not None:
            self._pin(HZ[point.sm_clock_mhz])
        if point.mem_clock_mhz is not None:
            self._set("rate", f"{point.mem_clock_mhz}000000")
            self._set("mrq_rate_locked", "1")
        for knob, found in self._found.items():
            if asked[knob] is None:
                self._put_back(found)

    def reset(self, touched: Touched | None = None) -> None:
        if touched is None:
            for found in self._found.values():
                self._put_back(found)
        elif touched.found is not None:
            self._put_back([one for one in touched.found.settings if one.knob in touched.knobs])
        else:
            sm = STOCK if "sm_clock_mhz" in touched.knobs else {}
            memory = {"mrq_rate_locked": "0"} if "mem_clock_mhz" in touched.knobs else {}
            for name, text in {**sm, **memory}.items():
                self._set(name, text)

    def _pin(self, hz: str) -> None:
        self._set("min_freq", HZ[306])
        self._set("max_freq", hz)
        self._set("min_freq", hz)

    def _put_back(self, found: Sequence[FoundSetting]) -> None:
        texts = {Path(one.path).name: one.text for one in found}
        if texts.get("mrq_rate_locked") == "0":
            del texts["rate"]
        for name, text in texts.items():
            self._set(name, text)

    def _set(self, name: str, text: str) -> None:
        if self.read(name) == text:
            return
        if self.is_denied:
            raise NotPermitted(f"this account may not write {name}", hint="Run as root.")
        if self.steps_to_live is not None:
            if self.steps_to_live == 0:
                raise Killed
            self.steps_to_live -= 1
        self.put(name, text)
