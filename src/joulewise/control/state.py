"""Where leases keep their locks and journals."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from joulewise.domain.errors import InputError
from joulewise.domain.ports import GpuIdentity

STATE_DIR_VARIABLE = "JOULEWISE_STATE_DIR"
_ABANDONED_AFTER_S = 24 * 3600.0


def default_state_dir(environment: Mapping[str, str] | None = None) -> Path:
    """Folder named by `JOULEWISE_STATE_DIR`, or else the user's own state folder.

    Raises:
        InputError: the account has no home folder, and the variable is not set.
    """
    environment = os.environ if environment is None else environment
    try:
        named = environment.get(STATE_DIR_VARIABLE)
        return Path(named).expanduser() if named else _user_state_dir(environment)
    except RuntimeError as error:
        raise InputError(
            "this account has no home folder to keep the state of leases in",
            field=STATE_DIR_VARIABLE,
            hint=f"Name a folder you may write to in {STATE_DIR_VARIABLE}.",
        ) from error


def _user_state_dir(environment: Mapping[str, str]) -> Path:
    if sys.platform == "win32":
        base = environment.get("LOCALAPPDATA")
        return (Path(base) if base else Path.home() / "AppData" / "Local") / "joulewise"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "joulewise"
    base = environment.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "joulewise"


def state_file(identity: GpuIdentity, state_dir: Path, suffix: str) -> Path:
    """The file of this GPU with this suffix.

    A GPU that other processes reach has one set of files. A virtual GPU lives and dies with the
    process that opened it, so its files carry the process id too: the same virtual GPU in two
    processes is two GPUs, and neither waits for the other.
    """
    name = _file_name(identity)
    if identity.is_in_process:
        name = f"{name}.{os.getpid()}"
    return state_dir / f"{name}{suffix}"


def remove_abandoned(identity: GpuIdentity, state_dir: Path) -> None:
    """Clear away files of this virtual GPU whose processes were killed more than a day ago.

    There is nothing to undo: those virtual GPUs died too. A process that lives longer loses
    nothing by it, since its GPU needs no undoing either.
    """
    deadline_s = datetime.now(tz=UTC).timestamp() - _ABANDONED_AFTER_S
    for path in state_dir.glob(f"{_file_name(identity)}.*"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < deadline_s:
                path.unlink()


def _file_name(identity: GpuIdentity) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", identity.uuid)


def make_state_dir(state_dir: Path) -> None:
    """Create the folder where it is missing; only its owner may enter.

    Raises:
        InputError: the folder cannot be made.
    """
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise unusable(state_dir, error) from error


def unusable(path: Path, error: OSError) -> InputError:
    """The error for a state file or folder that cannot be written or read."""
    return InputError(
        f"the state of the lease cannot be kept there: {error.strerror or error}",
        file=str(path),
        hint=f"Name a folder you may write to in {STATE_DIR_VARIABLE}.",
    )
