"""What the doctor makes of one GPU: each meter and each knob by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.doctor_cases import (
    H100,
    NO,
    RTX_3080_TI,
    YES,
    finding,
    known,
    lacking,
    one,
    without_meters,
)

from joulewise.domain.gpu_facts import Absence, GpuFacts
from joulewise.domain.measurement import EventReason
from joulewise.workflow.findings import Availability


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
    gpu = replace(
        RTX_3080_TI,
        sm_clock_mhz=known(clock_mhz),
        event_reasons=known(reasons),
        performance_state=known("P2"),
    )

    found = finding(one(gpu), "locked by others")

    assert status == found.status
    assert (status is Availability.LIMITED) == ("nvidia-smi -rgc" in str(found.helps))


def test_a_gpu_that_rests_without_saying_so_is_not_suspected() -> None:
    gpu = replace(RTX_3080_TI, event_reasons=known(frozenset[EventReason]()))

    assert "P8" == gpu.performance_state.value
    assert Availability.UNKNOWN == finding(one(gpu), "locked by others").status


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
