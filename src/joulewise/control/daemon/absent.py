"""GPUs that did not answer when the daemon started: told as such, and tried again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from joulewise.control.daemon.keeper import GpuKeeper
from joulewise.control.daemon.serial_thread import SerialThread
from joulewise.domain.control import ControlledGpu
from joulewise.domain.errors import JoulewiseError

OPEN_AGAIN_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AbsentGpu:
    """One of them: what is known of it, and what opens it.

    `open` blocks, and raises a JoulewiseError as long as it does not answer.
    """

    known: ControlledGpu
    open: Callable[[], GpuKeeper]


async def opened(gpu: AbsentGpu, *, again_s: float, fault: Callable[[str], None]) -> GpuKeeper:
    """Try to open it now and then, until it answers; `fault` hears of what nobody foresaw."""
    last = None
    opening = SerialThread(f"opens {gpu.known.device}")
    try:
        while True:
            await asyncio.sleep(again_s)
            try:
                return await opening.start(gpu.open)
            except JoulewiseError:
                continue
            except Exception as error:  # noqa: BLE001 - it is tried again whatever came up
                said = f"{type(error).__name__}: {error}"
                if said != last:
                    fault(said)
                last = said
    finally:
        opening.stop()
