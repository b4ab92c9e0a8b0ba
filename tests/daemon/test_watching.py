"""What the daemon sees of its GPUs: drift, other holders, and what they left."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from tests.daemon.running import (
    ALLOW_ALL,
    PATIENCE_S,
    Line,
    RunningDaemon,
    Talker,
    held,
    started_daemon,
    wait_until,
    wait_until_free,
)

from joulewise.domain.points import OperatingPoint
from joulewise.simulator.fake_driver import FakeKernel

LOW = OperatingPoint(sm_clock_mhz=1200)
OFTEN = ALLOW_ALL.replace("[daemon]", "[daemon]\nsample_period_s = 0.1")
KERNEL = FakeKernel(
    compute_cycle_count=0.01,
    memory_bytes=1e7,
    core_j=0.5,
    memory_j=0.05,
    set_point_ratio=0.5,
    overlap_exponent_ratio=4.0,
)
# Holds a GPU without the daemon, and says so.
DIRECT = """
import sys, time
from pathlib import Path
from joulewise.control.lease import hold
from joulewise.device.nvml import use_library
from joulewise.device.nvml_gpu import open_nvml
from joulewise.domain.points import OperatingPoint
use_library(Path(sys.argv[1]))
with hold(open_nvml("nvml:0"), state_dir=Path(sys.argv[2])) as lease:
    lease.apply(OperatingPoint(sm_clock_mhz=1005))
    print("holding", flush=True)
    time.sleep(60)
"""


@contextmanager
def direct_holder(daemon: RunningDaemon) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the first GPU by itself, with no guard process."""
    process = subprocess.Popen(
        [sys.executable, "-c", DIRECT, str(daemon.library), str(daemon.state_dir)],
        env=daemon.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert "holding\n" == process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.wait(PATIENCE_S)
        process.stdout.close()


def state_of_first(talker: Talker) -> Line:
    """What the daemon says of its first GPU."""
    first: Line = talker.ask("status")["gpus"][0]
    return first


def kinds(gpu: Line) -> list[str]:
    """Kinds of the doubts about a GPU."""
    return [caveat["kind"] for caveat in gpu.get("caveats", [])]


def test_a_clock_that_somebody_else_sets_is_told_and_left_alone(
    fake_library: Path, tmp_path: Path
) -> None:
    with started_daemon(fake_library, tmp_path, config=OFTEN) as daemon:
        gpu, truth = daemon.uuids()[0], daemon.truth()
        kernel = truth.add_kernel(0, KERNEL)
        truth.run(0, [(kernel, 1)])
        try:
            with closing(held(daemon, gpu, LOW)) as talker:
                wait_until(lambda: truth.true_locks(0).sm_max_mhz == 1200, "not locked")
                as_asked = state_of_first(talker)
                at_s = truth.now_s() + 0.1
                truth.foreign_lock(0, at_s=at_s, min_clock_mhz=210, max_clock_mhz=1800)
                wait_until(lambda: "ForeignControl" in kinds(state_of_first(talker)), "no drift")
                drifted = state_of_first(talker)
                wait_until(lambda: not daemon.journals(), "the clock is not yielded")
            daemon.wait_for_event("lease ended")
            drift = daemon.wait_for_event("drift")
            left_alone = daemon.wait_for_event("left to whoever set it")
            left_mhz = truth.true_locks(0).sm_max_mhz
            with closing(Talker(daemon.socket)) as other:
                other.hello()
                said = [other.take(gpu)["say"], other.release(gpu)["say"]]
                untouched_mhz = truth.true_locks(0).sm_max_mhz
            # By name it is asked for anew, although the same was asked for before.
            with closing(held(daemon, gpu, LOW)):
                wait_until(lambda: truth.true_locks(0).sm_max_mhz == 1200, "not asked for anew")
            wait_until_free(daemon)
        finally:
            truth.run(0, [])

    assert ["SimulatedDevice"] == kinds(as_asked)
    assert {"sm_clock_mhz": 1200} == as_asked["asked"]
    assert ["sm_clock_mhz"] == as_asked["touched"]
    assert "ForeignControl" in kinds(drifted)
    assert 1800 == left_mhz
    assert (["granted", "released"], 1800) == (said, untouched_mhz)
    assert drift["result"].startswith("ForeignControl: ")
    assert (gpu, "sm_clock_mhz") == (left_alone["gpu"], left_alone["result"])


@pytest.mark.integration
def test_clocks_of_a_gpu_that_is_lost_are_told_and_given_back_once_it_answers(
    fake_library: Path, tmp_path: Path
) -> None:
    with started_daemon(fake_library, tmp_path, config=OFTEN) as daemon:
        gpu, truth = daemon.uuids()[0], daemon.truth()
        with closing(held(daemon, gpu, LOW)), closing(Talker(daemon.socket)) as other:
            other.hello()
            wait_until(lambda: truth.true_locks(0).sm_max_mhz == 1200, "not locked")
            truth.set_knob(0, "is_lost", 1)
            wait_until(lambda: "sm_clock_mhz" not in state_of_first(other), "it still answers")
        ended = daemon.wait_for_event("lease ended")
        with closing(Talker(daemon.socket)) as talker:
            talker.hello()
            left = state_of_first(talker)
            refused = talker.take(gpu)
            truth.set_knob(0, "is_lost", 0)
            wait_until_free(daemon, patience_s=PATIENCE_S)
            wait_until(lambda: "left_set" not in state_of_first(talker), "it is left set")
            granted = talker.take(gpu)

    assert ended["result"].startswith("not given back")
    assert "nvidia-smi" in left["left_set"]
    assert "holder" not in left
    # Its guard process is at it.
    assert ("refused", "busy") == (refused["say"], refused["kind"])
    assert "given back" in refused["message"]
    assert "granted" == granted["say"]


def test_a_holder_beside_the_daemon_is_named_and_what_it_leaves_is_given_back(
    fake_library: Path, tmp_path: Path
) -> None:
    with started_daemon(fake_library, tmp_path, config=OFTEN) as daemon:
        gpu = daemon.uuids()[0]
        with closing(Talker(daemon.socket)) as talker:
            talker.hello()
            with direct_holder(daemon) as process:
                named = f"process {process.pid} "
                wait_until(
                    lambda: state_of_first(talker).get("holder", "").startswith(named),
                    "the holder is not seen",
                )
                refused = talker.take(gpu)
                wait_until(lambda: daemon.truth().true_locks(0).sm_max_mhz == 1005, "not locked")
            # Nobody guards what that process set; the daemon sees it.
            wait_until_free(daemon)
            daemon.wait_for_event("given back for a dead holder")
            wait_until(lambda: "holder" not in state_of_first(talker), "somebody holds it")
            assert "granted" == talker.take(gpu)["say"]

    assert "busy" == refused["kind"]
    assert named in refused["message"]
