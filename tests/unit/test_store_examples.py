"""The examples on the page about file formats are read as the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from joulewise.domain.points import AUTO
from joulewise.store.clock_curves import read_curves
from joulewise.store.documents import read_workload
from joulewise.store.importers import units
from joulewise.store.sweep_csv import OPTIONAL_COLUMNS, REQUIRED_COLUMNS
from joulewise.store.sweeps import read_sweep

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "file-formats.md").read_text("utf-8")


def example(language: str, number: int = 0) -> str:
    return str(re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)[number])


def test_the_sweep_on_the_page_is_a_sweep(tmp_path: Path) -> None:
    path = tmp_path / "sweep.csv"
    path.write_text(example("csv"), encoding="utf-8")

    sweep = read_sweep(path)

    assert (("gemm", "softmax"), AUTO) == (sweep.kernels, sweep.baseline)
    assert sweep.is_present.all()


def test_the_workload_on_the_page_is_a_workload(tmp_path: Path) -> None:
    path = tmp_path / "workload.json"
    path.write_text(example("json"), encoding="utf-8")

    expected = {"embedding": 1, "gemm": 96, "softmax": 24, "adam": 1}
    assert expected == read_workload(path).launch_counts()


def test_the_curves_on_the_page_are_curves(tmp_path: Path) -> None:
    path = tmp_path / "curves.json"
    path.write_text(example("json", 1), encoding="utf-8")

    (curve,) = read_curves(path)

    assert (612, 816) == curve.sm_clocks_mhz


@pytest.mark.parametrize("name", [*REQUIRED_COLUMNS, *OPTIONAL_COLUMNS])
def test_the_page_names_every_column(name: str) -> None:
    assert f"`{name}`" in PAGE


@pytest.mark.parametrize("measure", [units.TIME, units.POWER, units.ENERGY, units.CLOCK])
def test_the_page_names_every_unit(measure: units.Measure) -> None:
    typed = [unit for unit in measure.units if unit.isascii()]

    assert f"`{' '.join(typed)}`" in PAGE
