"""What the doctor says of joulewised: whether it answers, and what it lets this account set."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.doctor_cases import DRIVER, LAPTOP, ROOT, RTX_3080_TI, finding
from tests.scripted_daemon import PID, scripted_daemon

from joulewise.control.daemon.messages import (
    Allowed,
    GpuState,
    May,
    Question,
    Refused,
    SeenHolder,
    State,
    Status,
    encode,
)
from joulewise.domain.control import Holder
from joulewise.workflow.daemon_findings import DaemonView, daemon_view
from joulewise.workflow.diagnosis import SeenGpu, diagnose
from joulewise.workflow.findings import Availability

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Unix sockets")

UUID = str(RTX_3080_TI.uuid.value)


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="jw") as name:
        path = Path(name) / "d.sock"
        monkeypatch.setenv("JOULEWISE_SOCKET", str(path))
        yield path


def refusing(question: Question) -> bytes:
    """As a rule for SM clocks of 600 to 1500 MHz."""
    assert isinstance(question, May)
    clock_mhz = question.sm_clock_mhz
    if clock_mhz is None or 600 <= clock_mhz <= 1500:
        return encode(Allowed(gpu=question.gpu))
    bound = "min_sm_clock_mhz = 600" if clock_mhz < 600 else "max_sm_clock_mhz = 1500"
    said = f"joulewised does not allow {clock_mhz}/auto here: rule 1 has {bound}"
    return encode(Refused(kind="not_permitted", message=said))


def refusing_all(_question: Question) -> bytes:
    said = f"joulewised does not let bob (user 7) set clocks on {UUID}"
    return encode(Refused(kind="not_permitted", message=said, hint="Ask for a rule."))


def test_the_bounds_of_a_rule_are_told(path: Path) -> None:
    with scripted_daemon(path, {May: refusing}):
        view = daemon_view([RTX_3080_TI])

    assert view.finding is not None
    assert Availability.OK == view.finding.status
    assert (
        f"answers at {path}, and lets this account set SM clocks (rule 1 has min_sm_clock_mhz = "
        "600; rule 1 has max_sm_clock_mhz = 1500)" == view.finding.seen
    )
    assert {UUID: True} == view.may_set


def test_who_may_ask_the_daemon_needs_no_rights_of_his_own(path: Path) -> None:
    with scripted_daemon(path):
        view = daemon_view([RTX_3080_TI])
    gpu = SeenGpu(facts=RTX_3080_TI, may_set=view.may_set[UUID])
    diagnosis = diagnose(DRIVER, (gpu,), LAPTOP, daemon=view.finding)

    assert diagnosis.can_set
    assert "clocks may be set" in diagnosis.verdict
    assert Availability.OK == finding(diagnosis, "SM clock lock").status


def test_root_may_set_nothing_where_the_daemon_does_not_let_it(path: Path) -> None:
    with scripted_daemon(path, {May: refusing_all}):
        view = daemon_view([RTX_3080_TI])
    gpu = SeenGpu(facts=RTX_3080_TI, may_set=view.may_set[UUID])
    diagnosis = diagnose(DRIVER, (gpu,), ROOT, daemon=view.finding)

    assert diagnosis.can_set is False
    assert "does not let this account set clocks of any GPU here" in diagnosis.verdict
    assert "Ask for a rule." == finding(diagnosis, "joulewised").helps


def test_who_holds_a_gpu_is_told_where_this_account_may_not_look_itself(path: Path) -> None:
    held = GpuState(
        gpu=UUID,
        name="GPU",
        device="nvml:0",
        is_simulated=False,
        holder="process 5",
        held_by=SeenHolder(pid=5, user="alice"),
    )
    state = encode(State(pid=PID, gpus=(held,)))
    with scripted_daemon(path, {Status: lambda _question: state}):
        view = daemon_view([RTX_3080_TI])

    assert {UUID: Holder(pid=5, user="alice")} == view.holders


def test_a_socket_that_was_named_and_at_which_nobody_answers_is_told(path: Path) -> None:
    view = daemon_view([RTX_3080_TI])

    assert view.finding is not None
    assert Availability.ABSENT == view.finding.status
    assert f"none answers at {path}" == view.finding.seen
    assert {} == view.may_set


def test_a_daemon_that_does_not_speak_our_language_is_told(path: Path) -> None:
    with scripted_daemon(path, {Status: lambda _question: b"what?\n"}):
        view = daemon_view([RTX_3080_TI])

    assert view.finding is not None
    assert Availability.LIMITED == view.finding.status
    assert str(path) in view.finding.seen
    assert {} == view.may_set


def test_without_a_daemon_there_is_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOULEWISE_SOCKET", "off")

    assert DaemonView() == daemon_view([RTX_3080_TI])
