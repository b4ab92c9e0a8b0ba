"""Devices made of recorded sweeps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from joulewise.control.lease import hold
from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.errors import InputError, MeasurementError, NotSupported
from joulewise.domain.points import AUTO, KnobState, OperatingPoint
from joulewise.domain.session import DeviceSession
from joulewise.domain.sweep import Sweep, SweepSource
from joulewise.domain.transition import uniform_transition
from joulewise.domain.workload import Launch, Workload
from joulewise.measure.settings import MeasureSettings
from joulewise.measure.sweep import measure_sweep
from joulewise.simulator.device_string import parse_recorded
from joulewise.simulator.recorded import open_recorded
from joulewise.store.sweeps import write_sweep_parquet
from joulewise.workflow.devices import open_session, points_of_device
from joulewise.workflow.workloads import load_workload

LOW = OperatingPoint(sm_clock_mhz=1000)
CAPPED = OperatingPoint(power_limit_w=200.0)
DEVICE = "recorded:sweep.parquet"


def _sweep(*, idle_power_w: float | None = 40.0, source: SweepSource | None = None) -> Sweep:
    """Two kernels at three points; kernel b was not measured at the lower clock."""
    is_present = np.array([[True, True, True], [True, False, True]])
    time_s = np.where(is_present, [[0.001, 0.0012, 0.0015], [0.002, 1.0, 0.0025]], np.inf)
    energy_j = np.where(is_present, [[0.3, 0.24, 0.27], [0.5, 1.0, 0.45]], np.inf)
    known = np.where(is_present, time_s, 0.0)
    return Sweep(
        kernels=("a", "b"),
        points=(AUTO, LOW, CAPPED),
        baseline=AUTO,
        source=source or SweepSource(device="nvml:GPU-1", device_name="Some GPU", tool="joulewise"),
        is_present=is_present,
        time_s=time_s,
        energy_j=energy_j,
        energy_above_idle_j=None
        if idle_power_w is None
        else np.where(is_present, energy_j, 0.0) - idle_power_w * known,
        sm_clock_held_mhz=np.where(is_present, [[1500.0, 1000.0, 1200.0]] * 2, 0.0),
        temp_c=np.where(is_present, [[60.0, 50.0, 45.0]] * 2, 0.0),
        cell_caveats={("a", CAPPED): (Caveat(kind=CaveatKind.POWER_CAPPED, seen="capped"),)},
    )


def _measured(session: DeviceSession, sweep: Sweep, tmp_path: Path) -> Sweep:
    with hold(session.gpu, state_dir=tmp_path) as lease:
        return measure_sweep(session, lease, ("a",), sweep.points, settings=MeasureSettings())


def test_measuring_a_recording_gives_its_cells_and_doubts_again(tmp_path: Path) -> None:
    sweep = _sweep()
    again = _measured(open_recorded(sweep, DEVICE), sweep, tmp_path)

    assert sweep.time_s[0] == pytest.approx(again.time_s[0], rel=1e-9)
    assert sweep.energy_j[0] == pytest.approx(again.energy_j[0], rel=1e-6)
    assert sweep.energy_above_idle_j is not None
    assert again.energy_above_idle_j is not None
    assert sweep.energy_above_idle_j[0] == pytest.approx(again.energy_above_idle_j[0], rel=1e-5)
    assert again.temp_c is not None
    assert [60.0, 50.0, 45.0] == list(again.temp_c[0])
    capped = [point for (_, point), doubts in again.cell_caveats.items() if doubts]
    assert [CAPPED] == capped


def test_without_idle_power_in_the_recording_none_is_invented(tmp_path: Path) -> None:
    sweep = _sweep(idle_power_w=None)
    session = open_recorded(sweep, DEVICE)
    idle = session.gpu.sample()
    with pytest.raises(MeasurementError, match="idle"):
        session.gpu.wait_for_energy_tick(1.0)
    again = _measured(session, sweep, tmp_path)

    assert (None, None, None) == (idle.energy_j, idle.power_w, idle.temp_c)
    assert again.energy_above_idle_j is None
    assert sweep.energy_j[0] == pytest.approx(again.energy_j[0], rel=1e-6)


def test_a_cell_or_point_that_was_not_recorded_is_refused_and_the_device_stays_usable() -> None:
    session = open_recorded(_sweep(), DEVICE)
    with pytest.raises(NotSupported, match=r"sweep\.parquet has no point 1001/auto"):
        session.gpu.request(OperatingPoint(sm_clock_mhz=1001))
    session.gpu.request(LOW)
    with (
        pytest.raises(NotSupported, match="does not tell what 'b' does at 1000/auto"),
        session.runner.loop("b", run="test"),
    ):
        pass
    with session.runner.loop("a", run="test") as loop:
        loop.run_for(1.0)
        assert 1000 == session.gpu.sample().sm_clock_mhz


def test_a_recording_without_auto_does_not_run_at_auto() -> None:
    sweep = _sweep()
    pinned = replace(
        sweep,
        points=(OperatingPoint(sm_clock_mhz=1500), LOW, CAPPED),
        baseline=OperatingPoint(sm_clock_mhz=1500),
        cell_caveats={},
    )
    session = open_recorded(pinned, DEVICE)
    with pytest.raises(NotSupported, match="auto/auto"), session.runner.loop("a", run="test"):
        pass


def test_a_recording_says_what_it_replays_and_keeps_the_doubts_of_the_sweep() -> None:
    doubt = Caveat(kind=CaveatKind.ENERGY_OF_MODULE, seen="of the module")
    identity = open_recorded(replace(_sweep(), caveats=(doubt,)), DEVICE).gpu.identity

    assert (DEVICE, "Some GPU", False, True) == (
        identity.spec,
        identity.name,
        identity.is_simulated,
        identity.is_in_process,
    )
    assert [CaveatKind.RECORDING_REPLAYED, CaveatKind.ENERGY_OF_MODULE] == [
        caveat.kind for caveat in identity.caveats
    ]
    assert "replays sweep.parquet (device: Some GPU; made by joulewise)" == identity.caveats[0].seen
    assert doubt in identity.caveats


def test_a_recording_of_a_virtual_device_stays_simulated() -> None:
    sweep = _sweep()
    simulated = replace(sweep, source=replace(sweep.source, is_simulated=True))

    kinds = [one.kind for one in open_recorded(simulated, DEVICE).gpu.identity.caveats]

    assert [CaveatKind.RECORDING_REPLAYED, CaveatKind.SIMULATED_DEVICE] == kinds


def test_what_changes_cost_is_the_models_or_the_device_strings_else_not_told() -> None:
    model = uniform_transition("slow", "test", stall_s=0.5)
    lagging = open_recorded(_sweep(), f"{DEVICE},lag=20ms", model)

    assert open_recorded(_sweep(), DEVICE).transition is None
    assert model == open_recorded(_sweep(), DEVICE, model).transition
    assert lagging.transition is not None
    assert {0.02} == {cost.lag_s for cost in lagging.transition.costs}


def test_the_recorded_power_limits_are_those_that_it_takes() -> None:
    gpu = open_recorded(_sweep(), DEVICE).gpu
    limits = gpu.clock_grid().power_limits
    before = gpu.knob_state()
    gpu.request(CAPPED)

    assert limits is not None
    assert 200.0 == limits.least_w
    assert limits.found_w == pytest.approx(300.0)
    assert (KnobState(), KnobState(power_limit_w=200.0)) == (before, gpu.knob_state())


@pytest.mark.parametrize(
    ("device", "file"),
    [
        ("recorded:sweep.parquet", "sweep.parquet"),
        ("recorded: a,b=c.csv , lag=5ms,control=denied", "a,b=c.csv"),
        ("recorded:runs/x,noise=0.parquet", "runs/x,noise=0.parquet"),
    ],
)
def test_the_file_of_a_recording_may_have_commas(device: str, file: str) -> None:
    options = parse_recorded(device)

    assert file == options.preset
    assert options == parse_recorded(options.spec)


@pytest.mark.parametrize("device", ["recorded:", "recorded:,lag=5ms", "virtual:rtx3080ti"])
def test_a_recording_needs_a_file(device: str) -> None:
    with pytest.raises(InputError, match="does not name a recorded sweep"):
        parse_recorded(device)


def test_a_session_on_a_recording_needs_no_works(tmp_path: Path) -> None:
    path = tmp_path / "recording.parquet"
    write_sweep_parquet(_sweep(), path)
    workload = Workload(name="w", launches=(Launch(kernel="a"),))
    session = open_session(f"recorded:{path}", workload)

    assert ("a", "b") == session.runner.kernels
    assert _sweep().points == points_of_device(session.gpu, None, None, None)
    assert (AUTO,) == points_of_device(session.gpu, (None,), (None,), None)
    with pytest.raises(InputError, match="missing"):
        open_session(f"recorded:{tmp_path / 'missing.parquet'}", workload)


def test_a_recording_of_one_batch_size_is_not_played_as_another(tmp_path: Path) -> None:
    path = tmp_path / "recording.parquet"
    source = SweepSource(device="d", device_name="d", tool="t", workload="gpt3-xl,batch=8")
    write_sweep_parquet(_sweep(source=source), path)

    with pytest.raises(InputError, match="holds figures of gpt3-xl,batch=8"):
        open_session(f"recorded:{path}", load_workload("gpt3-xl"))
