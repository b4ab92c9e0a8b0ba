"""One line of tegrastats, of every JetPack."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulewise.device.tegrastats import parse_line
from joulewise.domain.tegrastats import EngineLoad, RailReading, SensorTemp, TegrastatsLine

# A line of an Orin Nano Super in short (jetson-latency-lab, p3_memory.tegra).
ORIN_NANO = (
    "06-08-2026 23:14:39 RAM 2027/7607MB (lfb 44x4MB) SWAP 1/3804MB (cached 0MB) "
    "CPU [61%@1728,off,80%@1728] EMC_FREQ 6%@3199 GR3D_FREQ 12%@[1012] NVDEC off APE 200 "
    "cpu@60.406C gpu@59.812C tj@60.406C VDD_IN 10214mW/9000mW VDD_SOC 2623mW/2600mW"
)


def gpu_of(field: str) -> EngineLoad | None:
    return parse_line(f"RAM 1/2MB CPU [0%@345] EMC_FREQ 0% {field} APE 25 GPU@28C").gr3d


def rails_of(fields: str) -> dict[str, float]:
    line = parse_line(f"RAM 1/2MB (lfb 2x4MB) GR3D_FREQ 0% {fields}")
    return {reading.rail: reading.power_w for reading in line.rails}


def test_a_line_is_read_field_by_field() -> None:
    core = EngineLoad(busy_ratio=0.61, clocks_mhz=(1728,))

    assert parse_line(ORIN_NANO) == TegrastatsLine(
        stamp=datetime(2026, 6, 8, 23, 14, 39),  # noqa: DTZ001 - the board's own time
        ram_used_bytes=2027 << 20,
        ram_total_bytes=7607 << 20,
        swap_used_bytes=1 << 20,
        swap_total_bytes=3804 << 20,
        cores=(core, None, EngineLoad(busy_ratio=0.80, clocks_mhz=(1728,))),
        emc=EngineLoad(busy_ratio=0.06, clocks_mhz=(3199,)),
        gr3d=EngineLoad(busy_ratio=0.12, clocks_mhz=(1012,)),
        temps=(
            SensorTemp(sensor="cpu", temp_c=60.406),
            SensorTemp(sensor="gpu", temp_c=59.812),
            SensorTemp(sensor="tj", temp_c=60.406),
        ),
        rails=(
            RailReading(rail="VDD_IN", power_w=10.214, running_mean_w=9.0),
            RailReading(rail="VDD_SOC", power_w=2.623, running_mean_w=2.6),
        ),
    )


@pytest.mark.parametrize(
    ("field", "ratio", "clocks"),
    [
        ("GR3D_FREQ 35%", 0.35, ()),
        ("GR3D_FREQ 10%@1300", 0.10, (1300,)),
        ("GR3D_FREQ 0%@[1012]", 0.0, (1012,)),
        ("GR3D_FREQ 12%@[1300,1300]", 0.12, (1300, 1300)),
        ("GR3D_FREQ @[314,314,314]", None, (314, 314, 314)),
        ("GR3D 99%@76", 0.99, (76,)),
        ("GR3D_FREQ 0%@[0,0]", 0.0, ()),
    ],
)
def test_every_way_to_print_the_gpu_is_understood(
    field: str, ratio: float | None, clocks: tuple[int, ...]
) -> None:
    assert gpu_of(field) == EngineLoad(busy_ratio=ratio, clocks_mhz=clocks)


def test_symptom_clock_dropped_and_load_pinned_to_0_by_half_a_match() -> None:
    # jetson_stats 894: JetPack 7.2 on Orin prints two clocks.
    assert gpu_of("GR3D_FREQ 97%@[1300,1297]") == EngineLoad(
        busy_ratio=0.97, clocks_mhz=(1300, 1297)
    )
    for unknown in (
        "GR3D_FREQ 97%@{1300}",
        "GR3D_FREQ 97%@[1300;1300]",
        "GR3D_FREQ 97%@[13",
        "GR3D_FREQ",
    ):
        assert gpu_of(unknown) is None


def test_symptom_two_gpus_shown_where_gr3d2_is_the_second_cluster_of_one() -> None:
    # jetson_stats 362.
    assert gpu_of("GR3D_FREQ 5%@[918] GR3D2_FREQ 60%@[917]") == EngineLoad(
        busy_ratio=0.60, clocks_mhz=(918, 917)
    )


def test_symptom_no_utilisation_on_thor_is_not_a_gpu_at_rest() -> None:
    # WendyOS 1316.
    gpu = gpu_of("GR3D_FREQ @[314,314,314]")

    assert gpu is not None
    assert gpu.busy_ratio is None


@pytest.mark.parametrize(
    "power", ["2390/1155", "2390mW/1155mW", "2390mW/1155mW/5139mW", "2390/1155/5139"]
)
def test_symptom_parser_broke_when_milliwatts_came_and_when_they_went(power: str) -> None:
    # datadog-agent 29925, beszel 1631; JetPack 7.2 prints three numbers.
    assert rails_of(f"VDD_IN {power} VDD_SOC 5/5") == {"VDD_IN": 2.390, "VDD_SOC": 0.005}


def test_rails_of_an_agx_xavier_are_called_as_its_processors_are() -> None:
    line = parse_line(
        "RAM 1/2MB CPU [0%@345,off] EMC_FREQ 0%@2133 GR3D_FREQ 3%@1377 GPU@28C CPU@30C "
        "GPU 1155/1155 CPU 462/480 SOC 1155/1155 CV 0/0 VDDRQ 231/231 SYS5V 1440/1440"
    )

    assert line.labels == ("GPU", "CPU", "SOC", "CV", "VDDRQ", "SYS5V")
    assert line.cores == (EngineLoad(busy_ratio=0.0, clocks_mhz=(345,)), None)
    assert [(temp.sensor, temp.temp_c) for temp in line.temps] == [("GPU", 28.0), ("CPU", 30.0)]


def test_memory_is_no_rail() -> None:
    assert rails_of("IRAM 0/252kB(lfb 252kB) SWAP 1/3804MB (cached 0MB) VDD_IN 7/7") == {
        "VDD_IN": 0.007
    }


@pytest.mark.parametrize(
    ("field", "temps"),
    [
        ("gpu@47.6C", [("gpu", 47.6)]),
        ("GPU@28C", [("GPU", 28.0)]),
        ("cpu@52.9C/52.9C", [("cpu", 52.9)]),
        ("cv0@-256C gpu@40C", [("gpu", 40.0)]),
        ("gpu@C gpu@1e9C gpu@47.6", []),
    ],
)
def test_temperatures_of_living_sensors_are_kept(
    field: str, temps: list[tuple[str, float]]
) -> None:
    line = parse_line(f"RAM 1/2MB {field} VDD_IN 1/1")

    assert [(temp.sensor, temp.temp_c) for temp in line.temps] == temps


def test_a_line_for_users_without_rights_lacks_clocks_and_rails() -> None:
    line = parse_line("RAM 1903/7771MB (lfb 2x4MB) CPU [3%,off,2%] EMC_FREQ 0% GR3D_FREQ 0%")

    assert line.is_recognised
    assert line.rails == ()
    assert line.cores == (EngineLoad(busy_ratio=0.03), None, EngineLoad(busy_ratio=0.02))
    assert line.emc == EngineLoad(busy_ratio=0.0)
    assert line.stamp is None


def test_early_releases_print_one_clock_for_all_cores() -> None:
    line = parse_line("RAM 1/2MB cpu [2%,1%,off,off]@102 EMC 5%@1600 GR3D 0%@76")

    assert line.cores[0] == EngineLoad(busy_ratio=0.02, clocks_mhz=(102,))
    assert line.cores[2:] == (None, None)
    assert line.emc == EngineLoad(busy_ratio=0.05, clocks_mhz=(1600,))


@pytest.mark.parametrize(
    "text", ["", "\n", "sudo: a password is required", "99-99-9999 99:99:99 x"]
)
def test_what_tegrastats_did_not_print_is_not_recognised(text: str) -> None:
    assert not parse_line(text).is_recognised
    assert parse_line(text) == TegrastatsLine()


@given(st.text(max_size=300) | st.text(alphabet="RAM 0123456789/mW%@[],:-CGD_EFQoff", max_size=300))
def test_no_text_crashes_the_parser(text: str) -> None:
    for part in (text, ORIN_NANO + text, text + ORIN_NANO):
        line = parse_line(part)

        assert all(0 <= reading.power_w <= 10_000 for reading in line.rails)
        assert line.gr3d is None or line.gr3d.busy_ratio is None or 0 <= line.gr3d.busy_ratio <= 1


def test_a_line_that_is_cut_off_anywhere_tells_nothing_that_the_whole_one_does_not() -> None:
    whole = {(reading.rail, reading.power_w) for reading in parse_line(ORIN_NANO).rails}

    for length in range(len(ORIN_NANO)):
        part = parse_line(ORIN_NANO[:length])

        assert {(reading.rail, reading.power_w) for reading in part.rails} <= whole
        assert part.gr3d is None or part.gr3d.busy_ratio == 0.12
        assert part.gr3d is None or part.gr3d.clocks_mhz in {(), (1012,)}


LOADS = st.builds(
    EngineLoad,
    busy_ratio=st.integers(0, 100).map(lambda percent: percent / 100),
    clocks_mhz=st.lists(st.integers(1, 5000), max_size=3).map(tuple),
) | st.builds(
    EngineLoad, clocks_mhz=st.lists(st.integers(1, 5000), min_size=1, max_size=3).map(tuple)
)
CORES = st.none() | st.builds(
    EngineLoad,
    busy_ratio=st.integers(0, 100).map(lambda percent: percent / 100),
    clocks_mhz=st.lists(st.integers(1, 5000), max_size=1).map(tuple),
)
MILLIWATTS = st.integers(0, 999_999).map(lambda milliwatts: milliwatts / 1000)
LINES = st.builds(
    TegrastatsLine,
    stamp=st.none()
    | st.integers(0, 10**9).map(lambda s: datetime(1990, 1, 1) + timedelta(seconds=s)),  # noqa: DTZ001
    ram_used_bytes=st.integers(0, 10**6).map(lambda mib: mib << 20),
    ram_total_bytes=st.integers(0, 10**6).map(lambda mib: mib << 20),
    cores=st.lists(CORES, min_size=1, max_size=14).map(tuple),
    emc=st.none() | LOADS,
    gr3d=st.none() | LOADS,
    temps=st.lists(
        st.builds(
            SensorTemp,
            sensor=st.sampled_from(["cpu", "GPU", "tj", "soc012", "PLL", "AO-therm", "Tboard"]),
            temp_c=st.integers(-59, 199).map(float) | st.integers(0, 99).map(lambda c: c + 0.5),
        ),
        max_size=8,
    ).map(tuple),
    rails=st.lists(
        st.builds(
            RailReading,
            rail=st.sampled_from(["VDD_IN", "GPU", "CPU", "POM_5V_IN", "VDDQ_VDD2_1V8AO", "VIN"]),
            power_w=MILLIWATTS,
            running_mean_w=MILLIWATTS,
        ),
        max_size=5,
    ).map(tuple),
)


def printed(line: TegrastatsLine, unit: str, number_count: int) -> str:
    """A line as one release or another prints it."""
    words = [] if line.stamp is None else [line.stamp.strftime("%m-%d-%Y %H:%M:%S")]
    words.append(f"RAM {(line.ram_used_bytes or 0) >> 20}/{(line.ram_total_bytes or 0) >> 20}MB")
    words.append("(lfb 44x4MB)")
    words.append(f"CPU [{','.join('off' if one is None else load(one) for one in line.cores)}]")
    words += [f"EMC_FREQ {load(line.emc)}"] if line.emc is not None else []
    words += [f"GR3D_FREQ {load(line.gr3d)}"] if line.gr3d is not None else []
    words += ["NVDEC off", "APE 200"]
    words += [f"{temp.sensor}@{temp.temp_c:g}C" for temp in line.temps]
    for reading in line.rails:
        numbers = [reading.power_w, reading.running_mean_w or 0.0, 0.0][:number_count]
        told = "/".join(f"{round(1000 * number)}{unit}" for number in numbers)
        words.append(f"{reading.rail} {told}")
    return " ".join(words)


def load(one: EngineLoad) -> str:
    ratio = "" if one.busy_ratio is None else f"{round(100 * one.busy_ratio)}%"
    if not one.clocks_mhz:
        return ratio
    clocks = ",".join(map(str, one.clocks_mhz))
    return f"{ratio}@{clocks if len(one.clocks_mhz) == 1 else f'[{clocks}]'}"


@settings(max_examples=30)
@given(LINES, st.sampled_from(["", "mW"]), st.sampled_from([2, 3]))
def test_what_is_printed_reads_back(line: TegrastatsLine, unit: str, number_count: int) -> None:
    assert parse_line(printed(line, unit, number_count)) == line


@pytest.mark.data
def test_every_measured_line_reads(measured_data: Path) -> None:
    text = (measured_data / "jetson" / "tegrastats_lines.txt").read_text(encoding="utf-8")
    lines = [parse_line(one) for one in text.splitlines() if not one.startswith("#")]

    assert [line.labels[0] for line in lines] == ["VDD_IN", "VDD_IN", "VDD_GPU"]
    assert [line.gr3d for line in lines] == [
        EngineLoad(busy_ratio=0.0, clocks_mhz=(1012,)),
        EngineLoad(busy_ratio=0.99, clocks_mhz=(1004,)),
        EngineLoad(clocks_mhz=(314, 314, 314)),
    ]
    assert [len(line.cores) for line in lines] == [6, 6, 14]
    assert [len(line.temps) for line in lines] == [6, 6, 5]
    assert lines[2].rails[-1] == RailReading(rail="VIN", power_w=19.780, running_mean_w=19.780)
