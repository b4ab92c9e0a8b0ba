"""Which power limit counts as found: of today, and not one that was set for us meanwhile."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

import pynvml
import pytest
from tests.fake_nvml import DriverMaker
from tests.scripted_daemon import scripted_daemon

from joulewise.control.daemon.client import Client
from joulewise.control.daemon.keeper import GpuKeeper
from joulewise.control.daemon.peer import Peer
from joulewise.control.guard import NoGuard
from joulewise.control.lease import take_lease
from joulewise.control.remote import remote_lease
from joulewise.device.nvml_gpu import NvmlGpu, open_nvml
from joulewise.domain.points import AUTO, OperatingPoint, PowerLimitRange
from joulewise.measure.clocks import foreign_limit
from joulewise.simulator.fake_driver import FakeDriver

LIMITED = OperatingPoint(power_limit_w=250.0)


@pytest.fixture
def driver(make_driver: DriverMaker, monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    monkeypatch.setenv("FAKE_NVML_PRIV", "1")
    return make_driver()


@pytest.fixture
def gpu(driver: FakeDriver) -> NvmlGpu:
    return open_nvml("nvml:0", timer=driver.timer)


def set_by_an_admin(limit_w: float) -> None:
    """As nvidia-smi -pl does."""
    pynvml.nvmlDeviceSetPowerManagementLimit(
        pynvml.nvmlDeviceGetHandleByIndex(0), round(limit_w * 1000)
    )


def limits_of(gpu: NvmlGpu) -> tuple[float, float | None]:
    limits = gpu.clock_grid().power_limits
    assert isinstance(limits, PowerLimitRange)
    return limits.found_w, limits.enforced_w


def is_foreign(gpu: NvmlGpu, point: OperatingPoint) -> bool:
    """What windows are judged by."""
    return bool(foreign_limit([gpu.sample()], point, gpu.clock_grid()))


def test_a_limit_set_before_anything_is_asked_for_is_the_one_found(gpu: NvmlGpu) -> None:
    set_by_an_admin(300.0)

    assert (300.0, 300.0) == limits_of(gpu)
    assert not is_foreign(gpu, AUTO)


@pytest.mark.parametrize("point", [AUTO, LIMITED])
def test_a_limit_set_after_the_first_request_is_somebody_elses(
    gpu: NvmlGpu, point: OperatingPoint
) -> None:
    gpu.request(point)
    assert not is_foreign(gpu, point)
    set_by_an_admin(200.0)

    assert is_foreign(gpu, point)


def test_who_watches_what_another_process_sets_for_it_judges_by_what_it_found(
    gpu: NvmlGpu, driver: FakeDriver
) -> None:
    watching = open_nvml("nvml:0", timer=driver.timer)
    watching.keep_found()
    gpu.request(LIMITED)

    assert (350.0, 350.0) == limits_of(watching)
    assert not is_foreign(watching, LIMITED)
    gpu.request(AUTO)
    assert not is_foreign(watching, AUTO)
    for foreign_w, point in ((200.0, LIMITED), (300.0, LIMITED), (200.0, AUTO)):
        gpu.reset()
        set_by_an_admin(350.0)
        gpu.request(point)
        assert not is_foreign(watching, point)
        set_by_an_admin(foreign_w)
        assert is_foreign(watching, point)
    watching.forget_found()
    assert (200.0, 200.0) == limits_of(watching)
    assert not is_foreign(watching, AUTO)


@pytest.mark.skipif(sys.platform != "linux", reason="Unix sockets")
def test_a_lease_through_a_daemon_keeps_what_was_found_until_its_end(gpu: NvmlGpu) -> None:
    with tempfile.TemporaryDirectory(prefix="jw") as name:
        path = Path(name) / "d.sock"
        set_by_an_admin(320.0)
        with scripted_daemon(path), remote_lease(gpu, path) as lease:
            lease.apply(LIMITED)
            # As the daemon would now.
            set_by_an_admin(250.0)
            assert (320.0, 320.0) == limits_of(gpu)
            assert not is_foreign(gpu, LIMITED)
            set_by_an_admin(200.0)
            assert is_foreign(gpu, LIMITED)

    assert (200.0, 200.0) == limits_of(gpu)


def test_each_lease_of_a_daemon_finds_the_limit_anew(gpu: NvmlGpu, tmp_path: Path) -> None:
    async def act() -> list[tuple[float, float | None]]:
        keeper = GpuKeeper(
            gpu,
            lambda one, holder: take_lease(one, state_dir=tmp_path, guard=NoGuard(), holder=holder),
        )
        found = []
        for admins_w in (350.0, 300.0, 320.0):
            set_by_an_admin(admins_w)
            await keeper.take(Client(Peer(pid=1, uid=0, gids=frozenset()), lambda _answer: None))
            limits = keeper.grid.power_limits
            assert limits is not None
            found.append((limits.found_w, limits.enforced_w))
            # Nothing is touched by it, and so nothing given back.
            await keeper.apply(AUTO)
            await keeper.give_back()
        await keeper.close()
        return found

    assert [(350.0, 350.0), (300.0, 300.0), (320.0, 320.0)] == asyncio.run(act())
