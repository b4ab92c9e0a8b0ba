"""GPUs that do not answer: what the state folder still tells of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from joulewise.control.state import (
    JOURNAL_SUFFIX,
    LOCK_SUFFIX,
    default_state_dir,
    is_of_a_process,
)
from joulewise.domain.control import ControlledGpu
from joulewise.domain.errors import InputError
from joulewise.workflow.lease_findings import LeaseTrace, lease_trace

_ENDS = (JOURNAL_SUFFIX, f"{JOURNAL_SUFFIX}.copy", LOCK_SUFFIX)


def traces_beside(known: Collection[str]) -> Mapping[str, LeaseTrace]:
    """By UUID, who holds or has left set a GPU that is none of these.

    They were lost to their driver, taken out, or are hidden from this container.
    """
    traces = {uuid: lease_trace(uuid) for uuid in sorted(_uuids() - set(known))}
    return {
        uuid: trace
        for uuid, trace in traces.items()
        if trace.holder is not None or trace.journal is not None
    }


def recognized(silent: ControlledGpu, traces: Mapping[str, LeaseTrace]) -> ControlledGpu:
    """The only GPU that tells no UUID, as the one that traces of leases tell of.

    A driver that has lost a GPU tells not even which one it was. Where several fit, or none,
    nothing is claimed.
    """
    if len(traces) != 1:
        return silent
    ((uuid, trace),) = traces.items()
    name = silent.name if trace.entry is None else trace.entry.device_name
    return replace(silent, uuid=uuid, name=name, device=f"nvml:{uuid}")


def is_recognized(gpu: ControlledGpu) -> bool:
    """Whether it is known which one it is; one of which only a number is known may be any."""
    return gpu.uuid != gpu.device


def _uuids() -> set[str]:
    """GPUs that have a lock or a journal in the state folder; of some only a copy is left."""
    try:
        names = [path.name for path in default_state_dir().iterdir() if not is_of_a_process(path)]
    except (InputError, OSError):
        return set()
    return {
        name.removesuffix(end)
        for name in names
        for end in _ENDS
        if name.endswith(end) and name.startswith("GPU-")
    }
