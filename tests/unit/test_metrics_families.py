"""What is told of GPUs: what is known in base units, and nothing of what is not."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.control import ControlledGpu, DaemonCounts, Holder
from joulewise.domain.measurement import EventReason, GpuActivity, GpuSample, RailPower
from joulewise.domain.points import KnobState, OperatingPoint
from joulewise.integrations.metric_families import ControlCollector
from joulewise.integrations.metric_readings import READINGS
from joulewise.integrations.prometheus import metrics_text

EMPTY_SAMPLE = GpuSample(
    time_s=1.0,
    energy_j=None,
    power_w=None,
    sm_clock_mhz=None,
    mem_clock_mhz=None,
    temp_c=None,
    power_capped_s=None,
    thermally_throttled_s=None,
    other_process_count=None,
)
BARE = ControlledGpu(uuid="GPU-1", name="GPU", device="nvml:GPU-1", is_simulated=False)

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def told(*gpus: ControlledGpu, counts: DaemonCounts | None = None) -> Series:
    """Every series by name and labels, as a scraper reads them."""
    text = metrics_text(lambda: gpus, None if counts is None else lambda: counts)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def values(series: Series, name: str) -> list[float]:
    return [value for (known, _), value in series.items() if known == name]


def labels(series: Series, name: str) -> list[dict[str, str]]:
    return [dict(known) for (metric, known) in series if metric == name]


floats = st.none() | st.floats(min_value=0, max_value=1e12, allow_nan=False)
clocks = st.none() | st.integers(1, 10_000)
samples = st.builds(
    GpuSample,
    time_s=st.just(1.0),
    energy_j=floats,
    power_w=floats,
    average_power_w=floats,
    sm_clock_mhz=clocks,
    mem_clock_mhz=clocks,
    temp_c=floats,
    power_capped_s=floats,
    thermally_throttled_s=floats,
    power_braked_s=floats,
    sync_boosted_s=floats,
    power_limit_w=floats,
    other_process_count=st.none() | st.integers(0, 9),
    event_reasons=st.none() | st.frozensets(st.sampled_from(EventReason)),
    activity=st.none()
    | st.builds(
        GpuActivity,
        duration_s=st.just(1.0),
        sm_cycle_ratio=floats,
        sm_time_ratio=floats,
        occupancy_ratio=floats,
        tensor_ratio=floats,
        dram_ratio=floats,
    ),
)
points = st.builds(
    OperatingPoint,
    sm_clock_mhz=clocks,
    mem_clock_mhz=clocks,
    power_limit_w=st.none() | st.floats(min_value=1, max_value=1e4),
)
names = st.none() | st.text(max_size=100)
holders = st.builds(
    Holder, pid=st.integers(1, 9), user=names, command=names, daemon_pid=st.none() | st.just(7)
)
gpus = st.builds(
    ControlledGpu,
    uuid=st.uuids().map(lambda uuid: f"GPU-{uuid}"),
    name=st.text(max_size=30),
    device=st.just("nvml:0"),
    is_simulated=st.booleans(),
    holder=st.none() | holders,
    asked=st.none() | points,
    found=st.none() | st.builds(KnobState, power_limit_w=floats),
    sample=st.none() | samples,
    caveats=st.lists(
        st.builds(Caveat, kind=st.sampled_from(CaveatKind), seen=st.text()), max_size=4
    ).map(tuple),
    left_set=st.none() | st.text(),
    is_lowered_idle=st.booleans(),
    index=st.none() | st.integers(0, 15),
    is_control_known=st.booleans(),
)


def known_numbers(gpu: ControlledGpu) -> int:
    """How many numbers are known of a GPU, counted without the collector."""
    parts = [gpu.sample, gpu.asked, gpu.found]
    if gpu.sample is not None:
        parts.append(gpu.sample.activity)  # type: ignore[arg-type]
    untold = {"time_s", "duration_s", "is_clock_varying", "event_reasons", "activity"}
    # Told by label, or not at all.
    untold |= {"rails", "settings"}
    return sum(
        getattr(part, field.name) is not None
        for part in parts
        if part is not None
        for field in dataclasses.fields(part)
        if field.name not in untold
    )


@given(st.lists(gpus, max_size=3, unique_by=lambda gpu: gpu.uuid))
def test_as_many_series_as_numbers_are_known(found: Sequence[ControlledGpu]) -> None:
    series = told(*found)

    numbers = {reading.name for reading in READINGS}
    assert sum(map(known_numbers, found)) == sum(name in numbers for name, _ in series)
    assert len(found) == len(values(series, "joulewise_gpu_up"))
    holders_seen = labels(series, "joulewise_lease_info")
    clients = [gpu for gpu in found if gpu.holder is not None and not gpu.is_lowered_idle]
    assert len(clients) == len(holders_seen)


@given(st.lists(gpus, max_size=2, unique_by=lambda gpu: gpu.uuid))
def test_both_formats_tell_the_same(found: Sequence[ControlledGpu]) -> None:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(ControlCollector(lambda: found))
    encode, _ = choose_encoder("application/openmetrics-text; version=1.0.0")
    text = encode(registry).decode()

    assert told(*found) == {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in openmetrics_families(text)  # type: ignore[no-untyped-call]
        for sample in family.samples
    }


def test_rails_of_a_module_are_told_with_whether_they_are_counted() -> None:
    """Those that are counted add up to the power; a part of them is never added to it."""
    rails = (
        RailPower(rail="VDD_IN", power_w=9.5, is_counted=True),
        RailPower(rail="VDD_SOC", power_w=2.5, is_counted=False),
    )
    sample = dataclasses.replace(EMPTY_SAMPLE, power_w=9.5, rails=rails, busy_ratio=0.25)
    gpu = dataclasses.replace(BARE, sample=sample)

    series = told(gpu)

    rail = {
        (dict(labels_)["rail"], dict(labels_)["counted"]): value
        for (name, labels_), value in series.items()
        if name == "joulewise_rail_power_watts"
    }
    assert {("VDD_IN", "true"): 9.5, ("VDD_SOC", "false"): 2.5} == rail
    assert [0.25] == [value for (name, _), value in series.items() if "busy_ratio" in name]


def test_a_gpu_is_told_in_base_units_with_its_holder_and_doubts() -> None:
    gpu = ControlledGpu(
        uuid="GPU-1",
        name="NVIDIA H100",
        device="nvml:GPU-1",
        is_simulated=True,
        index=3,
        holder=Holder(pid=4242, user="alice", command="train.py"),
        asked=OperatingPoint(sm_clock_mhz=1005, power_limit_w=300.0),
        found=KnobState(power_limit_w=700.0),
        sample=dataclasses.replace(
            EMPTY_SAMPLE,
            energy_j=1234.5,
            sm_clock_mhz=990,
            temp_c=41.0,
            event_reasons=frozenset({EventReason.POWER_CAP}),
        ),
        caveats=(Caveat(kind=CaveatKind.POWER_CAPPED, seen="capped for 3 s"),),
    )

    text = metrics_text(lambda: (gpu,))

    common = 'gpu="GPU-1",index="3",is_simulated="true"'
    assert f'joulewise_lease_info{{command="train.py",{common},is_through_daemon="false"' in text
    shown = [
        line.replace(common, "…").replace('name="NVIDIA H100"', "…")
        for line in text.splitlines()
        if not line.startswith(("#", "joulewise_build_info"))
    ]
    assert shown == snapshot(
        [
            "joulewise_gpu_up{…,…} 1.0",
            "joulewise_lease_held{…,…} 1.0",
            "joulewise_clocks_left_set{…,…} 0.0",
            "joulewise_lowered_idle{…,…} 0.0",
            "joulewise_energy_joules_total{…,…} 1234.5",
            "joulewise_sm_clock_hertz{…,…} 9.9e+08",
            "joulewise_temperature_celsius{…,…} 41.0",
            "joulewise_asked_sm_clock_hertz{…,…} 1.005e+09",
            "joulewise_asked_power_limit_watts{…,…} 300.0",
            "joulewise_found_power_limit_watts{…,…} 700.0",
            'joulewise_lease_info{command="train.py",…,is_through_daemon="false",…,user="alice"} 1.0',
            'joulewise_caveat{…,kind="PowerCapped",…} 1.0',
            'joulewise_clock_event_reason{…,…,reason="SwPowerCap"} 1.0',
        ]
    )


def test_a_gpu_that_does_not_answer_is_down_and_tells_no_readings() -> None:
    series = told(BARE)

    assert [0.0] == values(series, "joulewise_gpu_up")
    assert {
        "joulewise_build_info",
        "joulewise_gpu_up",
        "joulewise_lease_held",
        "joulewise_clocks_left_set",
        "joulewise_lowered_idle",
    } == {name for name, _ in series}


def test_what_is_not_known_is_no_series_and_never_zero() -> None:
    nothing = told(dataclasses.replace(BARE, sample=EMPTY_SAMPLE, asked=OperatingPoint()))

    assert [1.0] == values(nothing, "joulewise_gpu_up")
    assert [] == [name for name, _ in nothing if name.endswith(("_watts", "_hertz", "_total"))]


def test_a_number_that_is_none_is_no_series() -> None:
    sample = dataclasses.replace(EMPTY_SAMPLE, power_w=float("nan"), temp_c=float("inf"))

    assert "joulewise_power_watts" not in metrics_text(
        lambda: (dataclasses.replace(BARE, sample=sample),)
    )
    assert not values(
        told(dataclasses.replace(BARE, sample=sample)), "joulewise_temperature_celsius"
    )


def test_who_may_not_look_does_not_say_that_nobody_holds_it() -> None:
    series = told(dataclasses.replace(BARE, is_control_known=False))

    assert {"joulewise_build_info", "joulewise_gpu_up"} == {name for name, _ in series}


def test_neither_process_ids_nor_long_commands_make_series_of_their_own() -> None:
    def held(pid: int, tail: str) -> Series:
        holder = Holder(pid=pid, user="alice", command="c" * 64 + tail)
        return told(dataclasses.replace(BARE, holder=holder))

    assert held(1, "--seed 1").keys() == held(2, "--seed 2").keys()


def test_what_clients_of_joulewised_call_themselves_makes_no_series() -> None:
    def held(command: str) -> Series:
        holder = Holder(pid=1, user="alice", command=command, daemon_pid=7)
        return told(dataclasses.replace(BARE, holder=holder))

    assert held("train.py").keys() == held("4711 epochs").keys()
    (known,) = labels(held("train.py"), "joulewise_lease_info")
    assert ("alice", "true") == (known["user"], known["is_through_daemon"])


def test_the_idle_policy_holds_no_lease() -> None:
    holder = Holder(pid=7, user="joulewised", command="idle policy", is_idle_policy=True)
    series = told(dataclasses.replace(BARE, holder=holder, is_lowered_idle=True))

    assert [0.0] == values(series, "joulewise_lease_held")
    assert [1.0] == values(series, "joulewise_lowered_idle")
    assert [] == values(series, "joulewise_lease_info")


def test_a_command_may_be_called_whatever_files_are() -> None:
    holder = Holder(pid=1, user='a"b\\c', command="train\udc80\n.py")

    (known,) = labels(told(dataclasses.replace(BARE, holder=holder)), "joulewise_lease_info")

    assert ('a"b\\c', "train??.py") == (known["user"], known["command"])


def test_a_doubt_is_told_once_for_each_kind() -> None:
    twice = tuple(Caveat(kind=CaveatKind.CLOCK_NOT_HELD, seen=f"seen {n}") for n in range(2))

    series = told(dataclasses.replace(BARE, caveats=twice))

    assert ["ClockNotHeld"] == [known["kind"] for known in labels(series, "joulewise_caveat")]


def test_a_daemon_tells_what_it_was_asked() -> None:
    counts = DaemonCounts(
        connection_count=3,
        refused_connection_count=1,
        answer_count={("apply", "applied"): 41, ("take", "refused"): 2},
        ended_lease_count={"released": 5},
    )

    series = told(counts=counts)

    assert [3.0] == values(series, "joulewise_daemon_connections")
    assert [1.0] == values(series, "joulewise_daemon_refused_connections_total")
    assert [41.0, 2.0] == values(series, "joulewise_daemon_answers_total")
    assert [{"why": "released"}] == labels(series, "joulewise_daemon_ended_leases_total")
