"""The doctor: what can be read and set here, what cannot and why, and what to do."""

from __future__ import annotations

from joulewise.device.host import host_facts
from joulewise.device.nvml_facts import driver_facts, gpu_facts
from joulewise.device.nvml_gpu import open_nvml
from joulewise.device.nvml_string import is_nvml
from joulewise.domain.caveats import Caveat
from joulewise.domain.errors import InputError
from joulewise.simulator.device_string import is_recorded
from joulewise.simulator.virtual import is_virtual, open_virtual
from joulewise.workflow.diagnosis import diagnose
from joulewise.workflow.findings import Diagnosis


def examine(device: str | None = None) -> Diagnosis:
    """Look at every GPU of the NVIDIA driver, or at one; sets nothing and needs no rights.

    Raises:
        InputError: `device` is no device string, or names no GPU of this machine.
    """
    if device is not None and is_virtual(device):
        identity = open_virtual(device, ()).gpu.identity
        said = f"{device} is a virtual GPU ({identity.name}): all of it can be read and set."
        return _virtual(said, identity.caveats)
    if device is not None and is_recorded(device):
        return _virtual(f"{device} is a recording: all of it can be read and set.", ())
    if device is not None and not is_nvml(device):
        raise InputError(
            f"{device!r} is no device",
            field="device",
            hint="Say nvml, nvml:0, nvml:GPU-..., or leave --device out to see every GPU.",
        )
    driver = driver_facts()
    gpus = () if driver.problem is not None else gpu_facts()
    if device is not None and gpus:
        index = open_nvml(device).index
        gpus = tuple(gpu for gpu in gpus if gpu.index == index)
    return diagnose(driver, gpus, host_facts())


def _virtual(verdict: str, caveats: tuple[Caveat, ...]) -> Diagnosis:
    """Nothing of the machine stands in the way of what lives in the process."""
    return Diagnosis(
        verdict=verdict, hint=None, can_read=True, can_set=True, machine=(), caveats=caveats
    )
