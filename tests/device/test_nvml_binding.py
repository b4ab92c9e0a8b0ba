"""What nvidia-ml-py drops must not be lost: return codes."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pynvml
import pytest

import joulewise.device

SOURCES = sorted(Path(joulewise.device.__path__[0]).glob("nvml*.py"))
CALLED = sorted(
    {
        name
        for source in SOURCES
        for name in re.findall(r'"(nvml[A-Z]\w+)"', source.read_text(encoding="utf-8"))
    }
)
# Built from a domain's name.
CALLED += [
    f"nvmlDevice{verb}{domain}LockedClocks"
    for verb in ("Set", "Reset")
    for domain in ("Gpu", "Memory")
]
# Called by their pointers only, with their codes checked by this package. What else is read by
# pointer has the same name in the binding and passes the same test.
BY_POINTER = {"nvmlDeviceSetPowerManagementLimit_v2", "nvmlDeviceGetFieldValues"}


def source_of(function: str) -> str:
    return inspect.getsource(inspect.unwrap(getattr(pynvml, function)))


def test_every_kind_of_call_was_found_in_the_source() -> None:
    assert {"nvmlInit", "nvmlDeviceGetFieldValues", "nvmlGpmMetricsGet", *BY_POINTER} <= set(CALLED)
    assert len(CALLED) > 40


@pytest.mark.parametrize("function", sorted(set(CALLED) - BY_POINTER))
def test_the_binding_checks_the_return_code_of_what_is_called_through_it(function: str) -> None:
    source = source_of(function)
    delegate = re.search(r"return (nvml\w+)\(|^    (nvml\w+)\(", source, re.MULTILINE)
    if "_nvmlCheckReturn" not in source and delegate is not None:
        source = source_of(delegate[1] or delegate[2])

    assert "_nvmlCheckReturn(ret)" in source or "raise NVMLError(ret)" in source


def test_the_limit_call_is_made_by_its_pointer_for_the_binding_drops_its_code() -> None:
    assert "_nvmlCheckReturn" not in source_of("nvmlDeviceSetPowerManagementLimit_v2")


def test_nvml_is_spoken_in_one_module() -> None:
    importing = [
        source.name
        for source in SOURCES
        if re.search(r"^\s*(import|from) pynvml", source.read_text(encoding="utf-8"), re.MULTILINE)
    ]

    assert ["nvml.py"] == importing
