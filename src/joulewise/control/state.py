"""Where leases keep their locks and journals."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from joulewise.control.holder import is_alive
from joulewise.domain.errors import InputError
from joulewise.domain.ports import GpuIdentity

STATE_DIR_VARIABLE = "JOULEWISE_STATE_DIR"
ROOT_STATE_DIR = Path("/var/lib/joulewise")
"""Of root on Linux, and of joulewised: whoever may set clocks on a machine meets here."""
JOURNAL_SUFFIX = ".journal.json"
LOCK_SUFFIX = ".lock"
_ABANDONED_AFTER_S = 24 * 3600.0
_OF_A_PROCESS = re.compile(r".+\.(\d{1,9})\.(?:lock|journal\.json(?:\.copy)?)")


def default_state_dir(environment: Mapping[str, str] | None = None) -> Path:
    """Folder named by `JOULEWISE_STATE_DIR`, or else of the machine for root, of the user else.

    Root has one whatever its HOME says, so that two shells of root never hold one GPU at once.

    Raises:
        InputError: the account has no home folder, and the variable is not set.
    """
    environment = os.environ if environment is None else environment
    try:
        named = environment.get(STATE_DIR_VARIABLE)
        folder = Path(named).expanduser() if named else _user_state_dir(environment)
        # A program may go to another folder while it holds a lease.
        return folder.absolute()
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
    if sys.platform == "linux" and os.geteuid() == 0:
        return ROOT_STATE_DIR
    base = environment.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "joulewise"


def former_state_dirs(
    state_dir: Path, environment: Mapping[str, str] | None = None
) -> tuple[Path, ...]:
    """Where an older joulewise may have left journals of what is kept in this folder now.

    Root had a folder below its home before it had one of the machine.
    """
    if state_dir != ROOT_STATE_DIR or sys.platform != "linux" or os.geteuid() != 0:
        return ()
    import pwd  # noqa: PLC0415 - Unix only

    environment = os.environ if environment is None else environment
    bases = [Path(base) for base in [environment.get("XDG_STATE_HOME")] if base]
    homes = [environment.get("HOME"), pwd.getpwuid(0).pw_dir]
    bases += [Path(home) / ".local" / "state" for home in homes if home]
    return tuple(filter(_is_own, dict.fromkeys(base / "joulewise" for base in bases)))


def _is_own(folder: Path) -> bool:
    """Whether this folder is there and this account's: HOME may be that of somebody else."""
    try:
        return folder.stat().st_uid == os.geteuid()
    except OSError:
        return False


@contextlib.contextmanager
def state_dir_for(
    identity: GpuIdentity, environment: Mapping[str, str] | None = None
) -> Iterator[Path]:
    """The folder for a lease on this GPU, where nobody named one to the program.

    Whoever leases a GPU that lives in this process alone has nobody to meet: where the usual
    folder cannot be written, as in a container that may write nowhere else, another one does.

    Raises InputError as `default_state_dir`.
    """
    environment = os.environ if environment is None else environment
    if not identity.is_in_process or environment.get(STATE_DIR_VARIABLE):
        yield default_state_dir(environment)
        return
    folder = first_usable(_usual_dirs(environment))
    if folder is not None:
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="joulewise-", ignore_cleanup_errors=True) as made:
        yield Path(made)


def _usual_dirs(environment: Mapping[str, str]) -> Iterator[Path]:
    with contextlib.suppress(InputError):
        yield default_state_dir(environment)
    with contextlib.suppress(RuntimeError):
        yield Path.home() / ".local" / "state" / "joulewise"


def first_usable(folders: Iterable[Path]) -> Path | None:
    """The first of these folders that is there or can be made, and may be written to."""
    for folder in folders:
        with contextlib.suppress(InputError):
            make_state_dir(folder)
            if os.access(folder, os.W_OK | os.X_OK):
                return folder
    return None


def journal_file(identity: GpuIdentity, state_dir: Path) -> Path:
    """The place of this GPU's journal."""
    return state_file(identity, state_dir, JOURNAL_SUFFIX)


def lock_file(identity: GpuIdentity, state_dir: Path) -> Path:
    """The place of this GPU's lock."""
    return state_file(identity, state_dir, LOCK_SUFFIX)


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


def remove_abandoned(state_dir: Path) -> None:
    """Clear away files of virtual GPUs whose processes are gone, killed as they were.

    There is nothing to undo: those virtual GPUs died too. A living process in another
    container, whose number means nothing here, loses nothing by it for the same reason.
    """
    deadline_s = datetime.now(tz=UTC).timestamp() - _ABANDONED_AFTER_S
    for path in state_dir.glob("*"):
        owner = _OF_A_PROCESS.fullmatch(path.name)
        if owner is None:
            continue
        with contextlib.suppress(OSError):
            if not is_alive(int(owner[1])) or path.stat().st_mtime < deadline_s:
                path.unlink()


def remove_half_written(journal: Path) -> None:
    """Clear away what writers of this journal left who were killed; only under its lock."""
    for path in journal.parent.glob(f".{glob.escape(journal.name)}*.tmp"):
        with contextlib.suppress(OSError):
            path.unlink()


def is_of_a_process(path: Path) -> bool:
    """Whether this is the file of a virtual GPU, which lives within one process."""
    return _OF_A_PROCESS.fullmatch(path.name) is not None


def _file_name(identity: GpuIdentity) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", identity.uuid)


def make_state_dir(state_dir: Path) -> None:
    """Create the folder where it is missing; only its owner may enter, whatever the umask.

    Raises:
        InputError: the folder cannot be made, or others could change what is written there:
            root would set what they write, and write where they point it.
    """
    try:
        _make(state_dir)
        found = state_dir.stat()
    except OSError as error:
        raise unusable(state_dir, error) from error
    if os.name == "posix":
        _refuse_others(state_dir, found)


def _refuse_others(state_dir: Path, found: os.stat_result) -> None:
    if found.st_uid not in {0, os.geteuid()}:
        whose: str | None = f"it belongs to user {found.st_uid}"
    elif found.st_mode & stat.S_IWOTH:
        whose = "everybody may write there"
    else:
        whose = "its group may write there" if found.st_mode & stat.S_IWGRP else None
    if whose is not None:
        raise InputError(
            f"the state of the lease cannot be kept there: {whose}",
            file=str(state_dir),
            hint=f"Name a folder of this account alone in {STATE_DIR_VARIABLE} (chmod 700).",
        )


def _make(state_dir: Path) -> None:
    """With folders above it that others may not write to: they could put another in its place."""
    missing = [one for one in state_dir.parents if not one.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=0o755, exist_ok=True)
    state_dir.mkdir(mode=0o700, exist_ok=True)


def unusable(path: Path, error: OSError) -> InputError:
    """The error for a state file or folder that cannot be written or read."""
    return InputError(
        f"the state of the lease cannot be kept there: {error.strerror or error}",
        file=str(path),
        hint=f"Name a folder you may write to in {STATE_DIR_VARIABLE}.",
    )
