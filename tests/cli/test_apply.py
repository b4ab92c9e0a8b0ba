"""`joulewise apply`: a point held while a command runs, on the fake driver in real time."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from threading import Timer

import pytest

from joulewise.control.lease import hold
from joulewise.device.nvml_gpu import open_nvml
from joulewise.domain.plan import PlannedLaunch
from joulewise.domain.points import OperatingPoint
from joulewise.domain.workload import Pass
from joulewise.simulator.fake_driver import FakeDriver, FakeLocks
from joulewise.store.documents import write_plan
from joulewise.workflow.applying import AskedPoint, apply_while
from joulewise.workflow.command import Command
from tests.cli.conftest import Joulewise, Said
from tests.fake_nvml import DriverMaker
from tests.file_gpu import comes_true
from tests.hanging_gpu import HangingGpu
from tests.plans import bare_plan

FREE = FakeLocks(sm_max_mhz=None, memory_max_mhz=None)
POINT = ("--sm-clock", "1005", "--power-limit", "80%")


@pytest.fixture
def driver(
    make_driver: DriverMaker, fake_library: Path, monkeypatch: pytest.MonkeyPatch
) -> FakeDriver:
    """One RTX 3080 Ti that this account may set, in real time; no daemon."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(fake_library.parent))
    monkeypatch.setenv("FAKE_NVML_PRIV", "1")
    monkeypatch.setenv("JOULEWISE_SOCKET", "off")
    return make_driver(is_virtual_time=False)


def last_line(said: Said) -> dict[str, object]:
    """The object at the end of standard error."""
    loaded = json.loads(said.err.splitlines()[-1])
    assert isinstance(loaded, dict)
    return loaded


def written_plan(*sm_clocks_mhz: int, device_name: str = "NVIDIA GeForce RTX 3080 Ti") -> str:
    """The file of a plan with a launch at each of these clocks."""
    launches = [
        PlannedLaunch(kernel="k", pass_=Pass.FORWARD, point=OperatingPoint(sm_clock_mhz=clock))
        for clock in sm_clocks_mhz
    ]
    write_plan(replace(bare_plan(launches), device_name=device_name), Path("plan.json"))
    return "plan.json"


def given_back(driver: FakeDriver) -> bool:
    """Whether nothing is set any more, once what was reset has had its lag."""
    time.sleep(2 * driver.knob(0, "lag_s"))
    return driver.true_locks(0) == FREE and open_nvml("nvml:0").knob_state().power_limit_w == 350.0


def test_the_point_holds_while_the_command_runs_and_not_after(
    joulewise: Joulewise, driver: FakeDriver, tmp_path: Path
) -> None:
    # Another process looks at the GPU as it is while the command runs.
    looks = within(driver, "print(d.true_locks(0).sm_max_mhz, file=open('seen', 'w'))")
    said = joulewise("apply", *POINT, "--", *looks)

    assert (0, "") == (said.code, said.out), said.err
    assert "1005\n" == (tmp_path / "seen").read_text()
    assert given_back(driver)
    assert "an SM clock of at most 1005 MHz and a power limit of 280 W" in said.err
    assert "Simulated." in said.err
    assert [] == list((tmp_path / "state").glob("*.journal.json"))


@pytest.mark.parametrize(("line", "code"), [("exit 3", 3), ("kill -9 $$", 137)])
def test_the_exit_code_is_that_of_the_command(
    joulewise: Joulewise, driver: FakeDriver, line: str, code: int
) -> None:
    said = joulewise("apply", "--sm-clock", "1005", "--json", "sh", "-c", line)

    assert (code, "") == (said.code, said.out)
    document = last_line(said)
    assert (code, True) == (document["exit_code"], document["is_given_back"])
    assert given_back(driver)


def within(driver: FakeDriver, code: str) -> tuple[str, ...]:
    """A command that does this to the driver `d`."""
    attach = (
        "from joulewise.simulator.fake_driver import loaded_driver; import pathlib, sys; "
        f"d = loaded_driver(); d.attach(pathlib.Path(sys.argv[1])); {code}"
    )
    return (sys.executable, "-c", attach, str(driver.state_path))


def test_a_gpu_that_cannot_be_read_in_the_end_is_an_error_though_all_is_given_back(
    joulewise: Joulewise, driver: FakeDriver
) -> None:
    fails = within(driver, "d.fail('nvmlDeviceGetFieldValues', 15, call_count=3)")
    said = joulewise("apply", "--sm-clock", "1005", "--json", "--", *fails)

    document = last_line(said)
    assert (1, "error", 0, True) == (
        said.code,
        document["status"],
        document["exit_code"],
        document["is_given_back"],
    ), said.err
    assert given_back(driver)


def test_readings_that_fail_for_a_while_are_missing_and_no_more(
    joulewise: Joulewise, driver: FakeDriver
) -> None:
    fails = within(driver, "d.fail('nvmlDeviceGetFieldValues', 15, call_count=1)")
    said = joulewise("apply", "--sm-clock", "1005", "--json", "--", *fails)

    assert (0, True) == (said.code, last_line(said)["is_given_back"]), said.err
    assert given_back(driver)


def test_a_result_that_cannot_be_told_leaves_the_exit_code_and_the_file(
    driver: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_NVML_STATE", str(driver.state_path))
    monkeypatch.setenv("JOULEWISE_STATE_DIR", str(tmp_path / "state"))
    line = ("--sm-clock", "1005", "--out", "o.json", "--", "sh", "-c", "exit 7")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "joulewise", "apply", *line],
            stderr=full,
            cwd=tmp_path,
            check=False,
        )

    assert 7 == done.returncode
    assert 7 == json.loads((tmp_path / "o.json").read_bytes())["exit_code"]
    assert given_back(driver)


def test_a_result_whose_file_cannot_be_written_is_told_all_the_same(
    joulewise: Joulewise, driver: FakeDriver, tmp_path: Path
) -> None:
    (tmp_path / "gone").mkdir()
    line = ("--out", "gone/o.json", "--json", "--", "sh", "-c", "rmdir gone; exit 3")
    said = joulewise("apply", "--sm-clock", "1005", *line)

    document = last_line(said)
    assert (3, 3, "gone/o.json") == (said.code, document["exit_code"], document["file"])
    assert given_back(driver)


@pytest.mark.integration
def test_what_the_driver_does_not_take_back_is_said(
    joulewise: Joulewise, driver: FakeDriver
) -> None:
    refuses = within(driver, "d.fail('nvmlDeviceResetGpuLockedClocks', 999)")
    said = joulewise("apply", "--sm-clock", "1005", "--json", "--", *refuses)

    document = last_line(said)
    assert (1, False) == (said.code, document["is_given_back"]), said.err
    assert not given_back(driver)
    driver.fail("nvmlDeviceResetGpuLockedClocks", 0)
    assert comes_true(lambda: given_back(driver))


@pytest.mark.integration
def test_a_driver_that_hangs_while_it_is_read_is_said(
    joulewise: Joulewise, driver: FakeDriver
) -> None:
    """Its clocks are given back as soon as it answers; the reading is not waited for so long."""
    assert callable(joulewise)
    hangs = HangingGpu(open_nvml("nvml:0", timer=driver.timer))
    beginning, ending = Timer(1.0, hangs.begin), Timer(6.0, hangs.end)
    beginning.start()
    ending.start()
    command = Command(("sleep", "1.2"))
    result = apply_while(hangs, AskedPoint(sm_clock_mhz=1005), command, lambda _: None)
    ending.join()

    assert "stopped answering meanwhile: its driver hangs" in str(result.trouble)
    assert (0, True) == (result.code, result.is_given_back)
    assert given_back(driver)


def test_who_holds_the_gpu_is_the_command_for_others(
    joulewise: Joulewise, driver: FakeDriver, tmp_path: Path
) -> None:
    assert not driver.is_virtual_time
    said = joulewise("apply", "--sm-clock", "1005", "--", "cp", "-r", "state", "copied")

    (lock,) = (tmp_path / "copied").glob("*.lock")
    assert 0 == said.code
    assert "cp" in lock.read_text()


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("/bin/sleep", "60"), "sleep"),
        (("python3.11", "src/train.py", "--lr", "1"), "train.py"),
        (("python", "-m", "train"), "python"),
        (("sh",), "sh"),
    ],
)
def test_a_command_is_named_without_folders_and_arguments(
    arguments: tuple[str, ...], name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for program in ("python", "python3.11"):
        (tmp_path / program).touch(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    assert name == Command(arguments).name


def test_the_result_goes_to_a_file_as_well(
    joulewise: Joulewise, driver: FakeDriver, tmp_path: Path
) -> None:
    said = joulewise("apply", "--sm-clock", "1005", "--out", "result.json", "--", "true")

    assert 0 == said.code
    assert "SM clock" in said.err
    document = json.loads((tmp_path / "result.json").read_bytes())
    assert {"sm_clock_mhz": 1005, "mem_clock_mhz": None, "power_limit_w": None} == (
        document["point"]
    )
    assert given_back(driver)


def test_a_plan_of_one_point_is_applied_on_its_gpu(
    joulewise: Joulewise, driver: FakeDriver
) -> None:
    said = joulewise("apply", "--plan", written_plan(1005, 1005), "--json", "--", "true")

    document = last_line(said)
    assert 0 == said.code, said.err
    assert {"sm_clock_mhz": 1005, "mem_clock_mhz": None, "power_limit_w": None} == (
        document["point"]
    )
    assert given_back(driver)


def test_a_plan_of_several_points_says_how_to_get_one_of_a_single_point(
    joulewise: Joulewise, driver: FakeDriver
) -> None:
    said = joulewise("apply", "--plan", written_plan(1005, 1200), "--", "touch", "ran")

    assert 1 == said.code
    assert "2 operating points and changes them 2 times per iteration" in said.err
    assert "--granularity iteration" in said.err
    assert not Path("ran").exists()
    assert given_back(driver)


def test_a_plan_for_another_model_is_refused(joulewise: Joulewise, driver: FakeDriver) -> None:
    plan = written_plan(1005, device_name="NVIDIA H100")
    said = joulewise("apply", "--plan", plan, "--", "touch", "ran")

    assert 1 == said.code
    assert "the plan was made for NVIDIA H100" in said.err
    assert not Path("ran").exists()
    assert given_back(driver)


def test_a_dry_run_sets_nothing_and_needs_neither_rights_nor_a_command(
    joulewise: Joulewise, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FAKE_NVML_PRIV", "0")
    said = joulewise("apply", *POINT, "--dry-run", "--json", "--", "touch", "ran")

    assert 0 == said.code, said.err
    run = said.document["dry_run"]
    assert isinstance(run, dict)
    assert [
        "nvmlDeviceSetPowerManagementLimit(280000)",
        "nvmlDeviceSetGpuLockedClocks(210, 1005)",
    ] == [write["call"] for write in run["writes"]]
    assert ["sm_clock_mhz", "power_limit_w"] == run["touched"]
    assert 350.0 == run["found_power_limit_w"]
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "state").exists()
    assert given_back(driver)


def test_a_dry_run_tells_every_write_that_a_real_run_makes_and_no_other(
    fake_library: Path, tmp_path: Path
) -> None:
    """A process of its own, for the driver reads where to log when it starts."""
    log = tmp_path / "log"
    environment = {
        "LD_LIBRARY_PATH": str(fake_library.parent),
        "FAKE_NVML_STATE": str(tmp_path / "logged.state"),
        "FAKE_NVML_PRIV": "1",
        "JOULEWISE_SOCKET": "off",
        "JOULEWISE_STATE_DIR": str(tmp_path / "state"),
        "PATH": "/usr/bin:/bin",
    }
    point = ("--sm-clock", "1005", "--mem-clock", "5001", "--power-limit", "250")
    command = ("apply", "--device", "nvml,memory_lock=on", *point)

    planned = json.loads(ran(*command, "--dry-run", "--json", environment=environment))["dry_run"]
    ran(*command, "--", "true", environment={**environment, "FAKE_NVML_LOG": str(log)})

    told = [
        write["call"].partition("(")[0]
        for stage in ("writes", "frees", "gives_back")
        for write in planned[stage]
    ]
    made = [line.split()[2] for line in log.read_text().splitlines()]
    assert told == [name for name in made if name.startswith(("nvmlDeviceSet", "nvmlDeviceReset"))]


def ran(*arguments: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "joulewise", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("arguments", "said_of_it"),
    [
        (("--sm-clock", "1005", "--", "no-such-program"), "no program 'no-such-program'"),
        (("--sm-clock", "1005"), "no command was given"),
        (("--", "true"), "there is nothing to apply"),
        (("--sm-clock", "1006", "--", "touch", "ran"), "no clock of 1006 MHz"),
        (("--sm-clock", "1005,1200", "--", "touch", "ran"), "one operating point"),
        (("--power-limit", "400", "--", "touch", "ran"), "above the limit found"),
        (("--mem-clock", "5001", "--", "touch", "ran"), "memory_lock=on"),
        (("--sm-clock", "1005", "--plan", "x.json", "--", "true"), "a plan has its own clocks"),
        (("--sm-clock", "1005", "--out", "no/where.json", "--", "touch", "ran"), "no/where.json"),
        (("--device", "virtual:rtx3080ti", "--sm-clock", "1005", "true"), "no command runs on"),
        (("--device", "nvml:0", "--device", "nvml:0", "--sm-clock", "1005", "true"), "one GPU"),
        (("--plan", "/dev/null", "--", "touch", "ran"), "a plan has to be a file"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is_set_or_run(
    joulewise: Joulewise, driver: FakeDriver, arguments: tuple[str, ...], said_of_it: str
) -> None:
    said = joulewise("apply", *arguments)

    assert 1 == said.code
    assert said_of_it in said.err
    assert "hint: " in said.err
    assert not Path("ran").exists()
    assert given_back(driver)


def test_without_rights_nothing_runs(
    joulewise: Joulewise, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_NVML_PRIV", "0")
    said = joulewise("apply", "--sm-clock", "1005", "--", "touch", "ran")

    assert 1 == said.code
    assert "Insufficient Permissions" in said.err
    assert not Path("ran").exists()
    assert given_back(driver)


def test_a_gpu_that_another_holds_is_refused_by_name(
    joulewise: Joulewise, driver: FakeDriver, tmp_path: Path
) -> None:
    with hold(open_nvml("nvml:0", timer=driver.timer), state_dir=tmp_path / "state"):
        said = joulewise("apply", "--sm-clock", "1005", "--", "touch", "ran")

    assert 1 == said.code
    assert "is held by process" in said.err
    assert not Path("ran").exists()


def test_errors_are_objects_where_the_flag_is_ours_and_not_the_commands(
    joulewise: Joulewise, driver: FakeDriver
) -> None:
    assert driver.state_path is not None
    ours = joulewise("apply", "--json", "--sm-clock", "1006", "true")
    theirs = joulewise("apply", "--sm-clock", "1006", "true", "--json")

    assert "error" == last_line(ours)["status"]
    assert theirs.err.startswith("error: ")
    assert ("", "") == (ours.out, theirs.out)
