from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from joulewise.control.lease import hold
from joulewise.domain.caveats import CaveatKind
from joulewise.domain.errors import InputError, MeasurementError, NotPermitted
from joulewise.domain.measurement import CellMeasurement, Window
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.sweep import Sweep, SweepSource
from joulewise.measure.cell import measure_cell
from joulewise.measure.settings import MeasureSettings
from joulewise.measure.sweep import MemoryJournal, measure_sweep
from joulewise.measure.table import sweep_from_cells
from joulewise.simulator.oracle import open_oracle
from joulewise.simulator.virtual import open_virtual
from joulewise.workload.gpt3_xl import gpt3_xl

WORKS = gpt3_xl().works[:3]
KERNELS = tuple(work.kernel for work in WORKS)
LOW = OperatingPoint(sm_clock_mhz=1200, mem_clock_mhz=9501)
SLOW_MEMORY = OperatingPoint(sm_clock_mhz=1500, mem_clock_mhz=5001)
POINTS = (AUTO, LOW, SLOW_MEMORY)
SOURCE = SweepSource(device="test", device_name="Test", tool="joulewise")


class Stop(Exception):
    pass


class WatchedLease:
    """A lease that notes what was asked."""

    def __init__(self) -> None:
        self.points: list[OperatingPoint] = []

    def apply(self, point: OperatingPoint) -> None:
        self.points.append(point)

    def release(self) -> None:
        pass


def _sweep(
    device: str,
    state_dir: Path,
    *,
    journal: MemoryJournal | None = None,
    seed: int = 0,
    stop_after_count: int | None = None,
) -> Sweep:
    session = open_virtual(device, WORKS)

    def watch(_what: str, done_count: int, _total_count: int) -> None:
        if done_count == stop_after_count:
            raise Stop

    with hold(session.gpu, state_dir=state_dir) as lease:
        return measure_sweep(
            session,
            lease,
            KERNELS,
            POINTS,
            settings=MeasureSettings(seed=seed),
            journal=journal,
            progress=watch,
        )


def _tables(sweep: Sweep) -> Mapping[str, bytes]:
    names = ("time_s", "energy_j", "time_std_s", "energy_std_j", "energy_above_idle_j", "temp_c")
    return {name: getattr(sweep, name).tobytes() for name in names}


def _window(number: int, time_s: float, energy_j: float, clock_mhz: float | None = None) -> Window:
    return Window(
        window=number,
        time_s=time_s,
        energy_j=energy_j,
        duration_s=5.0,
        launch_count=100,
        sm_clock_held_mhz=clock_mhz,
        temp_c=None,
    )


def _cell(*windows: Window, run: str = "a", idle_power_w: float | None = None) -> CellMeasurement:
    return CellMeasurement(
        kernel="k", point=AUTO, run=run, idle_power_w=idle_power_w, windows=windows
    )


def test_a_sweep_without_noise_is_the_truth(tmp_path: Path) -> None:
    device = "virtual:rtx3080ti,noise=0"
    sweep = _sweep(device, tmp_path)
    time_s, energy_j = open_oracle(device, WORKS).table(POINTS)
    np.testing.assert_allclose(sweep.time_s, time_s, rtol=1e-9)
    np.testing.assert_allclose(sweep.energy_j, energy_j, rtol=1e-6)


def test_a_sweep_names_its_device_and_carries_its_doubts(tmp_path: Path) -> None:
    sweep = _sweep("virtual:rtx3080ti,seed=3", tmp_path)
    assert (sweep.source.device, sweep.source.is_simulated) == ("virtual:rtx3080ti,seed=3", True)
    assert [caveat.kind for caveat in sweep.caveats] == [CaveatKind.SIMULATED_DEVICE]


def test_a_sweep_has_scatter_windows_and_energy_above_idle(tmp_path: Path) -> None:
    sweep = _sweep("virtual:rtx3080ti", tmp_path)
    assert sweep.window_count is not None
    assert sweep.window_count.tolist() == [[3] * 3] * 3
    assert sweep.time_std_s is not None
    assert sweep.time_std_s.min() > 0.0
    assert sweep.energy_above_idle_j is not None
    assert (sweep.energy_above_idle_j < sweep.energy_j).all()
    assert (sweep.energy_above_idle_j > 0.0).all()


def test_the_order_of_measuring_changes_no_number(tmp_path: Path) -> None:
    device = "virtual:rtx3080ti,seed=5"
    assert _tables(_sweep(device, tmp_path, seed=1)) == _tables(_sweep(device, tmp_path, seed=2))


@pytest.mark.parametrize("stop_after_count", range(9))
def test_a_sweep_that_was_stopped_and_goes_on_is_the_same_to_the_last_bit(
    stop_after_count: int, tmp_path: Path
) -> None:
    device = "virtual:rtx3080ti,seed=4"
    journal = MemoryJournal()
    with pytest.raises(Stop):
        _sweep(device, tmp_path, journal=journal, stop_after_count=stop_after_count)
    assert len(journal.finished()) == stop_after_count
    resumed = _sweep(device, tmp_path, journal=journal)
    assert _tables(resumed) == _tables(_sweep(device, tmp_path))


def test_the_baseline_is_measured_even_if_nobody_asked(tmp_path: Path) -> None:
    session = open_virtual("virtual:rtx3080ti", WORKS)
    with hold(session.gpu, state_dir=tmp_path) as lease:
        sweep = measure_sweep(session, lease, KERNELS[:1], [LOW], settings=MeasureSettings())
    assert (sweep.points, sweep.baseline) == ((AUTO, LOW), AUTO)
    assert sweep.is_present.all()


def test_each_point_is_set_once_and_progress_tells_every_cell() -> None:
    session = open_virtual("virtual:rtx3080ti", WORKS)
    lease = WatchedLease()
    told: list[tuple[str, int, int]] = []
    measure_sweep(
        session,
        lease,
        KERNELS,
        POINTS,
        settings=MeasureSettings(),
        progress=lambda *step: told.append(step),
    )
    assert sorted(point.label for point in lease.points) == sorted(p.label for p in POINTS)
    assert told == [("measuring", done, 9) for done in range(10)]


def test_points_that_are_finished_are_not_set_again(tmp_path: Path) -> None:
    journal = MemoryJournal()
    _sweep("virtual:rtx3080ti", tmp_path, journal=journal)
    lease = WatchedLease()
    session = open_virtual("virtual:rtx3080ti", WORKS)
    measure_sweep(session, lease, KERNELS, POINTS, settings=MeasureSettings(), journal=journal)
    assert lease.points == []


def test_cells_of_one_point_are_one_run_and_number_their_windows(tmp_path: Path) -> None:
    journal = MemoryJournal()
    _sweep("virtual:rtx3080ti", tmp_path, journal=journal)
    cells = journal.finished().values()
    assert {cell.run for cell in cells} == {f"sweep/{point.label}" for point in POINTS}
    assert {tuple(window.window for window in cell.windows) for cell in cells} == {(0, 1, 2)}


def test_a_kernel_that_the_device_cannot_run_is_refused_before_anything_is_set() -> None:
    session = open_virtual("virtual:rtx3080ti", WORKS)
    lease = WatchedLease()
    with pytest.raises(InputError, match="cannot run the kernel 'nope'"):
        measure_sweep(session, lease, ["nope"], POINTS, settings=MeasureSettings())
    assert lease.points == []


def test_no_kernels_are_refused() -> None:
    session = open_virtual("virtual:rtx3080ti", WORKS)
    with pytest.raises(InputError, match="no kernels"):
        measure_sweep(session, WatchedLease(), [], POINTS, settings=MeasureSettings())


def test_without_the_right_to_set_clocks_the_first_point_ends_the_sweep(tmp_path: Path) -> None:
    with pytest.raises(NotPermitted):
        _sweep("virtual:rtx3080ti,control=denied", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_one_cell_can_be_measured_alone(tmp_path: Path) -> None:
    session = open_virtual("virtual:rtx3080ti", WORKS)
    journal = MemoryJournal()
    _sweep("virtual:rtx3080ti", tmp_path, journal=journal)
    with hold(session.gpu, state_dir=tmp_path) as lease:
        cell = measure_cell(
            session,
            lease,
            KERNELS[0],
            LOW,
            run=f"sweep/{LOW.label}",
            settings=MeasureSettings(),
        )
    assert cell == journal.finished()[KERNELS[0], LOW]


def test_windows_are_numbered_on_from_the_first(tmp_path: Path) -> None:
    session = open_virtual("virtual:rtx3080ti", WORKS)
    with hold(session.gpu, state_dir=tmp_path) as lease:
        cell = measure_cell(
            session,
            lease,
            KERNELS[0],
            LOW,
            run="again",
            settings=MeasureSettings(),
            first_window=7,
            window_count=2,
        )
    assert [window.window for window in cell.windows] == [7, 8]


def test_a_far_window_is_marked_and_the_median_stays() -> None:
    device = "virtual:rtx3080ti,noise=0,foreign=127..128"
    # The foreign process comes and goes within one window, and nobody looks meanwhile.
    session = open_virtual(device, WORKS)
    clean = open_virtual("virtual:rtx3080ti,noise=0", WORKS)
    cells = [
        measure_cell(
            opened,
            WatchedLease(),
            KERNELS[0],
            AUTO,
            run="r",
            settings=MeasureSettings(window_count=9, sample_s=10.0),
        )
        for opened in (session, clean)
    ]
    marked = [
        window
        for window in cells[0].windows
        if any(caveat.kind is CaveatKind.OUTLIERS_SEEN for caveat in window.caveats)
    ]
    tables = [
        sweep_from_cells([replace(cell, run="r")], KERNELS[:1], [AUTO], SOURCE) for cell in cells
    ]
    assert len(marked) == 1
    assert tables[0].time_s.tolist() == tables[1].time_s.tolist()


def test_a_table_holds_medians_and_the_scatter_of_one_window() -> None:
    cell = _cell(
        _window(0, 1.0, 10.0), _window(1, 3.0, 30.0), _window(2, 2.0, 40.0), idle_power_w=4.0
    )
    sweep = sweep_from_cells([cell], ["k"], [AUTO, LOW], SOURCE)
    assert sweep.time_s.tolist() == [[2.0, math.inf]]
    assert sweep.energy_j.tolist() == [[30.0, math.inf]]
    assert sweep.is_present.tolist() == [[True, False]]
    assert sweep.time_std_s is not None
    assert sweep.time_std_s.tolist() == [[1.0, 0.0]]
    assert sweep.energy_above_idle_j is not None
    assert sweep.energy_above_idle_j.tolist() == [[22.0, 0.0]]


def test_what_no_cell_knows_is_missing_not_zero() -> None:
    cell = _cell(_window(0, 1.0, 10.0), _window(1, 1.0, 10.0))
    sweep = sweep_from_cells([cell], ["k"], [AUTO], SOURCE)
    assert sweep.temp_c is None
    assert sweep.sm_clock_held_mhz is None
    assert sweep.energy_above_idle_j is None


def test_one_window_gives_no_scatter_and_says_so() -> None:
    sweep = sweep_from_cells([_cell(_window(0, 1.0, 10.0))], ["k"], [AUTO], SOURCE)
    assert sweep.time_std_s is None
    assert [caveat.kind for caveat in sweep.caveats] == [CaveatKind.NO_UNCERTAINTY]


def test_parts_of_a_cell_from_one_run_are_taken_together() -> None:
    parts = [_cell(_window(0, 1.0, 10.0)), _cell(_window(1, 3.0, 30.0))]
    sweep = sweep_from_cells(parts, ["k"], [AUTO], SOURCE)
    assert sweep.time_s.tolist() == [[2.0]]


def test_parts_of_a_cell_from_two_runs_are_refused() -> None:
    parts = [_cell(_window(0, 1.0, 10.0)), _cell(_window(0, 1.0, 10.0), run="b")]
    with pytest.raises(MeasurementError, match="two measuring runs"):
        sweep_from_cells(parts, ["k"], [AUTO], SOURCE)


def test_a_table_without_baseline_is_refused() -> None:
    with pytest.raises(MeasurementError, match="nothing to compare"):
        sweep_from_cells([], ["k"], [LOW], SOURCE)


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (_cell(), "no windows"),
        (replace(_cell(_window(0, 1.0, 1.0)), kernel="other"), "not in the table"),
    ],
)
def test_a_cell_that_cannot_be_placed_is_refused(cell: CellMeasurement, message: str) -> None:
    with pytest.raises(MeasurementError, match=message):
        sweep_from_cells([cell], ["k"], [AUTO], SOURCE)


@pytest.mark.parametrize(
    ("name", "value"), [("window_s", 0.0), ("window_s", math.nan), ("soak_s", -1.0)]
)
def test_settings_that_cannot_be_measured_with_are_refused(name: str, value: float) -> None:
    with pytest.raises(InputError, match=name):
        MeasureSettings(**{name: value})  # type: ignore[arg-type]


def test_a_setting_of_no_windows_is_refused() -> None:
    with pytest.raises(InputError, match="window_count"):
        MeasureSettings(window_count=0)
