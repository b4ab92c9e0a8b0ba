"""Every code block in the README and in the docs runs, in order, in one folder per page.

* `console`, `bash`, `sh`: lines after `$` are run, in console blocks the lines below a command
  are what it prints (`...` stands for anything); `make` is only checked to know its target,
  but for `make fake-nvml`. `export NAME=VALUE` holds for the rest of the page.
* `python`: doctest. `json`: a workload file where it holds launches. `csv`: a sweep. `toml`: a
  policy file of joulewised.
* a `code-block` with a caption is a file that the reader saves; `text` is a picture.
"""

from __future__ import annotations

import doctest
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from joulewise.control.daemon.policy import read_policy
from joulewise.store.documents import read_workload
from joulewise.store.sweeps import read_sweep

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = (
    REPOSITORY / "README.md",
    REPOSITORY / "CONTRIBUTING.md",
    *sorted(page for page in (REPOSITORY / "docs").rglob("*.md") if "_build" not in page.parts),
)
SHELLS = frozenset({"console", "bash", "sh", "shell"})
FOR_PEOPLE_ONLY = ("git ", "cd ", "python3 -m venv", "pip install", "apt-get ", ".ci/run")
_FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)
_CAPTION = re.compile(r"\A(?::[\w-]+:[^\n]*\n)*?:caption: ([^\n]+)\n")
_OPTIONS = re.compile(r"\A(?::[\w-]+:[^\n]*\n)+\n?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block; `file` is the name under which the reader saves it."""

    language: str
    text: str
    file: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One line after a prompt, and what the page says it prints."""

    line: str
    printed: str


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of a page in order; pages of others than `code-block` directives are prose."""
    for match in _FENCE.finditer(page.read_text(encoding="utf-8")):
        info, text = match[1].strip(), match[2]
        if not info.startswith("{"):
            yield Block(language=info, text=text, file=None)
        elif info.startswith("{code-block}"):
            caption = _CAPTION.match(text)
            yield Block(
                language=info.removeprefix("{code-block}").strip(),
                text=_OPTIONS.sub("", text),
                file=caption[1] if caption else None,
            )


def commands(block: Block) -> Iterator[Command]:
    """The commands of a shell block."""
    lines = block.text.replace("\\\n", " ").splitlines()
    if not any(line.startswith("$ ") for line in lines):
        lines = [f"$ {line}" for line in lines if line.strip() and not line.startswith("#")]
    for number, line in enumerate(lines):
        if line.startswith("$ "):
            after = lines[number + 1 :]
            prompts = [index for index, text in enumerate(after) if text.startswith("$ ")]
            printed = after[: prompts[0]] if prompts else after
            yield Command(line=line[2:].split(" # ")[0].strip(), printed="\n".join(printed))


def exported(line: str, folder: Path) -> dict[str, str]:
    """What an `export` line sets; the reader stands in the repository, the test does not."""
    pairs = (word.partition("=") for word in shlex.split(line.removeprefix("export ")))
    named = {name: value.replace("$PWD", str(REPOSITORY)) for name, _, value in pairs}
    return {"FAKE_NVML_STATE": str(folder / "fake-nvml.state"), **named}


def _run(command: Command, folder: Path, environment: Mapping[str, str] | None = None) -> None:
    if command.line.startswith(FOR_PEOPLE_ONLY):
        return
    if command.line.startswith("make "):
        makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
        for target in re.findall(r"^make ([\w -]+)", command.line)[0].split():
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), command.line
        return
    program, *arguments = shlex.split(command.line)
    assert program == "joulewise", f"a command that this test does not know: {command.line}"
    done = subprocess.run(
        [sys.executable, "-m", "joulewise", *arguments],
        cwd=folder,
        env={
            **os.environ,
            "COLUMNS": "100",
            "JOULEWISE_STATE_DIR": str(folder / "state"),
            "JOULEWISE_SOCKET": "off",
            **(environment or {}),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command.line}\n{done.stdout}\n{done.stderr}"
    if "--json" in arguments:
        json.loads(done.stdout)
    if command.printed.strip():
        options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        assert doctest.OutputChecker().check_output(command.printed, done.stdout, options), (
            f"{command.line} prints\n{done.stdout}"
        )


def _run_shell(block: Block, folder: Path, environment: dict[str, str]) -> None:
    """Run its commands; what one exports stays in `environment` for the rest of the page."""
    for command in commands(block):
        if command.line.startswith("export "):
            environment |= exported(command.line, folder)
        else:
            _run(command, folder, environment)


def _run_python(text: str, folder: Path) -> None:
    test = doctest.DocTestParser().get_doctest(text, {}, "block", None, 0)
    assert test.examples, f"a python block without >>> cannot fail:\n{text}"
    before = Path.cwd()
    os.chdir(folder)
    try:
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        report: list[str] = []
        failed_count = runner.run(test, out=report.append).failed
    finally:
        os.chdir(before)
    assert failed_count == 0, "".join(report)


def _read(block: Block, folder: Path) -> None:
    """A file that the page shows must be one that the tool reads."""
    path = folder / f"block.{block.language}"
    path.write_text(block.text, encoding="utf-8")
    if block.language == "csv":
        assert read_sweep(path).kernels
    elif block.language == "toml":
        path.chmod(0o644)
        assert read_policy(path).rules
    elif "launches" in json.loads(block.text):
        assert read_workload(path).launches


def _pages() -> Iterator[ParameterSet]:
    for page in PAGES:
        yield pytest.param(page, id=str(page.relative_to(REPOSITORY)))


# The pages start the tool hundreds of times.
@pytest.mark.integration
@pytest.mark.parametrize("page", tuple(_pages()))
def test_every_code_block_runs(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    environment: dict[str, str] = {}
    # The reader stands in the repository, where the examples are.
    (tmp_path / "docs").symlink_to(REPOSITORY / "docs")
    for block in blocks(page):
        if block.file is not None:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
        elif block.language in SHELLS:
            if "make fake-nvml" in block.text:
                request.getfixturevalue("fake_library")
            _run_shell(block, tmp_path, environment)
        elif block.language == "python":
            _run_python(block.text, tmp_path)
        elif block.language in {"json", "csv", "toml"}:
            _read(block, tmp_path)
        else:
            assert block.language == "text", f"a block in {block.language!r} is not run"


def test_blocks_are_found_with_their_files_and_commands(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```console\n$ joulewise devices\nvirtual...\n$ make demo  # minutes\n```\n"
        "```{code-block} text\n:caption: a.csv\n\nkernel\n```\n"
        "```{toctree}\nindex\n```\n",
        encoding="utf-8",
    )
    shell, file = blocks(page)
    assert list(commands(shell)) == [
        Command(line="joulewise devices", printed="virtual..."),
        Command(line="make demo", printed=""),
    ]
    assert file == Block(language="text", text="kernel\n", file="a.csv")


def test_an_export_is_read_as_from_the_repository(tmp_path: Path) -> None:
    said = exported("export LD_LIBRARY_PATH=$PWD/build/fake-nvml FAKE_NVML_TIME=virtual", tmp_path)

    assert str(REPOSITORY / "build" / "fake-nvml") == said["LD_LIBRARY_PATH"]
    assert "virtual" == said["FAKE_NVML_TIME"]


def test_a_wrong_block_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="does not know: rm"):
        _run(Command(line="rm -r .", printed=""), tmp_path)
    with pytest.raises(AssertionError, match="cannot fail"):
        _run_python("x = 1\n", tmp_path)
    with pytest.raises(AssertionError, match="Expected"):
        _run_python(">>> 1 + 1\n3\n", tmp_path)
    with pytest.raises(AssertionError, match="prints"):
        _run(Command(line="joulewise --version", printed="something else"), tmp_path)
    with pytest.raises(AssertionError, match="no-such-command"):
        _run(Command(line="joulewise no-such-command", printed=""), tmp_path)
