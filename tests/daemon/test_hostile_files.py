"""Files in the way of joulewised: it starts with none that others could have put there."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.daemon.hostile import NOBODY, is_untouched, limits_of
from tests.daemon.running import started_daemon, wait_until
from tests.other_users import SOMEBODY, as_root

from joulewise.cli.daemon import run
from joulewise.control.daemon.socket_file import listening_at
from joulewise.domain.errors import InputError

FAKE = {"FAKE_NVML_KNOBS": "set_call_s=0,lag_s=0"}


def refused_config(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What the daemon says where it does not start with this policy."""
    assert 1 == run(["--config", str(path), "--check"])
    told = " ".join(capsys.readouterr().err.split())
    assert told.startswith("error: ")
    assert "hint: " in told
    return told


def policy(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "joulewised.toml"
    path.write_text("[[allow]]\nusers = [0]\n", encoding="utf-8")
    path.chmod(0o644)
    return path


@pytest.mark.parametrize("mode", [0o666, 0o664, 0o646])
def test_a_policy_that_others_may_write_is_not_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: int
) -> None:
    path = policy(tmp_path / "etc")
    path.chmod(mode)

    assert "may be written to by others" in refused_config(path, capsys)


def test_a_policy_in_a_folder_that_others_may_write_is_not_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = policy(tmp_path / "etc")
    path.parent.chmod(0o777)

    assert f"{path.parent} may be written to" in refused_config(path, capsys).replace(" /", " /")


@as_root
def test_a_policy_of_somebody_else_is_not_taken_nor_by_a_link_of_theirs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = policy(tmp_path / "etc")
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    link = shared / "joulewised.toml"
    link.symlink_to(path)
    os.chown(link, SOMEBODY, SOMEBODY, follow_symlinks=False)
    assert f"belongs to user {SOMEBODY}" in refused_config(link, capsys)

    os.chown(path, SOMEBODY, SOMEBODY)
    assert f"belongs to user {SOMEBODY}" in refused_config(path, capsys)


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.mkdir(),
        lambda path: os.mkfifo(path, 0o600),
        lambda path: path.symlink_to(path),
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.symlink_to("/proc/self/environ"),
        lambda path: path.write_bytes(b"\x00" * 300_000),
        lambda path: path.write_bytes(b"[[allow]]\nusers = [0]\n" * 20_000),
        lambda path: path.write_text("a = " + "{a = " * 3000, encoding="utf-8"),
        lambda path: path.write_text("allow = [[[]]]\n", encoding="utf-8"),
    ],
)
def test_a_policy_that_is_none_is_refused_without_waiting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], make: Callable[[Path], object]
) -> None:
    path = tmp_path / "joulewised.toml"
    make(path)

    refused_config(path, capsys)


def start(library: Path, folder: Path, *, state_dir: Path, at: Path) -> str:
    """Try to start a daemon that must not start; what it says."""
    path = policy(folder / "etc")
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from joulewise.cli.daemon import main; main()",
            *("--config", str(path), "--socket", str(at), "--state-dir", str(state_dir)),
            *("--nvml-library", str(library)),
        ],
        env={
            **os.environ,
            "FAKE_NVML_STATE": str(folder / "driver.state"),
            "FAKE_NVML_TIME": "real",
            "FAKE_NVML_PRIV": "1",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=30.0,
    )
    assert 1 == done.returncode, done.stderr
    return " ".join(done.stderr.split())


def forged_journal(path: Path) -> None:
    """A journal that would have another limit put on a GPU."""
    path.write_text(
        json.dumps(
            {
                "schema_version": 1,
                "device": "nvml:0",
                "device_name": "GPU",
                "uuid": "GPU-1",
                "holder": "process 1",
                "touched": ["power_limit_w"],
                "found": {"power_limit_w": 100.0},
                "asked_limits_w": None,
            }
        ),
        encoding="utf-8",
    )


@as_root
def test_a_daemon_starts_with_no_state_that_somebody_else_wrote(
    fake_library: Path, tmp_path: Path
) -> None:
    at, state = tmp_path / "d.sock", tmp_path / "state"
    state.mkdir(mode=0o700)
    journal = state / "GPU-1.journal.json"
    forged_journal(journal)
    os.chown(journal, SOMEBODY, SOMEBODY)

    said = start(fake_library, tmp_path, state_dir=state, at=at)

    assert f"{journal} belongs to user {SOMEBODY}" in said
    assert not at.exists()


def test_nothing_in_the_place_of_the_socket_is_followed_or_removed(
    fake_library: Path, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious", encoding="utf-8")
    linked = tmp_path / "linked.sock"
    linked.symlink_to(victim)

    said = start(fake_library, tmp_path, state_dir=tmp_path / "state", at=linked)

    assert "a link is in the place of the socket" in said
    assert "precious" == victim.read_text(encoding="utf-8")
    assert linked.is_symlink()
    with pytest.raises(InputError, match="no socket is in the place"), listening_at(victim):
        pass
    assert "precious" == victim.read_text(encoding="utf-8")


def test_a_lock_beside_the_socket_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious", encoding="utf-8")
    (tmp_path / "d.sock.lock").symlink_to(victim)

    with pytest.raises(InputError), listening_at(tmp_path / "d.sock"):
        pass

    assert "precious" == victim.read_text(encoding="utf-8")
    assert not (tmp_path / "d.sock").exists()


@as_root
def test_a_socket_folder_of_somebody_else_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    os.chown(folder, SOMEBODY, SOMEBODY)

    with (
        pytest.raises(InputError, match=f"belongs to user {SOMEBODY}"),
        listening_at(folder / "d.sock"),
    ):
        pass


def test_journals_that_nobody_can_read_stop_no_daemon_and_set_nothing(
    fake_library: Path, tmp_path: Path
) -> None:
    raws = (b"", b"\x00" * 9000, b"[" * 9000, b'{"touched": 3}', b'{"found": 1e999}')
    fake = {**FAKE, "FAKE_NVML_DEVICES": str(len(raws))}
    with started_daemon(fake_library, tmp_path, config=NOBODY, driver=fake) as daemon:
        limits_w = limits_of(daemon)
        gpus = daemon.uuids()
        daemon.stop()
    for gpu, raw in zip(gpus, raws, strict=True):
        (daemon.state_dir / f"{gpu}.journal.json").write_bytes(raw)

    with started_daemon(fake_library, tmp_path, config=NOBODY, driver=fake) as again:
        wait_until(lambda: not again.journals(), "a journal is kept")
        assert is_untouched(again)
        assert limits_w == limits_of(again)


def test_a_socket_that_was_removed_or_replaced_is_not_taken_from_its_new_owner(
    fake_library: Path, tmp_path: Path
) -> None:
    with started_daemon(fake_library, tmp_path, config=NOBODY, driver=FAKE) as daemon:
        daemon.socket.unlink()
        with closing(socket.socket(socket.AF_UNIX)) as other:
            other.bind(str(daemon.socket))
            assert 0 == daemon.stop()

            assert daemon.socket.exists()
