"""The fake driver is built anew where anything that it is made of has changed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fake_nvml import BUILD, SOURCES


@pytest.fixture
def build(fake_library: Path, tmp_path: Path) -> Path:
    """A build of our own, as fresh as the one of all tests."""
    folder = tmp_path / "build"
    shutil.copytree(BUILD, folder, symlinks=True)
    assert (folder / fake_library.name).exists()
    return folder


def built_by_make(folder: Path) -> set[str]:
    """Names of what make writes anew."""
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*.*")}
    command = ["make", "-s", "-C", str(SOURCES), f"PYTHON={sys.executable}", f"OUT={folder}"]
    subprocess.run(command, capture_output=True, check=True)
    return {path.name for path, mtime_ns in before.items() if path.stat().st_mtime_ns != mtime_ns}


def test_nothing_is_built_where_nothing_has_changed(build: Path) -> None:
    assert set() == built_by_make(build)


@pytest.mark.parametrize("name", ["profiles", "stubs"])
def test_what_joulewise_or_the_binding_say_anew_is_built_anew(build: Path, name: str) -> None:
    """As the generated text of an older preset or an older nvidia-ml-py would be."""
    generated = build / "generated" / f"{name}.c"
    now = generated.read_text(encoding="utf-8")
    generated.write_text(f"/* older */\n{now}", encoding="utf-8")

    built = built_by_make(build)

    assert now == generated.read_text(encoding="utf-8")
    assert {f"{name}.c", f"{name}.o", "libnvidia-ml.so", "libnvidia-ml.so.1"} == built
