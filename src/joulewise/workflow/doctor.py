"""The doctor: what can be read and set here, what cannot and why, and what to do."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from joulewise.control.lock import NamedHolder
from joulewise.device.host import host_facts
from joulewise.device.jetson_string import PREFIX as BOARD
from joulewise.device.jetson_string import is_jetson
from joulewise.device.nvml_facts import driver_facts, gpu_facts
from joulewise.device.nvml_gpu import open_nvml
from joulewise.device.nvml_string import is_index, is_nvml, parse_nvml
from joulewise.domain.caveats import Caveat
from joulewise.domain.errors import InputError, JoulewiseError
from joulewise.domain.gpu_facts import DriverFacts, GpuFacts
from joulewise.simulator.device_string import is_recorded, parse_recorded
from joulewise.simulator.recorded import open_recorded
from joulewise.simulator.virtual import is_virtual, open_virtual
from joulewise.store.sweeps import read_sweep
from joulewise.workflow.absent_gpus import traces_beside
from joulewise.workflow.daemon_findings import DaemonView, daemon_view
from joulewise.workflow.diagnosis import SeenGpu, diagnose
from joulewise.workflow.findings import Diagnosis
from joulewise.workflow.jetson_boards import is_board_here, is_integrated
from joulewise.workflow.jetson_diagnosis import board_diagnosis, examine_board, see_board
from joulewise.workflow.lease_findings import (
    NO_LEASE,
    LeaseTrace,
    lease_trace,
    state_dir_finding,
)


def examine(device: str | None = None) -> Diagnosis:
    """Look at every GPU of the NVIDIA driver and at the board, or at one of them.

    Sets nothing and needs no rights. On a Jetson NVML lists the board's own GPU at best, and
    tells nothing of it, so that the board's files speak for it.

    Raises:
        InputError: `device` is no device string, or names no GPU of this machine, or a recording
            that cannot be read.
        NotSupported: a MIG instance, or no Jetson.
    """
    if device is not None and is_jetson(device):
        return examine_board(device)
    if device is not None and is_virtual(device):
        identity = open_virtual(device, ()).gpu.identity
        said = f"{device} is a virtual GPU ({identity.name}): all of it can be read and set."
        return _virtual(said, identity.caveats)
    if device is not None and is_recorded(device):
        return _recording(device)
    if device is not None and not is_nvml(device):
        raise InputError(
            f"{device!r} is no device",
            field="device",
            hint="Say nvml, nvml:0, nvml:GPU-..., jetson, or leave --device out to see every GPU.",
        )
    asked = None if device is None else parse_nvml(device).selector
    driver = _driver()
    gpus = () if driver.problem is not None else _with_lost(tuple(map(_seen, gpu_facts())))
    has_board = device is None and is_board_here()
    if has_board:
        gpus = tuple(gpu for gpu in gpus if not is_integrated(gpu.facts.name.value))
        if not gpus:
            return examine_board(BOARD)
    if device is not None and gpus:
        gpus = _named(device, asked, gpus)
    view = daemon_view([gpu.facts for gpu in gpus])
    diagnosis = diagnose(
        driver,
        tuple(_with_daemon(gpu, view) for gpu in gpus),
        host_facts(),
        state_dir=None if view.may_set else state_dir_finding(),
        daemon=view.finding,
    )
    board = (board_diagnosis(see_board(BOARD)),) if has_board else ()
    return replace(diagnosis, gpus=(*diagnosis.gpus, *board))


def _with_daemon(gpu: SeenGpu, view: DaemonView) -> SeenGpu:
    """With what joulewised lets be set, and who holds it where this account may not look itself."""
    uuid = gpu.facts.uuid.value
    if uuid is None:
        return gpu
    lease, holder = gpu.lease, view.holders.get(uuid)
    if lease == NO_LEASE and holder is not None:
        lease = LeaseTrace(named=NamedHolder(holder=holder))
    return replace(gpu, lease=lease, may_set=view.may_set.get(uuid))


def _driver() -> DriverFacts:
    """The driver's facts; of the fake one the file is named that it may have stumbled over."""
    driver = driver_facts()
    if driver.problem is None or not driver.is_fake or driver.hint is not None:
        return driver
    named = os.environ.get("FAKE_NVML_STATE")
    file = f"its state file {named}" if named else "its state file in /tmp"
    return replace(
        driver,
        hint=f"Where stderr says that {file} does not serve, remove it, or mend the setting.",
    )


def _seen(facts: GpuFacts) -> SeenGpu:
    """The GPU as measuring opens it: what does not open, or gives no sample, is not well."""
    trouble = None
    try:
        open_nvml(f"nvml:{facts.index}").sample()
    except JoulewiseError as error:
        trouble = error
    lease = NO_LEASE if facts.uuid.value is None else lease_trace(facts.uuid.value)
    return SeenGpu(facts=facts, trouble=trouble, lease=lease)


def _with_lost(gpus: tuple[SeenGpu, ...]) -> tuple[SeenGpu, ...]:
    """With what leases tell of the only GPU that its driver has lost."""
    known = [gpu.facts.uuid.value for gpu in gpus if gpu.facts.uuid.value is not None]
    if len(known) != len(gpus) - 1:
        return gpus
    traces = tuple(traces_beside(known).values())
    if len(traces) != 1:
        return gpus
    return tuple(
        replace(gpu, lease=traces[0]) if gpu.facts.uuid.value is None else gpu for gpu in gpus
    )


def _named(device: str, asked: str | None, gpus: tuple[SeenGpu, ...]) -> tuple[SeenGpu, ...]:
    """The GPU that was asked for, also where it does not open.

    Raises:
        InputError: there is no such GPU, or more than one.
    """
    if asked is not None and is_index(asked) and int(asked) < len(gpus):
        return (gpus[int(asked)],)
    uuids = [gpu.facts.uuid.value for gpu in gpus]
    if asked in uuids:
        return (gpus[uuids.index(asked)],)
    try:
        index = open_nvml(device).index
    except InputError:
        raise
    except JoulewiseError:
        return gpus
    return tuple(gpu for gpu in gpus if gpu.facts.index == index)


def _recording(device: str) -> Diagnosis:
    """Opened as measuring opens it, for a file that is none plays nothing."""
    sweep = read_sweep(Path(parse_recorded(device).preset))
    open_recorded(sweep, device, None)
    said = f"{device} is a recording of {sweep.source.device_name}: all of it can be read and set."
    return _virtual(said, ())


def _virtual(verdict: str, caveats: tuple[Caveat, ...]) -> Diagnosis:
    """Nothing of the machine stands in the way of what lives in the process."""
    return Diagnosis(
        verdict=verdict, hint=None, can_read=True, can_set=True, machine=(), caveats=caveats
    )
