"""Stand-ins as PyTorch runs them, on the CPU: the same code as on a GPU but for the events."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from joulewise.device.real_time import MonotonicTimer
from joulewise.domain.errors import InputError, MeasurementError, NotSupported
from joulewise.domain.ports import GpuIdentity
from joulewise.domain.workload import Dtype, KernelKind, KernelWork, Launch, Workload
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
