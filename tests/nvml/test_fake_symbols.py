"""The fake driver has every function that NVML's Python binding asks for."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fake_nvml import SOURCES

from joulewise.simulator.presets import nvml_preset_names

NOT_SUPPORTED = 3


def binding_path() -> Path:
    found = importlib.util.find_spec("pynvml")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin)


def bound_symbols() -> list[str]:
    text = binding_path().read_text(encoding="utf-8")
    return sorted(set(re.findall(r'_nvmlGetFunctionPointer\(\s*["\'](nvml\w+)', text)))


@pytest.fixture
def library(fake_library: Path) -> ctypes.CDLL:
    return ctypes.CDLL(str(fake_library))


def test_every_function_that_the_binding_asks_for_exists(library: ctypes.CDLL) -> None:
    symbols = bound_symbols()

    assert len(symbols) > 400
    assert [] == [symbol for symbol in symbols if not hasattr(library, symbol)]


@pytest.mark.parametrize(
    "symbol",
    [
        "nvmlInit",
        "nvmlInit_v2",
        "nvmlDeviceGetCount",
        "nvmlDeviceGetHandleByIndex",
        "nvmlDeviceGetHandleByPciBusId",
        "nvmlDeviceGetPciInfo",
        "nvmlDeviceGetComputeRunningProcesses",
        "nvmlEventSetWait",
    ],
)
def test_older_versions_of_functions_exist_for_other_clients(
    library: ctypes.CDLL, symbol: str
) -> None:
    assert hasattr(library, symbol)


def test_what_is_not_modelled_is_not_supported(library: ctypes.CDLL) -> None:
    for symbol in ("nvmlDeviceGetVgpuUtilization", "nvmlDeviceSetPowerMizerMode_v1"):
        assert NOT_SUPPORTED == library[symbol](None, None)


def test_nothing_but_nvml_and_the_harness_is_exported(fake_library: Path) -> None:
    lines = subprocess.run(
        ["nm", "-D", "--defined-only", str(fake_library)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    names = {line.split()[-1] for line in lines}

    assert "fakenvml_abi" in names
    assert set() == {name for name in names if not name.startswith(("nvml", "fakenvml_"))}


def test_every_function_of_the_harness_is_exported(library: ctypes.CDLL) -> None:
    header = (SOURCES / "fake_nvml.h").read_text(encoding="utf-8")
    declared = re.findall(r"^\w[\w \*]*\b(fakenvml_\w+)\(", header, re.MULTILINE)

    assert len(declared) > 20
    assert [] == [name for name in declared if not hasattr(library, name)]


def test_every_knob_is_in_the_readme() -> None:
    knobs = re.findall(r"  X\((\w+),", (SOURCES / "knobs.h").read_text(encoding="utf-8"))
    readme = (SOURCES / "README.md").read_text(encoding="utf-8")

    assert len(knobs) > 30
    assert [] == [knob for knob in knobs if f"`{knob}`" not in readme]


def test_every_reading_of_the_binding_gets_an_answer(fake_library: Path, tmp_path: Path) -> None:
    code = """
import inspect, pynvml
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
answered = refused = 0
for name, function in sorted(vars(pynvml).items()):
    if not name.startswith(("nvmlDeviceGet", "nvmlDeviceIs")) or not inspect.isfunction(function):
        continue
    needed = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty
    ]
    if [parameter.name for parameter in needed] not in (["handle"], ["device"]):
        continue
    try:
        function(handle)
        answered += 1
    except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_InvalidArgument):
        refused += 1
print(answered, refused)
"""
    settings = {"LD_LIBRARY_PATH": str(fake_library.parent), "PATH": os.environ["PATH"]}
    counts = {}
    for profile in nvml_preset_names():
        state_path = str(tmp_path / f"{profile}.state")
        more = {"FAKE_NVML_STATE": state_path, "FAKE_NVML_PROFILE": profile}
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=settings | more,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (0, "") == (done.returncode, done.stderr)
        answered, refused = map(int, done.stdout.split())
        assert answered + refused > 130
        counts[profile] = answered

    assert {} == {profile: count for profile, count in counts.items() if count < 50}
