"""Cache files of Kernel Tuner, closed or as a killed run leaves them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from joulewise.domain.errors import InputError
from joulewise.domain.sweep import Sweep, SweepSource
from joulewise.store.columns import CLOCK, POSITIVE, POWER_LIMIT, Field, Rule, names
from joulewise.store.files import decode_text, read_bytes
from joulewise.store.importers.csv_tables import whole_clocks
from joulewise.store.importers.repeats import merge_repeats
from joulewise.store.sweep_rows import Cell, SweepRows, operating_points, sweep_from_rows

_KNOBS = ("nvml_gr_clock", "nvml_mem_clock", "nvml_pwr_limit")
_ENERGIES_J = ("nvml_energy", "ps_energy")
_POWERS_W = ("nvml_power", "ps_power")
# Old caches mark a configuration that failed by a time no kernel takes.
_FAILED_MS = 1e15
_UNROUNDED_CLOCK = Rule(bounds=CLOCK.bounds, hint=CLOCK.hint)
_MS_PER_S = 1e3
_MEND = "Delete the entry from the cache, or tune again."

Entry = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cache:
    file: str
    device_name: str
    kernel_name: str
    tunables: tuple[str, ...]
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    cell: Cell
    time_s: float
    energy_j: float


def import_kernel_tuner(paths: Sequence[Path]) -> Sweep:
    """Read Kernel Tuner caches of one device, `nvml_*` tunables being the knobs.

    A kernel is `kernel_name[tunable=value,...]` over the tunables that are no knobs; knobs are
    `nvml_gr_clock` and `nvml_mem_clock` (MHz) and `nvml_pwr_limit` (W). Time is `time` (ms);
    energy `nvml_energy` or `ps_energy` (J), else `nvml_power` or `ps_power` (W) x time.
    Configurations that failed to compile or run are left out, and so is a last entry that was
    cut off. A cell that stands in several caches gives medians.

    Raises:
        InputError: anything wrong with a file (`row` counts cache entries), or caches of
            several devices.
    """
    if not paths:
        raise InputError("no Kernel Tuner cache is named", hint="Name one or more files.")
    caches = [_read(path) for path in paths]
    first = caches[0]
    for cache in caches[1:]:
        if cache.device_name != first.device_name:
            raise InputError(
                f"the cache is of {cache.device_name!r}, that of {first.file} is of "
                f"{first.device_name!r}",
                file=cache.file,
                field="device_name",
                hint="Import each device into a sweep of its own.",
            )
    measured = [item for cache in caches for item in _measured(cache)]
    if not measured:
        raise InputError(
            "no configuration in the cache was measured", file=first.file, hint="Tune again."
        )
    names([item.cell[0] for item in measured], Field(file=first.file, name="kernel_name"))
    rows = SweepRows(
        file=first.file,
        cells=[item.cell for item in measured],
        time_s=[item.time_s for item in measured],
        energy_j=[item.energy_j for item in measured],
    )
    source = SweepSource(
        device="kernel-tuner",
        device_name=first.device_name,
        tool="joulewise import kernel-tuner",
    )
    return sweep_from_rows(merge_repeats(rows), source)


def _measured(cache: _Cache) -> Iterator[_Measured]:
    for row, entry in enumerate(cache.entries, start=1):
        time = entry.get("time")
        if _has_failed(time):
            continue
        time_s = _number(cache, row, entry, "time", POSITIVE) / _MS_PER_S
        knobs = (
            whole_clocks([_knob(cache, row, entry, "nvml_gr_clock", _UNROUNDED_CLOCK)]),
            whole_clocks([_knob(cache, row, entry, "nvml_mem_clock", _UNROUNDED_CLOCK)]),
            [_knob(cache, row, entry, "nvml_pwr_limit", POWER_LIMIT)],
        )
        (point,) = operating_points(*knobs)
        yield _Measured(
            cell=(_kernel(cache, entry), point),
            time_s=time_s,
            energy_j=_energy_j(cache, row, entry, time_s),
        )


def _has_failed(time: object) -> bool:
    """A failure is a name ("InvalidConfig"), a record of the error, or an absurd number."""
    if isinstance(time, str | Mapping):
        return True
    return isinstance(time, float | int) and not time < _FAILED_MS


def _kernel(cache: _Cache, entry: Entry) -> str:
    settings = [f"{name}={entry.get(name)}" for name in cache.tunables if name not in _KNOBS]
    return f"{cache.kernel_name}[{','.join(settings)}]" if settings else cache.kernel_name


def _energy_j(cache: _Cache, row: int, entry: Entry, time_s: float) -> float:
    for name in _ENERGIES_J:
        if name in entry:
            return _number(cache, row, entry, name, POSITIVE)
    for name in _POWERS_W:
        if name in entry:
            return _number(cache, row, entry, name, POSITIVE) * time_s
    raise InputError(
        "the entry has neither energy nor power",
        file=cache.file,
        row=row,
        hint=f"Tune with an observer that gives {_ENERGIES_J[0]} or {_POWERS_W[0]}.",
    )


def _knob(cache: _Cache, row: int, entry: Entry, name: str, rule: Rule) -> float | None:
    return _number(cache, row, entry, name, rule) if name in cache.tunables else None


def _number(cache: _Cache, row: int, entry: Entry, name: str, rule: Rule) -> float:
    value = entry.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        problem = "the field is missing" if value is None else f"{value!r:.40} is not a number"
        raise InputError(problem, file=cache.file, row=row, field=name, hint=_MEND)
    if not rule.allows(value):
        raise InputError(
            f"{value!r:.40} is not a possible {name}",
            file=cache.file,
            row=row,
            field=name,
            hint=_MEND,
        )
    return float(value)


def _read(path: Path) -> _Cache:
    file = str(path)
    text = decode_text(read_bytes(path), file).strip()
    if not text:
        raise InputError("the file is empty", file=file, hint="Tune again.")
    content = _parsed(text, file)
    if not isinstance(content, Mapping):
        raise _not_a_cache(file, "cache")
    entries = content.get("cache")
    tunables = content.get("tune_params_keys")
    if not isinstance(entries, Mapping) or not all(
        isinstance(entry, Mapping) for entry in entries.values()
    ):
        raise _not_a_cache(file, "cache")
    if not isinstance(tunables, list) or not all(isinstance(name, str) for name in tunables):
        raise _not_a_cache(file, "tune_params_keys")
    if not set(_KNOBS) & set(tunables):
        raise InputError(
            "the cache was not tuned over clocks or power limits",
            file=file,
            field="tune_params_keys",
            hint=f"Tune over one of {', '.join(_KNOBS)}.",
        )
    device_name = str(content.get("device_name", "not named in the cache"))
    names([device_name], Field(file=file, name="device_name"))
    return _Cache(
        file=file,
        device_name=device_name,
        kernel_name=str(content.get("kernel_name", "kernel")),
        tunables=tuple(tunables),
        entries=tuple(entries.values()),
    )


def _not_a_cache(file: str, field: str) -> InputError:
    return InputError(
        "the file is not a Kernel Tuner cache",
        file=file,
        field=field,
        hint="Give the file that tune_kernel(cache=...) wrote.",
    )


def _parsed(text: str, file: str) -> object:
    """Parse as it is; else closed as the tool does it; else without a last torn entry."""
    whole_lines = text[: text.rfind("\n")] if "\n" in text else text
    attempts = (text, _closed(text), _closed(whole_lines))
    failures = []
    for attempt in attempts:
        try:
            return json.loads(attempt)
        except (ValueError, RecursionError) as error:  # also numbers of thousands of digits
            failures.append(error)
    line = getattr(failures[0], "lineno", None)
    raise InputError(
        "the line is not JSON",
        file=file,
        row=line,
        hint="Give the file that tune_kernel(cache=...) wrote.",
    ) from failures[0]


def _closed(text: str) -> str:
    return f"{text.rstrip().rstrip(',')}}}}}"
