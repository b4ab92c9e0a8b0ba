"""House rules that a machine can hold."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import joulewise
from joulewise.domain import quantities

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
SUFFIXES = tuple(quantity.suffix for quantity in quantities.ALL)
# Watts per degree, FLOPs per cycle: a compound of two registered units.
COMPOUND = re.compile(r"_(s|j|w|c|mhz|ghz|v|bytes|flop|count|ratio)_per_[a-z]+2?$")
NAMED = {*quantities.LABELS, *quantities.OBJECTIVE_VALUES}
NUMBERS = {"int", "float", "int | None", "float | None"}


def record_fields() -> Iterator[tuple[type, str, str]]:
    """Every field of every dataclass of the package."""
    for info in pkgutil.walk_packages(joulewise.__path__, "joulewise."):
        if info.name.endswith("__main__"):
            continue
        module = importlib.import_module(info.name)
        for _, cls in inspect.getmembers(module, inspect.isclass):
            if cls.__module__ == info.name and dataclasses.is_dataclass(cls):
                for field in dataclasses.fields(cls):
                    yield cls, field.name, str(field.type)


def says_its_unit(name: str) -> bool:
    bare = name.lstrip("_")
    return bare in NAMED or name.endswith(SUFFIXES) or COMPOUND.search(name) is not None


def test_every_number_of_a_record_says_its_unit() -> None:
    bare = [
        f"{cls.__qualname__}.{name}"
        for cls, name, type_ in record_fields()
        if type_ in NUMBERS and not says_its_unit(name)
    ]

    assert [] == bare


def test_records_are_frozen_unless_they_hold_state() -> None:
    thawed = {
        cls.__qualname__
        for cls, _, _ in record_fields()
        if cls.__module__.startswith("joulewise.domain")
        and not vars(cls)["__dataclass_params__"].frozen
    }

    assert set() == thawed


def test_no_python_file_is_longer_than_400_lines() -> None:
    folders = ("benchmarks", "calibration", "docs", "scripts", "src", "studies", "tests")
    files = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    assert len(files) > len(SOURCES)

    long = [
        f"{path.relative_to(ROOT)}: {count}"
        for path in files
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > 400
    ]

    assert [] == long


def test_no_function_is_longer_than_50_lines() -> None:
    long = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = node.body[0]
                documented = (
                    isinstance(first, ast.Expr)
                    and isinstance(first.value, ast.Constant)
                    and isinstance(first.value.value, str)
                )
                # What a function says about itself does not count against it.
                said = (first.end_lineno or 0) - first.lineno + 1 if documented else 0
                if (node.end_lineno or 0) - node.lineno + 1 - said > 50:
                    long.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}")

    assert [] == long


def test_no_module_has_a_name_where_things_go_to_be_lost() -> None:
    lost = [path.name for path in SOURCES if path.stem in {"utils", "util", "helpers", "common"}]

    assert [] == lost


def test_the_error_tree_has_at_most_ten_classes() -> None:
    from joulewise.domain import errors

    classes = [
        cls
        for _, cls in inspect.getmembers(errors, inspect.isclass)
        if issubclass(cls, Exception) and cls.__module__ == errors.__name__
    ]

    assert 10 == len(classes)


def loaded_by(module: str) -> set[str]:
    """Packages outside the standard library that a fresh interpreter has loaded for it."""
    code = (
        f"import sys; before = set(sys.modules); import {module}; "
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split()) - sys.stdlib_module_names


def test_importing_joulewise_loads_nothing_else() -> None:
    assert {"joulewise"} == loaded_by("joulewise")


@pytest.mark.parametrize("module", ["joulewise.cli.app", "joulewise.device.nvml_gpu"])
def test_importing_the_command_line_or_the_adapter_loads_nothing_heavy(module: str) -> None:
    heavy = {"cuda", "jinja2", "plotly", "polars", "pynvml", "scipy", "sklearn", "torch"}

    assert set() == loaded_by(module) & heavy


def test_no_module_imports_what_only_one_system_has_at_its_top() -> None:
    only_somewhere = {"fcntl", "grp", "msvcrt", "pwd", "resource", "termios", "winreg"}
    found = []
    for path in SOURCES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Import):
                found += [f"{path.name}: {a.name}" for a in node.names if a.name in only_somewhere]
            elif isinstance(node, ast.ImportFrom) and node.module in only_somewhere:
                found.append(f"{path.name}: {node.module}")

    assert [] == found
