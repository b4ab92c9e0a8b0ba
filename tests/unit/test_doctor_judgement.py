"""The doctor's judgement: facts in, findings and one sentence out; nothing is read."""

from __future__ import annotations

import io
from dataclasses import replace

from inline_snapshot import snapshot
from rich.console import Console
from tests.doctor_cases import (
    DRIVER,
    H100,
    LAPTOP,
    NO,
    NO_LIBRARY,
    ROOT,
    RTX_3080_TI,
    finding,
    known,
    lacking,
    one,
    without_meters,
)

from joulewise.cli.commands.doctor import document, render
from joulewise.device.host import Container, HostFacts
from joulewise.domain.gpu_facts import Absence, Fact, GpuFacts
from joulewise.workflow.diagnosis import SeenGpu, diagnose
from joulewise.workflow.findings import Availability, Diagnosis


def text(diagnosis: Diagnosis, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    render(console, diagnosis)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


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
Without a GPU, measure, plan, tune and replay take virtual ones (--device virtual:rtx3080ti), and every command the fake driver (make fake-nvml; docs/nvidia.md).\
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


def test_rights_that_cannot_be_known_leave_setting_open() -> None:
    diagnosis = one(RTX_3080_TI, HostFacts(system="Windows"))

    assert (True, None) == (diagnosis.can_read, diagnosis.can_set)
    assert "only trying tells" in diagnosis.verdict
    assert Availability.UNKNOWN == finding(diagnosis, "SM clock lock").status


def test_of_two_gpus_each_has_its_own_findings_and_one_sentence_counts_them() -> None:
    diagnosis = diagnose(
        DRIVER, (SeenGpu(facts=H100), SeenGpu(facts=without_meters(RTX_3080_TI))), ROOT
    )

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
