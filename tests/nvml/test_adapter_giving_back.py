"""What is given back, and what of others is left alone, through the real binding."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pynvml
import pytest
from tests.fake_nvml import DriverMaker

from joulewise.control.journal import JournalEntry, is_left, write_journal
from joulewise.control.lease import hold
from joulewise.control.restoring import Outcome, restore_all
from joulewise.control.state import journal_file
from joulewise.device.nvml_gpu import NvmlGpu, open_nvml
from joulewise.domain.errors import DeviceError, NotPermitted, NotSupported
from joulewise.domain.points import AUTO, KnobState, OperatingPoint, Touched
from joulewise.domain.ports import Lease
from joulewise.simulator.fake_driver import FakeDriver, FakeKernel

LIMIT = frozenset({"power_limit_w"})
LIMIT_FUNCTIONS = ("nvmlDeviceSetPowerManagementLimit", "nvmlDeviceSetPowerManagementLimit_v2")
LIGHT = FakeKernel(
    compute_cycle_count=0.017,
    memory_bytes=1e9,
    core_j=0.5,
    memory_j=0.1,
    set_point_ratio=1.0,
    overlap_exponent_ratio=3.0,
)
Use = Callable[[Lease], object]


@pytest.fixture
def gpu(driver: FakeDriver) -> NvmlGpu:
    """An RTX 3080 Ti whose power limit is 350 W as it is opened."""
    return open_nvml("nvml:0,memory_lock=on", timer=driver.timer)


def limit_by_hand(limit_w: float) -> None:
    """What an administrator does: nvidia-smi -pl."""
    pynvml.nvmlDeviceSetPowerManagementLimit(
        pynvml.nvmlDeviceGetHandleByIndex(0), round(limit_w * 1000)
    )


def limited(limit_w: float) -> OperatingPoint:
    return OperatingPoint(power_limit_w=limit_w)


def read_w(gpu: NvmlGpu) -> float | None:
    return gpu.knob_state().power_limit_w


def test_a_limit_lowered_after_opening_is_the_one_found(gpu: NvmlGpu, tmp_path: Path) -> None:
    limit_by_hand(250.0)
    limits = gpu.clock_grid().power_limits
    assert limits is not None
    assert 250.0 == limits.found_w

    with hold(gpu, state_dir=tmp_path) as lease:
        with pytest.raises(NotSupported, match="takes no power limit of 300 W"):
            lease.apply(limited(300.0))
        assert 250.0 == read_w(gpu)
        lease.apply(limited(200.0))
        lease.apply(AUTO)
        assert 250.0 == read_w(gpu)
        lease.apply(limited(200.0))
    assert 250.0 == read_w(gpu)


def test_a_limit_lowered_while_it_is_left_to_the_driver_is_the_one_found_next(
    gpu: NvmlGpu, tmp_path: Path
) -> None:
    with hold(gpu, state_dir=tmp_path) as lease:
        lease.apply(limited(200.0))
        lease.apply(AUTO)
        limit_by_hand(250.0)
        with pytest.raises(NotSupported, match="takes no power limit of 300 W"):
            lease.apply(limited(300.0))
        lease.apply(limited(150.0))
    assert 250.0 == read_w(gpu)


@pytest.mark.parametrize("by_hand_w", [150.0, 250.0, 350.0])
@pytest.mark.parametrize(
    "use",
    [
        lambda lease: lease.apply(OperatingPoint(sm_clock_mhz=1200)),
        lambda lease: lease.apply(AUTO),
        lambda lease: (lease.apply(limited(200.0)), lease.apply(limited(180.0))),
        lambda lease: (lease.apply(limited(200.0)), lease.apply(AUTO)),
    ],
    ids=["only a clock", "nothing", "limits", "a limit and auto"],
)
def test_a_limit_that_somebody_else_set_under_a_lease_stays(
    gpu: NvmlGpu, tmp_path: Path, by_hand_w: float, use: Use
) -> None:
    with hold(gpu, state_dir=tmp_path) as lease:
        use(lease)
        limit_by_hand(by_hand_w)
    assert by_hand_w == read_w(gpu)


def test_a_limit_that_somebody_lowered_meanwhile_is_not_raised(
    gpu: NvmlGpu, tmp_path: Path
) -> None:
    with hold(gpu, state_dir=tmp_path) as lease:
        lease.apply(limited(300.0))
        limit_by_hand(200.0)
        for point in (limited(300.0), limited(250.0)):
            with pytest.raises(DeviceError, match="somebody else lowered the power limit to 200 W"):
                lease.apply(point)
        lease.apply(limited(180.0))
        assert 180.0 == read_w(gpu)


def test_going_back_to_auto_leaves_a_limit_of_somebody_else(gpu: NvmlGpu) -> None:
    gpu.request(limited(300.0))
    limit_by_hand(250.0)

    gpu.request(AUTO)

    assert 250.0 == read_w(gpu)


def test_a_limit_goes_back_to_what_was_found_and_not_to_the_default(gpu: NvmlGpu) -> None:
    limit_by_hand(300.0)
    gpu.request(limited(200.0))
    gpu.reset()

    assert 300.0 == read_w(gpu)


@pytest.mark.parametrize(
    ("now_w", "asked_w", "left_w"),
    [
        (200.0, (250.0, 200.0), 300.0),
        (200.0, None, 300.0),
        (220.0, (250.0, 200.0), 220.0),
        (350.0, (200.0,), 350.0),
        (350.0, None, 350.0),
    ],
)
def test_a_journal_puts_back_a_limit_of_its_own_and_no_other(
    gpu: NvmlGpu, now_w: float, asked_w: tuple[float, ...] | None, left_w: float
) -> None:
    limit_by_hand(now_w)
    found = KnobState(power_limit_w=300.0)

    gpu.reset(Touched(knobs=LIMIT, found=found, asked_limits_w=asked_w))

    limits = gpu.clock_grid().power_limits
    assert left_w == read_w(gpu)
    assert limits is not None
    assert left_w == limits.found_w


def test_a_memory_lock_of_another_controller_outlives_a_lease_that_may_not_lock_memory(
    driver: FakeDriver, tmp_path: Path
) -> None:
    gpu = open_nvml("nvml:0", timer=driver.timer)
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    pynvml.nvmlDeviceSetMemoryLockedClocks(handle, 5001, 5001)
    driver.run(0, [(driver.add_kernel(0, LIGHT), 1)])

    for point in (AUTO, limited(300.0), OperatingPoint(sm_clock_mhz=1200)):
        with hold(gpu, state_dir=tmp_path) as lease:
            lease.apply(point)
        driver.advance(1.0)
        sm_clock_mhz, mem_clock_mhz = gpu.clocks_mhz()
        assert 5001 == mem_clock_mhz
        assert (sm_clock_mhz or 0) > 1200


def test_a_memory_clock_that_was_refused_resets_no_lock_of_somebody_else(
    driver: FakeDriver, tmp_path: Path
) -> None:
    gpu = open_nvml("nvml:0", timer=driver.timer)
    pynvml.nvmlDeviceSetMemoryLockedClocks(pynvml.nvmlDeviceGetHandleByIndex(0), 5001, 5001)
    with pytest.raises(NotSupported), hold(gpu, state_dir=tmp_path) as lease:
        lease.apply(OperatingPoint(mem_clock_mhz=9501))
    driver.run(0, [(driver.add_kernel(0, LIGHT), 1)])
    driver.advance(1.0)

    assert 5001 == gpu.clocks_mhz()[1]


def test_every_knob_is_tried_and_the_first_failure_is_the_error(
    driver: FakeDriver, gpu: NvmlGpu
) -> None:
    gpu.request(OperatingPoint(sm_clock_mhz=1200, mem_clock_mhz=5001, power_limit_w=200.0))
    for function in ("ResetMemoryLockedClocks", "ResetGpuLockedClocks"):
        driver.fail(f"nvmlDevice{function}", 999)

    with pytest.raises(DeviceError, match="nvmlDeviceResetMemoryLockedClocks") as caught:
        gpu.reset()
    assert 350.0 == read_w(gpu)
    assert "nvmlDeviceResetGpuLockedClocks" in caught.value.__notes__[0]

    for function in ("ResetMemoryLockedClocks", "ResetGpuLockedClocks"):
        driver.fail(f"nvmlDevice{function}", 0)
    gpu.reset()
    driver.run(0, [(driver.add_kernel(0, LIGHT), 1)])
    driver.advance(1.0)
    assert (gpu.clocks_mhz()[0] or 0) > 1200


def test_a_failure_to_put_the_limit_back_does_not_replace_the_first_one(
    driver: FakeDriver, gpu: NvmlGpu
) -> None:
    gpu.request(OperatingPoint(sm_clock_mhz=1200, power_limit_w=200.0))
    driver.fail("nvmlDeviceResetGpuLockedClocks", 999)
    driver.fail("nvmlDeviceSetPowerManagementLimit", 29)

    with pytest.raises(DeviceError, match="nvmlDeviceResetGpuLockedClocks") as caught:
        gpu.reset()

    assert "nvmlDeviceSetPowerManagementLimit" in caught.value.__notes__[0]


def test_with_mig_on_nothing_is_set_and_everything_is_read(make_driver: DriverMaker) -> None:
    driver = make_driver("a100-sxm")
    gpu = open_nvml("nvml:0", timer=driver.timer)
    clock = gpu.clock_grid().sm_clocks_mhz[5]
    gpu.request(OperatingPoint(sm_clock_mhz=clock))
    driver.set_knob(0, "mig_mode", 1)

    for point in (OperatingPoint(sm_clock_mhz=clock), limited(200.0)):
        with pytest.raises(NotSupported, match="MIG is on") as caught:
            gpu.request(point)
        assert "nvidia-smi -mig 0" in (caught.value.hint or "")
    assert gpu.sample().energy_j is not None
    # What was set before can still be given back.
    gpu.request(AUTO)
    driver.run(0, [(driver.add_kernel(0, LIGHT), 1)])
    driver.advance(1.0)
    assert (gpu.clocks_mhz()[0] or 0) > clock


@pytest.mark.parametrize(
    ("profile", "said"),
    [("a100-sxm", "never switches"), ("h100-sxm", "only when the driver is loaded anew")],
)
def test_a_memory_lock_that_would_not_take_effect_is_refused_with_the_reason(
    make_driver: DriverMaker, profile: str, said: str
) -> None:
    driver = make_driver(profile)
    gpu = open_nvml("nvml:0,memory_lock=on", timer=driver.timer)
    (clock,) = pynvml.nvmlDeviceGetSupportedMemoryClocks(pynvml.nvmlDeviceGetHandleByIndex(0))

    assert () == gpu.clock_grid().mem_clocks_mhz
    with pytest.raises(NotSupported, match=said):
        gpu.request(OperatingPoint(mem_clock_mhz=clock))


def test_a_limit_asked_for_earlier_is_somebody_elses_where_it_is_set_again(
    gpu: NvmlGpu, tmp_path: Path
) -> None:
    """Only of a process that is gone nobody knows which was its last."""
    with hold(gpu, state_dir=tmp_path) as lease:
        lease.apply(limited(250.0))
        lease.apply(limited(200.0))
        limit_by_hand(250.0)

    assert 250.0 == read_w(gpu)
    assert not is_left(journal_file(gpu.identity, tmp_path))


def test_what_was_taken_before_another_knob_was_refused_is_still_to_be_given_back(
    driver: FakeDriver, gpu: NvmlGpu
) -> None:
    driver.fail("nvmlDeviceSetGpuLockedClocks", 4)
    with pytest.raises(NotPermitted):
        gpu.request(OperatingPoint(sm_clock_mhz=1200, power_limit_w=200.0))
    for function in LIMIT_FUNCTIONS:
        driver.fail(function, 4)
    with pytest.raises(NotPermitted, match="SetPowerManagementLimit"):
        gpu.reset()
    assert 200.0 == read_w(gpu)

    for function in LIMIT_FUNCTIONS:
        driver.fail(function, 0)
    gpu.reset()
    assert 350.0 == read_w(gpu)


def test_a_refused_point_drops_no_lock_of_somebody_else(
    driver: FakeDriver, gpu: NvmlGpu, tmp_path: Path
) -> None:
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    pynvml.nvmlDeviceSetGpuLockedClocks(handle, 300, 900)
    with pytest.raises(NotSupported), hold(gpu, state_dir=tmp_path) as lease:
        lease.apply(limited(400.0))

    driver.advance(5.0)
    assert 900 == driver.true_locks(0).sm_max_mhz


def test_the_next_lease_gives_nothing_back_that_the_last_one_left_to_somebody_else(
    driver: FakeDriver, gpu: NvmlGpu, tmp_path: Path
) -> None:
    with hold(gpu, state_dir=tmp_path) as lease:
        lease.apply(OperatingPoint(sm_clock_mhz=1200, power_limit_w=200.0))
        pynvml.nvmlDeviceSetGpuLockedClocks(pynvml.nvmlDeviceGetHandleByIndex(0), 300, 1695)
        lease.yield_knob("sm_clock_mhz")
    with hold(gpu, state_dir=tmp_path):
        gpu.reset()

    driver.advance(5.0)
    assert 1695 == driver.true_locks(0).sm_max_mhz


def test_a_gpu_that_another_program_has_to_itself_is_no_lease_to_be_left_alone(
    driver: FakeDriver, gpu: NvmlGpu, tmp_path: Path
) -> None:
    state_dir = tmp_path / "state"
    state_dir.mkdir(mode=0o700)
    write_journal(
        journal_file(gpu.identity, state_dir),
        JournalEntry(
            device=gpu.identity.spec,
            device_name=gpu.identity.name,
            uuid=gpu.uuid,
            holder="process 1",
            touched=("sm_clock_mhz",),
        ),
    )
    driver.fail("nvmlDeviceResetGpuLockedClocks", 19)
    (one,) = restore_all(state_dir, lambda _device: gpu)

    assert Outcome.NOT_GIVEN_BACK is one.outcome
    assert "In use by another client" in str(one.why)
    assert "-rgc" in str(one.hint)
