"""Plans, verifications and workloads in and out of JSON, by example."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import msgspec
import pytest

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.errors import InputError
from joulewise.domain.plan import (
    Interval,
    Objective,
    Plan,
    PlannedLaunch,
    PlanRequest,
    Status,
    Verification,
    VerificationPair,
)
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.workload import Dtype, KernelKind, KernelWork, Launch, Pass, Workload
from joulewise.store.documents import (
    plan_sha256,
    read_plan,
    read_verification,
    read_workload,
    write_plan,
    write_verification,
    write_workload,
)

PLAN = Plan(
    status=Status.OPTIMAL,
    request=PlanRequest(objective=Objective.EDP, max_slowdown_ratio=None),
    device="virtual:rtx3080ti",
    device_name="RTX 3080 Ti",
    workload="gpt3-xl",
    sweep_sha256="ab" * 32,
    baseline=AUTO,
    time_s=0.1 + 0.2,
    energy_j=85.4,
    baseline_time_s=0.3,
    baseline_energy_j=100.0,
    slowdown_ratio=(0.1 + 0.2) / 0.3,
    saving_ratio=1.0 - 85.4 / 100.0,
    bound_gap_ratio=None,
    guard_band_ratio=0.001,
    launches=(
        PlannedLaunch(kernel="gemm", pass_=Pass.FORWARD, point=AUTO),
        PlannedLaunch(
            kernel="gemm",
            pass_=Pass.BACKWARD,
            point=OperatingPoint(sm_clock_mhz=1410, mem_clock_mhz=5001, power_limit_w=250.0),
        ),
    ),
    caveats=(Caveat(kind=CaveatKind.NOT_VERIFIED, seen="Nobody ran it… yet."),),
)
VERIFICATION = Verification(
    plan_sha256="cd" * 32,
    device="virtual:rtx3080ti",
    device_name="RTX 3080 Ti",
    pairs=(
        VerificationPair(
            baseline_time_s=1.0, baseline_energy_j=2.0, plan_time_s=1.01, plan_energy_j=1.7
        ),
    ),
    promised_slowdown_ratio=1.006,
    promised_saving_ratio=0.15,
    slowdown_ratio=1.005,
    slowdown_interval=Interval(low_ratio=1.004, high_ratio=1.006),
    saving_ratio=0.149,
    saving_interval=Interval(low_ratio=0.148, high_ratio=0.15),
    max_slowdown_ratio=0.006,
    is_within_budget=True,
)
WORK = KernelWork(
    kernel="gemm",
    kind=KernelKind.GEMM,
    dtype=Dtype.BF16,
    flop_count=1e12,
    traffic_bytes=1e9,
    compute_efficiency_ratio=0.8,
    memory_efficiency_ratio=0.7,
    core_activity_ratio=1.0,
    memory_activity_ratio=1.0,
    clock_offset_ratio=-0.01,
)


def edited(path: Path, **changes: object) -> None:
    """Write the JSON file with some top-level fields changed."""
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | changes))


def test_a_plan_reads_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    write_plan(PLAN, path)

    assert PLAN == read_plan(path)


def test_a_plan_file_says_pass_and_its_schema_version(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    write_plan(PLAN, path)

    document = json.loads(path.read_text(encoding="utf-8"))

    assert 1 == document["schema_version"]
    assert ["forward", "backward"] == [launch["pass"] for launch in document["launches"]]


def test_a_verification_reads_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "verification.json"
    write_verification(VERIFICATION, path)

    assert VERIFICATION == read_verification(path)


def test_the_name_of_a_plan_hangs_on_what_it_says_only(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    write_plan(PLAN, path)
    edited(path)  # another layout, the same content

    assert plan_sha256(PLAN) == plan_sha256(read_plan(path))
    assert plan_sha256(PLAN) != plan_sha256(dataclasses.replace(PLAN, energy_j=85.5))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"schema_version": 7}, "'schema_version': schema version 7 is not known"),
        ({"colour": "red"}, "'colour': the field is not known"),
        ({"time_s": "fast"}, "'time_s': this must be a number, not text"),
        ({"time_s": -1.0}, "'time_s': this must be a number >= 0"),
        ({"status": "splendid"}, "'status': this cannot be 'splendid'"),
        ({"baseline": {"sm_clock_mhz": 0}}, "'baseline': sm_clock_mhz must be positive"),
        ({"launches": [{"kernel": "a"}]}, r"'launches\[0\].pass': the field is missing"),
    ],
)
def test_a_changed_plan_is_refused_by_field(
    tmp_path: Path, changes: dict[str, object], expected: str
) -> None:
    path = tmp_path / "plan.json"
    write_plan(PLAN, path)
    edited(path, **changes)

    with pytest.raises(InputError, match=f"plan.json, field {expected}"):
        read_plan(path)


def test_a_plan_with_a_number_that_json_lacks_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(msgspec.ValidationError):
        write_plan(dataclasses.replace(PLAN, time_s=math.nan), tmp_path / "plan.json")

    assert [] == list(tmp_path.iterdir())


def test_nested_groups_expand_in_order(tmp_path: Path) -> None:
    path = tmp_path / "workload.json"
    path.write_text(
        """{"schema_version": 1, "name": "tiny", "launches": [
            {"kernel": "embed"},
            {"repeat": 2, "launches": [
                {"kernel": "gemm", "repeat": 2},
                {"launches": [{"kernel": "softmax", "pass": "backward"}]}
            ]},
            {"kernel": "adam", "pass": "optimizer"}
        ]}"""
    )

    workload = read_workload(path)

    gemm, softmax = Launch(kernel="gemm"), Launch(kernel="softmax", pass_=Pass.BACKWARD)
    layer = (gemm, gemm, softmax)
    last = Launch(kernel="adam", pass_=Pass.OPTIMIZER)
    assert (Launch(kernel="embed"), *layer, *layer, last) == workload.launches
    assert ("tiny", ()) == (workload.name, workload.works)


def test_a_workload_keeps_the_work_of_its_kernels(tmp_path: Path) -> None:
    path = tmp_path / "workload.json"
    workload = Workload(name="w", launches=(Launch(kernel="gemm"),) * 3, works=(WORK,))
    write_workload(workload, path)

    assert workload == read_workload(path)
    assert 3 == json.loads(path.read_text())["launches"][0]["repeat"]


def test_the_work_of_a_kernel_is_given_once(tmp_path: Path) -> None:
    path = tmp_path / "workload.json"
    write_workload(Workload(name="w", launches=(Launch(kernel="gemm"),), works=(WORK,)), path)
    document = json.loads(path.read_text())
    document["works"] *= 2
    path.write_text(json.dumps(document))

    with pytest.raises(InputError, match="the work of kernel 'gemm' is given 2 times"):
        read_workload(path)
