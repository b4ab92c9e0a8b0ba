"""The page in a real browser: Debian's chromium, headless."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.report.test_transition_cost_page import COSTS
from tests.traced_workloads import traced_workload

from joulewise.domain.plan import Granularity, Status
from joulewise.report.inputs import ReportInputs
from joulewise.report.page import render_report
from joulewise.report.transition_cost_page import render_transition_cost
from joulewise.report.workload_facts import workload_facts
from joulewise.report.workload_page import render_workload

pytestmark = pytest.mark.integration

Make = Callable[..., ReportInputs]
SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "readme_figure.py"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--virtual-time-budget=8000",
    "--enable-logging=stderr",
    "--v=0",
    "--dump-dom",
)


@pytest.fixture(scope="session")
def chromium() -> str:
    """The browser, or a skip that says how to get it."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("chromium not found; on Debian: apt-get install chromium")
    return found


def _opened(chromium: str, page: str, folder: Path) -> tuple[str, list[str]]:
    """The page's DOM after its scripts ran, and what the console said."""
    path = folder / "report.html"
    path.write_text(page, encoding="utf-8")
    done = subprocess.run(
        [chromium, *FLAGS, f"--user-data-dir={folder / 'profile'}", path.as_uri()],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.parametrize(
    ("wish", "plot_count"),
    [
        ({"max_slowdown_ratio": 0.05}, 3),
        ({"status": Status.NO_GAIN, "is_verified": False}, 1),
        (
            {"granularity": Granularity.PASS, "mem_clocks_mhz": (None,), "max_slowdown_ratio": 0.2},
            3,
        ),
    ],
    ids=["verified", "no gain", "SM clocks only"],
)
def test_a_page_draws_every_figure_without_a_word_on_the_console(
    chromium: str,
    make_inputs: Make,
    tmp_path: Path,
    wish: dict[str, object],
    plot_count: int,
) -> None:
    dom, console = _opened(chromium, render_report(make_inputs(**wish)), tmp_path)
    assert console == []
    assert 'data-figures="drawn"' in dom
    assert dom.count('<g class="cartesianlayer">') == plot_count
    assert "plot failed" not in dom


def test_hostile_names_neither_run_nor_render(
    chromium: str, make_inputs: Make, tmp_path: Path
) -> None:
    attack = "</script><img src=x onerror=\"document.title='attacked'\">"
    names = (attack, "<b>bold</b>", "<script>document.title='attacked'</script>", attack + "2")
    page = render_report(make_inputs(kernels=names, max_slowdown_ratio=None))
    dom, console = _opened(chromium, page, tmp_path)
    assert console == []
    assert 'data-figures="drawn"' in dom
    assert "<title>attacked" not in dom
    assert "<img" not in dom.split("<main>")[1].split("</main>")[0]
    assert ">&lt;b&gt;bold&lt;/b&gt;" in dom


def test_the_content_policy_stops_what_would_leave_the_machine(
    chromium: str, make_inputs: Make, tmp_path: Path
) -> None:
    page = render_report(make_inputs()).replace(
        "<main>", '<main><img src="http://127.0.0.1:9/beacon.png"><script>1;</script>', 1
    )
    _, console = _opened(chromium, page, tmp_path)
    assert len([line for line in console if "Content Security Policy" in line]) == 2


def test_the_figure_of_the_readme_is_a_photograph_of_the_report(
    chromium: str, make_inputs: Make, tmp_path: Path
) -> None:
    assert chromium
    (tmp_path / "report.html").write_text(render_report(make_inputs()), encoding="utf-8")
    picture = tmp_path / "out" / "frontier.png"
    subprocess.run([sys.executable, SCRIPT, tmp_path, picture], check=True, timeout=150)
    header = picture.read_bytes()[:24]
    assert header[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", header[16:]) == (2000, 1192)
    assert picture.stat().st_size > 20_000


def test_the_page_of_transition_costs_is_drawn_and_photographed(
    chromium: str, tmp_path: Path
) -> None:
    page = render_transition_cost(COSTS)
    dom, console = _opened(chromium, page, tmp_path)
    (tmp_path / "cost.html").write_text(page, encoding="utf-8")
    picture = tmp_path / "cost.png"
    subprocess.run([sys.executable, SCRIPT, tmp_path / "cost.html", picture], check=True)
    assert console == []
    assert 'data-figures="drawn"' in dom
    assert struct.unpack(">II", picture.read_bytes()[16:24]) == (2000, 1432)


def test_the_page_of_a_workload_draws_without_complaint(chromium: str, tmp_path: Path) -> None:
    workload = traced_workload()
    dom, console = _opened(
        chromium, render_workload(workload_facts(workload), workload.caveats), tmp_path
    )

    assert console == []
    assert 'data-figures="drawn"' in dom


def test_the_script_says_what_is_missing(chromium: str, tmp_path: Path) -> None:
    assert chromium
    done = subprocess.run(
        [sys.executable, SCRIPT, tmp_path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "no such report" in done.stderr
