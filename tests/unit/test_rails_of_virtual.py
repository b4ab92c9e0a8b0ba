"""Rails of the virtual modules: what is counted, and what their monitor shows."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulewise.domain.caveats import CaveatKind
from joulewise.domain.errors import NotSupported
from joulewise.domain.measurement import GpuSample
from joulewise.domain.points import AUTO, KnobState, OperatingPoint
from joulewise.domain.session import DeviceSession
from joulewise.finetune.jobs import training_jobs
from joulewise.finetune.step_work import step_work
from joulewise.simulator.operations import Operations
from joulewise.simulator.presets import nvml_preset_names, preset, preset_names
from joulewise.simulator.rails import module_power_w
from joulewise.simulator.virtual import open_virtual

MODULES = ("agx-orin", "orin-nano-super")
WORKS = tuple(step_work(job) for job in training_jobs())
OPERATIONS = {name: Operations(preset(name), WORKS) for name in MODULES}


def _open(name: str, options: str = "noise=0") -> DeviceSession:
    return open_virtual(f"virtual:{name},{options}", WORKS)


def _samples(session: DeviceSession, count: int, every_s: float) -> list[GpuSample]:
    samples = []
    with session.runner.loop("bert-base/qnli", run="r") as loop:
        for _ in range(count):
            loop.run_for(every_s)
            samples.append(session.gpu.sample())
    return samples


@settings(max_examples=40)
@given(name=st.sampled_from(MODULES), data=st.data())
def test_counted_rails_sum_to_the_module_at_every_point(name: str, data: st.DataObject) -> None:
    grid = preset(name).grid
    point = OperatingPoint(
        sm_clock_mhz=data.draw(st.sampled_from((None, *grid.sm_clocks_mhz))),
        mem_clock_mhz=data.draw(st.sampled_from((None, *grid.mem_clocks_mhz))),
    )
    operations = OPERATIONS[name]
    kernel = data.draw(st.sampled_from(operations.kernels))

    for operation in (operations.running(kernel, point), operations.idle(point)):
        assert operation.power_w == pytest.approx(module_power_w(operation.rails), rel=1e-6)
        assert all(rail.power_w > 0 for rail in operation.rails)


@pytest.mark.parametrize(
    ("name", "counted", "left_out"),
    [
        ("agx-orin", ("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"), ("VDDQ_VDD2_1V8AO",)),
        ("orin-nano-super", ("VDD_IN",), ("VDD_CPU_GPU_CV", "VDD_SOC")),
    ],
)
def test_rails_are_labelled_as_on_the_board_and_none_is_counted_twice(
    name: str, counted: tuple[str, ...], left_out: tuple[str, ...]
) -> None:
    sample = _open(name).gpu.sample()

    assert counted == tuple(rail.rail for rail in sample.rails if rail.is_counted)
    assert left_out == tuple(rail.rail for rail in sample.rails if not rail.is_counted)


def test_what_is_left_out_is_part_of_what_is_counted() -> None:
    by_rail = {rail.rail: rail.power_w for rail in _samples(_open("agx-orin"), 1, 60.0)[0].rails}
    assert by_rail["VDDQ_VDD2_1V8AO"] < by_rail["VIN_SYS_5V0"]

    by_rail = {
        rail.rail: rail.power_w for rail in _samples(_open("orin-nano-super"), 1, 60.0)[0].rails
    }
    assert by_rail["VDD_CPU_GPU_CV"] + by_rail["VDD_SOC"] < by_rail["VDD_IN"]


@pytest.mark.parametrize("name", MODULES)
def test_a_sample_is_the_sum_of_its_rails_with_noise_too(name: str) -> None:
    for sample in _samples(_open(name, "seed=3"), 5, 0.4):
        assert module_power_w(sample.rails) == sample.power_w


@pytest.mark.parametrize("name", MODULES)
def test_a_reading_stands_until_the_next_one(name: str) -> None:
    session = _open(name)
    with session.runner.loop("bert-base/qnli", run="r") as loop:
        seen = []
        for _ in range(200):
            loop.run_for(0.01)
            seen.append(session.gpu.sample().power_w)

    changes = sum(before != after for before, after in pairwise(seen))
    assert 10 <= changes <= 20  # 2 s, a new one every 0.1 to 0.2 s, while the board warms


@pytest.mark.parametrize("name", MODULES)
def test_a_module_has_no_energy_counter_and_says_so(name: str) -> None:
    gpu = _open(name).gpu

    assert gpu.energy_counter_period_s is None
    assert gpu.sample().energy_j is None
    with pytest.raises(NotSupported, match="no energy counter"):
        gpu.wait_for_energy_tick(1.0)


@pytest.mark.parametrize("name", MODULES)
def test_a_module_has_no_power_limit_and_refuses_one(name: str) -> None:
    gpu = _open(name).gpu

    assert gpu.clock_grid().power_limits is None
    assert KnobState() == gpu.knob_state()
    with pytest.raises(NotSupported, match="no power limit"):
        gpu.request(OperatingPoint(power_limit_w=20.0))


def test_a_hot_module_throttles_although_it_has_no_limit_to_set() -> None:
    samples = _samples(_open("agx-orin", "noise=0,ambient=90C"), 3, 200.0)

    assert samples[-1].thermally_throttled_s
    assert samples[-1].power_w is not None
    assert samples[-1].power_w < OPERATIONS["agx-orin"].running("bert-base/qnli", AUTO).power_w


def test_a_module_tells_how_busy_its_gpu_is() -> None:
    session = _open("agx-orin")

    assert 0.0 == session.gpu.sample().busy_ratio
    with session.runner.loop("pythia-31m/sst2", run="r") as loop:
        loop.run_for(1.0)
        assert 0.3 < (session.gpu.sample().busy_ratio or 0.0) < 0.7


def test_the_identity_says_which_rails_the_energy_is_of() -> None:
    caveats = {one.kind: one.seen for one in _open("agx-orin").gpu.identity.caveats}

    assert (
        "energy is of VDD_GPU_SOC + VDD_CPU_CV + VIN_SYS_5V0; the carrier board is not measured"
        == caveats[CaveatKind.ENERGY_OF_MODULE]
    )


def test_rails_that_count_the_module_twice_or_not_whole_are_refused() -> None:
    spec = preset("agx-orin")
    twice = tuple(replace(rail, is_counted=True) for rail in spec.rails)

    with pytest.raises(ValueError, match="share of memory"):
        replace(spec, rails=twice)
    with pytest.raises(ValueError, match="base of the counted rails"):
        replace(spec, rails=spec.rails[1:])


def test_other_virtual_gpus_have_counters_and_no_rails() -> None:
    assert set(MODULES) == set(preset_names()) - set(nvml_preset_names())
    for name in nvml_preset_names():
        sample = _open(name).gpu.sample()
        assert sample.energy_j is not None
        assert (sample.rails, sample.busy_ratio) == ((), None)
