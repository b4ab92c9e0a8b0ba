"""The time that the GPUs of this machine live in."""

from __future__ import annotations

from joulewise.device.real_time import MonotonicTimer
from joulewise.domain.ports import Timer
from joulewise.simulator.fake_driver import loaded_driver


def machine_timer() -> Timer:
    """The time of the loaded fake driver, and that of the machine where there is none."""
    driver = loaded_driver()
    return MonotonicTimer() if driver is None else driver.timer
