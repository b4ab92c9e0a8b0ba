"""The socket's file: what is in its place, and what is left of it."""

from __future__ import annotations

import os
import socket
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from joulewise.control.daemon.peer import peer_of, user_name
from joulewise.domain.errors import BusyError, InputError

if sys.platform != "linux":
    pytest.skip("joulewised runs on Linux", allow_module_level=True)

from joulewise.control.daemon.socket_file import check_place, listening_at


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose path is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="jw") as name:
        yield Path(name)


def test_everybody_may_connect_and_nothing_is_left_at_the_end(folder: Path) -> None:
    path = folder / "made" / "d.sock"
    with listening_at(path) as listening:
        mode = path.stat().st_mode
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.connect(str(path))
            accepted, _ = listening.accept()
            with accepted:
                peer = peer_of(accepted)

    assert stat.S_ISSOCK(mode)
    assert 0o666 == stat.S_IMODE(mode)
    assert 0o755 == stat.S_IMODE(path.parent.stat().st_mode)
    assert (os.getpid(), os.getuid()) == (peer.pid, peer.uid)
    assert peer.gids >= {os.getgid(), *os.getgroups()}
    assert not path.exists()


def test_a_socket_that_a_dead_daemon_left_is_replaced(folder: Path) -> None:
    path = folder / "d.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(path))
    with listening_at(path), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(str(path))


def test_a_living_daemon_is_named(folder: Path) -> None:
    path = folder / "d.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(str(path))
        other.listen()
        with pytest.raises(BusyError, match=f"process {os.getpid()}"), listening_at(path):
            pass

        assert path.exists()


def test_two_that_start_at_once_do_not_both_listen(folder: Path) -> None:
    path = folder / "d.sock"
    with (
        listening_at(path),
        pytest.raises(BusyError, match=f"process {os.getpid()}"),
        listening_at(path),
    ):
        pass


@pytest.mark.parametrize("kind", ["file", "folder", "link", "link to a socket", "pipe"])
def test_what_is_no_socket_is_left_alone(folder: Path, kind: str) -> None:
    path, target = folder / "d.sock", folder / "target"
    if kind == "file":
        path.write_text("precious")
    elif kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(target)
    if kind == "link to a socket":
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
            dead.bind(str(target))
    with pytest.raises(InputError, match="in the place of the socket"), listening_at(path):
        pass

    assert os.path.lexists(path)


@pytest.mark.parametrize("name", ["x" * 120, "file", ".."])
def test_what_is_refused_leaves_no_lock_behind_and_check_says_the_same(
    folder: Path, name: str
) -> None:
    (folder / "file").write_text("precious")
    with pytest.raises(InputError), listening_at(folder / name):
        pass
    with pytest.raises(InputError):
        check_place(folder / name)

    assert ["file"] == [path.name for path in folder.iterdir()]


def test_a_path_without_a_name_is_refused() -> None:
    with pytest.raises(InputError, match="it names no file"), listening_at(Path("/")):
        pass
    with pytest.raises(InputError, match="it names no file"):
        check_place(Path("/"))


def test_a_place_that_can_be_had_is_fine_and_check_makes_nothing(folder: Path) -> None:
    check_place(folder / "d.sock")
    check_place(folder / "not" / "made" / "d.sock")
    with listening_at(folder / "d.sock"):
        check_place(folder / "d.sock")

    assert ["d.sock.lock"] == [path.name for path in folder.iterdir()]


def test_a_lock_beside_it_that_is_none_is_said_in_words_of_the_socket(folder: Path) -> None:
    (folder / "d.sock.lock").mkdir()
    with (
        pytest.raises(InputError, match="keep others from listening there"),
        listening_at(folder / "d.sock"),
    ):
        pass


def test_a_folder_that_others_may_change_is_refused(folder: Path) -> None:
    open_to_all = folder / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    with pytest.raises(InputError, match="others"), listening_at(open_to_all / "d.sock"):
        pass


def test_a_socket_that_came_in_its_place_is_not_removed(folder: Path) -> None:
    path = folder / "d.sock"
    with listening_at(path), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        path.unlink()
        other.bind(str(path))

    assert path.exists()


def test_users_without_a_name_have_none() -> None:
    assert "root" == user_name(0)
    assert user_name(4_000_000_000) is None
