"""From columns of text to checked numbers; what is wrong is said with its row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from joulewise.domain.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Which numbers a column may hold, ends included, and what helps where it does not."""

    bounds: tuple[float, float]
    hint: str
    is_whole: bool = False

    def allows(self, value: float) -> bool:
        """Whether a number may stand here; NaN may not."""
        lowest, highest = self.bounds
        return lowest <= value <= highest and not (self.is_whole and value != math.floor(value))


# Wide enough for anything measured, narrow enough that sums and ratios stay finite.
POSITIVE = Rule(bounds=(1e-15, 1e15), hint="Leave out rows that were not measured.")
SCATTER = Rule(bounds=(0.0, 1e15), hint="Leave the column out where no scatter is known.")
COUNT = Rule(
    bounds=(1.0, 1e15), is_whole=True, hint="Leave the column out where windows were not counted."
)
CLOCK = Rule(
    bounds=(1.0, 100_000.0), is_whole=True, hint="Write whole MHz, or leave it empty for auto."
)
POWER_LIMIT = Rule(bounds=(1e-3, 1e6), hint="Write watts, or leave it empty for auto.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """Where a column stands: file and column name, for messages."""

    file: str
    name: str


def numbers(texts: Sequence[str], rule: Rule, field: Field) -> list[float]:
    """Every entry as a number within the rule.

    Raises:
        InputError: an entry is empty, not a plain number, not finite or outside the rule.
    """
    try:
        values = [float(text) for text in texts]
    except ValueError:
        values = [_number(text, row, rule, field) for row, text in enumerate(texts, start=1)]
    if any("_" in text for text in texts):  # float() takes 1_000, CSV does not
        row = next(row for row, text in enumerate(texts, start=1) if "_" in text)
        raise _not_a_number(texts[row - 1], row, rule, field)
    check(values, texts, rule, field)
    return values


def check(values: Sequence[float], texts: Sequence[str], rule: Rule, field: Field) -> None:
    """Hold values against a rule; `texts` is how they stand in the file.

    Raises:
        InputError: a value is outside.
    """
    for row, value in enumerate(values, start=1):
        if not rule.allows(value):
            raise _outside(value, texts[row - 1], rule, field, row)


def numbers_or_auto(texts: Sequence[str], rule: Rule, field: Field) -> list[float | None]:
    """Every entry as a number within the rule, or `None` where it is empty or `auto`.

    Raises:
        InputError: an entry is neither.
    """
    known: dict[str, float | None] = {"": None, "auto": None}
    values: list[float | None] = []
    for row, text in enumerate(texts, start=1):
        if text not in known:
            plain = text.strip().lower()
            known[text] = known[plain] if plain in known else _checked(text, row, rule, field)
        values.append(known[text])
    return values


def all_or_none(texts: Sequence[str], field: Field) -> bool:
    """Whether an optional column is filled.

    Raises:
        InputError: it is filled in some rows only.
    """
    empty_rows = [row for row, text in enumerate(texts, start=1) if not text.strip()]
    if len(empty_rows) == len(texts):
        return False
    if empty_rows:
        raise InputError(
            "the field is empty here but filled in other rows",
            file=field.file,
            row=empty_rows[0],
            field=field.name,
            hint="Fill it in every row or leave the column out.",
        )
    return True


def names(texts: Sequence[str], field: Field) -> list[str]:
    """Every entry as a name.

    Raises:
        InputError: an entry is empty or holds control characters or halves of characters.
    """
    for text in dict.fromkeys(texts):
        if not text.strip():
            raise _at(texts, text, "the name is empty", field)
        if any(ord(character) < ord(" ") or ord(character) == 127 for character in text):  # noqa: PLR2004 - DEL
            raise _at(texts, text, f"the name {text!r} holds a control character", field)
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise _at(texts, text, f"the name {text!r} is not Unicode text", field)
    return list(texts)


def _at(texts: Sequence[str], text: str, message: str, field: Field) -> InputError:
    row = list(texts).index(text) + 1
    return InputError(
        message,
        file=field.file,
        row=row,
        field=field.name,
        hint="Give every row a name of letters, digits and signs.",
    )


def _checked(text: str, row: int, rule: Rule, field: Field) -> float:
    value = _number(text, row, rule, field)
    if not rule.bounds[0] <= value <= rule.bounds[1] or (
        rule.is_whole and value != math.floor(value)
    ):
        raise _outside(value, text, rule, field, row)
    return value


def _number(text: str, row: int, rule: Rule, field: Field) -> float:
    try:
        value = float(text)
    except ValueError:
        raise _not_a_number(text, row, rule, field) from None
    if "_" in text:
        raise _not_a_number(text, row, rule, field)
    if not math.isfinite(value):
        raise _outside(value, text, rule, field, row)
    return value


def _not_a_number(text: str, row: int, rule: Rule, field: Field) -> InputError:
    if not text.strip():
        return InputError(
            "the field is empty", file=field.file, row=row, field=field.name, hint=rule.hint
        )
    return InputError(
        f"{_shown(text)} is not a number",
        file=field.file,
        row=row,
        field=field.name,
        hint="Write plain numbers with a decimal point and no unit.",
    )


def _outside(value: float, text: str, rule: Rule, field: Field, row: int) -> InputError:
    if math.isnan(value):
        message = "NaN is not a measurement"
    elif math.isinf(value):
        message = f"{_shown(text)} is not a finite number"
    elif value < 0 or (value == 0 and rule.bounds[0] > 0):
        bound = "positive" if rule.bounds[0] > 0 else "zero or more"
        message = f"{_shown(text)} must be {bound}"
    elif rule.is_whole and value != math.floor(value):
        message = f"{_shown(text)} must be a whole number"
    else:
        message = f"{_shown(text)} is beyond what can be measured; is the unit right?"
    return InputError(
        message,
        file=field.file,
        row=row,
        field=field.name,
        hint=rule.hint,
    )


def _shown(text: str) -> str:
    """The text as a reader can find it, but never a page of it."""
    longest = 40
    stripped = text.strip()
    return repr(stripped if len(stripped) <= longest else stripped[:longest] + "…")
