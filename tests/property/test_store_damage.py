"""A damaged file is read or refused in one sentence; it never crashes the reader."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from joulewise.domain.errors import InputError
from joulewise.domain.plan import Interval, Verification, VerificationPair
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.sweep import Sweep, SweepSource
from joulewise.store.documents import (
    read_plan,
    read_verification,
    read_workload,
    write_verification,
)
from joulewise.store.importers import import_csv, import_kernel_tuner, import_perseus
from joulewise.store.sweep_parquet import sweep_from_parquet, sweep_parquet
from joulewise.store.sweeps import read_sweep

SWEEP_CSV = (
    b"kernel,sm_clock_mhz,mem_clock_mhz,time_s,energy_j,time_std_s,window_count\r\n"
    b'"gemm<128, 64>",,,1.5e-3,0.25,1e-5,3\r\n'
    b'"gemm<128, 64>",1410,9501,1.6e-3,0.20,1e-5,3\r\n'
    b"softmax,,,2e-4,0.02,1e-6,3\r\n"
)
PROFILE_CSV = b"stage,instruction,frequency,time,energy\n0,forward,1410,0.05,23.8\n"
WORKLOAD = (
    b'{"schema_version": 1, "name": "w", "launches": [{"kernel": "a", "pass": "forward"},\n'
    b' {"repeat": 24, "launches": [{"kernel": "b", "pass": "backward", "repeat": 2}]}]}\n'
)
CACHE = (
    b'{"device_name": "GPU", "kernel_name": "k", "tune_params_keys": ["n", "nvml_gr_clock"],\n'
    b'"cache": {\n"1,1410": {"n": 1, "nvml_gr_clock": 1410, "time": 2.5, "nvml_power": 90.0},\n'
    b'"1,1200": {"n": 1, "nvml_gr_clock": 1200, "time": 2.9, "nvml_power": 70.0},\n'
)


def small_sweep() -> Sweep:
    points = (AUTO, OperatingPoint(sm_clock_mhz=1410))
    return Sweep(
        kernels=("a", "b"),
        points=points,
        baseline=AUTO,
        source=SweepSource(device="virtual:x", device_name="X", tool="test"),
        is_present=np.array([[True, True], [True, False]]),
        time_s=np.array([[1.0, 2.0], [3.0, math.inf]]),
        energy_j=np.array([[1.0, 2.0], [3.0, math.inf]]),
    )


PARQUET = sweep_parquet(small_sweep())
DAMAGE = st.lists(
    st.tuples(
        st.integers(0, 10_000),
        st.sampled_from(
            [b"", b"\0", b'"', b",", b"\n", b"\xff", b"-", b"e9", b"nan", b"\xef\xbb\xbf"]
        )
        | st.binary(max_size=3),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=4,
)


def damaged(content: bytes, damage: list[tuple[int, bytes, int]]) -> bytes:
    """Replace a few bytes at each place by others."""
    for place, new, length in damage:
        at = place % (len(content) + 1)
        content = content[:at] + new + content[at + length :]
    return content


def read_or_refuse(read: Callable[[Path], object], content: bytes) -> bool:
    """Whether it was read; only InputError may say no, and no other file may appear."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_bytes(content)
        refusal = refusal_of(read, path)
        assert [path] == list(Path(folder).iterdir())
    if refusal is None:
        return True
    assert str(path) == refusal.file
    assert refusal.message
    assert refusal.hint
    return False


def refusal_of(read: Callable[[Path], object], path: Path) -> InputError | None:
    try:
        read(path)
    except InputError as error:
        return error
    return None


def read_foreign(path: Path) -> Sweep:
    return import_csv(
        path, kernel="stage,instruction", sm_clock="frequency", time="time:ms", energy="energy:mJ"
    )


@given(damage=DAMAGE)
@example(damage=[(0, b"\xef\xbb\xbf", 0)])
@settings(deadline=None, max_examples=150)
def test_a_damaged_sweep_csv_is_read_or_refused(damage: list[tuple[int, bytes, int]]) -> None:
    read_or_refuse(read_sweep, damaged(SWEEP_CSV, damage))


@given(content=st.binary(max_size=60))
@settings(deadline=None, max_examples=100)
def test_any_bytes_are_read_or_refused_as_a_sweep(content: bytes) -> None:
    read_or_refuse(read_sweep, content)


@given(damage=DAMAGE)
@settings(deadline=None, max_examples=80)
def test_a_damaged_foreign_table_is_read_or_refused(damage: list[tuple[int, bytes, int]]) -> None:
    read_or_refuse(import_perseus, damaged(PROFILE_CSV, damage))
    read_or_refuse(read_foreign, damaged(PROFILE_CSV, damage))


@given(damage=DAMAGE)
@settings(deadline=None, max_examples=80)
def test_a_damaged_tuner_cache_is_read_or_refused(damage: list[tuple[int, bytes, int]]) -> None:
    read_or_refuse(lambda path: import_kernel_tuner([path]), damaged(CACHE, damage))


@given(damage=DAMAGE)
@settings(deadline=None, max_examples=80)
def test_a_damaged_workload_is_read_or_refused(damage: list[tuple[int, bytes, int]]) -> None:
    read_or_refuse(read_workload, damaged(WORKLOAD, damage))
    read_or_refuse(read_plan, damaged(WORKLOAD, damage))


@given(damage=DAMAGE)
@settings(deadline=None, max_examples=60)
def test_a_damaged_verification_is_read_or_refused(damage: list[tuple[int, bytes, int]]) -> None:
    pair = VerificationPair(
        baseline_time_s=1.0, baseline_energy_j=2.0, plan_time_s=1.0, plan_energy_j=1.5
    )
    verification = Verification(
        plan_sha256="0" * 64,
        device="virtual:x",
        device_name="X",
        pairs=(pair,),
        promised_slowdown_ratio=1.0,
        promised_saving_ratio=0.1,
        slowdown_ratio=1.0,
        slowdown_interval=Interval(low_ratio=0.9, high_ratio=1.1),
        saving_ratio=0.1,
        saving_interval=Interval(low_ratio=0.0, high_ratio=0.2),
        max_slowdown_ratio=None,
        is_within_budget=None,
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "verification.json"
        write_verification(verification, path)
        assert verification == read_verification(path)
        content = path.read_bytes()

    read_or_refuse(read_verification, damaged(content, damage))


@given(damage=DAMAGE)
@settings(deadline=None, max_examples=150)
def test_a_damaged_parquet_file_is_always_noticed(damage: list[tuple[int, bytes, int]]) -> None:
    content = damaged(PARQUET, damage)

    assert (content == PARQUET) == read_or_refuse(read_sweep, content)


def test_a_parquet_file_cut_off_anywhere_is_refused() -> None:
    refusals = [
        refusal_of(lambda path: sweep_from_parquet(PARQUET[:end], str(path)), Path("cut"))  # noqa: B023 - called at once
        for end in range(len(PARQUET))
    ]

    assert all(refusals)
    assert read_or_refuse(read_sweep, PARQUET)
