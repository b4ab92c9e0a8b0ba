"""The doctor's judgement: facts in, findings and one sentence out; nothing is read."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace

import pytest
from inline_snapshot import snapshot
from rich.console import Console
from tests.doctor_cases import DRIVER, H100, LAPTOP, NO, ROOT, RTX_3080_TI, YES, known, lacking

from joulewise.cli.commands.doctor import document, render
from joulewise.device.host import Container, HostFacts
from joulewise.domain.gpu_facts import Absence, DriverFacts, Fact, GpuFacts
from joulewise.domain.measurement import EventReason
from joulewise.workflow.diagnosis import diagnose
from joulewise.workflow.findings import Availability, Diagnosis, Finding

NO_LIBRARY = DriverFacts(
    is_fake=False,
    driver_version=lacking("nvmlInit"),
    nvml_version=lacking("nvmlInit"),
    cuda_version=lacking("nvmlInit"),
    gpu_count=lacking("nvmlInit"),
    problem="NVML: there is no libnvidia-ml.so.1",
    hint="Install the NVIDIA driver.",
)


def text(diagnosis: Diagnosis, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    render(console, diagnosis)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def one(gpu: GpuFacts, host: HostFacts = ROOT, driver: DriverFacts = DRIVER) -> Diagnosis:
    return diagnose(driver, (gpu,), host)


def finding(diagnosis: Diagnosis, subject: str) -> Finding:
    rows: Sequence[Finding] = (
        *diagnosis.machine,
        *(row for gpu in diagnosis.gpus for row in gpu.findings),
    )
    (found,) = (row for row in rows if row.subject == subject)
    return found


def test_a_healthy_gpu_reads_as_one_table_within_eighty_columns() -> None:
    said = text(one(RTX_3080_TI))

    assert max(map(len, said.splitlines())) <= 80
    assert said == snapshot("""\
This machine
what                 state  found
NVIDIA driver        ok     580.65.06, NVML 13.580.65.06
right to set clocks  ok     CAP_SYS_ADMIN in the initial user namespace
other controllers    ok     none of the known ones runs
running kernels      ok     torch is installed
clocks from inside   ok     cuda-bindings is installed

NVIDIA GeForce RTX 3080 Ti, nvml:GPU-4ad1c0de-0000-4000-8000-000000000001
what                 state    found
energy counter       ok       81234 J since the driver was loaded
power                ok       22.4 W now (instant, mean)
scope                ok       the GPU and its board
throttling counters  ok       power cap, heat (software), heat (hardware), power
                              brake, sync boost
activity (GPM)       absent   this GPU has none; Hopper and later do
other processes      ok       none computes here
locked by others     unknown  idle at 210 of 2100 MHz; a lock shows only under
                              load
clock lists          ok       SM 210 to 2100 MHz (127); memory 405 to 9501 MHz
                              (5)
SM clock lock        ok       each listed clock, as a maximum
memory clock lock    ok       5 clocks; only where the device string says
                              memory_lock=on
power limit          ok       100 W to the 350 W found
persistence mode     ok       on

1 NVIDIA GPU; it can be read; clocks may be set.\
""")


def test_a_data_centre_gpu_in_a_container_without_rights_can_be_read() -> None:
    host = replace(ROOT, has_sys_admin=False, container=Container.DOCKER)
    gpu = replace(H100, is_persistent=NO, compute_processes=known((4711,)))

    diagnosis = one(gpu, host)

    assert (True, False) == (diagnosis.can_read, diagnosis.can_set)
    said = text(diagnosis)
    assert max(map(len, said.splitlines())) <= 80
    assert said == snapshot("""\
This machine
what                 state    found
NVIDIA driver        ok       580.65.06, NVML 13.580.65.06
right to set clocks  absent   root without CAP_SYS_ADMIN
                              The kernel module asks for CAP_SYS_ADMIN in the
                              initial user namespace. Start the container with:
                              docker run --cap-add SYS_ADMIN ... Reading needs
                              no rights.
container            limited  this process runs in Docker
                              A container can lose its GPUs while it runs, after
                              systemctl daemon-reload; clocks that are locked
                              then stay locked. Run long jobs that set clocks on
                              the host.
other controllers    unknown  none among the processes of this container; those
                              of the host are not seen
                              Look for DCGM, zeusd or LACT on the host.
running kernels      ok       torch is installed
clocks from inside   ok       cuda-bindings is installed

NVIDIA H100 80GB HBM3, nvml:GPU-41009a4e-0000-4000-8000-000000000001
what                 state    found
energy counter       ok       81234 J since the driver was loaded
power                ok       22.4 W now (instant, mean, memory)
scope                ok       the GPU and its board
throttling counters  ok       power cap, heat (software), heat (hardware), power
                              brake, sync boost
activity (GPM)       ok       SM, tensor cores, DRAM
other processes      limited  process 4711
                              What they draw is in the energy, and their clocks
                              change with ours. Stop them before measuring or
                              setting clocks.
locked by others     unknown  idle at 210 of 1980 MHz; a lock shows only under
                              load
clock lists          ok       SM 210 to 1980 MHz (119); memory 2619 MHz
SM clock lock        absent   not permitted; with rights: each listed clock, as
                              a maximum
                              See the right to set clocks.
memory clock lock    absent   2619 MHz is its only memory clock: nothing to
                              choose
power limit          absent   not permitted; with rights: 200 W to the 700 W
                              found
                              See the right to set clocks.
persistence mode     limited  off
                              The driver unloads when its last user leaves, and
                              forgets locks and limits then. Switch it on:
                              nvidia-smi -pm 1.

1 NVIDIA GPU; it can be read; clocks may not be set (root without
CAP_SYS_ADMIN). Look at: other processes, persistence mode.\
""")


def test_no_gpu_at_all_is_said_kindly_and_points_to_virtual_ones() -> None:
    diagnosis = diagnose(NO_LIBRARY, (), LAPTOP)

    assert (False, False) == (diagnosis.can_read, diagnosis.can_set)
    assert text(diagnosis) == snapshot("""\
This machine
what           state   found
NVIDIA driver  absent  NVML: there is no libnvidia-ml.so.1
                       No NVIDIA GPU is on the PCI bus.

There is no NVIDIA GPU in this machine, and no NVIDIA driver that answers.
Everything works on virtual GPUs, with figures marked as simulated: joulewise tune --device virtual:rtx3080ti\
""")


def test_no_gpu_as_json_is_an_error_that_still_tells_what_was_found() -> None:
    shown = document(diagnose(NO_LIBRARY, (), LAPTOP))

    assert ("error", False) == (shown["status"], shown["can_read"])
    assert "virtual:rtx3080ti" in str(shown["hint"])
    assert shown["machine"]


def test_a_card_without_a_driver_is_not_called_no_gpu() -> None:
    host = replace(LAPTOP, nvidia_pci_count=2)

    found = finding(diagnose(NO_LIBRARY, (), host), "NVIDIA driver")

    assert "2 NVIDIA GPUs on the PCI bus; no kernel module is loaded." == found.why
    assert "Install the NVIDIA driver." == found.helps


def test_a_container_that_was_given_no_gpu_is_told_how_to_get_one() -> None:
    host = replace(ROOT, container=Container.DOCKER)

    found = finding(diagnose(NO_LIBRARY, (), host), "NVIDIA driver")

    assert str(found.helps).startswith("Start the container with its GPUs (docker run --gpus all")


def test_a_library_that_does_not_match_its_kernel_module_names_both() -> None:
    driver = replace(
        NO_LIBRARY,
        problem="NVML: the library and the kernel module have different versions",
        hint="Reboot, or reload the kernel module.",
    )

    diagnosis = diagnose(driver, (), ROOT)

    found = finding(diagnosis, "NVIDIA driver")
    assert "1 NVIDIA GPU on the PCI bus; kernel module 580.65.06 is loaded." == found.why
    assert "different versions" in diagnosis.verdict
    assert "Reboot, or reload the kernel module." == found.helps


def test_a_driver_without_gpus_is_not_a_missing_driver() -> None:
    diagnosis = diagnose(DRIVER, (), LAPTOP)

    assert "No NVIDIA GPU can be used here: the driver lists none." == diagnosis.verdict
    assert Availability.LIMITED == finding(diagnosis, "NVIDIA driver").status


def test_under_wsl_an_empty_bus_says_nothing() -> None:
    diagnosis = diagnose(NO_LIBRARY, (), replace(LAPTOP, is_wsl=True))

    found = finding(diagnosis, "NVIDIA driver")
    assert (None, "Install the NVIDIA driver.") == (found.why, found.helps)
    assert "there is no libnvidia-ml.so.1" in diagnosis.verdict


def test_a_jetson_board_is_told_apart() -> None:
    diagnosis = diagnose(NO_LIBRARY, (), replace(LAPTOP, is_jetson=True))

    assert "Jetson" in diagnosis.verdict


def test_the_fake_driver_is_named_and_its_results_are_simulated() -> None:
    diagnosis = one(RTX_3080_TI, driver=replace(DRIVER, is_fake=True))

    assert "fake" in finding(diagnosis, "NVIDIA driver").seen
    assert ["SimulatedDevice"] == [caveat.kind.value for caveat in diagnosis.caveats]
    assert "1 simulated NVIDIA GPU; it can be read; clocks may be set." == diagnosis.verdict


def without_meters(gpu: GpuFacts) -> GpuFacts:
    return replace(
        gpu,
        energy_j=lacking("nvmlDeviceGetTotalEnergyConsumption"),
        power_w=lacking("field 186"),
        average_power_w=lacking("field 185"),
        usage_power_w=lacking("nvmlDeviceGetPowerUsage"),
    )


def test_a_gpu_without_any_meter_cannot_be_read() -> None:
    diagnosis = one(without_meters(RTX_3080_TI))

    assert not diagnosis.can_read
    assert "1 NVIDIA GPU, of which no meter tells the energy." == diagnosis.verdict


def test_zero_kwh_without_a_counter_is_power_added_up_and_never_zero() -> None:
    gpu = replace(RTX_3080_TI, energy_j=lacking("nvmlDeviceGetTotalEnergyConsumption"))

    found = finding(one(gpu), "energy counter")

    assert Availability.ABSENT == found.status
    assert "EnergyFromPower" in str(found.helps)
    assert one(gpu).can_read


@pytest.mark.parametrize(
    ("gpu", "subject", "status", "seen"),
    [
        (
            replace(RTX_3080_TI, power_w=lacking("field 186")),
            "power",
            Availability.LIMITED,
            "22.6 W, with no instant reading",
        ),
        (
            replace(without_meters(RTX_3080_TI), module_power_w=known(310.0)),
            "power",
            Availability.LIMITED,
            "310 W for the module, none for the GPU alone",
        ),
        (
            replace(H100, is_superchip=YES),
            "scope",
            Availability.LIMITED,
            "a superchip: the counter sees the module, CPU and memory included",
        ),
        (
            replace(RTX_3080_TI, sync_boosted_s=lacking("field 76")),
            "throttling counters",
            Availability.LIMITED,
            "power cap, heat (software), heat (hardware), power brake; none for sync boost",
        ),
        (
            replace(
                RTX_3080_TI,
                power_capped_s=lacking("field 74"),
                sw_thermal_s=lacking("field 269"),
                hw_thermal_s=lacking("field 270"),
                power_braked_s=lacking("field 271"),
                sync_boosted_s=lacking("field 76"),
            ),
            "throttling counters",
            Availability.ABSENT,
            "field 74: not supported",
        ),
        (
            replace(H100, is_activity_metered=lacking("nvmlGpmQueryDeviceSupport")),
            "activity (GPM)",
            Availability.ABSENT,
            "nvmlGpmQueryDeviceSupport: not supported",
        ),
        (
            replace(H100, is_power_smoothed=YES),
            "power smoothing",
            Availability.LIMITED,
            "a floor under the power is on",
        ),
        (
            replace(
                RTX_3080_TI,
                compute_processes=lacking("processes", Absence.NOT_PERMITTED),
            ),
            "other processes",
            Availability.UNKNOWN,
            "processes: not permitted",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_meter_is_judged_by_itself(
    gpu: GpuFacts, subject: str, status: Availability, seen: str
) -> None:
    found = finding(one(gpu), subject)

    assert (status, seen) == (found.status, found.seen)


def test_an_old_driver_is_told_apart_from_an_old_gpu() -> None:
    gpu = replace(
        H100, is_activity_metered=lacking("nvmlGpmQueryDeviceSupport", Absence.DRIVER_TOO_OLD)
    )

    found = finding(one(gpu), "activity (GPM)")

    assert "Install a newer driver." == found.helps


@pytest.mark.parametrize(
    ("clock_mhz", "reasons", "status"),
    [
        (945, frozenset(), Availability.LIMITED),
        (1980, frozenset(), Availability.OK),
        (1200, frozenset({EventReason.POWER_CAP}), Availability.OK),
        (210, frozenset({EventReason.GPU_IDLE}), Availability.UNKNOWN),
    ],
)
def test_a_gpu_stuck_at_950_mhz_after_a_program_ended_is_suspected(
    clock_mhz: int, reasons: frozenset[EventReason], status: Availability
) -> None:
    gpu = replace(RTX_3080_TI, sm_clock_mhz=known(clock_mhz), event_reasons=known(reasons))

    found = finding(one(gpu), "locked by others")

    assert status == found.status
    assert (status is Availability.LIMITED) == ("nvidia-smi -rgc" in str(found.helps))


@pytest.mark.parametrize(
    ("gpu", "status", "seen"),
    [
        (H100, Availability.ABSENT, "2619 MHz is its only memory clock: nothing to choose"),
        (
            RTX_3080_TI,
            Availability.OK,
            "5 clocks; only where the device string says memory_lock=on",
        ),
        (
            replace(RTX_3080_TI, architecture=known("Turing"), compute_capability=known("7.5")),
            Availability.ABSENT,
            "Turing is older than Ampere",
        ),
        (
            replace(RTX_3080_TI, memory_clock_switch=known("after a driver reload")),
            Availability.ABSENT,
            "a change waits for a driver reload",
        ),
        (
            replace(RTX_3080_TI, memory_clock_switch_interval_s=known(0.5)),
            Availability.LIMITED,
            "5 clocks, at least 0.5 s apart; only where the device string says memory_lock=on",
        ),
    ],
)
def test_memory_locks_are_opt_in_and_judged_before_they_are_tried(
    gpu: GpuFacts, status: Availability, seen: str
) -> None:
    found = finding(one(gpu), "memory clock lock")

    assert (status, seen) == (found.status, found.seen)


def test_a_memory_lock_that_costs_a_third_of_the_speed_on_geforce_blackwell_is_warned_of() -> None:
    gpu = replace(
        RTX_3080_TI,
        name=known("NVIDIA GeForce RTX 5090"),
        architecture=known("Blackwell"),
        compute_capability=known("12.0"),
    )

    found = finding(one(gpu), "memory clock lock")

    assert Availability.LIMITED == found.status
    assert "16 to 32 %" in str(found.why)


def test_pascal_boards_that_support_no_lock_can_be_read_and_not_set() -> None:
    gpu = replace(RTX_3080_TI, architecture=known("Pascal"), compute_capability=known("6.1"))

    diagnosis = one(gpu)

    assert (True, False) == (diagnosis.can_read, diagnosis.can_set)
    assert "clocks cannot be set" in diagnosis.verdict
    assert "Pascal is older than Volta" == finding(diagnosis, "SM clock lock").seen


def test_another_limiter_shows_in_the_enforced_limit() -> None:
    gpu = replace(RTX_3080_TI, enforced_power_limit_w=known(280.0))

    found = finding(one(gpu), "enforced limit")

    assert "280 W enforced, below the 350 W that are set" == found.seen


def test_a_limit_at_its_least_leaves_nothing_to_choose() -> None:
    gpu = replace(RTX_3080_TI, power_limit_w=known(100.0), enforced_power_limit_w=known(100.0))

    found = finding(one(gpu), "power limit")

    assert (Availability.LIMITED, "100 W, the least there is") == (found.status, found.seen)


def test_caps_that_go_back_to_stock_silently_are_explained_by_persistence_mode() -> None:
    found = finding(one(replace(H100, is_persistent=NO)), "persistence mode")

    assert Availability.LIMITED == found.status
    assert "forgets locks and limits" in str(found.why)


def test_the_same_energy_in_every_mig_instance_is_explained_and_clocks_are_left_alone() -> None:
    diagnosis = one(replace(H100, is_partitioned=YES))

    assert (True, False) == (diagnosis.can_read, diagnosis.can_set)
    assert "one clock and one energy counter" in finding(diagnosis, "MIG").seen


def test_a_vgpu_guest_sets_nothing() -> None:
    diagnosis = one(replace(H100, virtualization=known("vGPU guest")))

    assert diagnosis.can_set is False
    subjects = ("SM clock lock", "memory clock lock", "power limit")
    assert {"this is a vGPU guest"} == {finding(diagnosis, name).seen for name in subjects}


def test_rights_that_cannot_be_known_leave_setting_open() -> None:
    diagnosis = one(RTX_3080_TI, HostFacts(system="Windows"))

    assert (True, None) == (diagnosis.can_read, diagnosis.can_set)
    assert "only trying tells" in diagnosis.verdict
    assert Availability.UNKNOWN == finding(diagnosis, "SM clock lock").status


def test_of_two_gpus_each_has_its_own_findings_and_one_sentence_counts_them() -> None:
    diagnosis = diagnose(DRIVER, (H100, without_meters(RTX_3080_TI)), ROOT)

    assert [True, False] == [gpu.can_read for gpu in diagnosis.gpus]
    assert diagnosis.can_read
    assert "2 NVIDIA GPUs; 1 can be read" in diagnosis.verdict


def test_a_gpu_that_tells_nothing_of_itself_is_all_unknown_and_never_ok() -> None:
    silent: Fact[str] = lacking("nvmlDeviceGetUUID", Absence.NOT_ANSWERED)
    names = [name for name in GpuFacts.__dataclass_fields__ if name != "index"]
    gpu = GpuFacts(index=3, **dict.fromkeys(names, silent))  # type: ignore[arg-type]

    diagnosis = one(gpu)

    assert "nvml:3" == diagnosis.gpus[0].device
    assert not diagnosis.can_read
    fine = [f.subject for f in diagnosis.gpus[0].findings if f.status is Availability.OK]
    assert [] == fine
