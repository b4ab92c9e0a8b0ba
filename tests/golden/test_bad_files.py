"""What people read when a file is wrong: one sentence with file, row and field, and a hint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from joulewise.domain.errors import InputError
from joulewise.store.documents import read_plan, read_workload
from joulewise.store.importers import import_csv, import_kernel_tuner, import_perseus
from joulewise.store.sweeps import read_sweep

HEADER = "kernel,sm_clock_mhz,mem_clock_mhz,time_s,energy_j"
GOOD = "gemm,,,1.0,2.0"


def csv_text(*rows: str, header: str = HEADER) -> bytes:
    return "\n".join((header, *rows)).encode() + b"\n"


def complaint(read: Callable[[Path], object], path: Path) -> str:
    """The error as the reader sees it, without the folder of the test."""
    with pytest.raises(InputError) as caught:
        read(path)
    text = f"{caught.value} | {caught.value.hint}"
    return text.replace(f"{path.parent}/", "").replace(str(path.parent), "FOLDER")


def complaints(
    read: Callable[[Path], object], files: dict[str, bytes], folder: Path, suffix: str
) -> dict[str, str]:
    found = {}
    for name, content in files.items():
        path = folder / f"bad{suffix}"
        path.write_bytes(content)
        found[name] = complaint(read, path)
        assert [path] == list(folder.iterdir())
    return found


def test_bad_numbers_in_a_sweep_are_named_with_row_and_field(tmp_path: Path) -> None:
    files = {
        "negative time": csv_text(GOOD, "gemm,1410,,-1,2"),
        "zero time": csv_text(GOOD, "gemm,1410,,0,2"),
        "nan time": csv_text(GOOD, "gemm,1410,,nan,2"),
        "infinite time": csv_text(GOOD, "gemm,1410,,inf,2"),
        "overflowing time": csv_text(GOOD, "gemm,1410,,1e999,2"),
        "incredible time": csv_text(GOOD, "gemm,1410,,1e300,2"),
        "empty time": csv_text(GOOD, "gemm,1410,,,2"),
        "negative energy": csv_text(GOOD, "gemm,1410,,1,-2"),
        "time with unit": csv_text(GOOD, "gemm,1410,,12 ms,2"),
        "decimal comma": csv_text(GOOD, 'gemm,1410,,"1,5",2'),
        "digit groups": csv_text(GOOD, "gemm,1410,,1_000,2"),
        "NUL byte": csv_text(GOOD, "gemm,1410,,1\0,2"),
        "long text": csv_text(GOOD, f"gemm,1410,,{'x' * 1000},2"),
        "negative clock": csv_text(GOOD, "gemm,-1410,,1,2"),
        "clock in Hz": csv_text(GOOD, "gemm,1410000000,,1,2"),
        "half a megahertz": csv_text(GOOD, "gemm,1402.5,,1,2"),
        "wordy clock": csv_text(GOOD, "gemm,max,,1,2"),
    }

    assert complaints(read_sweep, files, tmp_path, ".csv") == snapshot(
        {
            "negative time": "bad.csv, row 2, field 'time_s': '-1' must be positive | Leave out rows that were not measured.",
            "zero time": "bad.csv, row 2, field 'time_s': '0' must be positive | Leave out rows that were not measured.",
            "nan time": "bad.csv, row 2, field 'time_s': NaN is not a measurement | Leave out rows that were not measured.",
            "infinite time": "bad.csv, row 2, field 'time_s': 'inf' is not a finite number | Leave out rows that were not measured.",
            "overflowing time": "bad.csv, row 2, field 'time_s': '1e999' is not a finite number | Leave out rows that were not measured.",
            "incredible time": "bad.csv, row 2, field 'time_s': '1e300' is beyond what can be measured; is the unit right? | Leave out rows that were not measured.",
            "empty time": "bad.csv, row 2, field 'time_s': the field is empty | Leave out rows that were not measured.",
            "negative energy": "bad.csv, row 2, field 'energy_j': '-2' must be positive | Leave out rows that were not measured.",
            "time with unit": "bad.csv, row 2, field 'time_s': '12 ms' is not a number | Write plain numbers with a decimal point and no unit.",
            "decimal comma": "bad.csv, row 2, field 'time_s': '1,5' is not a number | Write plain numbers with a decimal point and no unit.",
            "digit groups": "bad.csv, row 2, field 'time_s': '1_000' is not a number | Write plain numbers with a decimal point and no unit.",
            "NUL byte": "bad.csv, row 2, field 'time_s': '1\\x00' is not a number | Write plain numbers with a decimal point and no unit.",
            "long text": "bad.csv, row 2, field 'time_s': 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…' is not a number | Write plain numbers with a decimal point and no unit.",
            "negative clock": "bad.csv, row 2, field 'sm_clock_mhz': '-1410' must be positive | Write whole MHz, or leave it empty for auto.",
            "clock in Hz": "bad.csv, row 2, field 'sm_clock_mhz': '1410000000' is beyond what can be measured; is the unit right? | Write whole MHz, or leave it empty for auto.",
            "half a megahertz": "bad.csv, row 2, field 'sm_clock_mhz': '1402.5' must be a whole number | Write whole MHz, or leave it empty for auto.",
            "wordy clock": "bad.csv, row 2, field 'sm_clock_mhz': 'max' is not a number | Write plain numbers with a decimal point and no unit.",
        }
    )


def test_a_sweep_of_the_wrong_shape_is_refused_in_one_sentence(tmp_path: Path) -> None:
    files = {
        "empty": b"",
        "blank lines": b"\n\n  \n",
        "header only": csv_text(),
        "missing column": csv_text("gemm,,,1", header="kernel,sm_clock_mhz,mem_clock_mhz,time_s"),
        "other unit": csv_text(GOOD, header="kernel,sm_clock_mhz,mem_clock_mhz,time_ms,energy_j"),
        "unknown column": csv_text(f"{GOOD},0.1", header=f"{HEADER},time_sd"),
        "column twice": csv_text(f"{GOOD},0.1", header=f"{HEADER},time_s"),
        "semicolons": csv_text(GOOD, header=HEADER).replace(b",", b";"),
        "short row": csv_text(GOOD, "gemm,1410,,1"),
        "long row": csv_text(GOOD, "gemm,1410,,1,2,3"),
        "stray quote": csv_text(GOOD, 'gemm,1410,,"1"x,2'),
        "open quote": csv_text(GOOD, '"gemm,1410,,1,2'),
        "nameless kernel": csv_text(GOOD, " ,1410,,1,2"),
        "control character": csv_text(GOOD, "ge\x07mm,,,1,2"),
        "duplicate cell": csv_text(GOOD, "gemm,1410,5001,1,2", "gemm,1410,5001,1,3"),
        "missing auto baseline": csv_text(GOOD, "gemm,1410,,1,2", "softmax,1410,,1,2"),
        "missing highest clocks": csv_text("a,1410,,1,2", "b,1395,,1,2"),
        "half a scatter": csv_text(f"{GOOD},0.1", "gemm,1410,,1,2,", header=f"{HEADER},time_std_s"),
        "negative scatter": csv_text(f"{GOOD},-0.1", header=f"{HEADER},time_std_s"),
        "no windows": csv_text(f"{GOOD},0", header=f"{HEADER},window_count"),
        "unknown version": csv_text(f"{GOOD},7", header=f"{HEADER},schema_version"),
        "latin-1": csv_text("größe,,,1,2").decode().encode("latin-1"),
        "utf-16": csv_text(GOOD).decode().encode("utf-16"),
    }

    assert complaints(read_sweep, files, tmp_path, ".csv") == snapshot(
        {
            "empty": "bad.csv: the file is empty | It needs a header and rows.",
            "blank lines": "bad.csv: the file is empty | It needs a header and rows.",
            "header only": "bad.csv: the file has a header but no data rows | Write one row for each kernel and operating point.",
            "missing column": "bad.csv, field 'energy_j': the column 'energy_j' is missing | The columns are: kernel, sm_clock_mhz, mem_clock_mhz, time_s.",
            "other unit": "bad.csv, field 'time_s': the column 'time_s' is missing | The format wants time in s; if 'time_ms' is in another unit, use `joulewise import csv` and name it.",
            "unknown column": "bad.csv, field 'time_sd': the column 'time_sd' is not known | The format knows kernel, sm_clock_mhz, time_s, energy_j, mem_clock_mhz, power_limit_w, time_std_s, energy_std_j, window_count, schema_version; `joulewise import csv` maps others.",
            "column twice": "bad.csv, field 'time_s': the column 'time_s' appears twice | Rename or remove one of them.",
            "semicolons": "bad.csv: the columns are not separated by commas | Save it with commas.",
            "short row": "bad.csv, row 2: the row has 4 fields where the header has 5 | Quote fields that hold commas.",
            "long row": "bad.csv, row 2: the row has 6 fields where the header has 5 | Quote fields that hold commas.",
            "stray quote": "bad.csv, row 2: the row cannot be read as CSV (',' expected after '\"') | Look for an unclosed or stray quote.",
            "open quote": "bad.csv, row 2: the row cannot be read as CSV (unexpected end of data) | Look for an unclosed or stray quote.",
            "nameless kernel": "bad.csv, row 2, field 'kernel': the name is empty | Give every row a name of letters, digits and signs.",
            "control character": "bad.csv, row 2, field 'kernel': the name 'ge\\x07mm' holds a control character | Give every row a name of letters, digits and signs.",
            "duplicate cell": "bad.csv, row 3, field 'kernel': the cell of kernel 'gemm' at 1410/5001 stands in row 2 already | Keep one row a cell; `joulewise import csv` takes medians of repeats.",
            "missing auto baseline": "bad.csv, field 'kernel': kernel 'softmax' has no row at the baseline (auto, auto) of the table | Measure the baseline for every kernel; empty clocks mean auto.",
            "missing highest clocks": "bad.csv, field 'kernel': kernel 'b' has no row at the baseline (highest clocks, 1410/auto) of the table | Measure the baseline for every kernel; empty clocks mean auto.",
            "half a scatter": "bad.csv, row 2, field 'time_std_s': the field is empty here but filled in other rows | Fill it in every row or leave the column out.",
            "negative scatter": "bad.csv, row 1, field 'time_std_s': '-0.1' must be zero or more | Leave the column out where no scatter is known.",
            "no windows": "bad.csv, row 1, field 'window_count': '0' must be positive | Leave the column out where windows were not counted.",
            "unknown version": "bad.csv, row 1, field 'schema_version': schema version 7 is not known; this joulewise reads version 1 | Use a newer joulewise, or write the file anew.",
            "latin-1": "bad.csv, row 1: the file is not UTF-8 text | Save it as UTF-8.",
            "utf-16": "bad.csv: the file is not UTF-8 text | Save it as UTF-8.",
        }
    )


def test_files_that_are_not_there_or_not_files_are_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    found = {
        "missing": complaint(read_sweep, tmp_path / "none.csv"),
        "below a file": complaint(read_sweep, file / "none.csv"),
        "folder": complaint(read_sweep, tmp_path),
        "impossible name": complaint(read_sweep, tmp_path / "a\0b"),
    }

    assert found == snapshot(
        {
            "missing": "none.csv: there is no such file | Check the path.",
            "below a file": "none.csv: it cannot be read: a part of its path is a file, not a folder | Check the path.",
            "folder": "test_files_that_are_not_there_0: this is a folder, not a file | Name a file.",
            "impossible name": "a\x00b: it cannot be read: embedded null byte | Choose another place.",
        }
    )


def test_a_bad_workload_names_the_field(tmp_path: Path) -> None:
    def workload(launches: str) -> bytes:
        return b'{"schema_version": 1, "name": "w",\n "launches": %s}' % launches.encode()

    deep = '{"launches": [' * 60 + '{"kernel": "a"}' + "]}" * 60
    files = {
        "empty": b"",
        "not JSON": b'{"schema_version": 1,\n"name": w}',
        "cut off": b'{"schema_version": 1,\n"name": "w"',
        "not UTF-8": b'{"schema_version": 1,\n"name": "\xff"}',
        "a list": b"[]",
        "no version": b'{"name": "w", "launches": [{"kernel": "a"}]}',
        "unknown version": b'{"schema_version": 7, "launch_list": []}',
        "missing field": b'{"schema_version": 1, "name": "w"}',
        "unknown field": workload('[{"kernel": "a", "count": 2}]'),
        "wrong type": workload('[{"kernel": "a"}, {"kernel": 7}]'),
        "unknown pass": workload('[{"kernel": "a", "pass": "sideways"}]'),
        "repeat zero": workload('[{"launches": [{"kernel": "a", "repeat": 0}]}]'),
        "repeat text": workload('[{"kernel": "a", "repeat": "24"}]'),
        "no launches": workload("[]"),
        "empty group": workload('[{"repeat": 24, "launches": []}]'),
        "neither": workload('[{"repeat": 24}]'),
        "both": workload('[{"kernel": "a", "launches": [{"kernel": "b"}]}]'),
        "endless": workload('[{"repeat": 10000000, "launches": [{"kernel": "a", "repeat": 2}]}]'),
        "deep": workload(f"[{deep}]"),
        "abyss": b'{"schema_version":' + b"[" * 100_000,
    }

    assert complaints(read_workload, files, tmp_path, ".json") == snapshot(
        {
            "empty": "bad.json: the file is empty | See the page on file formats.",
            "not JSON": "bad.json, row 2: the line is not JSON | Look for a stray comma or quote.",
            "cut off": "bad.json, row 2: the JSON ends before it is complete | Look for a missing bracket or quote.",
            "not UTF-8": "bad.json, row 2: the line is not UTF-8 text | Save the file as UTF-8.",
            "a list": "bad.json: this must be an object, not a list | See the page on file formats.",
            "no version": "bad.json, field 'schema_version': the file does not say its schema version | Add \"schema_version\": 1.",
            "unknown version": "bad.json, field 'schema_version': schema version 7 is not known; this joulewise reads version 1 | Use a newer joulewise, or write the file anew.",
            "missing field": "bad.json, field 'launches': the field is missing | See the page on file formats.",
            "unknown field": "bad.json, field 'launches[0].count': the field is not known | Check its spelling, or leave it out.",
            "wrong type": "bad.json, field 'launches[1].kernel': this must be text, not a whole number | See the page on file formats.",
            "unknown pass": "bad.json, field 'launches[0].pass': this cannot be 'sideways' | Write one of forward, backward, optimizer, communication.",
            "repeat zero": "bad.json, field 'launches[0].launches[0].repeat': this must be a whole number >= 1 | See the page on file formats.",
            "repeat text": "bad.json, field 'launches[0].repeat': this must be a whole number, not text | See the page on file formats.",
            "no launches": 'bad.json, field \'launches\': there are no launches | Write {"kernel": "…"} items.',
            "empty group": 'bad.json, field \'launches[0].launches\': there are no launches | Write {"kernel": "…"} items.',
            "neither": 'bad.json, field \'launches[0]\': neither a kernel nor a group of launches is given | Write {"kernel": "…"} or {"repeat": 24, "launches": […]}.',
            "both": "bad.json, field 'launches[0].kernel': a group of launches takes no kernel of its own | Give the kernel to the launches inside.",
            "endless": "bad.json, field 'launches[0].repeat': the iteration is longer than 1000000 launches | One iteration is meant, not a whole training run.",
            "deep": "bad.json, field 'launches': groups are nested more than 50 deep | Write fewer, longer groups.",
            "abyss": "bad.json, field 'schema_version': this must be a whole number, not a list | See the page on file formats.",
        }
    )


def test_a_bad_plan_names_the_field(tmp_path: Path) -> None:
    files = {
        "workload instead": b'{"schema_version": 1, "name": "w", "launches": []}',
        "unknown version": b'{"schema_version": 2}',
        "version of text": b'{"schema_version": "1"}',
        "time of null": b'{"schema_version": 1, "status": "optimal", "baseline": {}, "time_s": null}',
        "negative time": b'{"schema_version": 1, "status": "optimal", "time_s": -1}',
        "half a megahertz": b'{"schema_version": 1, "baseline": {"sm_clock_mhz": 0.5}}',
    }

    assert complaints(read_plan, files, tmp_path, ".json") == snapshot(
        {
            "workload instead": "bad.json: this is a workload, not a plan | Give it to --workload.",
            "unknown version": "bad.json, field 'schema_version': schema version 2 is not known; this joulewise reads version 1 | Use a newer joulewise, or write the file anew.",
            "version of text": "bad.json, field 'schema_version': this must be a whole number, not text | See the page on file formats.",
            "time of null": "bad.json, field 'time_s': this must be a number, not null | See the page on file formats.",
            "negative time": "bad.json, field 'time_s': this must be a number >= 0.0 | See the page on file formats.",
            "half a megahertz": "bad.json, field 'baseline.sm_clock_mhz': this must be a whole number or null, not a number | See the page on file formats.",
        }
    )


def test_a_bad_foreign_table_names_column_and_unit(tmp_path: Path) -> None:
    path = tmp_path / "foreign.csv"
    path.write_text("app,clock,t,p\ngemm,1410,1,2\ngemm,1395,1,x\n")

    def read(time: str = "t", power: str | None = None, clock: str = "clock") -> str:
        return complaint(
            lambda file: import_csv(file, kernel="app", sm_clock=clock, time=time, power=power),
            path,
        )

    found = {
        "no such column": read(time="run_time"),
        "no such column with unit": read(time="run_time:ms"),
        "another quantity": read(time="t:W"),
        "unknown unit": read(time="t:fortnights"),
        "no energy": read(),
        "bad row": read(power="p:mW"),
        "clock in GHz": read(power="p", clock="clock:GHz"),
        "no knob": complaint(
            lambda file: import_csv(file, kernel="app", time="t", energy="p"), path
        ),
    }

    assert found == snapshot(
        {
            "no such column": "foreign.csv, field 'run_time': the column 'run_time' is missing | The columns are: app, clock, t, p.",
            "no such column with unit": "foreign.csv, field 'run_time': the column 'run_time' is missing | The columns are: app, clock, t, p.",
            "another quantity": "foreign.csv, field 't': the unit 'W' measures power, not time | Write one of: s, ms, us, µs, ns, min, h.",
            "unknown unit": "foreign.csv, field 't': the unit 'fortnights' is not known | Write one of: s, ms, us, µs, ns, min, h.",
            "no energy": "foreign.csv: neither an energy nor a power column is named | Give --energy COLUMN, or --power COLUMN for energy = power x time.",
            "bad row": "foreign.csv, row 2, field 'p': 'x' is not a number | Write plain numbers with a decimal point and no unit.",
            "clock in GHz": "foreign.csv, row 1, field 'clock': 1.41e+06 is beyond any device; is the unit right? | Write the unit behind the column: clock:MHz|kHz|Hz|GHz.",
            "no knob": "foreign.csv: no column for a knob is named | Give --sm-clock, --mem-clock or --power-limit.",
        }
    )


def test_a_bad_tuner_cache_or_profile_is_named(tmp_path: Path) -> None:
    head = b'{"device_name": "GPU", "kernel_name": "k", "tune_params_keys": ["nvml_gr_clock"],\n'
    caches = {
        "empty": b"",
        "not JSON": b"kernel,time\n",
        "not a cache": b"{}",
        "no clocks": b'{"tune_params_keys": ["block"], "cache": {}}',
        "nothing measured": head + b'"cache": {"1410": {"time": "InvalidConfig"}}}',
        "no energy": head + b'"cache": {"1410": {"nvml_gr_clock": 1410, "time": 2.0}}}',
        "no clock": head + b'"cache": {"1410": {"time": 2.0, "nvml_power": 3.0}}}',
        "negative time": head + b'"cache": {"1": {"nvml_gr_clock": 1410, "time": -2.0}}}',
    }
    profiles = {"missing column": b"stage,instruction,frequency,time\n0,forward,1410,0.1\n"}

    found = complaints(lambda path: import_kernel_tuner([path]), caches, tmp_path, ".json")
    (tmp_path / "bad.json").unlink()
    found |= complaints(import_perseus, profiles, tmp_path, ".csv")

    assert found == snapshot(
        {
            "empty": "bad.json: the file is empty | Tune again.",
            "not JSON": "bad.json, row 1: the line is not JSON | Give the file that tune_kernel(cache=...) wrote.",
            "not a cache": "bad.json, field 'cache': the file is not a Kernel Tuner cache | Give the file that tune_kernel(cache=...) wrote.",
            "no clocks": "bad.json, field 'tune_params_keys': the cache was not tuned over clocks or power limits | Tune over one of nvml_gr_clock, nvml_mem_clock, nvml_pwr_limit.",
            "nothing measured": "bad.json: no configuration in the cache was measured | Tune again.",
            "no energy": "bad.json, row 1: the entry has neither energy nor power | Tune with an observer that gives nvml_energy or nvml_power.",
            "no clock": "bad.json, row 1, field 'nvml_gr_clock': the field is missing | Delete the entry from the cache, or tune again.",
            "negative time": "bad.json, row 1, field 'time': -2.0 is not a possible time | Delete the entry from the cache, or tune again.",
            "missing column": "bad.csv, field 'energy': the column 'energy' is missing | The columns are: stage, instruction, frequency, time.",
        }
    )
