"""Captures of measured profiles."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

from joulewise.domain.points import OperatingPoint
from joulewise.domain.trace import ProfilerTrace
from joulewise.domain.workload import KernelKind
from joulewise.simulator.physics import steady_state
from joulewise.simulator.presets import preset
from joulewise.store.importers.traces.kineto import read_kineto
from joulewise.store.importers.traces.ncu import read_ncu
from joulewise.store.importers.traces.nsys import read_nsys
from joulewise.workload.capture.capture import captured_workload
from joulewise.workload.capture.choice import CaptureChoice

pytestmark = [pytest.mark.data, pytest.mark.integration]


def kineto(measured_data: Path, name: str) -> ProfilerTrace:
    return read_kineto(measured_data / "traces" / "kineto" / name)


def test_a_training_step_of_five_is_taken_with_its_passes(measured_data: Path) -> None:
    trace = kineto(measured_data, "hta_ns_resolution.pt.trace.json.gz")
    found = captured_workload(trace, CaptureChoice()).trace

    assert found is not None
    assert 5 == found.iteration_count
    assert 870 == len(found.launches)  # 4350 in five equal steps
    assert {"forward", "backward", "optimizer"} == {one.pass_.value for one in found.launches}
    assert found.duration_s == pytest.approx(found.busy_s + found.gap_s, rel=1e-9)


def test_a_virtual_h100_takes_the_time_of_a_traced_h100(measured_data: Path) -> None:
    trace = kineto(measured_data, "tracelens_h100_qwen1.5-0.5b.json.gz")
    workload = captured_workload(trace, CaptureChoice())
    assert workload.trace is not None

    time_s = steady_state(preset("h100-sxm"), workload.works, [OperatingPoint()]).time_s[:, 0]
    by_kernel = dict(zip((one.kernel for one in workload.works), time_s.tolist(), strict=True))

    total_s = math.fsum(by_kernel[launch.kernel] for launch in workload.launches)
    assert total_s == pytest.approx(workload.trace.duration_s, rel=0.05)


def test_a_product_of_qwen_has_its_flops(measured_data: Path) -> None:
    trace = kineto(measured_data, "tracelens_h100_qwen1.5-0.5b.json.gz")
    works = captured_workload(trace, CaptureChoice()).works

    product = next(work for work in works if work.kernel.startswith("mm[8944x2816x1024]"))
    assert 2 * 8944 * 2816 * 1024 == product.flop_count
    assert 0.3 < product.compute_efficiency_ratio < 1


def test_qwen_executes_the_flops_that_its_prefill_takes(measured_data: Path) -> None:
    trace = kineto(measured_data, "tracelens_h100_qwen1.5-0.5b.json.gz")
    size = captured_workload(trace, CaptureChoice()).size

    assert size is not None
    assert size.kernel_flop_count == pytest.approx(24 * _qwen_flop_counts()[0], rel=1e-4)


def test_qwen_without_its_operations_takes_them_over_from_kernels_alike(
    measured_data: Path,
) -> None:
    whole = kineto(measured_data, "tracelens_h100_qwen1.5-0.5b.json.gz")
    every = dataclasses.replace(
        whole, is_in_step=np.ones_like(whole.is_in_step), step_index=np.zeros_like(whole.gpu)
    )
    workload = captured_workload(every, CaptureChoice())

    # Launches without an operation are ten more layers, and the MLP of one that was cut.
    assert workload.size is not None
    assert workload.trace is not None
    estimated = [one for one in workload.trace.kernels if one.is_work_estimated]
    assert math.fsum(one.time_s for one in estimated) < 0.01 * workload.trace.busy_s
    layer, mlp = _qwen_flop_counts()
    assert workload.size.kernel_flop_count == pytest.approx(34 * layer + mlp, rel=1e-4)


def _qwen_flop_counts() -> tuple[float, float]:
    """Of a layer for 16 prompts of 559 tokens, and of its gated MLP: causal, 16 heads of 64."""
    mlp = 2.0 * 16 * 559 * 1024 * 3 * 2816
    return mlp + 2 * 16 * 559 * 1024 * 4 * 1024 + 4 * 16 * 16 * 559**2 * 64 / 2, mlp


def test_a_wait_for_algorithms_is_no_part_of_an_iteration(measured_data: Path) -> None:
    workload = captured_workload(kineto(measured_data, "hta_alexnet.json.gz"), CaptureChoice())

    assert workload.trace is not None
    assert workload.trace.duration_s < 0.2
    assert "3 waits of 12.7 s" in workload.caveats[0].seen


def test_streams_that_overlap_in_a_profile_become_regions(measured_data: Path) -> None:
    trace = kineto(measured_data, "hta_sampled_rank0.json.gz")
    workload = captured_workload(trace, CaptureChoice())

    assert workload.trace is not None
    assert workload.trace.overlap_s > 0.02
    waits = [work.wait_s for work in workload.works if work.kind is KernelKind.GAP]
    assert min(waits) > 0
    assert workload.size is not None
    assert 128 == workload.size.gpu_count


@pytest.mark.parametrize(
    "name",
    ["hta_alexnet", "tracelens_b200_eager", "tracelens_vllm_cudagraph_decode"],
)
def test_other_profiles_are_captured_whole(measured_data: Path, name: str) -> None:
    trace = kineto(measured_data, f"{name}.json.gz")
    workload = captured_workload(trace, CaptureChoice())

    assert workload.trace is not None
    assert trace.kernel_count >= len(workload.trace.launches) > 0
    assert {work.kernel for work in workload.works} == set(workload.kernels)


def test_profiles_of_nsight_are_captured(measured_data: Path) -> None:
    folder = measured_data / "traces"
    systems = captured_workload(read_nsys(folder / "nsys" / "h100_2gpu_1s.sqlite"), CaptureChoice())
    summary = captured_workload(
        read_nsys(folder / "nsys" / "summary_cuda_gpu_kern_sum.csv"), CaptureChoice()
    )
    compute = captured_workload(read_ncu(folder / "ncu" / "ncu.details.csv"), CaptureChoice())

    assert systems.trace is not None
    assert 1721 == len(systems.trace.launches)
    assert summary.trace is not None
    assert 0.0 == summary.trace.gap_s
    assert {work.kernel for work in compute.works} == set(compute.kernels)
