"""`joulewise restore`: giving back what dead holders left set."""

from __future__ import annotations

from pathlib import Path

from joulewise.control.guard import NoGuard
from joulewise.control.journal import damage
from joulewise.control.lease import take_lease
from joulewise.control.restoring import Outcome, Restored, restore_all
from joulewise.control.state import default_state_dir, state_file
from joulewise.device.nvml_gpu import open_nvml
from joulewise.device.real_time import MonotonicTimer
from joulewise.domain.errors import BusyError, JoulewiseError
from joulewise.domain.ports import Gpu
from joulewise.simulator.fake_driver import loaded_driver
from joulewise.workflow.lease_findings import lease_trace


def restore(device: str | None = None) -> tuple[Restored, ...]:
    """Give back what dead holders left, on every GPU with a journal or on one.

    What a living process holds is left alone. Doing it again changes nothing.

    Raises:
        InputError: no such GPU, or the state folder cannot be used.
        NotSupported: there is no NVIDIA GPU to name.
    """
    state_dir = default_state_dir()
    if device is None:
        return restore_all(state_dir, _open)
    gpu = _open(device)
    restored = _restore_one(gpu, state_dir)
    return () if restored is None else (restored,)


def _restore_one(gpu: Gpu, state_dir: Path) -> Restored | None:
    """As `restore_all` does for each; `None` where nothing was left.

    Taking a lease gives back what a dead holder left; a lease that is released at once touches
    nothing else.
    """
    uuid = gpu.identity.uuid
    trace = lease_trace(uuid)
    if trace.journal is None:
        return None
    journal = state_file(gpu.identity, state_dir, ".journal.json")
    outcome, why, hint = Outcome.GIVEN_BACK, None, None
    try:
        take_lease(gpu, state_dir=state_dir, guard=NoGuard()).release()
        why = damage(journal)
    except BusyError as error:
        outcome, why, hint = Outcome.BUSY, error.message, error.hint
    except JoulewiseError as error:
        notes = getattr(error, "__notes__", ())
        outcome, why = Outcome.NOT_GIVEN_BACK, error.message
        hint = " ".join(part for part in (error.hint, *notes) if part) or None
    return Restored(
        uuid=uuid, journal=journal, entry=trace.entry, outcome=outcome, why=why, hint=hint
    )


def _open(device: str) -> Gpu:
    driver = loaded_driver()
    return open_nvml(device, timer=MonotonicTimer() if driver is None else driver.timer)


def where() -> Path:
    """The folder whose journals are looked at."""
    return default_state_dir()
