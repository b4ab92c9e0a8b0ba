"""What others could change is not trusted, however a path leads there."""

from __future__ import annotations

import os
import socket
import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.other_users import SOMEBODY, as_root

from joulewise.control.daemon.trusted_file import (
    checked_folder,
    checked_state_dir,
    read_trusted_file,
)
from joulewise.domain.errors import InputError

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="joulewised is for Linux"
)


def read(path: Path) -> bytes:
    return read_trusted_file(path, longest_bytes=100)


def written(path: Path, mode: int = 0o644) -> Path:
    path.write_bytes(b"content")
    path.chmod(mode)
    return path


def refused(ask: Callable[[Path], object], path: Path) -> InputError:
    with pytest.raises(InputError) as caught:
        ask(path)
    assert caught.value.hint
    assert caught.value.file
    return caught.value


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o444, 0o755])
def test_a_file_that_only_its_owner_writes_is_read(tmp_path: Path, mode: int) -> None:
    assert b"content" == read(written(tmp_path / "file", mode))


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666, 0o777])
def test_a_file_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    path = written(tmp_path / "file", mode)

    assert (
        f"{path} may be written to by others than its owner (mode {mode:04o})"
        == refused(read, path).message
    )


@as_root
def test_a_file_of_somebody_else_is_refused_even_read_only(tmp_path: Path) -> None:
    path = written(tmp_path / "file", 0o400)
    os.chown(path, SOMEBODY, SOMEBODY)

    assert f"belongs to user {SOMEBODY}" in refused(read, path).message


@pytest.mark.parametrize("mode", [0o770, 0o757])
@pytest.mark.parametrize("ask", [read, checked_folder, checked_state_dir])
def test_a_folder_anywhere_above_that_others_may_write_is_refused(
    tmp_path: Path, mode: int, ask: Callable[[Path], object]
) -> None:
    above = tmp_path / "above"
    (above / "a" / "b").mkdir(parents=True)
    path = above / "a" / "b" / "last"
    written(path) if ask is read else path.mkdir(mode=0o700)
    ask(path)
    above.chmod(mode)

    error = refused(ask, path)

    assert error.message.startswith(f"{above} may be written to by others")
    assert f"Take that right away: chmod go-w {above}" == error.hint


@as_root
@pytest.mark.parametrize("ask", [read, checked_folder, checked_state_dir])
def test_a_folder_anywhere_above_of_somebody_else_is_refused(
    tmp_path: Path, ask: Callable[[Path], object]
) -> None:
    above = tmp_path / "above"
    above.mkdir()
    path = above / "last"
    written(path) if ask is read else path.mkdir(mode=0o700)
    os.chown(above, SOMEBODY, SOMEBODY)

    assert refused(ask, path).message.startswith(f"{above} belongs to user {SOMEBODY}")


@pytest.mark.parametrize("ask", [read, checked_folder, checked_state_dir])
def test_a_sticky_shared_folder_above_is_passed_through(
    tmp_path: Path, ask: Callable[[Path], object]
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    path = shared / "last"
    written(path) if ask is read else path.mkdir(mode=0o700)

    ask(path)


@as_root
def test_a_sticky_shared_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    written(shared / "file")
    os.chown(shared, SOMEBODY, SOMEBODY)

    assert "belongs to" in refused(read, shared / "file").message


def test_state_is_not_kept_in_a_shared_folder_and_a_socket_may_be(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)

    assert "mode 1777" in refused(checked_state_dir, shared).message
    assert "mode 1777" in refused(checked_folder, shared).message
    assert shared == checked_folder(shared, is_shared_fine=True)


def test_links_are_followed_and_every_step_of_them_is_judged(tmp_path: Path) -> None:
    safe, open_to_all = tmp_path / "safe", tmp_path / "open"
    safe.mkdir()
    open_to_all.mkdir()
    written(safe / "file")
    written(open_to_all / "file")
    open_to_all.chmod(0o777)
    (tmp_path / "folder").symlink_to(safe)
    (tmp_path / "way").symlink_to("folder/../folder/file")
    (tmp_path / "trap").symlink_to(open_to_all / "file")
    (tmp_path / "far").symlink_to("trap")

    assert b"content" == read(tmp_path / "way")
    assert f"{open_to_all} may be" in refused(read, tmp_path / "far").message


def test_a_step_upward_goes_up_from_where_a_link_led(tmp_path: Path) -> None:
    inner = tmp_path / "deep" / "inner"
    inner.mkdir(parents=True)
    written(tmp_path / "deep" / "file")
    (tmp_path / "link").symlink_to(inner)

    # By its letters this would be tmp_path/file, which there is not.
    assert b"content" == read(tmp_path / "link" / ".." / "file")
    assert inner == checked_folder(tmp_path / "link" / ".." / "inner")


@as_root
def test_a_link_of_somebody_else_in_a_shared_folder_is_refused(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    written(tmp_path / "file")
    (shared / "link").symlink_to(tmp_path / "file")
    assert b"content" == read(shared / "link")
    os.chown(shared / "link", SOMEBODY, SOMEBODY, follow_symlinks=False)

    assert f"{shared / 'link'} belongs to user" in refused(read, shared / "link").message


def test_links_that_lead_on_and_on_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")

    assert "its links lead on and on" == refused(read, tmp_path / "a").message


def test_a_relative_path_begins_where_the_process_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "file")
    monkeypatch.chdir(tmp_path)

    assert b"content" == read(Path("file"))


def test_pipes_sockets_and_devices_are_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        (tmp_path / "socket").chmod(0o600)
        odd = [tmp_path / "pipe", tmp_path / "socket", Path("/dev/null"), Path("/dev/zero")]
        for path in odd:
            assert "not a plain file" in refused(read, path).message


@pytest.mark.parametrize("ask", [read, checked_folder, checked_state_dir])
def test_a_path_through_a_file_or_with_a_nul_is_refused(
    tmp_path: Path, ask: Callable[[Path], object]
) -> None:
    written(tmp_path / "file")

    assert f"{tmp_path / 'file'} is not a folder" == refused(ask, tmp_path / "file" / "x").message
    assert "null" in refused(ask, tmp_path / "a\x00b").message


def test_a_missing_file_a_folder_and_a_long_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "long").write_bytes(b"x" * 101)
    (tmp_path / "fits").write_bytes(b"x" * 100)

    assert "there is no such file" == refused(read, tmp_path / "none").message
    assert "this is a folder, not a file" == refused(read, tmp_path).message
    assert "longer than 100 bytes" in refused(read, tmp_path / "long").message
    assert 100 == len(read(tmp_path / "fits"))


def test_missing_folders_are_made_for_their_owner_alone(tmp_path: Path) -> None:
    made = checked_state_dir(tmp_path / "a" / "state")

    assert tmp_path / "a" / "state" == made
    assert 0o700 == stat.S_IMODE(made.stat().st_mode)
    assert 0o700 == stat.S_IMODE(made.parent.stat().st_mode)
    assert 0o755 & ~_umask() == stat.S_IMODE(checked_folder(tmp_path / "run").stat().st_mode)


def _umask() -> int:
    current = os.umask(0o022)
    os.umask(current)
    return current


def test_the_place_that_is_told_has_no_links_in_it(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("real")

    assert tmp_path / "real" == checked_state_dir(tmp_path / "link")


def test_a_state_folder_with_plain_files_of_its_owner_is_fine(tmp_path: Path) -> None:
    written(tmp_path / "GPU-1.journal", 0o600)
    written(tmp_path / "GPU-1.lock", 0o600)

    assert tmp_path == checked_state_dir(tmp_path)


def test_a_state_folder_with_a_link_a_pipe_or_a_shared_file_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "elsewhere", 0o600)
    makers: dict[str, Callable[[Path], object]] = {
        "link": lambda path: path.symlink_to(tmp_path / "elsewhere"),
        "pipe": lambda path: os.mkfifo(path, 0o600),
        "shared": lambda path: written(path, 0o660),
    }
    for name, make in makers.items():
        state = tmp_path / f"state-{name}"
        state.mkdir(mode=0o700)
        make(state / "GPU-1.journal")

        assert str(state / "GPU-1.journal") == refused(checked_state_dir, state).file


@as_root
def test_a_state_folder_with_a_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    journal = written(tmp_path / "GPU-1.journal", 0o600)
    os.chown(journal, SOMEBODY, SOMEBODY)

    assert f"belongs to user {SOMEBODY}" in refused(checked_state_dir, tmp_path).message


def test_what_is_read_was_trusted_while_names_change_all_the_time(tmp_path: Path) -> None:
    written(tmp_path / "good", 0o600)
    evil = tmp_path / "evil"
    evil.write_bytes(b"evil")
    evil.chmod(0o666)
    name, stop = tmp_path / "name", threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for target in ("good", "evil"):
                beside = tmp_path / "beside"
                os.link(tmp_path / target, beside)
                beside.replace(name)

    thread = threading.Thread(target=swap)
    thread.start()
    seen = set()
    try:
        for _ in range(500):
            try:
                seen.add(read(name))
            except InputError as error:
                seen.add(error.message.partition(" may be ")[2][:10].encode())
    finally:
        stop.set()
        thread.join()

    assert b"evil" not in seen
    assert b"content" in seen


def open_count() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_nothing_stays_open_whatever_was_refused(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    written(tmp_path / "shared", 0o666)
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "x").symlink_to("y")
    before = open_count()
    for _ in range(20):
        for path in ("loop", "shared", "none", "shared/x", "state"):
            refused(read, tmp_path / path)
        refused(checked_state_dir, tmp_path / "state")
        checked_folder(tmp_path)

    assert before == open_count()
