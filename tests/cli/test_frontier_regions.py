"""Regions on the command line of `frontier`, and what is said where they leave no plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Joulewise, Said

# Kernel a is fast at 1000 MHz only, kernel b at 1500 MHz only.
CROSSED = """kernel,sm_clock_mhz,mem_clock_mhz,time_s,energy_j
a,,,1.0,100
a,1000,,0.8,90
a,1500,,1.2,80
b,,,1.0,100
b,1000,,1.3,80
b,1500,,0.8,70
"""


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    path = tmp_path / "crossed.csv"
    path.write_text(CROSSED, encoding="utf-8")
    return path


def times_s(said: Said) -> list[float]:
    points = said.document["frontier"]
    assert isinstance(points, list)
    return [float(point["time_s"]) for point in points]


def test_a_frontier_of_one_region_holds_single_points_only(
    joulewise: Joulewise, sweep: Path
) -> None:
    region = ("frontier", sweep, "--granularity", "region", "--json")

    assert [1.6, 2.0] == pytest.approx(times_s(joulewise(*region)))
    assert [1.6, 2.0] == pytest.approx(times_s(joulewise(*region, "--max-regions", "2")))
    assert [2.0] == pytest.approx(times_s(joulewise(*region, "--max-regions", "1")))


def test_the_sentence_of_a_frontier_names_its_regions(joulewise: Joulewise, sweep: Path) -> None:
    said = joulewise("frontier", sweep, "--granularity", "region", "--max-regions", "2")

    assert 0 == said.code, said.err
    assert "in at most 2 regions" in " ".join(said.out.split())


def test_a_frontier_of_kernels_has_no_regions_to_bound(joulewise: Joulewise, sweep: Path) -> None:
    said = joulewise("frontier", sweep, "--max-regions", "2")

    assert 1 == said.code
    assert "field 'max-regions': a plan at kernel granularity is not made of regions" in said.err


@pytest.mark.parametrize(
    "options", [("--granularity", "region", "--max-regions", "1"), ("--transition", "lag=100s")]
)
def test_a_plan_that_cannot_be_has_no_least_slowdown(
    joulewise: Joulewise, sweep: Path, options: tuple[str, ...]
) -> None:
    budget = ("--no-guard", "--scope", "local", "--max-slowdown", "-10%")

    said = joulewise("plan", sweep, *budget, *options, "--json")

    assert (1, "infeasible") == (said.code, said.document["status"])
    assert said.document["least_slowdown_ratio"] is None
    assert "keeps every launch's budget" in str(said.document["message"])
