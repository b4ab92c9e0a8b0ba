"""From fitted numbers to what ships: a device, and device-free shares of each kernel."""

from __future__ import annotations

import dataclasses
import math

import msgspec
import numpy as np

from calibration import parameters as par
from calibration.facts import KernelFacts
from calibration.objective import State
from joulewise.domain.workload import Dtype, KernelKind, KernelWork
from joulewise.simulator.spec import GpuSpec
from joulewise.workload.gpt3_xl import kernel_shapes

_DIGITS = 7
_TENSOR = frozenset({Dtype.TF32, Dtype.FP16, Dtype.BF16})


def shipped(state: State, facts: KernelFacts) -> tuple[GpuSpec, tuple[KernelWork, ...]]:
    """Split a fit into a device and works.

    A core activity of 1 is the median matrix product on tensor cores and the median of the other
    kernels on vector units; a memory activity of 1 is the median of the others. FLOPs and bytes
    are those of the shapes.
    """
    spec = par.spec_of(state.of_device)
    load = par.load_of(spec, state.of_kernels, facts.is_gemm)
    shapes = kernel_shapes()
    if tuple(shape.kernel for shape in shapes) != facts.kernels:
        raise ValueError("the kernels of the workload are not those of the facts")
    core_w_per_ghz = load.core_j / load.compute_cycle_count
    j_per_byte = load.memory_j / np.array([shape.traffic_bytes for shape in shapes])
    tensor_unit = float(np.median(core_w_per_ghz[facts.is_gemm]))
    vector_unit = float(np.median(core_w_per_ghz[~facts.is_gemm]))
    byte_unit = float(np.median(j_per_byte[~facts.is_gemm]))
    device = dataclasses.replace(
        spec,
        peak_rates=tuple(
            dataclasses.replace(
                rate, core_w_per_ghz=tensor_unit if rate.dtype in _TENSOR else vector_unit
            )
            for rate in spec.peak_rates
        ),
        memory_j_per_byte=byte_unit,
    )
    works = tuple(
        KernelWork(
            kernel=shape.kernel,
            kind=KernelKind.GEMM if is_gemm else KernelKind.OTHER,
            dtype=shape.dtype,
            flop_count=shape.flop_count,
            traffic_bytes=shape.traffic_bytes,
            compute_efficiency_ratio=rounded(
                shape.flop_count
                / (device.peak_rate(shape.dtype).flop_count_per_cycle * cycles * 1e9)
            ),
            memory_efficiency_ratio=rounded(shape.traffic_bytes / memory_bytes),
            core_activity_ratio=rounded(core / device.peak_rate(shape.dtype).core_w_per_ghz),
            memory_activity_ratio=rounded(per_byte / byte_unit),
            clock_offset_ratio=rounded(set_point - 1),
        )
        for shape, is_gemm, cycles, memory_bytes, core, per_byte, set_point in zip(
            shapes,
            facts.is_gemm,
            load.compute_cycle_count,
            load.memory_bytes,
            core_w_per_ghz,
            j_per_byte,
            load.set_point_ratio,
            strict=True,
        )
    )
    return rounded_spec(device), works


def rounded(value: float) -> float:
    """The value to seven digits: as many as a file needs."""
    if value == 0:
        return 0.0
    return round(float(value), _DIGITS - 1 - math.floor(math.log10(abs(value))))


def rounded_spec(spec: GpuSpec) -> GpuSpec:
    """Every number of a device to seven digits."""
    return msgspec.convert(_rounded_tree(msgspec.to_builtins(spec)), GpuSpec)


def _rounded_tree(value: object) -> object:
    match value:
        case float():
            return rounded(value)
        case dict():
            return {key: _rounded_tree(item) for key, item in value.items()}
        case list() | tuple():
            return [_rounded_tree(item) for item in value]
        case _:
            return value
