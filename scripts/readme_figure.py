"""Make the README's figure from the report of a run: `readme_figure.py RUN_DIR [OUT.png]`.

The page is opened in headless chromium with all but its first figure hidden, and photographed.
"""  # noqa: INP001 - a script, not a package

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

DEFAULT_OUT = Path(__file__).resolve().parents[1] / "docs" / "images" / "frontier.png"
WIDTH_PX, HEIGHT_PX = 1000, 596
ONLY_THE_FIGURE = """<style>
main { padding: 16px 24px; }
.kicker, h1, h2, .note, section:not(#frontier) { display: none; }
#frontier { margin-top: 12px; }
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
    f"--window-size={WIDTH_PX},{HEIGHT_PX}",
)


def photograph(report: Path, out: Path) -> None:
    """Write `out` from `report`. Raises SystemExit with one sentence where that fails."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        raise SystemExit("chromium not found; on Debian: apt-get install chromium")
    if not report.is_file():
        raise SystemExit(f"{report}: no such report; make one with `joulewise tune --out DIR`")
    page = report.read_text(encoding="utf-8").replace("</head>", f"{ONLY_THE_FIGURE}</head>", 1)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        trimmed = Path(folder) / "figure.html"
        trimmed.write_text(page, encoding="utf-8")
        subprocess.run(  # noqa: S603 - our own page in the browser found above
            [
                browser,
                *FLAGS,
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
    """Take the run folder and, where given, the path of the picture."""
    if not arguments:
        raise SystemExit("usage: readme_figure.py RUN_DIR [OUT.png]")
    run, *rest = (Path(argument) for argument in arguments)
    photograph(run / "report.html", rest[0] if rest else DEFAULT_OUT)


if __name__ == "__main__":
    main(sys.argv[1:])
