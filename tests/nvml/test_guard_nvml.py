"""Guard processes on the fake NVIDIA driver, found and started as commands of joulewise do it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pynvml
import pytest
from tests.fake_nvml import DriverMaker
from tests.file_gpu import GIVING_BACK_S, comes_true
from tests.nvml.guarded import LOW_MHZ, LOW_W

from joulewise.device.nvml import loaded_library, use_library
from joulewise.device.nvml_gpu import open_nvml
from joulewise.domain.control import Holder
from joulewise.domain.errors import BusyError, InputError, NotPermitted
from joulewise.domain.points import OperatingPoint
from joulewise.simulator.fake_driver import FakeDriver, FakeKernel
from joulewise.workflow.leasing import is_guarded, lease_on, socket_path

FOUND_W = 300.0
LIGHT = FakeKernel(
    compute_cycle_count=0.017,
    memory_bytes=1e9,
    core_j=0.5,
    memory_j=0.1,
    set_point_ratio=1.0,
    overlap_exponent_ratio=3.0,
)


@pytest.fixture
def driver(make_driver: DriverMaker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeDriver:
    """An RTX 3080 Ti in real time, under load, whose power limit somebody lowered to 300 W."""
    monkeypatch.setenv("FAKE_NVML_PRIV", "1")
    monkeypatch.setenv("JOULEWISE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("JOULEWISE_SOCKET", "off")
    driver = make_driver(is_virtual_time=False)
    driver.run(0, [(driver.add_kernel(0, LIGHT), 1)])
    by_hand(FOUND_W)
    return driver


def by_hand(limit_w: float) -> None:
    """What an administrator does: nvidia-smi -pl."""
    open_nvml("nvml:0")
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    pynvml.nvmlDeviceSetPowerManagementLimit(handle, round(limit_w * 1000))


def limit_w() -> float | None:
    return open_nvml("nvml:0").knob_state().power_limit_w


def is_as_found(driver: FakeDriver) -> bool:
    return limit_w() == FOUND_W and driver.true_sm_clock_mhz(0) > LOW_MHZ


@contextmanager
def client(
    driver: FakeDriver, library: str, *flags: str, way: str = "wait", **more: str
) -> Iterator[subprocess.Popen[str]]:
    """A process that has lowered everything."""
    process = subprocess.Popen(
        [sys.executable, *flags, str(Path(__file__).with_name("guarded.py")), library, way],
        env={**os.environ, "FAKE_NVML_STATE": str(driver.state_path), **more},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "holding\n"
        assert limit_w() == LOW_W
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_killed_process_leaves_no_lock_and_no_limit_a_second_later(
    driver: FakeDriver, fake_library: Path, tmp_path: Path
) -> None:
    assert driver.true_sm_clock_mhz(0) > LOW_MHZ
    with client(driver, str(fake_library)) as process:
        assert comes_true(lambda: driver.true_sm_clock_mhz(0) == LOW_MHZ)
        process.kill()
        assert comes_true(lambda: is_as_found(driver), GIVING_BACK_S)
    files = (tmp_path / "state").iterdir
    assert comes_true(lambda: [file.suffix for file in files()] == [".lock"], GIVING_BACK_S)


@pytest.mark.parametrize(
    ("library", "flags"), [("preloaded", ("-I",)), ("by hand", ())], ids=["isolated", "found"]
)
def test_the_guard_finds_joulewise_and_the_library_as_its_client_did(
    driver: FakeDriver, fake_library: Path, library: str, flags: tuple[str, ...]
) -> None:
    more = {"PRELOADED": str(fake_library)}
    if library == "by hand":
        more["LD_LIBRARY_PATH"] = str(fake_library.parent)
    with client(driver, library, *flags, **more) as process:
        process.kill()
        assert comes_true(lambda: is_as_found(driver), GIVING_BACK_S)


@pytest.mark.integration
def test_workers_that_a_holder_forks_neither_end_its_lease_nor_keep_it(
    driver: FakeDriver, fake_library: Path
) -> None:
    """As data loaders are: some end by themselves, one is ended, one outlives its parent."""
    with client(driver, str(fake_library), way="workers") as process:
        assert len(guards_of(driver)) == 1
        process.kill()
        assert comes_true(lambda: is_as_found(driver), GIVING_BACK_S)
    assert comes_true(lambda: guards_of(driver) == [])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may use every socket")
def test_a_socket_that_this_account_may_not_use_is_not_passed_over(
    driver: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOULEWISE_SOCKET", str(tmp_path / "closed" / "joulewised.sock"))
    (tmp_path / "closed").mkdir(mode=0)
    with (
        pytest.raises(NotPermitted, match="may not use the socket of joulewised"),
        lease_on(open_nvml("nvml:0", timer=driver.timer)),
    ):
        pass


@pytest.mark.integration
def test_a_daemon_with_too_much_to_do_is_not_passed_over(
    driver: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "busy.sock"
    monkeypatch.setenv("JOULEWISE_SOCKET", str(path))
    with ExitStack() as stack:
        listening = stack.enter_context(socket.socket(socket.AF_UNIX))
        listening.bind(str(path))
        listening.listen(0)
        waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
        waiting.connect(str(path))
        with (
            pytest.raises(BusyError, match="has accepted no connection"),
            lease_on(open_nvml("nvml:0", timer=driver.timer)) as lease,
        ):
            lease.apply(OperatingPoint(sm_clock_mhz=LOW_MHZ))
    assert is_as_found(driver)


def test_a_holder_may_be_named_after_the_command_that_it_runs(driver: FakeDriver) -> None:
    gpu = open_nvml("nvml:0", timer=driver.timer)
    holder = Holder(pid=os.getpid(), command="train.py")
    with (
        lease_on(gpu, holder),
        pytest.raises(BusyError, match=rf"held by process {os.getpid()} \(train.py\)$"),
        lease_on(gpu),
    ):
        pass


def test_a_limit_that_somebody_set_under_a_holder_that_is_killed_stays(
    driver: FakeDriver, fake_library: Path
) -> None:
    with client(driver, str(fake_library)) as process:
        by_hand(250.0)
        process.kill()
        assert comes_true(lambda: driver.true_sm_clock_mhz(0) > LOW_MHZ, GIVING_BACK_S)
        assert limit_w() == 250.0


def test_a_second_process_is_told_who_holds_the_gpu_in_words(
    driver: FakeDriver, fake_library: Path
) -> None:
    said = r"held by process {} \(.*guarded\.py\)$"
    with client(driver, str(fake_library)) as process:
        gpu = open_nvml("nvml:0")
        with pytest.raises(BusyError, match=said.format(process.pid)), lease_on(gpu):
            pass
        assert limit_w() == LOW_W


def test_a_lease_in_this_process_is_guarded_and_leaves_nothing_behind(driver: FakeDriver) -> None:
    gpu = open_nvml("nvml:0", timer=driver.timer)
    assert is_guarded(gpu.identity)
    with lease_on(gpu) as lease:
        lease.apply(OperatingPoint(sm_clock_mhz=LOW_MHZ))
        guards = guards_of(driver)
        assert len(guards) == 1
    assert comes_true(lambda: guards_of(driver) == [])
    assert comes_true(lambda: is_as_found(driver))


def guards_of(driver: FakeDriver) -> list[int]:
    """Guard processes that use this driver."""
    found = []
    for place in Path("/proc").iterdir():
        try:
            command = (place / "cmdline").read_bytes()
            environment = (place / "environ").read_bytes() if b"guarding" in command else b""
        except OSError:
            continue
        if str(driver.state_path).encode() in environment:
            found.append(int(place.name))
    return found


def test_two_leases_of_a_process_share_a_guard(
    make_driver: DriverMaker, driver: FakeDriver
) -> None:
    driver = make_driver(device_count=2, is_virtual_time=False)
    gpus = [open_nvml(f"nvml:{index}", timer=driver.timer) for index in range(2)]
    low = OperatingPoint(sm_clock_mhz=LOW_MHZ)
    with lease_on(gpus[0]) as one:
        one.apply(low)
        with lease_on(gpus[1]) as two:
            two.apply(low)
            assert len(guards_of(driver)) == 1
        one.apply(OperatingPoint(sm_clock_mhz=LOW_MHZ, power_limit_w=LOW_W))
        assert len(guards_of(driver)) == 1
    assert comes_true(lambda: guards_of(driver) == [])


@pytest.mark.parametrize("mode", [0, 1])
def test_persistence_mode_is_never_touched(
    driver: FakeDriver, fake_library: Path, mode: int
) -> None:
    open_nvml("nvml:0")
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    pynvml.nvmlDeviceSetPersistenceMode(handle, mode)
    with client(driver, str(fake_library)) as process:
        assert pynvml.nvmlDeviceGetPersistenceMode(handle) == mode
        process.send_signal(signal.SIGTERM)
        process.wait()
    assert pynvml.nvmlDeviceGetPersistenceMode(handle) == mode


def test_a_gpu_in_virtual_time_has_no_guard_for_it_would_see_another_time(
    make_driver: DriverMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOULEWISE_STATE_DIR", str(tmp_path / "state"))
    driver = make_driver()
    gpu = open_nvml("nvml:0", timer=driver.timer)
    assert not is_guarded(gpu.identity)
    with lease_on(gpu) as lease:
        lease.apply(OperatingPoint(sm_clock_mhz=LOW_MHZ))
        assert guards_of(driver) == []


def test_a_socket_that_nobody_answers_at_is_passed_over(
    driver: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = tmp_path / "dead.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(dead))
    monkeypatch.setenv("JOULEWISE_SOCKET", str(dead))
    with lease_on(open_nvml("nvml:0", timer=driver.timer)) as lease:
        lease.apply(OperatingPoint(sm_clock_mhz=LOW_MHZ))


def test_the_socket_can_be_named_or_turned_off() -> None:
    assert socket_path({}) == Path("/run/joulewise/joulewised.sock")
    assert socket_path({"JOULEWISE_SOCKET": ""}) == Path("/run/joulewise/joulewised.sock")
    assert socket_path({"JOULEWISE_SOCKET": "/x/y"}) == Path("/x/y")
    assert socket_path({"JOULEWISE_SOCKET": "off"}) is None


def test_the_library_that_is_loaded_can_be_told_and_named_again(
    driver: FakeDriver, fake_library: Path
) -> None:
    assert driver.state_path is not None
    loaded = loaded_library()
    assert loaded is not None
    assert loaded.samefile(fake_library)
    use_library(fake_library)


def test_only_an_nvml_library_can_be_used_as_one(
    driver: FakeDriver, fake_library: Path, tmp_path: Path
) -> None:
    assert driver.state_path is not None
    no_library = tmp_path / "text.so"
    no_library.write_text("no library", encoding="utf-8")
    another = tmp_path / "libnvidia-ml.so.1"
    shutil.copy(fake_library, another)
    mathematics = next(path for path in Path("/").glob("lib/*/libm.so.6"))
    for path, said in (
        (tmp_path / "missing.so", "cannot be loaded"),
        (no_library, "cannot be loaded"),
        (mathematics, "this is no NVML library"),
        (another, "finds another libnvidia-ml.so.1"),
    ):
        with pytest.raises(InputError, match=said) as caught:
            use_library(path)
        assert caught.value.hint is not None
