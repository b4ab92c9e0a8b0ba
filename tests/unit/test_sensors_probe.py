from __future__ import annotations

from dataclasses import replace

import pytest
from tests.changed_gpus import ChangedGpu

from joulewise.domain.caveats import CaveatKind
from joulewise.domain.errors import InputError, NotSupported
from joulewise.domain.measurement import GpuSample
from joulewise.domain.points import AUTO
from joulewise.domain.sensor_probe import SensorProbe
from joulewise.domain.session import DeviceSession
from joulewise.measure.sensors import SensorSettings, probe_sensors
from joulewise.simulator.physics import idle_power_w
from joulewise.simulator.presets import preset
from joulewise.simulator.virtual import open_virtual
from joulewise.workload.gpt3_xl import gpt3_xl

WORKS = gpt3_xl().works[:2]
KERNEL = WORKS[0].kernel
QUICK = SensorSettings(poll_s=0.002, poll_duration_s=1.0)


def _probe(session: DeviceSession, settings: SensorSettings = QUICK) -> SensorProbe:
    return probe_sensors(session.gpu, session.runner, KERNEL, settings)


def _kinds(probe: SensorProbe) -> set[CaveatKind]:
    return {caveat.kind for caveat in probe.caveats}


@pytest.mark.parametrize(
    ("name", "counter_period_s", "window_s"),
    [("rtx3080ti", 0.1, 1.0), ("a100-sxm", 0.1, 0.025), ("h100-sxm", 0.05, 1.0)],
)
def test_the_sensors_of_a_virtual_board_are_found_as_they_are(
    name: str, counter_period_s: float, window_s: float
) -> None:
    probe = _probe(open_virtual(f"virtual:{name},noise=0", WORKS))
    assert probe.counter is not None
    assert probe.counter.period_s == pytest.approx(counter_period_s, rel=1e-3)
    assert probe.instant_window_s == pytest.approx(window_s, rel=0.02)
    # Its power reading slides: there is no update to be seen, and no second reading.
    assert (None, None, None) == (probe.power, probe.average_power, probe.average_window_s)
    assert probe.power_excess_ratio == pytest.approx(0.0, abs=2e-3)
    assert probe.idle_power_w == pytest.approx(idle_power_w(preset(name), AUTO), rel=0.06)
    assert CaveatKind.COUNTER_DISAGREES not in _kinds(probe)
    assert CaveatKind.SIMULATED_DEVICE in _kinds(probe)


def test_without_a_load_only_idle_readings_are_told() -> None:
    session = open_virtual("virtual:rtx3080ti,noise=0", ())
    for runner in (None, session.runner):
        probe = probe_sensors(session.gpu, runner, None, QUICK)
        assert probe.counter is not None
        assert probe.counter.period_s == pytest.approx(0.1, rel=1e-3)
        assert (None, None) == (probe.kernel, probe.steady_power_w)
        assert (None, None) == (probe.instant_window_s, probe.power_excess_ratio)
        assert probe.idle_power_w is not None


@pytest.mark.parametrize(("gain_ratio", "is_doubted"), [(1.02, False), (1.05, True), (0.9, True)])
def test_a_counter_more_than_three_percent_off_its_power_readings_is_doubted(
    *, gain_ratio: float, is_doubted: bool
) -> None:
    session = open_virtual("virtual:rtx3080ti,noise=0", WORKS)

    def gained(sample: GpuSample) -> GpuSample:
        return replace(sample, power_w=gain_ratio * (sample.power_w or 0.0))

    probe = _probe(replace(session, gpu=ChangedGpu(session.gpu, gained)))
    assert probe.power_excess_ratio == pytest.approx(gain_ratio - 1.0, abs=2e-3)
    assert is_doubted == (CaveatKind.COUNTER_DISAGREES in _kinds(probe))


def test_a_device_without_counter_is_probed_by_its_power() -> None:
    session = open_virtual("virtual:rtx3080ti,noise=0", WORKS)
    whole = _probe(session)

    def meterless(sample: GpuSample) -> GpuSample:
        return replace(sample, energy_j=None)

    session = open_virtual("virtual:rtx3080ti,noise=0", WORKS)
    gpu = ChangedGpu(session.gpu, meterless, has_counter=False)
    probe = _probe(replace(session, gpu=gpu))
    assert (None, None) == (probe.counter, probe.power_excess_ratio)
    assert probe.idle_power_w == pytest.approx(whole.idle_power_w, rel=1e-2)
    assert probe.steady_power_w == pytest.approx(whole.steady_power_w, rel=1e-2)
    assert CaveatKind.ENERGY_FROM_POWER in _kinds(probe)


def test_a_device_that_tells_neither_is_an_error() -> None:
    session = open_virtual("virtual:rtx3080ti,noise=0", WORKS)

    def blind(sample: GpuSample) -> GpuSample:
        return replace(sample, energy_j=None, power_w=None)

    gpu = ChangedGpu(session.gpu, blind, has_counter=False)
    with pytest.raises(NotSupported, match="tells no power"):
        probe_sensors(gpu, session.runner, KERNEL, QUICK)


def test_what_disturbs_the_steady_load_is_told() -> None:
    hot = _probe(open_virtual("virtual:rtx3080ti,noise=0,ambient=60", WORKS))
    assert CaveatKind.THERMALLY_THROTTLED in _kinds(hot)
    crowded = _probe(open_virtual("virtual:rtx3080ti,noise=0,foreign=0..1000", WORKS))
    assert CaveatKind.OTHER_PROCESS_ON_GPU in _kinds(crowded)
    assert crowded.idle_power_w is None


def test_stages_are_told_and_an_unknown_kernel_is_refused() -> None:
    session = open_virtual("virtual:rtx3080ti,noise=0", WORKS)
    told: list[tuple[str, int, int]] = []
    settings = replace(QUICK, short_step_count=0)
    probe_sensors(session.gpu, session.runner, None, settings, lambda *step: told.append(step))
    assert [("probing sensors", done, 4) for done in range(5)] == told
    with pytest.raises(InputError, match="cannot run the kernel 'bogus'"):
        probe_sensors(session.gpu, session.runner, "bogus", QUICK)


@pytest.mark.parametrize("name", ["idle_s", "poll_s", "steady_s"])
def test_a_probe_that_takes_no_time_is_refused(name: str) -> None:
    broken: dict[str, float] = {name: 0.0}
    with pytest.raises(InputError, match=name):
        SensorSettings(**broken)  # type: ignore[arg-type]
