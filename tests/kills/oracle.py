"""Makes fake drivers, tells what is true of them, and takes leases. Run as a program.

One question and one answer a line, in JSON. It holds the driver open, so that nothing is reset
because its last client has left.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pynvml

from joulewise.control.lease import hold
from joulewise.control.remote import remote_lease
from joulewise.device.nvml import stop
from joulewise.device.nvml_gpu import open_nvml
from joulewise.domain.errors import JoulewiseError
from joulewise.domain.points import OperatingPoint
from joulewise.simulator.fake_driver import loaded_driver

PROFILE = "rtx3080ti"
LOW = OperatingPoint(sm_clock_mhz=1200, power_limit_w=150.0)


def create(asked: dict[str, Any]) -> dict[str, Any]:
    """A fresh driver in real time, as whoever comes will find it."""
    driver = loaded_driver()
    assert driver is not None
    stop()
    driver.create(Path(asked["state"]), profile=PROFILE, is_virtual_time=False)
    driver.set_knob(0, "set_call_s", 0.0)
    # What is asked for is in force at once, so that no lock is still on its way when one looks.
    driver.set_knob(0, "lag_s", 0.0)
    gpu = open_nvml("nvml:0")
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    pynvml.nvmlDeviceSetPersistenceMode(handle, int(asked["is_persistent"]))
    if asked["limit_w"] is not None:
        pynvml.nvmlDeviceSetPowerManagementLimit(handle, round(1000 * asked["limit_w"]))
    driver.set_knob(0, "set_call_s", asked["set_call_s"])
    return {"uuid": gpu.uuid, **look(asked)}


def look(_asked: dict[str, Any]) -> dict[str, Any]:
    """What is in force."""
    driver = loaded_driver()
    assert driver is not None
    locks = driver.true_locks(0)
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    return {
        "sm_max_mhz": locks.sm_max_mhz,
        "mem_max_mhz": locks.memory_max_mhz,
        "limit_w": pynvml.nvmlDeviceGetPowerManagementLimit(handle) / 1000,
        "is_persistent": bool(pynvml.nvmlDeviceGetPersistenceMode(handle)),
    }


def lease(asked: dict[str, Any]) -> dict[str, Any]:
    """Take a lease, set a point, and give it back."""
    gpu = open_nvml("nvml:0")
    state_dir = Path(asked["state_dir"])
    held = (
        hold(gpu, state_dir=state_dir)
        if asked["socket"] is None
        else remote_lease(gpu, Path(asked["socket"]))
    )
    try:
        with held as one:
            one.apply(LOW)
    except JoulewiseError as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {}


def main() -> None:
    """Answer until nobody asks."""
    for line in sys.stdin:
        asked = json.loads(line)
        answer = {"create": create, "look": look, "lease": lease}[asked["do"]](asked)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
