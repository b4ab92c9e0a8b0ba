"""Efficiency as a table of a report and as a line of a terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from joulewise.domain.caveats import is_simulated
from joulewise.domain.efficiency import Efficiency, job_peak_flop_per_s, plan_efficiency
from joulewise.domain.gpu_peaks import gpu_peaks
from joulewise.domain.plan import Plan, Verification
from joulewise.domain.workload import IterationSize
from joulewise.report.inputs import ReportInputs
from joulewise.report.wording import change, counted, decimal, energy, percent

_SIGNIFICANT_COUNT = 4
_LONGEST_EXPONENT = 15  # beyond, powers of ten read better than digits
_FLOP_UNITS = ("TFLOPs per kW, node by node", "TFLOP/s per GPU")
_NOT_KNOWN = "\N{EN DASH}"
_THIN = "\N{NARROW NO-BREAK SPACE}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EfficiencyRow:
    """One metric in words: at the baseline, under the plan, and from one to the other."""

    label: str
    definition: str
    baseline: str
    plan: str
    change: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EfficiencySection:
    """What a report says of efficiency: where the figures come from, the rows, and the notes."""

    origin: str
    rows: tuple[EfficiencyRow, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Metric:
    """A field of `Efficiency`, how people call it, and what it is."""

    field: str
    label: str
    definition: str
    worded: Callable[[float], str]


def significant(value: float) -> str:
    """A positive number with four digits that count, thin spaces between thousands."""
    exponent = math.floor(math.log10(value))
    if abs(exponent) > _LONGEST_EXPONENT:
        return f"{value:.{_SIGNIFICANT_COUNT - 1}e}"
    digit_count = max(0, _SIGNIFICANT_COUNT - 1 - exponent)
    return f"{value:,.{digit_count}f}".replace(",", _THIN)


def _tera(value: float) -> str:
    return significant(value / 1e12)


def _giga(value: float) -> str:
    return significant(value / 1e9)


def _share(ratio: float) -> str:
    return percent(ratio, digit_count=1)


_METRICS = (
    _Metric(
        field="token_count_per_s",
        label="Tokens per second",
        definition="tokens of the whole job ÷ time",
        worded=significant,
    ),
    _Metric(
        field="energy_j_per_token",
        label="Energy per token",
        definition="energy of all GPUs of the job ÷ tokens",
        worded=energy,
    ),
    _Metric(
        field="token_count_per_kj",
        label="Tokens per kJ",
        definition="1000 J ÷ energy per token",
        worded=significant,
    ),
    _Metric(
        field="gpu_flop_per_s",
        label="TFLOP/s per GPU",
        definition="FLOPs that the model needs, nothing counted twice ÷ GPUs ÷ time",
        worded=_tera,
    ),
    _Metric(
        field="gpu_kernel_flop_per_s",
        label="TFLOP/s per GPU, computed",
        definition="FLOPs that matrix kernels execute, recomputation included and what a causal "
        "mask spares left out ÷ GPUs ÷ time",
        worded=_tera,
    ),
    _Metric(
        field="mfu_ratio",
        label="MFU",
        definition="model FLOPs utilisation: TFLOP/s per GPU ÷ the GPU's peak",
        worded=_share,
    ),
    _Metric(
        field="hfu_ratio",
        label="HFU",
        definition="hardware FLOPs utilisation: computed TFLOP/s per GPU ÷ the GPU's peak; below "
        "MFU where flash attention skips what is masked",
        worded=_share,
    ),
    _Metric(
        field="node_flop_per_j",
        label="TFLOPs per kW, node by node",
        definition="TFLOP/s of all GPUs of a node ÷ kW of all GPUs of a node",
        worded=_giga,
    ),
    _Metric(
        field="gpu_by_node_flop_per_j",
        label="TFLOPs per kW, one GPU by its node",
        definition="TFLOP/s of one GPU ÷ kW of all GPUs of its node, as arXiv 2507.16781 reports",
        worded=_giga,
    ),
    _Metric(
        field="node_kernel_flop_per_j",
        label="TFLOPs per kW, node by node, computed",
        definition="computed TFLOP/s of all GPUs of a node ÷ kW of all GPUs of a node",
        worded=_giga,
    ),
)


def efficiency_section(inputs: ReportInputs) -> EfficiencySection | None:
    """Efficiency at the baseline and under the plan; `None` where the plan knows no size.

    Fresh runs, where there are any, win over the promise.
    """
    plan, seen = inputs.plan, inputs.verification
    rows = efficiency_rows(plan, seen)
    if not rows or plan.size is None:
        return None
    source = inputs.sweep.source
    simulated = source.is_simulated if seen is None else is_simulated(seen.caveats)
    return EfficiencySection(
        origin=_origin(seen, is_simulated=simulated),
        rows=rows,
        notes=(*_notes(plan, plan.size), *_doubts(plan, seen)),
    )


def efficiency_rows(plan: Plan, seen: Verification | None) -> tuple[EfficiencyRow, ...]:
    """The metrics that are known, in the order in which they are read."""
    found = plan_efficiency(plan, seen)
    if found is None:
        return ()
    rows = (_row(metric, found.baseline, found.plan) for metric in _METRICS)
    return tuple(row for row in rows if row is not None)


def efficiency_line(plan: Plan, seen: Verification | None) -> str | None:
    """Tokens per kJ, energy per token, MFU where known, in one line; `None` without a size."""
    found = plan_efficiency(plan, seen)
    if found is None or plan.size is None:
        return None
    gpu_count = plan.size.gpu_count
    parts = [
        *_passage(found.baseline.token_count_per_kj, found.plan.token_count_per_kj, "tokens/kJ"),
        *_passage(found.baseline.energy_j_per_token, found.plan.energy_j_per_token, "J/token"),
        *_passage(found.baseline.token_count_per_s, found.plan.token_count_per_s, "tokens/s"),
    ]
    shares = (found.baseline.mfu_ratio, found.plan.mfu_ratio)
    if shares[0] is not None and shares[1] is not None:
        parts.append(f"MFU {decimal(100 * shares[0], 1)} → {_share(shares[1])}")
    parts = parts or _flop_parts(found.baseline, found.plan)
    job = "" if gpu_count == 1 else f" of {counted(gpu_count, 'GPU')} run alike"
    sides = "baseline → plan" if seen is None else "baseline → verified"
    return f"Efficiency{job}, {sides}: {', '.join(parts)}."


def _flop_parts(baseline: Efficiency, plan: Efficiency) -> list[str]:
    """What is left to say where nobody knows the tokens."""
    fields, kind = ("node_flop_per_j", "gpu_flop_per_s"), ""
    if baseline.node_flop_per_j is None:
        fields, kind = ("node_kernel_flop_per_j", "gpu_kernel_flop_per_s"), "computed "
    parts: list[str] = []
    for field, factor, unit in zip(fields, (1e-9, 1e-12), _FLOP_UNITS, strict=True):
        before, after = getattr(baseline, field), getattr(plan, field)
        if before is not None and after is not None:
            parts += _passage(before * factor, after * factor, f"{kind}{unit}")
    return parts


def _passage(before: float | None, after: float | None, unit: str) -> tuple[str, ...]:
    """`41.20 → 47.91 tokens/kJ (+16.29 %)`; nothing where one of them is unknown."""
    if before is None or after is None:
        return ()
    share = change(after / before, digit_count=1)
    return (f"{significant(before)} → {significant(after)} {unit} ({share})",)


def _row(metric: _Metric, baseline: Efficiency, plan: Efficiency) -> EfficiencyRow | None:
    before: float | None = getattr(baseline, metric.field)
    after: float | None = getattr(plan, metric.field)
    if before is None and after is None:
        return None
    return EfficiencyRow(
        label=metric.label,
        definition=metric.definition,
        baseline=_NOT_KNOWN if before is None else metric.worded(before),
        plan=_NOT_KNOWN if after is None else metric.worded(after),
        change=_NOT_KNOWN if before is None or after is None else change(after / before),
    )


def _origin(seen: Verification | None, *, is_simulated: bool) -> str:
    simulated = "Simulated. " if is_simulated else ""
    if seen is None:
        return f"{simulated}The plan's figures are its promise; nobody has run it afresh."
    return (
        f"{simulated}The plan's figures are those of fresh runs: their ratios of the baseline in "
        "the table above."
    )


def _notes(plan: Plan, size: IterationSize) -> list[str]:
    """What is counted, what is not, and against which peak."""
    notes = ["Energy is that of GPU boards only; host, fans and switches are not counted."]
    if size.gpu_count > 1:
        notes.append(
            f"One GPU was measured; all {counted(size.gpu_count, 'GPU')} of the job are taken to "
            "run like it."
        )
    if size.model_flop_count is None and size.kernel_flop_count is None:
        return notes
    peaks, peak = gpu_peaks(plan.device_name), job_peak_flop_per_s(size, plan.device_name)
    if peaks is not None and peak is not None and size.dtype is not None:
        notes.append(
            f"Peak of {peaks.name}: {_tera(peak)} TFLOP/s in {size.dtype.value}, dense "
            f"({peaks.source}), at the clock that its maker states; a board that boosts higher "
            "can exceed it."
        )
    elif size.dtype is not None:
        notes.append(
            f"No peak in {size.dtype.value} is listed for {plan.device_name}, so there is no MFU."
        )
    return notes


def _doubts(plan: Plan, seen: Verification | None) -> Iterator[str]:
    """What cannot be, beside the figures that say it."""
    found = plan_efficiency(plan, seen)
    if found is not None and (found.baseline.is_impossible or found.plan.is_impossible):
        yield (
            "No board works so far above its peak: the FLOPs or the GPUs of the workload's size, "
            "or the peak, cannot be right."
        )
