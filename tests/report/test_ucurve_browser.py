"""The page of U-curves in a real browser: Debian's chromium, headless."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.report.test_report_browser import FLAGS
from tests.report.test_ucurve_page import ONE, OTHER

from joulewise.report.ucurve_page import render_ucurves

pytestmark = pytest.mark.integration


def opened(page: str, folder: Path) -> tuple[str, list[str]]:
    """The page's DOM after its scripts ran, and what the console said."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("chromium not found; on Debian: apt-get install chromium")
    path = folder / "curves.html"
    path.write_text(page, encoding="utf-8")
    done = subprocess.run(
        [chromium, *FLAGS, f"--user-data-dir={folder / 'profile'}", path.as_uri()],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.parametrize("count", [1, 2], ids=["one job", "two jobs"])
def test_the_figures_are_drawn_without_a_word_on_the_console(tmp_path: Path, count: int) -> None:
    dom, console = opened(render_ucurves([ONE, OTHER][:count], ()), tmp_path)

    assert [] == console
    assert 'data-figures="drawn"' in dom
    assert count == dom.count('<g class="cartesianlayer">')


def test_the_job_that_is_chosen_is_drawn(tmp_path: Path) -> None:
    page = render_ucurves([ONE, OTHER], ())
    unguarded = re.sub(r"<meta http-equiv[^>]*>", "", page)
    choosing = (
        "<script>setTimeout(() => {"
        "const choice = document.getElementById('job-choice');"
        "choice.value = '1';"
        "choice.dispatchEvent(new Event('change'));"
        "}, 3000);"
        "setTimeout(() => {"
        "document.title = document.getElementById('curve-plot').data"
        ".find((one) => one.name === 'energy per step').y[0];"
        "}, 5000);</script></body>"
    )
    dom, _ = opened(unguarded.replace("</body>", choosing), tmp_path)

    assert "<title>70</title>" in dom
