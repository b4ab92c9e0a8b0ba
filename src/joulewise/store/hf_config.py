"""Hugging Face's `config.json`: one JSON object, or the folder of a model that holds it."""

from __future__ import annotations

from pathlib import Path

from joulewise.domain.errors import InputError
from joulewise.store.files import file_error, refuse_pipe
from joulewise.store.json_files import decode_document, refuse_second_keys

# Published configs take some kilobytes; label lists of classifiers some hundred.
MOST_CONFIG_BYTES_COUNT = 16 * 2**20
_FILE_NAME = "config.json"
_HINT = "Take config.json as the model's authors publish it."


def read_hf_config(path: Path) -> dict[str, object]:
    """The object in a `config.json`; `path` is the file or the folder that holds it.

    Raises:
        InputError: it is missing, a pipe or not readable, larger than 16 MiB, not JSON, no object,
            nested too deeply, or gives one field twice.
    """
    raw, file = _read(path)
    config = decode_document(raw, dict[str, object], file)
    try:
        refuse_second_keys(raw, file)
    except RecursionError as error:
        raise InputError("the JSON is nested too deeply", file=file, hint=_HINT) from error
    except ValueError as error:
        raise InputError(f"the JSON cannot be read: {error}", file=file, hint=_HINT) from error
    return config


def _read(path: Path) -> tuple[bytes, str]:
    """The content of the config, and which file that was."""
    try:
        if path.is_dir():
            path = path / _FILE_NAME
        refuse_pipe(path)
        with path.open("rb") as file:
            raw = file.read(MOST_CONFIG_BYTES_COUNT + 1)
    except (OSError, ValueError) as error:
        raise file_error(error, path, doing="read") from error
    if len(raw) > MOST_CONFIG_BYTES_COUNT:
        raise InputError(
            f"the file is larger than {MOST_CONFIG_BYTES_COUNT // 2**20} MiB, which no config is",
            file=str(path),
            hint=f"Name the model's {_FILE_NAME}, not its weights.",
        )
    return raw, str(path)
