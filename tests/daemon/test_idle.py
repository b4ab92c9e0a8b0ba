"""The idle policy of a real `joulewised`, in real time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.daemon.running import (
    GIVEN_BACK_S,
    Line,
    RunningDaemon,
    Talker,
    held,
    started_daemon,
    wait_until,
)

from joulewise.domain.points import OperatingPoint
from joulewise.simulator.fake_driver import FakeKernel

AFTER_S = 1.0
POLICY = f"""
[daemon]
sample_period_s = 0.05

[idle]
after_s = {AFTER_S}
sm_clock_mhz = 405

[[allow]]
users = [{{uid}}]
"""
KERNEL = FakeKernel(
    compute_cycle_count=0.017,
    memory_bytes=1e9,
    core_j=0.5,
    memory_j=0.1,
    set_point_ratio=1.0,
    overlap_exponent_ratio=3.0,
)


LOADED, ASKED_FOR, HELD, UNUSED = range(4)


@pytest.fixture
def idling(fake_library: Path, tmp_path: Path) -> Iterator[RunningDaemon]:
    """A daemon with four GPUs that nobody uses yet."""
    with started_daemon(
        fake_library, tmp_path, config=POLICY, driver={"FAKE_NVML_DEVICES": "4"}
    ) as running:
        yield running


def locked_mhz(daemon: RunningDaemon, index: int) -> int | None:
    return daemon.truth().true_locks(index).sm_max_mhz


def wait_until_lowered(daemon: RunningDaemon, index: int) -> None:
    wait_until(lambda: locked_mhz(daemon, index) == 405, f"GPU {index} is not lowered")


def wait_until_free(daemon: RunningDaemon, index: int) -> None:
    wait_until(
        lambda: locked_mhz(daemon, index) is None,
        f"GPU {index} is not given back",
        patience_s=GIVEN_BACK_S,
    )


def state(daemon: RunningDaemon, index: int) -> Line:
    with closing(Talker(daemon.socket)) as talker:
        talker.hello()
        gpu: Line = talker.ask("status")["gpus"][index]
        return gpu


def test_only_gpus_that_nobody_uses_are_lowered_and_a_killed_daemon_leaves_none_so(
    idling: RunningDaemon,
) -> None:
    uuids = idling.uuids()
    with (
        closing(held(idling, uuids[HELD], OperatingPoint(sm_clock_mhz=1680))),
        closing(Talker(idling.socket)) as talker,
    ):
        for index in (LOADED, ASKED_FOR, UNUSED):
            wait_until_lowered(idling, index)
        wait_until(lambda: state(idling, UNUSED).get("is_lowered_idle", False), "nothing tells")
        assert "idle policy" in state(idling, UNUSED)["holder"]
        assert {"sm_clock_mhz": 405} == state(idling, UNUSED)["asked"]

        truth = idling.truth()
        truth.run(LOADED, [(truth.add_kernel(LOADED, KERNEL), 1)])
        talker.hello()
        assert "granted" == talker.take(uuids[ASKED_FOR])["say"]
        wait_until_free(idling, LOADED)
        wait_until_free(idling, ASKED_FOR)

        time.sleep(1.2 * AFTER_S)
        seen_mhz = [locked_mhz(idling, index) for index in (LOADED, ASKED_FOR, HELD, UNUSED)]
        assert [None, None, 1680, 405] == seen_mhz
        idling.kill()
        for index in (HELD, UNUSED):
            wait_until_free(idling, index)
        wait_until(lambda: idling.journals() == [], "a journal is left", patience_s=GIVEN_BACK_S)


@pytest.mark.integration
def test_a_daemon_that_stops_leaves_no_gpu_lowered(idling: RunningDaemon) -> None:
    wait_until_lowered(idling, UNUSED)

    assert 0 == idling.stop()
    assert locked_mhz(idling, UNUSED) is None
    assert [] == idling.journals()
