"""What a user of an NVIDIA GPU is told before, during and after measuring, on the fake driver."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.fake_nvml import BUILD, DriverMaker
from tests.nvml.works import WORKS

from joulewise.cli.app import run
from joulewise.domain.caveats import CaveatKind
from joulewise.domain.errors import DeviceError, InputError, NotPermitted
from joulewise.domain.plan import Objective, PlanRequest
from joulewise.domain.ports import no_progress
from joulewise.domain.workload import Launch, Workload
from joulewise.store.documents import write_workload
from joulewise.workflow.devices import device_lines, open_session
from joulewise.workflow.measuring import MeasureJob, measure_to_file
from joulewise.workflow.passed_over import passed_over
from joulewise.workflow.planning import PlanJob, plan_to_file
from joulewise.workflow.preparing import Announce
from joulewise.workflow.verifying import VerifyJob, verify_to_file

COPY = Workload(name="copy", launches=(Launch(kernel="copy"),), works=(WORKS[1],))
NO_PERMISSION = 4


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MeasureJob:
    """A small sweep of SM clocks by an account with rights, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JOULEWISE_STATE_DIR", str(tmp_path / "leases"))
    monkeypatch.setenv("FAKE_NVML_PRIV", "1")
    write_workload(COPY, tmp_path / "copy.json")
    return MeasureJob(
        device="nvml:0",
        workload="copy.json",
        sm_clocks_mhz=(None, 1680),
        mem_clocks_mhz=None,
        out=tmp_path / "sweep.parquet",
        is_resumed=False,
    )


@pytest.mark.parametrize(
    ("profile", "is_calibrated"),
    [("rtx3080ti", True), ("a100-sxm", True), ("h100-sxm", False), ("rtx4090", False)],
)
def test_a_fake_board_that_was_never_fitted_says_so(
    make_driver: DriverMaker, profile: str, *, is_calibrated: bool
) -> None:
    make_driver(profile)

    kinds = {caveat.kind for caveat in open_session("nvml:0", COPY).gpu.identity.caveats}
    (line,) = [line for line in device_lines() if line.device == "nvml:0"]

    assert is_calibrated is line.is_calibrated
    assert is_calibrated is (CaveatKind.UNCALIBRATED not in kinds)


def test_missing_rights_show_before_the_first_window(
    make_driver: DriverMaker, job: MeasureJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_driver()
    monkeypatch.setenv("FAKE_NVML_PRIV", "0")
    told: list[str] = []

    with pytest.raises(NotPermitted, match="nothing was measured") as caught:
        measure_to_file(job, lambda what, _done, _total: told.append(what))

    assert [] == told
    assert "--sm-clocks auto` alone sets nothing" in str(caught.value.hint)
    assert [] == list(job.out.parent.glob("sweep*"))


def test_auto_alone_needs_no_rights(
    make_driver: DriverMaker, job: MeasureJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_driver()
    monkeypatch.setenv("FAKE_NVML_PRIV", "0")

    sweep = measure_to_file(replace(job, sm_clocks_mhz=(None,)), no_progress)

    assert (1, 1) == sweep.is_present.shape


def test_a_sweep_that_was_finished_is_named_when_clocks_cannot_be_given_back(
    make_driver: DriverMaker, job: MeasureJob
) -> None:
    driver = make_driver()

    def fail_at_the_end(_what: str, done_count: int, total_count: int) -> None:
        if done_count == total_count:
            driver.fail("nvmlDeviceResetGpuLockedClocks", NO_PERMISSION)

    with pytest.raises(DeviceError) as caught:
        measure_to_file(replace(job, sm_clocks_mhz=(None, 1680, 1380)), fail_at_the_end)

    assert f"The sweep is complete; it was written to {job.out}." in caught.value.__notes__
    assert job.out.exists()


def test_a_plan_that_locks_the_memory_names_the_option(
    make_driver: DriverMaker, job: MeasureJob
) -> None:
    make_driver()
    locked = replace(job, device="nvml:0,memory_lock=on", mem_clocks_mhz=(9251,))
    measure_to_file(replace(locked, sm_clocks_mhz=(1680,)), no_progress)
    file = job.out.with_name("plan.json")
    request = PlanRequest(objective=Objective.MIN_ENERGY, max_slowdown_ratio=None)
    plan_to_file(
        PlanJob(sweep=job.out, workload="copy.json", request=request, is_guarded=False, out=file)
    )
    asked = VerifyJob(plan=file, device="nvml:0", workload="copy.json", pair_count=2, out=None)

    with pytest.raises(InputError, match="locks the memory clock") as caught:
        verify_to_file(asked, no_progress)

    assert str(caught.value.hint).startswith("Write --device nvml:GPU-")
    assert str(caught.value.hint).endswith(",memory_lock=on")


def test_cells_and_time_are_told_only_where_time_is_real(
    make_driver: DriverMaker, job: MeasureJob
) -> None:
    told: list[str] = []
    make_driver()
    measure_to_file(job, no_progress, announce=told.append)
    assert [] == told

    make_driver(is_virtual_time=False)
    with pytest.raises(_Enough):
        measure_to_file(replace(job, sm_clocks_mhz=None), no_progress, announce=_stop_and(told))

    assert "11 cells of 3 windows of 5 s each" in told[0]
    assert "about 18 min" in told[0]


class _Enough(Exception):
    """Ends a measurement that would take its time."""


def _stop_and(told: list[str]) -> Announce:
    def announce(sentence: str) -> None:
        told.append(sentence)
        raise _Enough

    return announce


def test_a_gpu_that_is_passed_over_is_named_once_and_not_to_programs(
    make_driver: DriverMaker,
    job: MeasureJob,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make_driver()
    monkeypatch.setenv("LD_LIBRARY_PATH", str(BUILD))
    asked = ["measure", "--workload", job.workload, "--sm-clocks", "auto", "--mem-clocks", "auto"]

    assert "nvml:0 NVIDIA GeForce RTX 3080 Ti" == passed_over()
    run(asked)
    assert 1 == capsys.readouterr().err.count("note: no --device was given")
    run([*asked, "--device", "virtual:rtx3080ti"])
    assert "no --device" not in capsys.readouterr().err
    run([*asked, "--json"])
    assert "" == capsys.readouterr().err
    monkeypatch.delenv("LD_LIBRARY_PATH")
    assert passed_over() is None


def test_measuring_says_that_the_memory_clock_was_left_alone(
    make_driver: DriverMaker, job: MeasureJob, capsys: pytest.CaptureFixture[str]
) -> None:
    make_driver()
    asked = ["measure", "--workload", job.workload, "--sm-clocks", "auto", "--device"]

    run([*asked, "nvml:0"])
    said = " ".join(capsys.readouterr().out.split())
    assert "Simulated NVIDIA GeForce RTX 3080 Ti (nvml:GPU-" in said
    assert "The memory clock was left to the driver" in said
    run([*asked, "nvml:0,memory_lock=on", "--mem-clocks", "auto"])
    assert "left to the driver" not in capsys.readouterr().out
