"""A plan of the fake driver's GPU is that of the virtual GPU: the same physics, seen by NVML.

Without noise both give every launch the same point, or one that does the very same: a power limit
that does not bind, auto where it is the clock asked for. With noise no two sweeps give one plan,
on virtual GPUs neither; what a plan saves and costs is then compared with plans of other seeds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev

import pytest

from joulewise.domain.plan import Plan, PlanRequest
from joulewise.domain.ports import no_progress
from joulewise.domain.workload import Workload
from joulewise.simulator.fake_driver import FakeDriver
from joulewise.simulator.oracle import Oracle, open_oracle
from joulewise.store.documents import read_plan, write_workload
from joulewise.workflow.devices import AskedPowerLimit
from joulewise.workflow.measuring import MeasureJob, measure_to_file
from joulewise.workflow.planning import PlanJob, plan_to_file
from joulewise.workflow.workloads import load_workload

BUDGET = 0.02
LIMITS = (None, AskedPowerLimit(limit_w=250.0), AskedPowerLimit(found_ratio=0.86))
# Two that compute, two that move data.
FEW_KERNELS = ("02_gemm_qkv", "05_softmax", "10_gemm_feedforward", "11_gelu")
# What is left between the two without noise: a counter in mJ and readings of whole degrees. No
# cell differs by more, so no sum of cells does.
SAME_CELL_RATIO = 5e-4
# Plans on noisy sweeps scatter; one more lies this many standard deviations off at most.
WITHIN_NOISE_STD_COUNT = 4.0
OTHER_SEEDS = range(1, 6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a plan says that it does, and what it does in truth."""

    said_slowdown_ratio: float
    said_saving_ratio: float
    slowdown_ratio: float
    saving_ratio: float


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this test writes; leases too."""
    monkeypatch.setenv("FAKE_NVML_PRIV", "1")
    monkeypatch.setenv("JOULEWISE_STATE_DIR", str(tmp_path / "state"))
    return tmp_path


def _workload(folder: Path, kernels: Collection[str] | None) -> Path:
    """A workload of these kernels of gpt3-xl, or of all."""
    whole = load_workload("gpt3-xl")
    kernels = whole.kernels if kernels is None else kernels
    workload = Workload(
        name="some",
        launches=tuple(launch for launch in whole.launches if launch.kernel in kernels),
        works=tuple(work for work in whole.works if work.kernel in kernels),
    )
    path = folder / "some.json"
    write_workload(workload, path)
    return path


def _measured(device: str, workload: Path, limits: Sequence[AskedPowerLimit | None] | None) -> Path:
    out = workload.with_name(f"{device.partition(':')[0]}.parquet")
    job = MeasureJob(
        device=device,
        workload=str(workload),
        sm_clocks_mhz=(None, 1395),
        mem_clocks_mhz=(None, 9501),
        power_limits=limits,
        out=out,
        is_resumed=False,
    )
    measure_to_file(job, no_progress)
    return out


def _planned(sweep: Path, workload: Path) -> Plan:
    job = PlanJob(
        sweep=sweep,
        workload=str(workload),
        request=PlanRequest(max_slowdown_ratio=BUDGET),
        is_guarded=False,
        out=None,
    )
    return plan_to_file(job).plan


def _outcome(oracle: Oracle, plan: Plan) -> Outcome:
    time_s, energy_j = oracle.true_iteration(plan.launches)
    at_baseline = [replace(launch, point=plan.baseline) for launch in plan.launches]
    baseline_s, baseline_j = oracle.true_iteration(at_baseline)
    return Outcome(
        said_slowdown_ratio=plan.slowdown_ratio,
        said_saving_ratio=plan.saving_ratio,
        slowdown_ratio=time_s / baseline_s,
        saving_ratio=1.0 - energy_j / baseline_j,
    )


def _ratios(outcome: Outcome) -> Mapping[str, float]:
    return {name: getattr(outcome, name) for name in Outcome.__dataclass_fields__}


def _runs(oracle: Oracle, plan: Plan) -> list[tuple[float, float]]:
    """What each launch of a plan takes and draws in truth, in s and J."""
    truth = {
        (launch.kernel, launch.point): oracle.true_iteration([launch]) for launch in plan.launches
    }
    return [truth[launch.kernel, launch.point] for launch in plan.launches]


@pytest.mark.parametrize(
    "kernels", [FEW_KERNELS, pytest.param(None, marks=pytest.mark.integration)], ids=["few", "all"]
)
@pytest.mark.parametrize("limits", [None, LIMITS], ids=["clocks", "clocks and power limits"])
def test_without_noise_the_plan_on_the_fake_driver_is_that_on_the_virtual_gpu(
    driver: FakeDriver,
    folder: Path,
    kernels: Collection[str] | None,
    limits: Sequence[AskedPowerLimit | None] | None,
) -> None:
    assert driver.is_virtual_time
    workload = _workload(folder, kernels)
    oracle = open_oracle("virtual:rtx3080ti", load_workload(str(workload)).works)
    devices = ("virtual:rtx3080ti,noise=0", "nvml:0,memory_lock=on")
    virtual, fake = (_planned(_measured(device, workload, limits), workload) for device in devices)

    if limits is None:
        assert [launch.point for launch in virtual.launches] == [
            launch.point for launch in fake.launches
        ]
    for expected, found in zip(_runs(oracle, virtual), _runs(oracle, fake), strict=True):
        assert expected == pytest.approx(found, rel=1e-12)
    said = _ratios(_outcome(oracle, virtual))
    assert said == pytest.approx(_ratios(_outcome(oracle, fake)), abs=2 * SAME_CELL_RATIO)
    assert said["saving_ratio"] > 0.05


@pytest.mark.integration
@pytest.mark.parametrize("limits", [None, "auto,250,86%"], ids=["clocks", "clocks and limits"])
def test_with_noise_the_plan_on_the_fake_driver_is_one_of_those_on_virtual_gpus(
    fake_library: Path, tmp_path: Path, limits: str | None
) -> None:
    """All of gpt3-xl through the command line, guarded; other seeds show what noise does."""
    oracle = open_oracle("virtual:rtx3080ti", load_workload("gpt3-xl").works)
    fake = _ratios(_outcome(oracle, _by_command(tmp_path, fake_library, "nvml:0", limits)))
    others = [
        _ratios(
            _outcome(oracle, _by_command(tmp_path, None, f"virtual:rtx3080ti,seed={seed}", limits))
        )
        for seed in OTHER_SEEDS
    ]

    for name, ratio in fake.items():
        seen = [other[name] for other in others]
        allowed = max(WITHIN_NOISE_STD_COUNT * stdev(seen), SAME_CELL_RATIO)
        assert ratio == pytest.approx(fmean(seen), abs=allowed), name


def _by_command(folder: Path, library: Path | None, device: str, limits: str | None) -> Plan:
    environment = {
        **{name: text for name, text in os.environ.items() if not name.startswith("JOULEWISE_")},
        "JOULEWISE_STATE_DIR": str(folder / "state"),
        "FAKE_NVML_STATE": str(folder / "driver.state"),
        "FAKE_NVML_PROFILE": "rtx3080ti",
        "FAKE_NVML_TIME": "virtual",
        "FAKE_NVML_NOISE": "noise=default,seed=99",
        "FAKE_NVML_PRIV": "1",
    }
    memory_lock = ""
    if library is not None:
        environment["LD_LIBRARY_PATH"] = str(library.parent)
        memory_lock = ",memory_lock=on"
    sweep, plan = folder / "sweep.parquet", folder / "plan.json"
    clocks = ("--sm-clocks", "auto,1395,1680,1890", "--mem-clocks", "auto,9501")
    measure = ["measure", "--device", f"{device}{memory_lock}", *clocks, "--out", str(sweep)]
    measure += [] if limits is None else ["--power-limits", limits]
    wish = ["plan", str(sweep), "--workload", "gpt3-xl", "--max-slowdown", f"{BUDGET:.0%}"]
    for arguments in (measure, [*wish, "--out", str(plan)]):
        done = subprocess.run(
            [sys.executable, "-m", "joulewise", *arguments, "--json"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "status" in json.loads(done.stdout)
    return read_plan(plan)
