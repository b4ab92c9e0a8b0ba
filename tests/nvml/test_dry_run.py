"""A dry run beside a daemon: what that would allow, and who is in the way."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fake_nvml import DriverMaker
from tests.scripted_daemon import PID, Reply, ScriptedDaemon, scripted_daemon

from joulewise.control.daemon.messages import (
    Apply,
    GpuState,
    May,
    Question,
    State,
    Status,
    Take,
    encode,
    refusal,
)
from joulewise.device.nvml_gpu import NvmlGpu, open_nvml
from joulewise.domain.errors import NotPermitted
from joulewise.domain.points import OperatingPoint
from joulewise.workflow.dry_run import dry_run

if sys.platform != "linux":
    pytest.skip("joulewised runs on Linux", allow_module_level=True)

LOW = OperatingPoint(sm_clock_mhz=1005)
REFUSAL = NotPermitted("joulewised does not allow 1005/auto here")


@pytest.fixture
def gpu(make_driver: DriverMaker) -> NvmlGpu:
    return open_nvml("nvml:0", timer=make_driver(is_virtual_time=False).timer)


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="jw") as name:
        socket = Path(name) / "d.sock"
        monkeypatch.setenv("JOULEWISE_SOCKET", str(socket))
        yield socket


def state_of(gpu: NvmlGpu, *, is_lowered_idle: bool) -> bytes:
    held = GpuState(
        gpu=gpu.uuid,
        name="A",
        device=gpu.identity.spec,
        is_simulated=True,
        holder="process 7 (bob)",
        is_lowered_idle=is_lowered_idle,
    )
    return encode(State(pid=PID, gpus=(held,)))


def is_unasked(daemon: ScriptedDaemon) -> bool:
    """Whether nothing was taken or set."""
    return daemon.of(Take) == daemon.of(Apply) == []


def test_a_point_that_the_daemon_allows_is_planned_without_a_lease(
    gpu: NvmlGpu, path: Path
) -> None:
    with scripted_daemon(path) as daemon:
        planned = dry_run(gpu, LOW)

    assert (path, None, None) == (planned.daemon, planned.refusal, planned.holder)
    assert planned.journal is None
    assert [May(gpu=gpu.uuid, sm_clock_mhz=1005)] == daemon.of(May)
    assert is_unasked(daemon)


def test_what_the_daemon_would_refuse_and_who_holds_the_gpu_is_told(
    gpu: NvmlGpu, path: Path
) -> None:
    replies: dict[type[Question], Reply] = {
        May: lambda _question: encode(refusal(REFUSAL)),
        Status: lambda _question: state_of(gpu, is_lowered_idle=False),
    }
    with scripted_daemon(path, replies) as daemon:
        planned = dry_run(gpu, LOW)

    assert REFUSAL.message == planned.refusal
    assert "process 7 (bob)" == planned.holder
    assert is_unasked(daemon)


def test_the_idle_policy_is_in_nobodys_way(gpu: NvmlGpu, path: Path) -> None:
    replies: dict[type[Question], Reply] = {
        Status: lambda _question: state_of(gpu, is_lowered_idle=True)
    }
    with scripted_daemon(path, replies):
        assert dry_run(gpu, LOW).holder is None
