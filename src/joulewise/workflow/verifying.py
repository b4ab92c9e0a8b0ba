"""`verify`: a plan run afresh beside its baseline."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from joulewise.domain.errors import InputError
from joulewise.domain.plan import Plan, Verification
from joulewise.domain.points import OperatingPoint, PowerLimitRange
from joulewise.domain.ports import Gpu, GpuIdentity, HardwareRunners, Progress
from joulewise.domain.session import DeviceSession
from joulewise.domain.workload import Workload
from joulewise.measure.settings import MeasureSettings
from joulewise.measure.verify import verify_plan
from joulewise.store.atomic import require_place
from joulewise.store.documents import plan_sha256, read_plan, write_verification
from joulewise.workflow.baseline_state import baseline_doubts, with_baseline_doubts
from joulewise.workflow.devices import open_session
from joulewise.workflow.kept_workloads import WORKLOAD_NAME, workload_beside
from joulewise.workflow.leasing import lease_on
from joulewise.workflow.preparing import (
    Announce,
    announce_nothing,
    announce_pairs,
    leaves_memory_clock,
    refuse_without_rights,
)
from joulewise.workflow.workloads import (
    is_named,
    load_workload,
    refuse_other_launches,
    refuse_other_size,
    source_files,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyJob:
    """What `verify` was asked for; device and workload default to those that the plan names."""

    plan: Path
    device: str | None
    workload: str | None
    pair_count: int
    out: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyResult:
    """A plan and what fresh runs showed of it."""

    plan: Plan
    verification: Verification


def verify_to_file(
    job: VerifyJob,
    progress: Progress,
    *,
    hardware: HardwareRunners | None = None,
    announce: Announce = announce_nothing,
) -> VerifyResult:
    """Verify a plan. Raises InputError for a plan that was made for another device."""
    plan = read_plan(job.plan)
    if job.out is not None:
        require_place(job.out, sources=source_files(job.plan, workload=job.workload))
    session = session_for_plan(
        plan, job.plan, device=job.device, workload=job.workload, hardware=hardware
    )
    with lease_on(session.gpu) as lease:
        refuse_impossible_points(plan, session.gpu, job.plan)
        refuse_without_rights(session, lease, points_of_plan(plan))
        announce_pairs(session, plan, job.pair_count, MeasureSettings(), announce)
        doubts = baseline_doubts(session.gpu)
        seen = verify_plan(
            session,
            lease,
            plan,
            pair_count=job.pair_count,
            settings=MeasureSettings(),
            plan_sha256=plan_sha256(plan),
            progress=progress,
        )
    seen = replace(seen, caveats=with_baseline_doubts(seen.caveats, doubts))
    if job.out is not None:
        write_verification(seen, job.out)
    return VerifyResult(plan=plan, verification=seen)


def session_for_plan(
    plan: Plan,
    file: Path,
    *,
    device: str | None,
    workload: str | None,
    hardware: HardwareRunners | None = None,
) -> DeviceSession:
    """Open the device that shall carry out a plan, with what the plan launches.

    A virtual device changes its clocks as the plan's transition model says, unless its device
    string says otherwise.

    Raises:
        InputError: the plan was made for another device or workload; names the plan's file.
    """
    ran = _workload_to_run(plan, file, workload)
    device = plan.device if device is None else device
    session = open_session(device, ran, plan.request.transition, hardware=hardware)
    refuse_other_device(plan, session.gpu.identity, file)
    lacking = [one.kernel for one in plan.launches if one.kernel not in session.runner.kernels]
    if lacking:
        raise InputError(
            f"the plan launches {lacking[0]!r}, which the workload {ran.name!r} lacks",
            file=str(file),
            hint="Name the workload that the plan was made for with --workload.",
        )
    refuse_other_launches(plan, ran, file)
    return session


def _workload_to_run(plan: Plan, file: Path, workload: str | None) -> Workload:
    """What the device shall run: the workload asked for, else the one that the plan names.

    One that is not built in lies beside the plan where `tune` made it.
    """
    if workload is not None:
        asked = load_workload(workload)
        refuse_other_size(plan.workload, asked, file)
        return asked
    beside = workload_beside(plan, file)
    if beside is not None:
        return beside
    if not is_named(plan.workload):
        raise InputError(
            f"the plan's workload ({plan.workload}) is not built in, and no {WORKLOAD_NAME} of it "
            "lies beside the plan, so nothing says what its kernels compute and a device cannot "
            "run them",
            file=str(file),
            field="workload",
            hint="Give --workload FILE, the workload file that measure, plan or tune was given. "
            "Plans of imported tables can be verified only where they were measured.",
        )
    return load_workload(plan.workload)


def points_of_plan(plan: Plan) -> tuple[OperatingPoint, ...]:
    """Every point that carrying out a plan and its baseline sets, each once."""
    return tuple(dict.fromkeys((plan.baseline, *(launch.point for launch in plan.launches))))


def refuse_impossible_points(plan: Plan, gpu: Gpu, file: Path) -> None:
    """All of them, before the first is set: a verification takes hours on hardware.

    What limits a device takes shows under a lease, once a dead holder's limit is put back.
    Raises InputError that names the plan's file.
    """
    grid = gpu.clock_grid()
    for point in points_of_plan(plan):
        if point.mem_clock_mhz is not None and leaves_memory_clock(gpu.identity.spec):
            raise InputError(
                f"the plan locks the memory clock of {gpu.identity.name}, which the device string "
                "does not allow",
                file=str(file),
                field="mem_clock_mhz",
                hint=f"Write --device {gpu.identity.spec},memory_lock=on",
            )
        for field, clock, listed in (
            ("sm_clock_mhz", point.sm_clock_mhz, grid.sm_clocks_mhz),
            ("mem_clock_mhz", point.mem_clock_mhz, grid.mem_clocks_mhz),
        ):
            if clock is not None and clock not in listed:
                raise InputError(
                    f"{gpu.identity.name} lists no clock of {clock} MHz",
                    file=str(file),
                    field=field,
                    hint="Measure and plan on this device.",
                )
        if not _is_limit_taken(point.power_limit_w, grid.power_limits):
            raise InputError(
                f"{gpu.identity.name} takes no power limit of {point.power_limit_w:g} W",
                file=str(file),
                field="power_limit_w",
                hint="Measure and plan on this device, with the limit that it has now."
                if grid.power_limits is None
                else f"It takes {grid.power_limits.least_w:g} to {grid.power_limits.found_w:g} W "
                "as it stands; joulewise never raises a limit.",
            )


def _is_limit_taken(limit_w: float | None, limits: PowerLimitRange | None) -> bool:
    if limit_w is None:
        return True
    return limits is not None and limits.least_w <= limit_w <= limits.found_w


def refuse_other_device(plan: Plan, identity: GpuIdentity, file: Path) -> None:
    """Clocks of one GPU model mean nothing on another."""
    if plan.device_name != identity.name:
        raise InputError(
            f"the plan was made for {plan.device_name}, and this is {identity.name}",
            file=str(file),
            field="device_name",
            hint="Measure and plan on this device.",
        )
