"""Closed, full and narrow-minded streams, and text that would steer a terminal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from joulewise.cli.render import print_caveats, say, table
from joulewise.domain.caveats import Caveat, CaveatKind
from tests.cli.conftest import SWEEP_CSV

JOULEWISE = (sys.executable, "-m", "joulewise")
unix_only = pytest.mark.skipif(os.name != "posix", reason="a matter of Unix")


def test_what_would_steer_a_terminal_is_shown_as_text() -> None:
    console = Console(file=StringIO(), width=100)
    hostile = "\x1b[31m[red]x[/red]\r\u202e"

    print_caveats(console, [Caveat(kind=CaveatKind.POWER_CAPPED, seen=hostile)])
    say(console, hostile)
    console.print(table(None, ("kernel",), [(hostile,)]))

    assert isinstance(console.file, StringIO)
    text = console.file.getvalue()
    shown = "\\x1b[31m[red]x[/red]\\r\\u202e"
    assert (3, False) == (text.count(shown), any(letter in text for letter in "\x1b\r\u202e"))


def spawn(*arguments: str, redirect: str = "", encoding: str = "utf-8") -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command that a shell starts."""
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {redirect}', "sh", *JOULEWISE, *arguments],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": encoding},
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@unix_only
@pytest.mark.parametrize(
    ("redirect", "arguments", "expected"),
    [
        (">&-", ("devices",), 0),
        (">&- 2>&-", ("plan", "none.csv"), 1),
        (">/dev/full", ("devices", "--json"), 1),
    ],
)
def test_a_stream_that_takes_nothing_is_no_accident(
    redirect: str, arguments: tuple[str, ...], expected: int
) -> None:
    if "/dev/full" in redirect and not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    code, out, err = spawn(*arguments, redirect=redirect)

    assert (expected, "") == (code, out)
    assert "Traceback" not in err
    assert "Exception" not in err


@unix_only
@unix_only
def test_a_reader_who_goes_away_hears_no_error() -> None:
    _, out, err = spawn("devices", redirect="| true")

    assert ("", "") == (out, err)


def test_a_terminal_without_our_letters_gets_escapes(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(SWEEP_CSV.replace("a,", "\N{MICRO SIGN}\N{CHECK MARK},"), encoding="utf-8")

    code, out, _ = spawn("plan", str(path), "--json", encoding="ascii")
    missing = spawn("plan", "\N{CHECK MARK}.csv", encoding="ascii")

    assert (0, True) == (code, out.isascii())
    assert "\N{MICRO SIGN}\N{CHECK MARK}" == json.loads(out)["points"][0]["kernel"]
    assert (1, "", True) == (missing[0], missing[1], missing[2].startswith("error: \\u2713.csv"))
