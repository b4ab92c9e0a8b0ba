"""`joulewise status`: who holds which GPU, and what was left set."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest

from joulewise.control.daemon.messages import (
    AskedPoint,
    GpuState,
    Hello,
    Refused,
    SeenCaveat,
    State,
    encode,
)
from joulewise.control.daemon.messages import Status as AskStatus
from joulewise.control.journal import JournalEntry, write_journal
from joulewise.control.lease import hold
from joulewise.control.lock import FileLock
from joulewise.device.nvml_gpu import open_nvml
from joulewise.domain.control import Holder
from joulewise.domain.points import OperatingPoint
from joulewise.simulator.fake_driver import FakeDriver
from joulewise.simulator.fake_runner import open_fake_session_parts
from tests.cli.conftest import Joulewise
from tests.cli.test_json_schema import assert_obeys
from tests.fake_nvml import DriverMaker
from tests.nvml.works import WORKS
from tests.scripted_daemon import scripted_daemon

LOW = OperatingPoint(sm_clock_mhz=1005)


@pytest.fixture
def driver(make_driver: DriverMaker, monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    monkeypatch.setenv("FAKE_NVML_PRIV", "0")
    monkeypatch.setenv("JOULEWISE_SOCKET", "off")
    return make_driver(is_virtual_time=False)


def only_gpu(document: dict[str, object]) -> dict[str, object]:
    gpus = document["gpus"]
    assert isinstance(gpus, list)
    (gpu,) = gpus
    assert isinstance(gpu, dict)
    return gpu


def left_journal(folder: Path, uuid: str) -> Path:
    """As of a process that was killed, which had locked the SM clock."""
    folder.mkdir(exist_ok=True, mode=0o700)
    journal = folder / f"{uuid}.journal.json"
    entry = JournalEntry(
        device=f"nvml:{uuid}",
        device_name="NVIDIA GeForce RTX 3080 Ti",
        uuid=uuid,
        holder="process 4242 (alice: train.py)",
        touched=("sm_clock_mhz",),
    )
    write_journal(journal, entry)
    return journal


def test_a_gpu_that_nobody_holds_is_shown_with_its_readings(
    joulewise: Joulewise, driver: FakeDriver
) -> None:
    assert driver.now_s() > 0
    seen = joulewise("status", "--json")
    said = joulewise("status")

    assert_obeys(seen.document, "CommandResult")
    gpu = only_gpu(seen.document)
    assert (None, None, None) == (gpu["holder"], gpu["asked"], gpu["left_set"])
    assert (210, 350.0, True) == (gpu["sm_clock_mhz"], gpu["power_limit_w"], gpu["is_simulated"])
    assert "nobody" in said.out
    assert "Simulated. 0 of 1 GPU held" in said.out


def test_a_holder_is_named_with_what_it_has_touched(
    joulewise: Joulewise,
    driver: FakeDriver,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("FAKE_NVML_PRIV", "1")
    gpu = open_nvml("nvml:0", timer=driver.timer)
    with hold(gpu, state_dir=tmp_path / "state") as lease:
        lease.apply(LOW)
        seen = only_gpu(joulewise("status", "--json").document)
        said = joulewise("status").out

    assert str(seen["holder"]).startswith("process ")
    assert (None, ["sm_clock_mhz"]) == (seen["asked"], seen["touched"])
    assert "SM clock" in said
    assert "1 of 1 GPU held" in said


def test_what_a_dead_holder_left_is_told_with_how_to_give_it_back(
    joulewise: Joulewise, driver: FakeDriver, tmp_path: Path
) -> None:
    gpu = open_nvml("nvml:0", timer=driver.timer)
    left_journal(tmp_path / "state", gpu.uuid)
    # Of this one only the copy is left.
    left_journal(tmp_path / "state", "GPU-0000").unlink()
    said = joulewise("status").out
    seen = joulewise("status", "--json").document

    assert "joulewise restore" in said
    assert f"nvidia-smi -i {gpu.uuid} -rgc" in str(only_gpu(seen)["left_set"])
    elsewhere = seen["left_elsewhere"]
    assert isinstance(elsewhere, list)
    assert ["GPU-0000" in line for line in elsewhere] == [True]


def test_a_living_holder_of_a_gpu_that_is_not_here_has_left_nothing(
    joulewise: Joulewise, driver: FakeDriver, tmp_path: Path
) -> None:
    assert driver.now_s() > 0
    journal = left_journal(tmp_path / "state", "GPU-0000")
    lock = FileLock(journal.with_name("GPU-0000.lock"))
    lock.acquire("a GPU", Holder(pid=os.getpid()))
    try:
        while_held = joulewise("status", "--json").document["left_elsewhere"]
    finally:
        lock.release()
    after = joulewise("status", "--json").document["left_elsewhere"]

    assert [] == while_held
    assert isinstance(after, list)
    assert 1 == len(after)


def test_what_a_damaged_journal_leaves_open_is_told_and_is_no_clock_left_set(
    joulewise: Joulewise, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FAKE_NVML_PRIV", "1")
    gpu = open_nvml("nvml:0", timer=driver.timer)
    journal = left_journal(tmp_path / "state", gpu.uuid)
    for one in (journal, journal.with_name(f"{journal.name}.copy")):
        one.write_text("{")
    with hold(gpu, state_dir=tmp_path / "state"):
        pass
    seen = only_gpu(joulewise("status", "--json").document)
    said = joulewise("status").out

    assert seen["left_set"] is None
    assert "a power limit may still be lowered" in str(seen["left_open"])
    assert "may still be lowered" in " ".join(said.split())
    assert "were left set" not in said


def test_a_lock_of_somebody_else_shows_under_load(
    joulewise: Joulewise, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FAKE_NVML_PRIV", "1")
    open_nvml("nvml:0", timer=driver.timer).request(LOW)
    runner, _, _ = open_fake_session_parts(driver, 0, WORKS)
    driver.set_knob(0, "other_process_count", 1)
    with runner.loop("gemm", run="load"):
        driver.timer.sleep(0.05)
        caveats = only_gpu(joulewise("status", "--json").document)["caveats"]
        said = joulewise("status").out
        left_journal(tmp_path / "state", open_nvml("nvml:0").uuid)
        explained = only_gpu(joulewise("status", "--json").document)["caveats"]

    assert isinstance(caveats, list)
    assert ["SimulatedDevice", "ForeignControl"] == [one["kind"] for one in caveats]
    # What a dead holder left is no riddle.
    assert caveats[:1] == explained
    assert "SimulatedDevice" not in said
    assert caveats[1]["seen"] in " ".join(said.split())


@pytest.mark.skipif(sys.platform != "linux", reason="Unix sockets")
def test_what_joulewised_tells_is_shown_by_kind_and_not_by_its_words(
    joulewise: Joulewise, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = (
        GpuState(
            gpu="GPU-1",
            name="A100",
            device="nvml:GPU-1",
            is_simulated=True,
            asked=AskedPoint(sm_clock_mhz=1005),
            caveats=(
                SeenCaveat(kind="SimulatedDevice", seen="fake NVIDIA driver"),
                SeenCaveat(kind="OfALaterVersion", seen="SimulatedDevice is its name"),
            ),
            left_open="a power limit may still be lowered",
        ),
        GpuState(gpu="nvml:1", name="B", device="nvml:1", is_simulated=True, is_answering=False),
    )
    state = State(pid=7, gpus=gpus, problems=("joulewised serves no metrics: port in use",))
    with tempfile.TemporaryDirectory(prefix="jw") as name:
        path = Path(name) / "d.sock"
        monkeypatch.setenv("JOULEWISE_SOCKET", str(path))
        with scripted_daemon(path, {AskStatus: lambda _question: encode(state)}):
            said = " ".join(joulewise("status").out.split())
            document = joulewise("status", "--json").document

    assert "OfALaterVersion: SimulatedDevice is its name." in said
    assert "fake NVIDIA driver" not in said
    assert "a power limit may still be lowered" in said
    assert "nvml:1 does not answer: B (nvml:1) is lost to its driver" in said
    assert "joulewised serves no metrics: port in use." in said
    assert "were left set" not in said
    assert_obeys(document, "CommandResult")
    shown = document["gpus"]
    assert isinstance(shown, list)
    assert {"sm_clock_mhz": 1005, "mem_clock_mhz": None, "power_limit_w": None} == shown[0]["asked"]
    assert "OfALaterVersion" == shown[0]["caveats"][1]["kind"]


def test_a_gpu_lost_under_its_holder_is_still_shown_as_held(
    joulewise: Joulewise, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FAKE_NVML_PRIV", "1")
    gpu = open_nvml("nvml:0", timer=driver.timer)
    with hold(gpu, state_dir=tmp_path / "state") as lease:
        lease.apply(LOW)
        driver.set_knob(0, "is_lost", 1)
        seen = only_gpu(joulewise("status", "--json").document)
        said = " ".join(joulewise("status").out.split())
        driver.fail("nvmlDeviceGetCount_v2", 999)
        without_nvml = joulewise("status", "--json")
        driver.fail("nvmlDeviceGetCount_v2", 0)
        driver.set_knob(0, "is_lost", 0)

    assert (gpu.uuid, gpu.identity.name) == (seen["gpu"], seen["name"])
    assert (False, None) == (seen["is_answering"], seen["left_set"])
    assert str(os.getpid()) in str(seen["holder"])
    assert "nvml:0 does not answer: " in said
    assert "is lost to its driver" in said
    assert 1 == without_nvml.code
    notes = without_nvml.document["notes"]
    assert isinstance(notes, list)
    assert [
        f"({gpu.uuid}), which does not answer here, is held by process {os.getpid()}" in one
        for one in notes
    ] == [True]


def test_a_gpu_whose_uuid_nobody_knows_is_not_called_nobody_s(
    joulewise: Joulewise, driver: FakeDriver
) -> None:
    driver.set_knob(0, "is_lost", 1)
    seen = only_gpu(joulewise("status", "--json").document)

    assert ("nvml:0", False) == (seen["gpu"], seen["is_control_known"])


@pytest.mark.skipif(sys.platform != "linux", reason="Unix sockets")
def test_where_joulewised_takes_no_more_connections_the_gpus_are_read_without_it(
    joulewise: Joulewise, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert driver.now_s() > 0
    full = encode(Refused(kind="busy", message="user 0 has too many connections open"))
    with tempfile.TemporaryDirectory(prefix="jw") as name:
        path = Path(name) / "d.sock"
        monkeypatch.setenv("JOULEWISE_SOCKET", str(path))
        with scripted_daemon(path, {Hello: lambda _question: full}):
            said = joulewise("status")

    assert 0 == said.code
    assert "0 of 1 GPU held" in said.out
    assert "was not asked: user 0 has too many connections open." in " ".join(said.out.split())


def test_without_a_gpu_it_says_so(joulewise: Joulewise, driver: FakeDriver) -> None:
    driver.fail("nvmlInitWithFlags", 9)
    driver.fail("nvmlInit_v2", 9)
    said = joulewise("status")

    assert (1, "") == (said.code, said.out)
    assert "error: " in said.err
    assert "hint: " in said.err


@pytest.mark.skipif(sys.platform != "linux", reason="Unix sockets")
def test_a_socket_at_which_nobody_answers_is_passed_over(
    joulewise: Joulewise,
    driver: FakeDriver,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("JOULEWISE_SOCKET", str(tmp_path / "no.sock"))
    assert driver.now_s() > 0

    assert joulewise("status", "--json").document["daemon"] is None
