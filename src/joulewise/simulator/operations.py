"""What each kernel does at each point: the port of a virtual board, and the physics behind it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from joulewise.domain.errors import InputError, NotSupported
from joulewise.domain.measurement import RailPower
from joulewise.domain.points import ClockGrid, OperatingPoint, PowerLimitRange
from joulewise.domain.workload import KernelKind, KernelWork
from joulewise.simulator.load_governor import GovernedState, governed_state
from joulewise.simulator.physics import idle_power_w
from joulewise.simulator.rails import rail_powers
from joulewise.simulator.spec import GpuSpec

# A held clock may lie a rounding error below the listed one.
_CLOCK_SLACK_RATIO = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A kernel that runs back to back (or nothing) at one point, at thermal equilibrium.

    `time_s` is the time per launch, 0 when idle; the clocks are as the board reports them,
    `None` where it cannot tell. `is_power_known` is false where a recording says nothing of
    the power; `power_w` is then 0 and no meter shows it. `temp_c` is a recorded temperature.
    `is_host_time` says that the host times it and noise of the GPU does not: a gap.
    `busy_ratio` is the share of time in which the GPU runs anything; `rails` are a module's.
    """

    time_s: float
    power_w: float
    sm_clock_mhz: int | None
    mem_clock_mhz: int | None
    is_power_capped: bool
    is_throttled: bool = False
    is_power_known: bool = True
    temp_c: float | None = None
    is_host_time: bool = False
    busy_ratio: float | None = None
    rails: tuple[RailPower, ...] = ()


class OperationTable(Protocol):
    """What a virtual board asks of the physics, or of a recording."""

    @property
    def kernels(self) -> tuple[str, ...]: ...

    def grid(self) -> ClockGrid:
        """Clocks and power limits that the device takes."""
        ...

    def check_point(self, point: OperatingPoint) -> None:
        """Raise NotSupported for a point that the device does not take."""
        ...

    def check_kernel(self, kernel: str) -> None:
        """Raise InputError for a kernel that is not known."""
        ...

    def running(self, kernel: str, point: OperatingPoint) -> Operation:
        """The kernel at the point. Raises NotSupported where nothing tells what it does there."""
        ...

    def throttled(self, kernel: str, point: OperatingPoint, power_w: float) -> Operation:
        """The kernel at the point with its power held down to `power_w` by heat."""
        ...

    def idle(self, point: OperatingPoint) -> Operation:
        """Nothing running at the point."""
        ...


class Operations:
    """All operations of one set of works on one GPU, an `OperationTable` made of physics.

    A point is always computed for all works at once, so that a cell has the same bits
    whichever cell of its point is asked for first.
    """

    def __init__(self, spec: GpuSpec, works: Sequence[KernelWork]) -> None:
        """Name the kernels. Raises InputError for a kernel given twice."""
        self.spec = spec
        self.kernels = tuple(work.kernel for work in works)
        self._works = tuple(works)
        self._rows = {kernel: row for row, kernel in enumerate(self.kernels)}
        if len(self._rows) < len(self.kernels):
            twice = next(k for k in self._rows if self.kernels.count(k) > 1)
            raise InputError(f"the kernel {twice!r} has more than one work", field="kernel")
        self._tables: dict[OperatingPoint, GovernedState] = {}
        self._cells: dict[tuple[str, OperatingPoint], Operation] = {}
        self._idle: dict[OperatingPoint, Operation] = {}

    def grid(self) -> ClockGrid:
        """Clocks that the preset lists, and its power limits, where those can be set."""
        grid = replace(self.spec.grid, is_governed=self.spec.load_governor is not None)
        if not self.spec.has_power_limit:
            return grid
        limits = PowerLimitRange(
            least_w=self.spec.least_power_limit_w, found_w=self.spec.default_power_limit_w
        )
        return replace(grid, power_limits=limits)

    def check_point(self, point: OperatingPoint) -> None:
        """Raise NotSupported for a clock that is not listed or a limit out of range."""
        if point.power_limit_w is not None and not self.spec.has_power_limit:
            raise NotSupported(
                f"{self.spec.name} has no power limit that can be set",
                field="power_limit_w",
                hint="Leave the power limit out and set clocks alone.",
            )
        self.spec.check_point(point)

    def check_kernel(self, kernel: str) -> None:
        """Raise InputError for a kernel that has no work here."""
        if kernel not in self._rows:
            raise InputError(
                f"no work is known for the kernel {kernel!r}",
                field="kernel",
                hint=f"Known: {', '.join(self.kernels) or 'none'}.",
            )

    def running(self, kernel: str, point: OperatingPoint) -> Operation:
        """The kernel at the point, with a cool board."""
        operation = self._cells.get((kernel, point))
        if operation is None:
            operation = self._operation(kernel, point)
            self._cells[kernel, point] = operation
        return operation

    def throttled(self, kernel: str, point: OperatingPoint, power_w: float) -> Operation:
        """The kernel at the point with its power held down to `power_w` by heat.

        No regulator goes below the least power limit.
        """
        limit_w = max(power_w, self.spec.least_power_limit_w)
        if point.power_limit_w is not None:
            limit_w = min(limit_w, point.power_limit_w)
        limit_w = min(limit_w, self.spec.default_power_limit_w)
        held = self.running(kernel, replace(point, power_limit_w=limit_w))
        return replace(held, is_power_capped=False, is_throttled=True)

    def idle(self, point: OperatingPoint) -> Operation:
        """Nothing running at the point: a clock left to the driver rests at its lowest."""
        operation = self._idle.get(point)
        if operation is None:
            operation = self._idle_operation(point)
            self._idle[point] = operation
        return operation

    def _operation(self, kernel: str, point: OperatingPoint) -> Operation:
        state = self._tables.get(point)
        if state is None:
            state = governed_state(self.spec, self._works, [point])
            self._tables[point] = state
        row, table, parts = self._rows[kernel], state.table, state.parts
        return Operation(
            time_s=float(table.time_s[row, 0]),
            power_w=float(table.power_w[row, 0]),
            sm_clock_mhz=self._listed_sm_clock_mhz(float(table.sm_clock_held_mhz[row, 0])),
            mem_clock_mhz=point.mem_clock_mhz or self.spec.grid.mem_clocks_mhz[-1],
            is_power_capped=bool(table.is_power_capped[row, 0]),
            is_host_time=self._works[row].kind is KernelKind.GAP,
            busy_ratio=float(parts.busy_ratio[row, 0]),
            rails=rail_powers(
                self.spec,
                core_w=float(parts.core_w[row, 0]),
                memory_w=float(parts.memory_w[row, 0]),
                host_w=float(parts.host_w[row, 0]),
            ),
        )

    def _idle_operation(self, point: OperatingPoint) -> Operation:
        grid = self.spec.grid
        mem_clock_mhz = point.mem_clock_mhz or grid.mem_clocks_mhz[0]
        state = next(s for s in self.spec.memory_states if s.mem_clock_mhz == mem_clock_mhz)
        wanted_mhz = point.sm_clock_mhz or grid.sm_clocks_mhz[0]
        held_mhz = min(wanted_mhz, state.sm_clock_ceiling_mhz or wanted_mhz)
        power_w = idle_power_w(self.spec, point)
        return Operation(
            time_s=0.0,
            power_w=power_w,
            sm_clock_mhz=self._listed_sm_clock_mhz(min(held_mhz, self.spec.sm_clock_max_mhz)),
            mem_clock_mhz=mem_clock_mhz,
            is_power_capped=False,
            busy_ratio=0.0,
            rails=rail_powers(
                self.spec,
                core_w=power_w - self.spec.base_w - state.standby_w,
                memory_w=state.standby_w,
                host_w=0.0,
            ),
        )

    def _listed_sm_clock_mhz(self, clock_mhz: float) -> int:
        clocks = self.spec.grid.sm_clocks_mhz
        below = bisect_right(clocks, clock_mhz * (1.0 + _CLOCK_SLACK_RATIO)) - 1
        return clocks[max(0, below)]
