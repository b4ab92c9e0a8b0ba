"""A workload file with gaps, exchanges and every pass, from the file to the verified plan."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.kernel_works import kernel_works
from tests.waiting import exchange, gap

from joulewise.domain.plan import PlanRequest, Status
from joulewise.domain.ports import no_progress
from joulewise.domain.workload import Launch, Pass, Workload
from joulewise.report.gaps import is_gap
from joulewise.store.workload_files import write_workload
from joulewise.workflow.tuning import TuneJob, tune_to_folder

KERNELS = kernel_works(
    {"gemm": (4e11, 4e8), "norm": (1e8, 8e8), "adamw": (1e9, 4e9)}, core_activity_ratio=0.8
)
WORKS = (*KERNELS, gap(8e-6, "gap 4-8 us"), gap(2e-3, "host_gap"), exchange(3e-3))
LAYERS = (("gemm", Pass.FORWARD), ("gap 4-8 us", Pass.FORWARD), ("norm", Pass.FORWARD))
BACK = (("gemm", Pass.BACKWARD), ("norm", Pass.BACKWARD), ("all-reduce", Pass.COMMUNICATION))
END = (("adamw", Pass.OPTIMIZER), ("host_gap", Pass.OPTIMIZER))


@pytest.mark.parametrize(
    "device",
    ["virtual:rtx3080ti", pytest.param("virtual:a100-sxm", marks=pytest.mark.integration)],
)
def test_a_workload_file_that_waits_is_tuned(tmp_path: Path, device: str) -> None:
    launches = [*LAYERS * 4, *BACK * 4, *END]
    workload = Workload(
        name="training",
        launches=tuple(Launch(kernel=kernel, pass_=pass_) for kernel, pass_ in launches),
        works=WORKS,
    )
    file = tmp_path / "workload.json"
    write_workload(workload, file)

    result = tune_to_folder(
        TuneJob(
            device=device,
            workload=str(file),
            request=PlanRequest(max_slowdown_ratio=0.01),
            sm_clocks_mhz=(None, 600, 900, 1200, 1410),
            mem_clocks_mhz=(None,),
            pair_count=10,
            out=tmp_path / "run",
        ),
        no_progress,
    )

    plan, seen = result.plan, result.verification
    assert plan.status in {Status.OPTIMAL, Status.FEASIBLE}
    assert [launch.pass_ for launch in plan.launches] == [pass_ for _, pass_ in launches]
    gaps = {launch.point.sm_clock_mhz for launch in plan.launches if is_gap(launch.kernel)}
    assert gaps == {600}
    assert seen.slowdown_ratio < 1.011
    assert seen.saving_ratio > 0.02
    page = result.report.read_text(encoding="utf-8")
    assert "host gaps: 5 of" in page
