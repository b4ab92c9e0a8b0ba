"""Laws of files: what is written is what is read."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.sweep import Sweep, SweepSource
from joulewise.domain.workload import Launch, Pass, Workload
from joulewise.store.documents import read_workload, write_workload
from joulewise.store.sweeps import read_sweep, sweep_sha256, write_sweep_csv, write_sweep_parquet

MEASURED = st.floats(1e-9, 1e9)
NAMES = st.text(
    st.characters(exclude_categories=["Cc", "Cf", "Cs", "Co", "Cn"]), min_size=1, max_size=12
).filter(lambda name: bool(name.strip()))
POINTS = st.builds(
    OperatingPoint,
    sm_clock_mhz=st.none() | st.integers(1, 4000),
    mem_clock_mhz=st.none() | st.integers(1, 20_000),
    power_limit_w=st.none() | st.floats(1, 1000),
)
CAVEATS = st.lists(
    st.builds(Caveat, kind=st.sampled_from(CaveatKind), seen=st.text(max_size=8)), max_size=2
).map(tuple)
TABLES = ("time_std_s", "energy_std_j", "window_count")
PARQUET_TABLES = ("energy_above_idle_j", "sm_clock_held_mhz", "temp_c")


@st.composite
def sweeps(draw: st.DrawFn) -> Sweep:
    """Any sweep whose baseline is (auto, auto) and measured for every kernel."""
    kernels = tuple(draw(st.lists(NAMES, min_size=1, max_size=3, unique=True)))
    points = tuple(
        dict.fromkeys(draw(st.permutations([*draw(st.lists(POINTS, max_size=3)), AUTO])))
    )
    shape = (len(kernels), len(points))
    is_present = np.array([[draw(st.booleans()) for _ in points] for _ in kernels])
    is_present[:, points.index(AUTO)] = True

    def table(absent: float) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        values = draw(st.lists(MEASURED, min_size=is_present.size, max_size=is_present.size))
        return np.where(is_present, np.array(values).reshape(shape), absent)

    optional = {
        name: table(0.0) if draw(st.booleans()) else None for name in (*TABLES, *PARQUET_TABLES)
    }
    counts = optional.pop("window_count")
    return Sweep(
        kernels=kernels,
        points=points,
        baseline=AUTO,
        source=SweepSource(
            device=draw(st.text(max_size=5)),
            device_name="GPU",
            tool="test",
            workload=draw(st.none() | st.text(max_size=5)),
            is_simulated=draw(st.booleans()),
        ),
        is_present=is_present,
        time_s=table(math.inf),
        energy_j=table(math.inf),
        window_count=None if counts is None else np.ceil(counts).astype(np.int64),
        cell_caveats=draw(
            st.dictionaries(
                st.tuples(st.sampled_from(kernels), st.sampled_from(points)), CAVEATS, max_size=2
            )
        ),
        caveats=draw(CAVEATS),
        time_std_s=optional["time_std_s"],
        energy_std_j=optional["energy_std_j"],
        energy_above_idle_j=optional["energy_above_idle_j"],
        sm_clock_held_mhz=optional["sm_clock_held_mhz"],
        temp_c=optional["temp_c"],
    )


def content(sweep: Sweep, *, with_all: bool) -> dict[object, object]:
    """Every measured number by kernel and point."""
    names = ("time_s", "energy_j", *TABLES, *(PARQUET_TABLES if with_all else ()))
    return {
        (kernel, point, name): None if table is None else table[k, p].item()
        for name in names
        for table in (getattr(sweep, name),)
        for k, kernel in enumerate(sweep.kernels)
        for p, point in enumerate(sweep.points)
        if sweep.is_present[k, p]
    }


@given(sweep=sweeps())
@settings(deadline=None, max_examples=40)
def test_parquet_loses_nothing(sweep: Sweep) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sweep.parquet"
        write_sweep_parquet(sweep, path)
        again = read_sweep(path)

    assert content(sweep, with_all=True) == content(again, with_all=True)
    assert np.array_equal(sweep.is_present, again.is_present)
    assert np.array_equal(sweep.time_s, again.time_s)
    for name in ("kernels", "points", "baseline", "source", "cell_caveats", "caveats"):
        assert getattr(sweep, name) == getattr(again, name)


@given(sweep=sweeps())
@settings(deadline=None, max_examples=40)
def test_csv_keeps_every_number_and_the_name_of_the_sweep(sweep: Sweep) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sweep.csv"
        write_sweep_csv(sweep, path)
        again = read_sweep(path)

    assert content(sweep, with_all=False) == content(again, with_all=False)
    assert sweep_sha256(sweep) == sweep_sha256(again)


@given(sweep=sweeps(), data=st.data())
@settings(deadline=None, max_examples=40)
def test_any_change_of_a_number_changes_the_name_of_the_sweep(
    sweep: Sweep, data: st.DataObject
) -> None:
    k = data.draw(st.integers(0, len(sweep.kernels) - 1))
    time_s = sweep.time_s.copy()
    time_s[k, sweep.baseline_index] = np.nextafter(time_s[k, sweep.baseline_index], math.inf)
    changed = Sweep(
        kernels=sweep.kernels,
        points=sweep.points,
        baseline=sweep.baseline,
        source=sweep.source,
        is_present=sweep.is_present,
        time_s=time_s,
        energy_j=sweep.energy_j,
        time_std_s=sweep.time_std_s,
        energy_std_j=sweep.energy_std_j,
        window_count=sweep.window_count,
    )

    assert sweep_sha256(sweep) != sweep_sha256(changed)


LAUNCHES = st.builds(Launch, kernel=st.sampled_from(["a", "b"]), pass_=st.sampled_from(Pass))


@given(launches=st.lists(LAUNCHES, min_size=1, max_size=20), name=NAMES)
@settings(deadline=None, max_examples=40)
def test_a_workload_file_keeps_launches_and_their_order(launches: list[Launch], name: str) -> None:
    workload = Workload(name=name, launches=tuple(launches))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "workload.json"
        write_workload(workload, path)

        assert workload == read_workload(path)
