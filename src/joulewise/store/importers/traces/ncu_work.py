"""What Nsight Compute's metrics say that one launch computed and moved.

Sources: NVIDIA Nsight Compute documentation, "Metrics Structure" (units come with decimal
prefixes); C. Yang, "Hierarchical Roofline Analysis", arXiv 2009.02449 (a fused multiply-add is
two FLOPs, one thread's instruction counts once); the section files that come with the tool
(tensor operations count multiplications and additions, roofline rates are per elapsed cycle).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from joulewise.domain.trace import MeasuredWork
from joulewise.store.importers.traces.csv_report import number

# Value and unit by metric, in lower case.
Metrics = Mapping[str, tuple[str, str]]

_VECTOR_PREFIXES = (
    "smsp__sass_thread_inst_executed_op_",
    "sm__sass_thread_inst_executed_op_",
)
_FLOPS_OF = {
    f"{precision}{operation}": 2 if operation == "fma" else 1
    for precision in "dfh"
    for operation in ("add", "mul", "fma")
}
_PER_CYCLE = ".per_cycle_elapsed"
_CYCLE_RATES = (
    "smsp__cycles_elapsed.avg.per_second",
    "sm__cycles_elapsed.avg.per_second",
)
# The same operations are also counted by sparsity; those would count twice.
_TENSOR = re.compile(r"sm__ops_path_tensor_src_(?!int)[a-z0-9]+(?:_dst_[a-z0-9]+)?\.sum")
_OLD_COUNTS = ("flop_count_dp.sum", "flop_count_sp.sum", "flop_count_hp.sum")
_TENSOR_KERNEL = re.compile(
    r"tensorop|[hibq]mma|wmma|wgmma|gmma|s1688|s16816|s884|fmha|flash|nvjet", re.IGNORECASE
)
_BYTES = "dram__bytes.sum"
_READ_AND_WRITTEN = ("dram__bytes_read.sum", "dram__bytes_write.sum")
_BYTE_RATES = (
    "dram__bytes.sum.per_second",
    "memory throughput",
)
_UNIT = re.compile(r"(?P<prefix>[kmgtp]?)(?P<base>byte|inst|ops?|hz|register)?(?P<per>/\w+)?")
_RATIOS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15}
_PER_SECOND = ("/s", "/second")
_KEPT = re.compile(
    r"gpu__time_duration\.sum|duration|memory throughput|dram__bytes\S*"
    r"|smsp?__sass_thread_inst_executed_op_\w+_pred_on\.sum\S*"
    r"|sm__ops_path_tensor\S*|flop_count_\S*|smsp?__cycles_elapsed\.avg\.per_second"
    r"|registers per thread|(?:static|dynamic) shared memory per block"
    r"|launch__registers_per_thread|launch__shared_mem_per_block_(?:static|dynamic)"
    r"|device__attribute_display_name"
)


def is_kept(metric: str) -> bool:
    """Whether a metric, in lower case, tells anything that is read here."""
    return _KEPT.fullmatch(metric) is not None


def measured_work(name: str, metrics: Metrics, duration_s: float) -> MeasuredWork:
    """FLOPs and traffic to memory of one launch; `None` where the metrics do not tell.

    A kernel whose name says that it computes on tensor cores has no FLOP count unless these
    were counted: its other instructions are a small part of what it computes.
    """
    return MeasuredWork(
        flop_count=_flop_count(name, metrics, duration_s),
        traffic_bytes=_traffic_bytes(metrics, duration_s),
    )


def amount(metrics: Metrics, metric: str) -> float | None:
    """A metric as a number without its decimal prefix; `None` where it was not measured."""
    text, unit = metrics.get(metric, ("", ""))
    value, match = number(text), _UNIT.fullmatch(unit.strip().lower())
    if value is None or match is None or value < 0:
        return None
    return float(value) * _RATIOS[match["prefix"]]


def _flop_count(name: str, metrics: Metrics, duration_s: float) -> float | None:
    tensor = [
        value for metric in metrics if _TENSOR.fullmatch(metric)
        if (value := amount(metrics, metric)) is not None
    ]  # fmt: skip
    vector = _vector_flop_count(metrics, duration_s)
    if vector is None:
        return sum(tensor) or None
    if not tensor and _TENSOR_KERNEL.search(name):
        return None
    return vector + sum(tensor)


def _vector_flop_count(metrics: Metrics, duration_s: float) -> float | None:
    """FLOPs outside tensor cores: counts, rates per cycle, or counts under their old names."""
    for prefix in _VECTOR_PREFIXES:
        counted = _weighted(metrics, prefix, "")
        if counted is not None:
            return counted
        per_cycle = _weighted(metrics, prefix, _PER_CYCLE)
        cycles = [amount(metrics, rate) for rate in _CYCLE_RATES]
        rate = next((rate for rate in cycles if rate), None)
        if per_cycle is not None and rate is not None:
            return per_cycle * rate * duration_s
    old = [value for name in _OLD_COUNTS if (value := amount(metrics, name)) is not None]
    return sum(old) if old else None


def _weighted(metrics: Metrics, prefix: str, suffix: str) -> float | None:
    values = [
        flops * value
        for operation, flops in _FLOPS_OF.items()
        if (value := amount(metrics, f"{prefix}{operation}_pred_on.sum{suffix}")) is not None
    ]
    return sum(values) if values else None


def _traffic_bytes(metrics: Metrics, duration_s: float) -> float | None:
    total = amount(metrics, _BYTES)
    if total is not None:
        return total
    parts = [amount(metrics, metric) for metric in _READ_AND_WRITTEN]
    known = [part for part in parts if part is not None]
    if len(known) == len(parts):
        return sum(known)
    for metric in _BYTE_RATES:
        rate = amount(metrics, metric)
        if rate is not None and metrics[metric][1].strip().lower().endswith(_PER_SECOND):
            return rate * duration_s
    return None
