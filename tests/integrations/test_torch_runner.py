"""Stand-ins as PyTorch runs them, on the CPU: the same code as on a GPU but for the events."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace

import pytest

from joulewise.device.real_time import MonotonicTimer
from joulewise.domain.errors import InputError, MeasurementError, NotSupported
from joulewise.domain.ports import GpuIdentity
from joulewise.domain.workload import Dtype, KernelKind, KernelWork, Launch, Workload
from joulewise.integrations.stand_ins import MatrixStandIn, stand_in
from joulewise.integrations.torch_lanes import CpuLane
from joulewise.integrations.torch_launches import copies_of, launch_of
from joulewise.integrations.torch_runner import TorchRunner, TorchRunners, cpu_runner

pytestmark = pytest.mark.integration

PRODUCT = KernelWork(
    kernel="product",
    kind=KernelKind.GEMM,
    dtype=Dtype.FP32,
    flop_count=2e7,
    traffic_bytes=6e5,
    compute_efficiency_ratio=0.9,
    memory_efficiency_ratio=0.8,
    core_activity_ratio=1.0,
    memory_activity_ratio=1.0,
)
PASS = replace(PRODUCT, kernel="pass", kind=KernelKind.OTHER, flop_count=4e5, traffic_bytes=4e5)
COPY = replace(PASS, kernel="copy", flop_count=1e4)
WORKS = (PRODUCT, PASS, COPY)
IDENTITY = GpuIdentity(
    spec="nvml:GPU-0",
    name="no GPU",
    uuid="GPU-00000000-0000-0000-0000-000000000000",
    is_simulated=False,
)


@pytest.fixture
def runner() -> TorchRunner:
    """Three kernels on the CPU."""
    return cpu_runner(WORKS, MonotonicTimer())


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.kernel)
def test_a_window_counts_launches_and_the_time_that_they_took(
    runner: TorchRunner, work: KernelWork
) -> None:
    """Two windows of a constant load show about the same time per launch."""
    times_s = []
    with runner.loop(work.kernel, run="r") as loop:
        for window in range(2):
            loop.begin_window(window)
            loop.run_for(0.2)
            timing = loop.end_window()
            assert timing.launch_count > 0
            assert 0 < timing.elapsed_s < 2.0
            assert timing.mean_sm_clock_mhz is None
            times_s.append(timing.elapsed_s / timing.launch_count)

    assert max(times_s) < 3 * min(times_s)


class CachedLane(CpuLane):
    """A CPU that says how large its cache is, and counts the batches that were made for it."""

    def __init__(self, cache_bytes: int) -> None:
        import torch

        super().__init__(torch.device("cpu"), MonotonicTimer())
        self._cache_bytes = cache_bytes
        self.launch_counts: list[int] = []

    @property
    def cache_bytes(self) -> int:
        return self._cache_bytes

    def repeated(self, launch: Callable[[], None], launch_count: int) -> Callable[[], None]:
        self.launch_counts.append(launch_count)
        return super().repeated(launch, launch_count)


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.kernel)
def test_launches_take_turns_on_tensors_that_no_cache_holds_together(work: KernelWork) -> None:
    import torch

    one = stand_in(work)
    cache_bytes = 4 * int(work.traffic_bytes)
    copy_count = copies_of(one, cache_bytes)
    launch = launch_of(one, torch.device("cpu"), copy_count)

    assert 3 * cache_bytes <= copy_count * one.traffic_bytes <= 3.3 * cache_bytes
    touched = [tensors_touched_by(launch) for _ in range(2 * copy_count)]
    assert touched[:copy_count] == touched[copy_count:]
    assert len(touched[0]) * copy_count == len(set().union(*touched))


def tensors_touched_by(launch: Callable[[], None]) -> frozenset[int]:
    """Addresses of the data of tensors that operations take."""
    from torch.utils._python_dispatch import TorchDispatchMode

    addresses: set[int] = set()

    class Seen(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN204
            import torch

            given = (*args, *(kwargs or {}).values())
            addresses.update(one.data_ptr() for one in given if isinstance(one, torch.Tensor))
            return func(*args, **(kwargs or {}))

    with Seen():
        launch()
    return frozenset(addresses)


GAP = replace(
    COPY, kernel="gap", kind=KernelKind.GAP, flop_count=0.0, traffic_bytes=0.0, wait_s=2e-3
)
EXCHANGE = replace(COPY, kernel="exchange", kind=KernelKind.COLLECTIVE, wait_s=3e-3)
LONG_GAP = replace(GAP, kernel="long gap", wait_s=0.05)


@pytest.mark.parametrize("work", [GAP, EXCHANGE, LONG_GAP], ids=lambda work: work.kernel)
def test_what_waits_takes_its_wait_whatever_it_has_to_do_meanwhile(work: KernelWork) -> None:
    with cpu_runner((work,), MonotonicTimer()).loop(work.kernel, run="r") as loop:
        loop.begin_window(0)
        loop.run_for(0.5)
        timing = loop.end_window()

    # Late at most: other programs keep the processor busy, too.
    assert 0.98 < timing.elapsed_s / timing.launch_count / work.wait_s < 2.0


def test_work_that_takes_longer_than_the_wait_beside_it_is_not_held_up() -> None:
    bound = replace(COPY, traffic_bytes=4e7, kernel="bound", wait_s=1e-6)
    free = replace(bound, kernel="free", wait_s=0.0)
    runner = cpu_runner((free, bound), MonotonicTimer())
    times_s = {}
    for kernel in ("free", "bound"):
        with runner.loop(kernel, run="r") as loop:
            loop.begin_window(0)
            loop.run_for(0.3)
            timing = loop.end_window()
            times_s[kernel] = timing.elapsed_s / timing.launch_count

    assert times_s["bound"] < 3 * times_s["free"]


def test_a_gap_touches_the_device_once_in_a_batch() -> None:
    lane = CachedLane(cache_bytes=10**9)
    with TorchRunner((GAP,), lane, MonotonicTimer()).loop("gap", run="r") as loop:
        loop.run_for(0.01)

    assert [1] == lane.launch_counts


def test_single_launches_that_wait_are_timed_with_their_wait() -> None:
    runner = cpu_runner((EXCHANGE,), MonotonicTimer())

    times_s = runner.launch_times_s("exchange", launch_count=4)

    assert all(time_s > 1.5e-3 for time_s in times_s)


def test_shared_factors_are_held_once_and_multiplied_each_time() -> None:
    import torch

    one = MatrixStandIn(
        dtype=Dtype.FP32,
        product_count=50,
        row_count=8,
        column_count=8,
        depth_count=4096,
        is_shared=True,
    )
    launch = launch_of(one, torch.device("cpu"), copy_count=2)

    touched = [tensors_touched_by(launch) for _ in range(4)]

    assert touched[:2] == touched[2:]
    assert [3, 3] == [len(each) for each in touched[:2]]
    work = replace(PRODUCT, flop_count=one.flop_count, traffic_bytes=one.traffic_bytes)
    with cpu_runner((work,), MonotonicTimer()).loop("product", run="r") as loop:
        loop.begin_window(0)
        assert loop.end_window().launch_count > 0


def test_every_set_of_tensors_comes_equally_often_in_a_batch() -> None:
    lane = CachedLane(cache_bytes=int(7.5 * COPY.traffic_bytes))
    runner = TorchRunner(WORKS, lane, MonotonicTimer())
    with runner.loop("copy", run="r") as loop:
        loop.run_for(0.01)

    (launch_count,) = lane.launch_counts
    assert 0 == launch_count % copies_of(stand_in(COPY), lane.cache_bytes)


def test_a_kernel_that_is_switched_on_again_is_not_made_again() -> None:
    lane = CachedLane(cache_bytes=0)
    runner = TorchRunner(WORKS, lane, MonotonicTimer())
    for kernel in ("copy", "copy", "copy", "pass", "copy"):
        with runner.loop(kernel, run="r") as loop:
            loop.run_for(0.01)

    assert 3 == len(lane.launch_counts)


def test_single_launches_are_timed_as_the_host_sees_them(runner: TorchRunner) -> None:
    times_s = runner.launch_times_s("copy", launch_count=5)

    assert 5 == len(times_s)
    assert all(time_s > 0 for time_s in times_s)
    with runner.loop("copy", run="r"), pytest.raises(MeasurementError, match="has to wait"):
        runner.launch_times_s("copy", launch_count=5)
    with pytest.raises(InputError, match="'sort'"):
        runner.launch_times_s("sort", launch_count=5)


@pytest.mark.parametrize("dtype", [Dtype.FP64, Dtype.FP32, Dtype.TF32, Dtype.FP16, Dtype.BF16])
@pytest.mark.parametrize("kind", list(KernelKind))
def test_every_arithmetic_runs(dtype: Dtype, kind: KernelKind) -> None:
    work = replace(PRODUCT, dtype=dtype, kind=kind, flop_count=1e6, traffic_bytes=5e5)
    import torch

    before = torch.get_float32_matmul_precision()
    with cpu_runner((work,), MonotonicTimer()).loop("product", run="r") as loop:
        loop.begin_window(0)
        assert loop.end_window().launch_count > 0
        assert (torch.get_float32_matmul_precision() == "high") == (
            dtype is Dtype.TF32 and kind is KernelKind.GEMM
        )
    assert before == torch.get_float32_matmul_precision()


def test_nothing_runs_after_the_block(runner: TorchRunner) -> None:
    import threading

    with runner.loop("copy", run="r") as loop:
        loop.begin_window(0)
        assert any(thread.name == "joulewise feeder" for thread in threading.enumerate())
    assert not any(thread.name == "joulewise feeder" for thread in threading.enumerate())
    for call in (loop.end_window, lambda: loop.run_for(0.1), lambda: loop.begin_window(1)):
        with pytest.raises(MeasurementError, match="runs no more"):
            call()
    with runner.loop("copy", run="r") as again:
        again.begin_window(0)
        assert again.end_window().launch_count > 0


def test_one_kernel_runs_at_a_time(runner: TorchRunner) -> None:
    with (
        runner.loop("copy", run="r"),
        pytest.raises(MeasurementError, match="has to wait"),
        runner.loop("pass", run="r"),
    ):
        pass


def test_windows_are_opened_and_closed_in_turn(runner: TorchRunner) -> None:
    with runner.loop("copy", run="r") as loop:
        with pytest.raises(MeasurementError, match="no window is open"):
            loop.end_window()
        loop.begin_window(0)
        with pytest.raises(MeasurementError, match="already open"):
            loop.begin_window(1)


def test_an_unknown_kernel_is_refused(runner: TorchRunner) -> None:
    with pytest.raises(InputError, match="'sort'"), runner.loop("sort", run="r"):
        pass


def test_what_does_not_fit_into_memory_is_said() -> None:
    huge = replace(COPY, traffic_bytes=8e15)
    runner = cpu_runner((huge,), MonotonicTimer())
    with (
        pytest.raises(MeasurementError, match="cannot run") as caught,
        runner.loop("copy", run="r"),
    ):
        pass
    assert "GB" in str(caught.value.hint)


def test_a_gpu_that_is_not_there_is_refused_by_its_uuid() -> None:
    workload = Workload(name="w", launches=(Launch(kernel="copy"),), works=WORKS)
    with pytest.raises(NotSupported, match="does not see GPU-00000000") as caught:
        TorchRunners().open(IDENTITY, 0, workload, MonotonicTimer())
    assert "CUDA_VISIBLE_DEVICES" in str(caught.value.hint)


def test_the_torch_that_is_there_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(NotSupported, match="PyTorch"):
        cpu_runner(WORKS, MonotonicTimer())
