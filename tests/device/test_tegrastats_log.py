"""Logs of tegrastats: time axis, energy, and what is doubtful."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulewise.device.tegrastats_log import read_tegrastats_log
from joulewise.domain.errors import InputError
from joulewise.domain.tegrastats import TegrastatsLog

BEGIN = datetime(2026, 6, 12, 0, 10, 12)  # noqa: DTZ001 - the board's own time
LOGS = ("slm.tegra", "idle.tegra", "emc2133_mobilenet.tegra", "emc3199_slm.tegra")


def lines(
    powers_mw: Sequence[int], interval_s: float = 0.5, *, begin: datetime | None = BEGIN
) -> list[str]:
    """Lines as one tegrastats prints them: whole seconds, and the mean since its start."""
    printed = []
    for at, power in enumerate(powers_mw):
        stamp = ""
        if begin is not None:
            stamp = f"{begin + timedelta(seconds=at * interval_s):%m-%d-%Y %H:%M:%S} "
        mean = sum(powers_mw[: at + 1]) // (at + 1)
        printed.append(
            f"{stamp}RAM 2027/7607MB CPU [6%@1728,off] EMC_FREQ 4%@2133 GR3D_FREQ 50%@[1012] "
            f"gpu@50C VDD_IN {power}mW/{mean}mW VDD_SOC {power // 4}mW/{mean // 4}mW"
        )
    return printed


def log(
    path: Path, *parts: Sequence[str], interval_s: float | None = None, end: str = "\n"
) -> TegrastatsLog:
    """What is read of a file with these lines."""
    file = path / "log.tegra"
    file.write_text("\n".join(line for part in parts for line in part) + end, encoding="utf-8")
    return read_tegrastats_log(file, interval_s=interval_s)


def steady(line_count: int) -> list[int]:
    return [5000] * line_count


def test_energy_is_the_trapezoid_of_instant_power_of_the_module(tmp_path: Path) -> None:
    powers = [4000, 8000, 8000, 2000]

    told = log(tmp_path, lines(powers), interval_s=0.5)

    assert told.energy_j == pytest.approx(0.5 * (2.0 + 8.0 + 8.0 + 1.0))
    assert told.mean_power_w == pytest.approx(9.5 / 1.5)
    assert told.energy_by_rail_j == pytest.approx({"VDD_IN": 9.5, "VDD_SOC": 9.5 / 4})
    assert (told.counted, told.duration_s) == (("VDD_IN",), 1.5)


@pytest.mark.parametrize("interval_s", [0.1, 0.11, 0.5, 1.0, 2.0, 5.0])
def test_lines_that_share_a_second_are_spread_over_it(tmp_path: Path, interval_s: float) -> None:
    told = log(tmp_path, lines(steady(200), interval_s))

    run = told.runs[0]
    assert len(told.runs) == 1
    assert run.interval_s == pytest.approx(interval_s, abs=4 * (run.interval_error_s or 0.0))
    assert np.diff([line.time_s for line in told.lines]) == pytest.approx(run.interval_s)


def test_symptom_ten_lines_of_one_second_stamped_alike_have_no_time_in_them(
    tmp_path: Path,
) -> None:
    with pytest.raises(InputError, match="the time between lines is not known") as raised:
        log(tmp_path, lines(steady(10), 0.05))

    assert "--interval" in (raised.value.hint or "")
    assert raised.value.file is not None
    assert log(tmp_path, lines(steady(10), 0.05), interval_s=0.05).energy_j == pytest.approx(2.25)


def test_a_log_without_dates_needs_to_be_told_its_interval(tmp_path: Path) -> None:
    bare = lines(steady(20), begin=None)

    with pytest.raises(InputError, match="not known"):
        log(tmp_path, bare)

    assert log(tmp_path, bare, interval_s=1.0).energy_j == pytest.approx(95.0)


def test_an_interval_that_the_stamps_deny_is_used_and_doubted(tmp_path: Path) -> None:
    # 100 ms asked gives about nine lines a second.
    told = log(tmp_path, lines(steady(200), 0.111), interval_s=0.1)

    assert told.duration_s == pytest.approx(19.9)
    assert "lines lie 111 ms apart, not 100 ms as given" in told.notes[0]


@pytest.mark.parametrize("interval_s", [0.0, -1.0, math.nan, math.inf])
def test_an_interval_that_is_none_is_refused(tmp_path: Path, interval_s: float) -> None:
    with pytest.raises(InputError, match="is no interval"):
        log(tmp_path, lines(steady(9)), interval_s=interval_s)


def test_symptom_file_of_one_clock_holds_all_later_runs(tmp_path: Path) -> None:
    # jetson_dvfs, TX2: a second tegrastats wrote on into the same file.
    first = lines([4000, 6000, 5000, 7000] * 5)
    second = lines([9000] * 8, begin=BEGIN + timedelta(hours=1))

    told = log(tmp_path, first, second)

    assert [len(run.lines) for run in told.runs] == [20, 8]
    assert "line 21 begins another run of tegrastats: no line for" in told.notes[0]
    interval_s = told.runs[0].interval_s or 0.0
    assert told.duration_s == pytest.approx(19 * interval_s + 7 * (told.runs[1].interval_s or 0.0))
    assert told.energy_j == pytest.approx(
        interval_s * (sum([4, 6, 5, 7] * 5) - (4 + 7) / 2) + 9 * 7 * (told.runs[1].interval_s or 0)
    )


def test_time_that_goes_back_begins_another_run(tmp_path: Path) -> None:
    earlier = lines(steady(20), begin=BEGIN - timedelta(minutes=5))

    told = log(tmp_path, lines(steady(20)), earlier)

    assert len(told.runs) == 2
    assert "time goes back from 2026-06-12 00:10:21 to 2026-06-12 00:05:12" in told.notes[0]
    assert told.lines[20].time_s > told.lines[19].time_s


def test_a_run_that_follows_at_once_shows_by_its_means(tmp_path: Path) -> None:
    first = lines([4000, 6000, 5000, 7000, 6000, 6500])
    second = lines([9000, 9100, 9000, 9100], begin=BEGIN + timedelta(seconds=3))

    told = log(tmp_path, first, second)

    assert [len(run.lines) for run in told.runs] == [6, 4]
    assert "its running means start anew" in told.notes[0]


@settings(max_examples=15)
@given(
    st.lists(st.integers(1000, 60_000), min_size=30, max_size=60),
    st.sampled_from([0.1, 0.25, 0.5, 1.0]),
)
def test_one_run_is_never_split_whatever_it_drew(
    tmp_path_factory: pytest.TempPathFactory, powers: list[int], interval_s: float
) -> None:
    told = log(tmp_path_factory.mktemp("log"), lines(powers, interval_s))

    assert len(told.runs) == 1
    assert not told.notes


def test_a_last_line_that_was_cut_off_is_dropped_and_said(tmp_path: Path) -> None:
    whole = lines(steady(20))
    for length in (30, 70, 120, len(whole[-1]) - 12):
        told = log(tmp_path, whole[:-1], [whole[-1][:length]], end="")

        assert len(told.lines) == 19
        assert told.notes == ("line 20 was cut off in the middle, and is left out",)


def test_a_last_line_that_only_lacks_its_end_of_line_is_kept(tmp_path: Path) -> None:
    told = log(tmp_path, lines(steady(20)), end="")

    assert (len(told.lines), told.notes) == (20, ())


def test_a_line_within_that_lacks_its_rails_leaves_the_power_between_straight(
    tmp_path: Path,
) -> None:
    broken = lines(steady(20))
    broken[7] = broken[7][:100]

    told = log(tmp_path, broken, interval_s=0.5)

    assert told.lines[7].module_power_w is None
    assert told.energy_j == pytest.approx(5.0 * 19 * 0.5)
    assert told.notes[0].startswith("1 of 20 lines do not tell all of VDD_IN")


def test_lines_of_others_are_left_out_and_said(tmp_path: Path) -> None:
    told = log(tmp_path, ["sudo: unable to resolve host"], lines(steady(9)), ["", "\0\0\0"])

    assert len(told.lines) == 9
    assert told.notes == ("line 1 is not of tegrastats, and left out",)


@pytest.mark.parametrize("text", ["", "\n\n", "time,power\n1,2\n", "\0" * 100])
def test_a_file_that_is_no_log_is_refused_by_name(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="no line that tegrastats wrote") as raised:
        log(tmp_path, [text])

    assert (raised.value.file or "").endswith("log.tegra")


def test_a_file_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_tegrastats_log(tmp_path / "absent.tegra")


def test_a_log_without_rails_has_no_energy_and_says_why(tmp_path: Path) -> None:
    bare = [line.partition(" VDD_IN")[0] for line in lines(steady(20))]

    told = log(tmp_path, bare)

    assert told.energy_j is None
    assert told.mean_power_w is None
    assert "root only" in told.notes[0]


def test_symptom_energy_silently_of_two_rails_of_four(tmp_path: Path) -> None:
    # jetson_stats 344, slmdvfs: VIN_SYS_5V0 is part of an AGX Orin's power.
    rails = "VDD_GPU_SOC 3996mW/3996mW VDD_CPU_CV 799mW/799mW VIN_SYS_5V0 3824mW/3824mW"
    inside = "VDDQ_VDD2_1V8AO 503mW/503mW"
    orin = [line.replace("VDD_IN", f"{rails} {inside} X") for line in lines(steady(20))]
    orin = [line.partition(" X ")[0] for line in orin]

    told = log(tmp_path, orin, interval_s=0.5)

    assert told.counted == ("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0")
    assert told.mean_power_w == pytest.approx(3.996 + 0.799 + 3.824)


def test_one_line_alone_spans_no_time(tmp_path: Path) -> None:
    told = log(tmp_path, lines(steady(1)))

    assert (told.energy_j, told.duration_s, told.update_period_s) == (None, 0.0, None)
    assert told.runs[0].interval_s is None


def test_readings_that_a_slow_sensor_repeats_are_counted_and_stay_in_the_energy(
    tmp_path: Path,
) -> None:
    powers = [power for power in (4000, 6000, 5000, 7000, 4400) for _ in range(4)]

    told = log(tmp_path, lines(powers, 0.1), interval_s=0.1)

    assert told.repeated_ratio == pytest.approx(15 / 19)
    assert told.update_period_s == pytest.approx(0.1 * 19 / 4)
    assert told.energy_j == pytest.approx(0.1 * (sum(powers) - (4000 + 4400) / 2) / 1000)


def test_readings_that_never_move_tell_no_period(tmp_path: Path) -> None:
    assert log(tmp_path, lines(steady(20))).update_period_s is None


def test_part_of_a_log_is_what_lies_between_two_times(tmp_path: Path) -> None:
    told = log(tmp_path, lines([1000] * 10 + [9000] * 11), interval_s=0.5)

    part = told.between(5.0, 10.0)

    assert part.mean_power_w == pytest.approx(9.0)
    assert part.duration_s == pytest.approx(5.0)
    assert told.between(None, None) == told
    assert told.between(100.0, None).runs == ()


@pytest.mark.data
@pytest.mark.parametrize("name", LOGS)
def test_energy_over_a_measured_log_is_a_trapezoid_of_instant_module_power(
    measured_data: Path, name: str
) -> None:
    file = measured_data / "jetson" / name
    text = file.read_text(encoding="utf-8")
    watts = np.array([int(mw) for mw in re.findall(r"VDD_IN (\d+)mW/", text)]) / 1000.0
    stamps = re.findall(r"^\S+ (\d\d):(\d\d):(\d\d) ", text, re.MULTILINE)
    seconds = np.array([3600 * int(h) + 60 * int(m) + int(s) for h, m, s in stamps], float)
    slope_s = np.polyfit(np.arange(len(seconds)), seconds, 1)[0]

    told = read_tegrastats_log(file)

    expected_j = float(np.trapezoid(watts, dx=slope_s))
    assert told.energy_j == pytest.approx(expected_j, rel=1e-3)
    assert (len(told.lines), len(told.runs), told.notes) == (len(watts), 1, ())
    assert read_tegrastats_log(file, interval_s=0.1).energy_j == pytest.approx(
        float(np.trapezoid(watts, dx=0.1)), rel=1e-3
    )


@pytest.mark.data
def test_symptom_second_number_is_a_mean_since_the_start_and_no_window(measured_data: Path) -> None:
    told = read_tegrastats_log(measured_data / "jetson" / "slm.tegra")
    seen_mw: list[float] = []

    for line in told.lines:
        reading = line.line.rails[0]
        seen_mw.append(1000 * reading.power_w)
        assert 1000 * (reading.running_mean_w or 0) == pytest.approx(np.mean(seen_mw), abs=1.0)


@pytest.mark.data
def test_repeats_of_measured_logs_lie_where_others_saw_them(measured_data: Path) -> None:
    # 26 to 54 % at 100 ms on steady loads, 0 to 15 % at 500 ms under changing load.
    repeated = {
        name: read_tegrastats_log(measured_data / "jetson" / name).repeated_ratio for name in LOGS
    }

    assert repeated["slm.tegra"] == pytest.approx(0.354, abs=1e-3)
    assert repeated["emc3199_slm.tegra"] == pytest.approx(0.207, abs=1e-3)


def stripped(printed: Sequence[str]) -> list[str]:
    return [line.partition(" VDD_IN")[0] for line in printed]


def test_symptom_energy_of_part_of_a_log_stood_against_all_of_its_time(tmp_path: Path) -> None:
    printed = lines(steady(100))

    told = log(tmp_path, stripped(printed[:60]), printed[60:], interval_s=0.5)

    assert told.energy_time_s == pytest.approx(39 * 0.5)
    assert told.energy_j == pytest.approx(5.0 * 39 * 0.5)
    assert told.mean_power_w == pytest.approx(5.0)
    assert told.time_by_rail_s == pytest.approx({"VDD_IN": 19.5, "VDD_SOC": 19.5})
    assert len(told.runs) == 2
    assert any("line 61 begins another run" in note for note in told.notes)


def test_a_hole_in_which_no_line_tells_of_power_is_not_bridged(tmp_path: Path) -> None:
    printed = lines(steady(100))

    told = log(tmp_path, printed[:30], stripped(printed[30:70]), printed[70:], interval_s=0.5)

    assert len(told.runs) == 3
    assert told.energy_time_s == pytest.approx((29 + 29) * 0.5)


@pytest.mark.parametrize("lost", [0, 40, 99])
def test_symptom_one_line_without_a_stamp_refused_the_whole_log(tmp_path: Path, lost: int) -> None:
    printed = lines(steady(100))
    printed[lost] = printed[lost].partition(" RAM")[2].join(["RAM", ""])

    told = log(tmp_path, printed)

    assert len(told.runs) == 1
    assert told.runs[0].interval_s == pytest.approx(0.5, rel=0.02)


def test_a_mark_of_byte_order_is_no_part_of_the_first_stamp(tmp_path: Path) -> None:
    printed = lines(steady(20))

    told = log(tmp_path, ["\ufeff" + printed[0]], printed[1:])

    assert told.lines[0].line.stamp == BEGIN


def test_symptom_one_impossible_power_made_most_of_the_energy(tmp_path: Path) -> None:
    printed = lines(steady(100))
    printed[50] = printed[50].replace("VDD_IN 5000mW", "VDD_IN 9999999mW")

    told = log(tmp_path, printed, interval_s=0.5)

    assert told.energy_j == pytest.approx(5.0 * 99 * 0.5)
    assert any("1 power above 1400 W" in note for note in told.notes)


def test_a_file_without_end_is_refused_before_memory_is(tmp_path: Path) -> None:
    path = tmp_path / "large.log"
    path.write_text("\n".join(lines(steady(100))), encoding="utf-8")
    # Zeros that take no room on the disk.
    os.truncate(path, (128 << 20) + 1)

    for endless in (path, Path("/dev/zero")):
        with pytest.raises(InputError, match="is longer than 128 MiB"):
            read_tegrastats_log(endless)
