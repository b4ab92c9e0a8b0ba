"""Facts of drivers and GPUs as they are found in the field, for the doctor to judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from joulewise.device.host import HostFacts
from joulewise.domain.gpu_facts import Absence, DriverFacts, Fact, GpuFacts
from joulewise.domain.measurement import EventReason
from joulewise.workflow.diagnosis import SeenGpu, diagnose
from joulewise.workflow.findings import Diagnosis, Finding

T = TypeVar("T")

ROOT = HostFacts(
    system="Linux",
    is_root=True,
    has_sys_admin=True,
    is_initial_user_namespace=True,
    nvidia_pci_count=1,
    kernel_module_version="580.65.06",
    packages=("torch", "cuda-bindings"),
)
LAPTOP = replace(ROOT, nvidia_pci_count=0, kernel_module_version=None, packages=())


def known(value: T) -> Fact[T]:
    return Fact(value=value)


def lacking(call: str, absence: Absence = Absence.NOT_SUPPORTED) -> Fact[T]:
    return Fact(absence=absence, reason=f"{call}: {absence.value}")


YES, NO = Fact(value=True), Fact(value=False)

DRIVER = DriverFacts(
    is_fake=False,
    driver_version=known("580.65.06"),
    nvml_version=known("13.580.65.06"),
    cuda_version=known("13.0"),
    gpu_count=known(1),
)

RTX_3080_TI = GpuFacts(
    index=0,
    uuid=known("GPU-4ad1c0de-0000-4000-8000-000000000001"),
    name=known("NVIDIA GeForce RTX 3080 Ti"),
    pci=known("00000000:01:00.0"),
    architecture=known("Ampere"),
    compute_capability=known("8.6"),
    virtualization=known("none"),
    is_persistent=YES,
    is_partitioned=lacking("nvmlDeviceGetMigMode"),
    is_superchip=NO,
    is_power_smoothed=lacking("field 251"),
    compute_processes=known(()),
    sm_clocks_mhz=known(tuple(range(210, 2115, 15))),
    mem_clocks_mhz=known((405, 810, 5001, 9251, 9501)),
    power_limit_w=known(350.0),
    default_power_limit_w=known(350.0),
    least_power_limit_w=known(100.0),
    greatest_power_limit_w=known(400.0),
    enforced_power_limit_w=known(350.0),
    memory_clock_switch=known("at once"),
    memory_clock_switch_interval_s=known(0.0),
    sm_clock_mhz=known(210),
    mem_clock_mhz=known(405),
    performance_state=known("P8"),
    temp_c=known(38.0),
    event_reasons=known(frozenset({EventReason.GPU_IDLE})),
    supported_event_reasons=known(frozenset(EventReason)),
    energy_j=known(81234.5),
    power_w=known(22.4),
    average_power_w=known(22.6),
    usage_power_w=known(22.6),
    module_power_w=lacking("field 186, scope 1"),
    memory_power_w=lacking("field 185, scope 2"),
    power_capped_s=known(0.0),
    sw_thermal_s=known(0.0),
    hw_thermal_s=known(0.0),
    power_braked_s=known(0.0),
    sync_boosted_s=known(0.0),
    is_clock_accumulated=lacking("field 272"),
    is_activity_accumulated=lacking("field 273"),
    is_activity_metered=NO,
    mma_stall_ratio=lacking("field 297"),
)

H100 = replace(
    RTX_3080_TI,
    uuid=known("GPU-41009a4e-0000-4000-8000-000000000001"),
    name=known("NVIDIA H100 80GB HBM3"),
    architecture=known("Hopper"),
    compute_capability=known("9.0"),
    is_partitioned=NO,
    mem_clocks_mhz=known((2619,)),
    sm_clocks_mhz=known(tuple(range(210, 1995, 15))),
    is_activity_metered=YES,
    memory_power_w=known(48.0),
    compute_processes=known(()),
    power_limit_w=known(700.0),
    enforced_power_limit_w=known(700.0),
    least_power_limit_w=known(200.0),
)

NO_LIBRARY = DriverFacts(
    is_fake=False,
    driver_version=lacking("nvmlInit"),
    nvml_version=lacking("nvmlInit"),
    cuda_version=lacking("nvmlInit"),
    gpu_count=lacking("nvmlInit"),
    problem="NVML: there is no libnvidia-ml.so.1",
    hint="Install the NVIDIA driver.",
)


def without_meters(gpu: GpuFacts) -> GpuFacts:
    return replace(
        gpu,
        energy_j=lacking("nvmlDeviceGetTotalEnergyConsumption"),
        power_w=lacking("field 186"),
        average_power_w=lacking("field 185"),
        usage_power_w=lacking("nvmlDeviceGetPowerUsage"),
    )


def one(gpu: GpuFacts, host: HostFacts = ROOT, driver: DriverFacts = DRIVER) -> Diagnosis:
    return diagnose(driver, (SeenGpu(facts=gpu),), host)


def finding(diagnosis: Diagnosis, subject: str) -> Finding:
    rows: Sequence[Finding] = (
        *diagnosis.machine,
        *(row for gpu in diagnosis.gpus for row in gpu.findings),
    )
    (found,) = (row for row in rows if row.subject == subject)
    return found
