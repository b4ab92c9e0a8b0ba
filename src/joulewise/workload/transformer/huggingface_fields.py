"""Fields of a Hugging Face `config.json`, each checked as it is taken."""

from __future__ import annotations

import math
from collections.abc import Mapping

from joulewise.domain.errors import InputError

# Ten times and more beyond any published model; what is larger is a slip of the pen.
MOST_LAYER_COUNT = 10_000
MOST_WIDTH_COUNT = 2**20
MOST_VOCABULARY_COUNT = 2**26
MOST_TOKEN_COUNT = 2**30

_SHOWN_COUNT = 40


class ConfigFields:
    """The fields of one object of a config, with the file and the path that errors name."""

    def __init__(self, values: Mapping[str, object], *, file: str, path: str = "") -> None:
        """Look at `values`; `path` is that of the object within the file, with a full stop."""
        self._values = values
        self._path = path
        self.file = file

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self._values.get(name) is not None

    def inner(self, name: str) -> ConfigFields | None:
        """The fields of an object within this one; `None` where it is absent or no object."""
        value = self._values.get(name)
        if not isinstance(value, Mapping):
            return None
        return ConfigFields(value, file=self.file, path=f"{self._path}{name}.")

    def whole(self, name: str, *, most: int, least: int = 1, default: int | None = None) -> int:
        """A whole number between bounds; `default` where the field is absent or null.

        Raises:
            InputError: it is absent and has no default, is no whole number, or out of bounds.
        """
        value = self._present(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(name, f"this must be a whole number, not {_shown(value)}")
        if not least <= value <= most:
            raise self.error(
                name,
                f"this must be between {least:,} and {most:,}, not {_shown(value)}",
                hint="Check its digits.",
            )
        return value

    def ratio(self, name: str, *, default: float) -> float:
        """A number above 0 and up to 1; `default` where the field is absent or null.

        Raises:
            InputError: it is no number, or out of bounds.
        """
        value = self._present(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(name, f"this must be a number, not {_shown(value)}")
        if not (math.isfinite(value) and 0 < value <= 1):
            raise self.error(name, f"this must be above 0 and at most 1, not {_shown(value)}")
        return float(value)

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false; `default` where the field is absent or null.

        Raises:
            InputError: it is neither.
        """
        value = self._present(name, default)
        if not isinstance(value, bool):
            raise self.error(name, f"this must be true or false, not {_shown(value)}")
        return value

    def text(self, name: str, *, default: str | None = None) -> str:
        """A text; `default` where the field is absent or null.

        Raises:
            InputError: it is absent and has no default, or is no text.
        """
        value = self._present(name, default)
        if not isinstance(value, str):
            raise self.error(name, f"this must be a text, not {_shown(value)}")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts; empty where the field is absent or null.

        Raises:
            InputError: it is no list, or something in it is no text.
        """
        value = self._present(name, ())
        if not isinstance(value, list | tuple):
            raise self.error(name, f"this must be a list of texts, not {_shown(value)}")
        return tuple(self._text_of(name, item) for item in value)

    def required(self, name: str, wanted: object, *, default: object, why: str) -> None:
        """Refuse any other value of the field than the one that the builder can express.

        Raises:
            InputError: says why only `wanted` will do.
        """
        value = self._present(name, default)
        if type(value) is not type(wanted) or value != wanted:
            raise self.error(
                name, f"only {_shown(wanted)} can be built, not {_shown(value)}: {why}"
            )

    def error(self, name: str, message: str, *, hint: str | None = None) -> InputError:
        """What is wrong with a field of this object."""
        return InputError(
            message,
            file=self.file,
            field=f"{self._path}{name}",
            hint=hint or "Take config.json as the model's authors publish it.",
        )

    def _present(self, name: str, default: object) -> object:
        value = self._values.get(name)
        if value is not None:
            return value
        if default is None:
            raise self.error(name, "the field is missing")
        return default

    def _text_of(self, name: str, value: object) -> str:
        if not isinstance(value, str):
            raise self.error(name, f"this must hold texts alone, not {_shown(value)}")
        return value


def _shown(value: object) -> str:
    """A value as its file has it, cut where it is long."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list" if value else "an empty list"
    if isinstance(value, int) and abs(value) >= 10**_SHOWN_COUNT:
        return "a number of more than 40 digits"
    text = f"{value!r}" if isinstance(value, str) else f"{value}"
    return text if len(text) <= _SHOWN_COUNT else f"{text[:_SHOWN_COUNT]}…"
