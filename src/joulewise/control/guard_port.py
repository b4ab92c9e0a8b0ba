"""Who gives a GPU's clocks back when its holder can no longer do so."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from joulewise.domain.ports import GpuIdentity


class Guard(Protocol):
    """Gives back what a dead holder left set, by its journal. Threads may share one."""

    def watch(self, identity: GpuIdentity, journal: Path, lock_descriptor: int) -> None:
        """Ask to watch a GPU that this process has just locked; does not wait."""
        ...

    def ensure(self, uuid: str) -> int | None:
        """Return once this GPU is watched, with the process that does; cheap where it is already.

        Raises DeviceError, with a hint, where no guard can be had.
        """
        ...

    def unwatch(self, uuid: str) -> None:
        """Forget a GPU that was given back; harmless when repeated."""
        ...

    def give_back(self, uuid: str) -> None:
        """Give back now what could not be given back, unless somebody else locks it; no waiting."""
        ...

    @property
    def trouble(self) -> str | None:
        """Why nobody watches at present, where somebody should; `None` elsewhere."""
        ...

    def close(self) -> None:
        """End it; harmless when repeated."""
        ...


class NoGuard:
    """Nobody: for GPUs that end with their process, and where the next lease is soon enough."""

    def watch(self, identity: GpuIdentity, journal: Path, lock_descriptor: int) -> None:
        """Watch nothing."""

    @property
    def trouble(self) -> str | None:
        """Nobody should watch."""
        return None

    def ensure(self, uuid: str) -> int | None:
        """Be content."""

    def unwatch(self, uuid: str) -> None:
        """Forget nothing."""

    def give_back(self, uuid: str) -> None:
        """Leave it to the next lease."""

    def close(self) -> None:
        """End nothing."""
