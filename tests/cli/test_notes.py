"""What an error left behind is shown with it, however the command ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from joulewise.cli.app import app
from joulewise.cli.options import AsJson
from joulewise.domain.errors import DeviceError
from tests.cli.conftest import Joulewise
from tests.cli.test_json_schema import assert_obeys

NOTES = ["The clocks could not be given back.", "SM clock of a GPU may still be set."]
SIGTERM_EXIT_CODE = 143

Ending = Callable[[BaseException], None]


@pytest.fixture
def ending() -> Iterator[Ending]:
    """Makes `fly`, a command that ends with an error and its notes."""
    registered = list(app.registered_commands)

    def make(error: BaseException) -> None:
        for note in NOTES:
            error.add_note(note)

        def end(*, as_json: AsJson = False) -> None:  # noqa: ARG001 - read from the arguments
            raise error

        app.registered_commands[:] = []
        app.command("fly")(end)
        app.command("measure")(end)

    yield make
    app.registered_commands[:] = registered


@pytest.mark.parametrize(
    "error", [DeviceError("lost"), KeyboardInterrupt(), SystemExit(SIGTERM_EXIT_CODE)]
)
def test_notes_are_shown_as_text_and_as_json(
    joulewise: Joulewise, ending: Ending, error: BaseException
) -> None:
    ending(error)

    said, document = joulewise("fly"), joulewise("fly", "--json").document

    assert (1, "") == (said.code, said.out)
    assert [f"note: {note}" for note in NOTES] == said.err.splitlines()[-2:]
    assert_obeys(document, "CommandError")
    assert NOTES == document["notes"]


def test_an_error_that_left_nothing_has_no_notes(joulewise: Joulewise) -> None:
    said, document = joulewise("plan", "no.csv"), joulewise("plan", "no.csv", "--json").document

    assert "note:" not in said.err
    assert [] == document["notes"]


@pytest.mark.parametrize(
    ("command", "message", "hint"),
    [
        (
            "measure",
            "stopped; what was measured so far is kept",
            "Give the same command again with --resume to go on.",
        ),
        ("fly", "stopped", None),
    ],
)
def test_only_a_command_that_can_go_on_says_so_when_it_is_stopped(
    joulewise: Joulewise, ending: Ending, command: str, message: str, hint: str | None
) -> None:
    ending(KeyboardInterrupt())

    document = joulewise(command, "--json").document

    assert (message, hint) == (document["message"], document["hint"])
