"""Make the README's figures: `readme_figure.py RUN_DIR|TRANSITION_COST.html [OUT.png]`.

The report of a run or of a pipeline, or the page of `joulewise transition-cost`, is opened in
headless chromium with all but its first figure hidden, and photographed.
"""  # noqa: INP001 - a script, not a package

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
WIDTH_PX = 1000
# By section of the page: the picture's name and height.
PICTURES = {
    "frontier": ("frontier.png", 596),
    "cost": ("transition-cost.png", 716),
    "gantt": ("pipeline.png", 620),
}
ONLY_THE_FIGURE = """<style>
main {{ padding: 16px 24px; }}
.kicker, h1, h2, .note, details, section:not(#{section}) {{ display: none; }}
#{section} {{ margin-top: 12px; }}
</style>"""
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--hide-scrollbars",
    "--force-device-scale-factor=2",
    "--blink-settings=preferredColorScheme=1",
    "--virtual-time-budget=8000",
)


def photograph(report: Path, section: str, out: Path) -> None:
    """Write `out` from one section of a page. Raises SystemExit where that fails."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        raise SystemExit("chromium not found; on Debian: apt-get install chromium")
    if not report.is_file():
        command = "tune --out DIR" if section == "frontier" else "transition-cost --out FILE"
        raise SystemExit(f"{report}: no such report; make one with `joulewise {command}`")
    style = ONLY_THE_FIGURE.format(section=section)
    page = report.read_text(encoding="utf-8").replace("</head>", f"{style}</head>", 1)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        trimmed = Path(folder) / "figure.html"
        trimmed.write_text(page, encoding="utf-8")
        subprocess.run(  # noqa: S603 - our own page in the browser found above
            [
                browser,
                *FLAGS,
                f"--window-size={WIDTH_PX},{PICTURES[section][1]}",
                f"--user-data-dir={folder}/profile",
                f"--screenshot={out.resolve()}",
                trimmed.as_uri(),
            ],
            check=True,
            capture_output=True,
            timeout=120,
        )
    if not out.is_file():
        raise SystemExit(f"{out}: chromium wrote nothing")


def main(arguments: list[str]) -> None:
    """Take the run folder or the page and, where given, the path of the picture."""
    if not arguments:
        raise SystemExit("usage: readme_figure.py RUN_DIR|TRANSITION_COST.html [OUT.png]")
    place, *rest = (Path(argument) for argument in arguments)
    section = "cost" if place.suffix == ".html" else "frontier"
    if (place / "pipeline.json").exists():
        section = "gantt"
    report = place if section == "cost" else place / "report.html"
    photograph(report, section, rest[0] if rest else IMAGES / PICTURES[section][0])


if __name__ == "__main__":
    main(sys.argv[1:])
