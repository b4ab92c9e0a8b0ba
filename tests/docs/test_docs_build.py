from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A built site and what building it said."""

    folder: Path
    said: str
    exit_code: int


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """The site, built as `make docs` does."""
    pytest.importorskip("furo", reason="the docs extra is not installed")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-n", "-W", "--keep-going", "-q", DOCS, folder],
        capture_output=True,
        text=True,
        check=False,
    )
    return Site(folder=folder, said=done.stderr, exit_code=done.returncode)


def test_the_site_builds_without_a_warning(site: Site) -> None:
    assert site.said == ""
    assert site.exit_code == 0
    assert (site.folder / "index.html").is_file()


def test_the_built_site_loads_nothing_from_elsewhere(site: Site) -> None:
    loaded = re.compile(r"<(?:script|link|img)[^>]*(?:src|href)=\"https?://", re.IGNORECASE)
    pages = list(site.folder.rglob("*.html"))
    assert pages
    assert [page.name for page in pages if loaded.search(page.read_text(encoding="utf-8"))] == []
