"""`joulewise import tegrastats`: a log of a Jetson, added up."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path

import jsonschema
import pytest
from inline_snapshot import snapshot

from joulewise.cli.commands.importing_tegrastats import give_or_take
from tests.cli.conftest import Joulewise

SCHEMA = json.loads(
    (Path(__file__).resolve().parents[2] / "docs" / "schemas" / "result.json").read_text("utf-8")
)
BEGIN = datetime(2026, 6, 12, 0, 10, 12)  # noqa: DTZ001 - the board's own time


def orin(powers_mw: list[int], *, emc_mhz: int = 2133, begin: datetime | None = BEGIN) -> str:
    """Lines of an AGX Orin, half a second apart: the GPU's rail takes half of the power."""
    printed = []
    for at, power in enumerate(powers_mw):
        stamp = ""
        if begin is not None:
            stamp = f"{begin + timedelta(seconds=at / 2):%m-%d-%Y %H:%M:%S} "
        rails = {
            "VDD_GPU_SOC": power // 2,
            "VDD_CPU_CV": power // 10,
            "VIN_SYS_5V0": power - power // 2 - power // 10,
            "VDDQ_VDD2_1V8AO": power // 5,
        }
        told = " ".join(f"{rail} {mw}mW/9mW" for rail, mw in rails.items())
        printed.append(
            f"{stamp}RAM 2027/62841MB CPU [6%@1728,off] EMC_FREQ 4%@{emc_mhz} "
            f"GR3D_FREQ {90 if power > 9000 else 10}%@[{1295 if power > 9000 else 305},0] "
            f"gpu@{40 + power // 1000}C {told}\n"
        )
    return "".join(printed)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Ten seconds at rest and ten under load."""
    (tmp_path / "log.tegra").write_text(orin([5000] * 20 + [20_000] * 21), encoding="utf-8")
    return Path("log.tegra")


def test_a_log_adds_up_and_says_what_is_counted_and_what_is_doubtful(
    joulewise: Joulewise, log: Path
) -> None:
    said = joulewise("import", "tegrastats", log)

    assert (0, "") == (said.code, said.err)
    assert said.out == snapshot("""\
rail               energy  mean power  counted
VDD_GPU_SOC      126.88 J     6.344 W      yes
VDD_CPU_CV       25.375 J     1.269 W      yes
VIN_SYS_5V0      101.50 J     5.075 W      yes
VDDQ_VDD2_1V8AO  50.750 J     2.538 W       no

lines            41, of 1 run
apart by         500.0 ms, give or take 3.8 ms
GPU clock        1295 MHz (median; 305 to 1295)
memory clock     2133 MHz
GPU busy         51.0 %
hottest GPU      60.0 °C

Doubtful
98\u202f% of the lines repeat every rail of the line before: readings move every 20.00\u202fs in the mean;
that does not change the energy.

Caveats
  EnergyFromPower: Power was read every 500.0\u202fms.
    No energy counter moves here; power readings were added up, and miss what lies between. Log for
    longer; an interval below 100 ms tells nothing more.
  EnergyOfModule: Energy is that of VDD_GPU_SOC + VDD_CPU_CV + VIN_SYS_5V0; the carrier board is not
  measured.
    The energy includes the CPU and the memory of the module, not the GPU alone. Compare only with
    figures of the same scope.

The module took 253.75 J in 20.00 s: 12.688 W in the mean.
""")


def test_the_part_in_which_the_work_ran_is_added_up_alone(joulewise: Joulewise, log: Path) -> None:
    said = joulewise("import", "tegrastats", log, "--interval", "500ms", "--from", "10", "--json")

    document = said.document
    jsonschema.validate(document, SCHEMA)
    assert document["energy_j"] == pytest.approx(200.0)
    assert document["mean_power_w"] == pytest.approx(20.0)
    assert document["time_s"] == pytest.approx(10.0)
    assert document["busy_ratio"] == pytest.approx(0.9)
    assert document["sm_clocks"] == {"least_mhz": 1295, "median_mhz": 1295, "most_mhz": 1295}
    assert document["interval_error_s"] is None
    assert document["energy_time_s"] == pytest.approx(10.0)
    assert document["rails"] == [
        {
            "rail": "VDD_GPU_SOC",
            "energy_j": pytest.approx(100.0),
            "time_s": pytest.approx(10.0),
            "is_counted": True,
        },
        {
            "rail": "VDD_CPU_CV",
            "energy_j": pytest.approx(20.0),
            "time_s": pytest.approx(10.0),
            "is_counted": True,
        },
        {
            "rail": "VIN_SYS_5V0",
            "energy_j": pytest.approx(80.0),
            "time_s": pytest.approx(10.0),
            "is_counted": True,
        },
        {
            "rail": "VDDQ_VDD2_1V8AO",
            "energy_j": pytest.approx(40.0),
            "time_s": pytest.approx(10.0),
            "is_counted": False,
        },
    ]


@pytest.mark.parametrize("interval", ["500ms", "0.5s", "0.5", " 500 MS "])
def test_an_interval_is_taken_in_seconds_or_milliseconds(
    joulewise: Joulewise, tmp_path: Path, interval: str
) -> None:
    (tmp_path / "bare.tegra").write_text(orin([8000] * 9, begin=None), encoding="utf-8")

    said = joulewise("import", "tegrastats", "bare.tegra", "--interval", interval, "--json")

    assert said.document["energy_j"] == pytest.approx(32.0)


def test_a_log_without_dates_asks_for_its_interval(joulewise: Joulewise, tmp_path: Path) -> None:
    (tmp_path / "bare.tegra").write_text(orin([8000] * 9, begin=None), encoding="utf-8")

    said = joulewise("import", "tegrastats", "bare.tegra")

    assert said.code == 1
    assert "bare.tegra: has no two lines of different seconds" in said.err
    assert "--interval 500ms" in said.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--interval", "fast"), "'fast' is no time between lines"),
        (("--interval", "0"), "'0' is no time between lines"),
        (("--from", "nan"), "nan s is no time in a log"),
        (("--to", "-1"), "-1.0 s is no time in a log"),
        (("--from", "5", "--to", "5"), "5 s is not before 5 s"),
        (("--from", "500"), "log.tegra: has no line in that time"),
        (("--fail-on", "Nothing"), "'Nothing' is not a caveat"),
    ],
)
def test_times_that_cannot_be_are_refused_in_one_sentence(
    joulewise: Joulewise, log: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    said = joulewise("import", "tegrastats", log, *arguments)

    assert (1, "") == (said.code, said.out)
    assert sentence in said.err


def test_a_memory_clock_that_moved_is_a_caveat_to_stop_at(
    joulewise: Joulewise, tmp_path: Path
) -> None:
    text = orin([8000] * 9) + orin([8000] * 9, emc_mhz=3199, begin=BEGIN + timedelta(seconds=5))
    (tmp_path / "moved.tegra").write_text(text, encoding="utf-8")

    said = joulewise(
        "import", "tegrastats", "moved.tegra", "--fail-on", "MemoryClockMoved", "--json"
    )

    assert said.code == 2
    assert "between 2133 and 3199 MHz" in said.out


def test_a_log_without_rails_has_no_energy_and_not_zero_joules(
    joulewise: Joulewise, tmp_path: Path
) -> None:
    bare = "".join(f"{line.partition(' VDD')[0]}\n" for line in orin([8000] * 9).splitlines())
    (tmp_path / "user.tegra").write_text(bare, encoding="utf-8")

    text = joulewise("import", "tegrastats", "user.tegra")
    said = joulewise("import", "tegrastats", "user.tegra", "--json")

    assert (said.document["energy_j"], said.document["rails"]) == (None, [])
    assert "EnergyOfModule" not in said.out
    assert "no energy of the module in it" in text.out
    assert "root only" in text.out


@pytest.mark.data
def test_a_measured_log_reads_as_users_will_see_it(
    joulewise: Joulewise, measured_data: Path
) -> None:
    said = joulewise("import", "tegrastats", measured_data / "jetson" / "slm.tegra", "--json")

    document = said.document
    jsonschema.validate(document, SCHEMA)
    assert document["mean_power_w"] == pytest.approx(14.13, abs=0.01)
    assert document["mem_clocks"] == {"least_mhz": 2133, "median_mhz": 2133, "most_mhz": 2133}
    assert (document["line_count"], document["run_count"]) == (162, 1)


@pytest.mark.parametrize(
    ("interval_s", "error_s", "words"),
    [
        (0.1111, 0.00048, "111.1 ms, give or take 0.5 ms"),
        (0.5, 0.0038, "500.0 ms, give or take 3.8 ms"),
        (1.0, 0.0038, "1.000 s, give or take 0.004 s"),
        (0.5, 1e-6, "500.0 ms, give or take less than 0.1 ms"),
        (0.5, None, "500.0 ms"),
    ],
)
def test_an_interval_and_its_error_have_one_unit(
    interval_s: float, error_s: float | None, words: str
) -> None:
    assert give_or_take(interval_s, error_s) == words
