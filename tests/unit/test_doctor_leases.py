"""Traces of leases: what dead and living holders left, and a folder that cannot be written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from tests.doctor_cases import DRIVER, ROOT, RTX_3080_TI, finding, known

from joulewise.control.journal import JournalEntry, tell_damage, write_journal
from joulewise.control.lock import NamedHolder
from joulewise.domain.control import Holder
from joulewise.domain.errors import DeviceLost
from joulewise.domain.measurement import EventReason
from joulewise.domain.points import KnobState
from joulewise.workflow.diagnosis import SeenGpu, diagnose
from joulewise.workflow.findings import Availability, Finding
from joulewise.workflow.lease_findings import (
    LeaseTrace,
    lease_findings,
    lease_trace,
    state_dir_finding,
)

UUID = "GPU-4ad1c0de-0000-4000-8000-000000000001"
HOLD = """
import os, sys
from joulewise.control.lock import name_holder
from joulewise.domain.control import Holder
from joulewise.store.lock import lock_exclusively
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
assert lock_exclusively(file)
name_holder(file, Holder(pid=os.getpid()))
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def environment(tmp_path: Path) -> Mapping[str, str]:
    return {"JOULEWISE_STATE_DIR": str(tmp_path)}


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A living process that holds the lock of the GPU."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / f"{UUID}.lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert "ready\n" == process.stdout.readline()
        yield process


def leave_journal(folder: Path) -> Path:
    path = folder / f"{UUID}.journal.json"
    entry = JournalEntry(
        device=f"nvml:{UUID}",
        device_name="A GPU",
        uuid=UUID,
        holder="process 4711",
        touched=("power_limit_w", "sm_clock_mhz"),
        found=KnobState(power_limit_w=350.0),
    )
    write_journal(path, entry)
    return path


def only(trace: LeaseTrace) -> Finding:
    (found,) = lease_findings(trace)
    return found


def test_a_gpu_that_nobody_touched_has_no_line(environment: Mapping[str, str]) -> None:
    assert () == lease_findings(lease_trace(UUID, environment))


def test_what_a_dead_holder_left_set_is_told_with_the_way_to_give_it_back(
    environment: Mapping[str, str], tmp_path: Path
) -> None:
    path = leave_journal(tmp_path)
    (tmp_path / f"{UUID}.lock").write_text("4711\n", encoding="ascii")

    found = only(lease_trace(UUID, environment))

    assert Availability.LIMITED == found.status
    assert (
        "left set by process 4711 (SM clock, power limit), given back by the next lease"
        == found.seen
    )
    assert str(path) in str(found.helps)
    assert "joulewise restore gives back" in str(found.helps)
    by_hand = f": nvidia-smi -i {UUID} -rgc && nvidia-smi -i {UUID} -pl 350"
    assert str(found.helps).endswith(by_hand)


def test_a_journal_that_cannot_be_read_is_told_too(
    environment: Mapping[str, str], tmp_path: Path
) -> None:
    for path in (leave_journal(tmp_path), tmp_path / f"{UUID}.journal.json.copy"):
        path.write_bytes(b"{")

    found = only(lease_trace(UUID, environment))

    assert "left set by an earlier process, given back by the next lease" == found.seen
    assert str(found.helps).endswith(": nvidia-smi -rgc && nvidia-smi -rmc")


def test_what_a_damaged_journal_leaves_open_is_told_until_somebody_has_looked(
    environment: Mapping[str, str], tmp_path: Path
) -> None:
    kept = tmp_path / f"{UUID}.journal.json.damaged"
    kept.write_bytes(b"{")

    found = only(lease_trace(UUID, environment))

    assert "a damaged journal, undone as far as could be told" == found.seen
    assert f"It is kept as {kept}: joulewise restore tells this once" in str(found.helps)
    assert "may still be lowered" in str(tell_damage(tmp_path / f"{UUID}.journal.json"))
    assert () == lease_findings(lease_trace(UUID, environment))


def test_a_living_holder_is_named_and_looking_does_not_take_its_lock(
    environment: Mapping[str, str], tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    leave_journal(tmp_path)

    for _ in range(2):
        found = only(lease_trace(UUID, environment))
        assert f"held by process {holder.pid} (SM clock, power limit)" == found.seen


@pytest.mark.skipif(os.name != "posix", reason="tells the dead from the living as Unix does")
def test_a_guard_process_that_gives_back_for_a_dead_holder_is_told(
    environment: Mapping[str, str], tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    """The lock is still held, and the holder that it names has ended."""
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    assert holder.poll() is None
    leave_journal(tmp_path)
    lock = tmp_path / f"{UUID}.lock"
    fields = json.loads(lock.read_bytes())
    lock.write_text(json.dumps({**fields, "pid": dead.pid, "lock_pid": dead.pid}))

    found = only(lease_trace(UUID, environment))

    said = f"(SM clock, power limit), being given back by the guard of process {dead.pid}"
    assert f"left set by process 4711 {said}" == found.seen
    assert "joulewise restore gives back" in str(found.helps)


def test_a_dead_process_holds_nothing(
    environment: Mapping[str, str], holder: subprocess.Popen[str]
) -> None:
    holder.kill()
    holder.communicate()

    assert () == lease_findings(lease_trace(UUID, environment))


def test_a_folder_for_leases_that_cannot_be_written_keeps_clocks_from_being_set(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("no folder", encoding="utf-8")
    trouble = state_dir_finding({"JOULEWISE_STATE_DIR": str(tmp_path / "file" / "state")})

    assert trouble is not None
    diagnosis = diagnose(DRIVER, (SeenGpu(facts=RTX_3080_TI),), ROOT, state_dir=trouble)

    assert (True, False) == (diagnosis.can_read, diagnosis.can_set)
    assert "cannot be written" in diagnosis.verdict
    assert "JOULEWISE_STATE_DIR" in str(finding(diagnosis, "state of leases").helps)


@pytest.mark.skipif(os.name != "posix", reason="home folders as Unix has them")
def test_a_folder_that_can_be_made_needs_no_line(tmp_path: Path) -> None:
    assert state_dir_finding({"JOULEWISE_STATE_DIR": str(tmp_path / "a" / "b")}) is None


BUSY = replace(
    RTX_3080_TI,
    sm_clock_mhz=known(1005),
    performance_state=known("P2"),
    event_reasons=known(frozenset[EventReason]()),
    power_limit_w=known(245.0),
)
ENTRY = JournalEntry(
    device=f"nvml:{UUID}",
    device_name="A GPU",
    uuid=UUID,
    holder="process 4711",
    touched=("power_limit_w", "sm_clock_mhz"),
    found=KnobState(power_limit_w=350.0),
)
JOURNAL = Path("state") / f"{UUID}.journal.json"
HELD = LeaseTrace(
    named=NamedHolder(holder=Holder(pid=os.getpid()), pid=os.getpid()),
    journal=JOURNAL,
    entry=ENTRY,
)
LEFT = LeaseTrace(journal=JOURNAL, entry=ENTRY)


def test_what_a_living_holder_has_set_is_not_to_be_undone_by_anybody() -> None:
    diagnosis = diagnose(DRIVER, (SeenGpu(facts=BUSY, lease=HELD),), ROOT)

    clock, limit = finding(diagnosis, "locked by others"), finding(diagnosis, "power limit")
    assert (Availability.OK, Availability.OK) == (clock.status, limit.status)
    assert f"while process {os.getpid()} holds the lease" in clock.seen
    holder = f"process {os.getpid()}"
    assert f"100 W to the 350 W found; 245 W now, as {holder} has set it" == limit.seen
    said = " ".join(f"{row.seen} {row.helps}" for gpu in diagnosis.gpus for row in gpu.findings)
    assert "nvidia-smi -r" not in said


def test_what_a_dead_holder_of_ours_left_is_given_back_by_joulewise_restore() -> None:
    diagnosis = diagnose(DRIVER, (SeenGpu(facts=BUSY, lease=LEFT),), ROOT)

    clock, limit = finding(diagnosis, "locked by others"), finding(diagnosis, "power limit")
    assert (Availability.LIMITED, Availability.LIMITED) == (clock.status, limit.status)
    assert "Give the clocks back: joulewise restore." == clock.helps
    assert "Put it back: joulewise restore." == limit.helps
    assert "245 W now, as a dead holder left it" in limit.seen


def test_what_somebody_else_set_is_given_back_by_hand_one_command_for_each_clock() -> None:
    clock = finding(diagnose(DRIVER, (SeenGpu(facts=BUSY),), ROOT), "locked by others")

    assert "nvidia-smi -rgc " in str(clock.helps)
    assert "nvidia-smi -rmc " in str(clock.helps)


def test_the_idle_policy_is_not_to_be_ended() -> None:
    idle = Holder(pid=os.getpid(), user="joulewised", command="idle policy", is_idle_policy=True)
    found = only(replace(HELD, named=NamedHolder(holder=idle, pid=os.getpid())))

    assert "It gives the clocks back at once" in str(found.helps)
    assert "end it" not in str(found.helps)


def test_a_gpu_that_does_not_open_is_not_well_whatever_its_meters_tell() -> None:
    trouble = DeviceLost("GPU 0: nvmlDeviceGetUUID answered 'lost' (NVML 15)", hint="Reboot.")

    diagnosis = diagnose(DRIVER, (SeenGpu(facts=RTX_3080_TI, trouble=trouble),), ROOT)

    assert (False, False) == (diagnosis.can_read, diagnosis.can_set)
    assert "it cannot be opened: GPU 0: nvmlDeviceGetUUID answered" in diagnosis.verdict
    assert "Reboot." == finding(diagnosis, "opening").helps
