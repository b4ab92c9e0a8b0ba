"""`joulewise restore`: what dead holders left is given back; what the living hold is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from joulewise.cli.commands.restore import sentence
from joulewise.control.lease import hold
from joulewise.device.nvml_gpu import NvmlGpu, open_nvml
from joulewise.domain.points import OperatingPoint
from joulewise.simulator.fake_driver import FakeDriver
from joulewise.workflow.restoring import hidden_state_dir
from tests.cli.conftest import Joulewise
from tests.cli.test_json_schema import assert_obeys
from tests.cli.test_status import left_journal
from tests.fake_nvml import DriverMaker

LOW = OperatingPoint(sm_clock_mhz=1005)


@pytest.fixture
def driver(make_driver: DriverMaker, monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    """Two GPUs whose clocks somebody who is gone has locked; virtual time, so without lag."""
    monkeypatch.setenv("FAKE_NVML_PRIV", "1")
    driver = make_driver(device_count=2)
    for index in range(2):
        opened(driver, index).request(LOW)
    driver.advance(1.0)
    return driver


def opened(driver: FakeDriver, index: int) -> NvmlGpu:
    return open_nvml(f"nvml:{index}", timer=driver.timer)


def locked(driver: FakeDriver) -> list[int | None]:
    driver.advance(1.0)
    return [driver.true_locks(index).sm_max_mhz for index in range(2)]


def test_what_every_dead_holder_left_is_given_back_once(
    joulewise: Joulewise, driver: FakeDriver, tmp_path: Path
) -> None:
    journals = [left_journal(tmp_path / "state", opened(driver, index).uuid) for index in range(2)]
    before = locked(driver)
    said = joulewise("restore", "--json")
    again = joulewise("restore")

    assert ([1005, 1005], [None, None]) == (before, locked(driver))
    assert_obeys(said.document, "CommandResult")
    restored = said.document["restored"]
    assert isinstance(restored, list)
    assert ["given back", "given back"] == [one["outcome"] for one in restored]
    assert [False, False] == [journal.exists() for journal in journals]
    assert 0 == again.code
    assert f"Nothing was left set, as {tmp_path / 'state'} says." in " ".join(again.out.split())


def test_one_gpu_may_be_named(joulewise: Joulewise, driver: FakeDriver, tmp_path: Path) -> None:
    for index in range(2):
        left_journal(tmp_path / "state", opened(driver, index).uuid)
    said = joulewise("restore", "--device", "nvml:1")

    assert 0 == said.code
    assert "SM clock given back, left set by process 4242 (alice: train.py)" in said.out
    assert [1005, None] == locked(driver)


@pytest.mark.parametrize("device", [(), ("--device", "nvml:0")])
def test_a_living_holder_is_named_and_left_alone(
    joulewise: Joulewise, driver: FakeDriver, tmp_path: Path, device: tuple[str, ...]
) -> None:
    with hold(opened(driver, 0), state_dir=tmp_path / "state") as lease:
        lease.apply(LOW)
        said = joulewise("restore", *device)
        held = locked(driver)

    assert 0 == said.code
    assert "left alone: " in said.out
    assert "is held by process " in said.out
    assert "Nothing was left set" in said.out
    assert "1 GPU is held, and left alone." in " ".join(said.out.split())
    assert 1005 == held[0]


@pytest.mark.parametrize("device", [(), ("--device", "nvml:0")])
def test_without_rights_the_journal_stays_and_the_error_is_plain(
    joulewise: Joulewise,
    driver: FakeDriver,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    device: tuple[str, ...],
) -> None:
    journal = left_journal(tmp_path / "state", opened(driver, 0).uuid)
    monkeypatch.setenv("FAKE_NVML_PRIV", "0")
    said = joulewise("restore", *device)
    seen = joulewise("restore", "--json", *device)

    assert (1, 1) == (said.code, seen.code)
    assert "SM clock not given back: " in said.out
    assert "Insufficient Permissions" in said.out
    assert_obeys(seen.document, "CommandError")
    assert journal.exists()
    assert 1005 == locked(driver)[0]


def test_a_gpu_of_which_nothing_was_left_is_not_touched(
    joulewise: Joulewise, driver: FakeDriver
) -> None:
    said = joulewise("restore", "--device", "nvml:0")

    assert 0 == said.code
    assert "Nothing was left set" in said.out
    assert [1005, 1005] == locked(driver)


@pytest.mark.parametrize("device", [(), ("--device", "nvml:0")])
def test_what_a_damaged_journal_leaves_open_is_told_once_and_no_clock_counts_as_left(
    joulewise: Joulewise,
    driver: FakeDriver,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    device: tuple[str, ...],
) -> None:
    monkeypatch.setenv("JOULEWISE_SOCKET", "off")
    journal = left_journal(tmp_path / "state", opened(driver, 0).uuid)
    for path in (journal, journal.with_name(f"{journal.name}.copy")):
        path.write_bytes(b"{")
    first = joulewise("restore", *device)
    second = joulewise("restore", *device)
    # As the next lease or joulewised leaves it.
    told = journal.with_name(f"{journal.name}.damaged.told")
    told.rename(journal.with_name(f"{journal.name}.damaged"))
    status = joulewise("status")
    third = joulewise("restore", *device)

    assert [0, 0, 0] == [first.code, second.code, third.code]
    open_ = "a power limit may still be lowered: nvidia-smi -q -d POWER"
    assert "clocks given back, left set by an earlier process. A journal of what" in first.out
    assert open_ in " ".join(first.out.split())
    assert [None, 1005] == locked(driver)
    assert "Nothing was left set" in second.out
    assert open_ in " ".join(status.out.split())
    assert "were left set" not in status.out
    assert open_ in " ".join(third.out.split())
    assert "No clock was left set" in third.out
    assert told.exists()


@pytest.mark.skipif(os.name != "posix", reason="accounts and modes are of Unix")
def test_who_may_not_look_where_root_keeps_its_journals_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JOULEWISE_STATE_DIR", raising=False)
    folder = tmp_path / "state"
    assert hidden_state_dir(folder) is None
    folder.mkdir(mode=0)

    child = os.fork()
    if child == 0:
        hidden = None
        try:
            if os.geteuid() == 0:
                os.setuid(65534)
            hidden = hidden_state_dir(folder)
        finally:
            os._exit(0 if hidden == folder else 1)
    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    monkeypatch.setenv("JOULEWISE_STATE_DIR", str(folder))
    assert hidden_state_dir(folder) is None


def test_nothing_of_this_account_is_not_nothing_at_all(tmp_path: Path) -> None:
    said = sentence((), tmp_path)

    assert "Nothing of this account was left set" in said
    assert f"What root or joulewised left cannot be seen by this account ({tmp_path})." in said
    assert said.endswith("As root: sudo joulewise restore.")
