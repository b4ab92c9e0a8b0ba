"""Files appear whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from joulewise.domain.errors import InputError
from joulewise.store.atomic import write_atomically


def test_a_file_is_written_and_nothing_else_stays(tmp_path: Path) -> None:
    write_atomically(tmp_path / "plan.json", b"new")

    assert [tmp_path / "plan.json"] == list(tmp_path.iterdir())
    assert b"new" == (tmp_path / "plan.json").read_bytes()


def test_the_old_content_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(b"old and longer")

    write_atomically(path, b"new")

    assert b"new" == path.read_bytes()


def test_a_link_is_followed(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to(target)

    write_atomically(link, b"new")

    assert link.is_symlink()
    assert b"new" == target.read_bytes()


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none" / "plan.json"

    with pytest.raises(InputError, match="the folder it should go to does not exist") as caught:
        write_atomically(path, b"new")

    assert str(path) == caught.value.file
    assert f"Make the folder {path.parent} first." == caught.value.hint


def test_a_folder_in_the_way_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="this is a folder, not a file"):
        write_atomically(tmp_path, b"new")

    assert [] == list(tmp_path.iterdir())


def test_a_file_where_a_folder_should_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(InputError, match="a part of its path is a file"):
        write_atomically(tmp_path / "file" / "plan.json", b"new")


@pytest.mark.skipif(
    os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere; Windows has no modes"
)
def test_an_unwritable_folder_is_named_and_stays_empty(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(InputError, match="may not be written by this account"):
            write_atomically(tmp_path / "plan.json", b"new")
        assert [] == list(tmp_path.iterdir())
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs Linux's /proc")
def test_what_the_system_refuses_is_said_in_its_words() -> None:
    with pytest.raises(InputError, match="it cannot be written: No such file or directory"):
        write_atomically(Path("/proc/joulewise"), b"new")
