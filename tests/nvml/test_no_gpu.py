"""What is said where there is no GPU, by whichever command, and where NVML alone is missing."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from tests.fake_nvml import DriverMaker
from tests.scripted_daemon import scripted_daemon

from joulewise.cli.app import run
from joulewise.device.nvml_reply import WITHOUT_A_GPU

LIBRARY_NOT_FOUND = 12


@pytest.fixture(autouse=True)
def no_library(make_driver: DriverMaker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JOULEWISE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("JOULEWISE_SOCKET", "off")
    driver = make_driver(is_virtual_time=False)
    for function in ("nvmlInitWithFlags", "nvmlInit_v2"):
        driver.fail(function, LIBRARY_NOT_FOUND)


@pytest.mark.parametrize(
    "command",
    [
        ["status"],
        ["doctor"],
        ["restore", "--device", "nvml:0"],
        ["metrics", "--once"],
        ["run", "true"],
        ["apply", "--sm-clock", "1005", "true"],
        ["measure", "--device", "nvml:0"],
    ],
    ids=lambda command: command[0],
)
def test_every_command_says_the_same_of_working_without_a_gpu(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert 1 == run(command)
    said = capsys.readouterr()

    assert 1 == (said.out + said.err).count(WITHOUT_A_GPU)


@pytest.mark.parametrize("command", [["run", "true"], ["apply", "--sm-clock", "1005", "true"]])
def test_where_joulewised_answers_and_nvml_is_missing_the_container_lacks_utility(
    command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(prefix="jw") as name:
        path = Path(name) / "d.sock"
        monkeypatch.setenv("JOULEWISE_SOCKET", str(path))
        with scripted_daemon(path):
            assert 1 == run(command)
    said = capsys.readouterr().err

    assert f"joulewised answers at {path}" in said
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in said
