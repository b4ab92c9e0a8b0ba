"""What a job gets out of its time and energy: tokens, FLOPs, shares of the peak.

Times and energies are measured on one GPU. Figures of a job or a node of several take all of
its GPUs to run like that one. Energy is that of GPU boards: hosts, fans, switches and what
cooling takes are not in it, so figures per node are not those of a meter at its plug.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from joulewise.domain.gpu_peaks import gpu_peaks
from joulewise.domain.plan import Plan, Verification
from joulewise.domain.workload import IterationSize

# Boards boost above the clock at which their maker states the peak: an RTX 3080 Ti to 1880 MHz
# from 1665, 13 % more. With room for others; assumed.
HIGHEST_HFU_RATIO = 1.2
# A causal mask spares half of attention, so whoever counts it in full counts twice what ran.
_MOST_SPARED_RATIO = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """One way of running a job; `None` where a figure hangs on something unknown.

    `token_count_per_s`, `energy_j_per_token` and `token_count_per_kj` are of the whole job.
    `gpu_flop_per_s` counts the model's FLOPs on one GPU, `gpu_kernel_flop_per_s` those that its
    matrix kernels execute, recomputation included and what a causal mask spares left out;
    `mfu_ratio` and `hfu_ratio` are their shares of the GPU's peak in the format of the job's
    matrices. What ends in `_flop_per_j` is known as TFLOPs
    per kW (1e9 FLOP/J = 1 TFLOP/s per kW): `node_flop_per_j` sets the node's model FLOP/s
    against the node's power, `gpu_by_node_flop_per_j` one GPU's against its whole node's;
    `node_kernel_flop_per_j` is as the first, of what the kernels compute.
    """

    token_count_per_s: float | None = None
    energy_j_per_token: float | None = None
    token_count_per_kj: float | None = None
    gpu_flop_per_s: float | None = None
    gpu_kernel_flop_per_s: float | None = None
    mfu_ratio: float | None = None
    hfu_ratio: float | None = None
    node_flop_per_j: float | None = None
    gpu_by_node_flop_per_j: float | None = None
    node_kernel_flop_per_j: float | None = None

    @property
    def is_impossible(self) -> bool:
        """Whether a share of the peak is beyond any clock: the size or the peak must be wrong."""
        highest_mfu_ratio = HIGHEST_HFU_RATIO
        if self.hfu_ratio is not None:
            if self.hfu_ratio > HIGHEST_HFU_RATIO:
                return True
            highest_mfu_ratio *= _MOST_SPARED_RATIO
        return self.mfu_ratio is not None and self.mfu_ratio > highest_mfu_ratio

    @property
    def is_known(self) -> bool:
        """Whether there is any figure at all."""
        return any(getattr(self, field.name) is not None for field in fields(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEfficiency:
    """The job at its baseline and under a plan."""

    baseline: Efficiency
    plan: Efficiency


def plan_efficiency(plan: Plan, seen: Verification | None = None) -> PlanEfficiency | None:
    """Efficiency at the baseline and under the plan; `None` where the plan knows no size.

    Fresh runs, where there are any, win over the promise: their ratios times the plan's
    baseline, as everywhere, for runs differ by a common shift and only ratios carry over.
    """
    if plan.size is None:
        return None
    time_s, energy_j = plan.time_s, plan.energy_j
    if seen is not None:
        time_s = seen.slowdown_ratio * plan.baseline_time_s
        energy_j = (1.0 - seen.saving_ratio) * plan.baseline_energy_j
    peak = job_peak_flop_per_s(plan.size, plan.device_name)
    found = PlanEfficiency(
        baseline=efficiency(plan.size, plan.baseline_time_s, plan.baseline_energy_j, peak),
        plan=efficiency(plan.size, time_s, energy_j, peak),
    )
    return found if found.baseline.is_known or found.plan.is_known else None


def job_peak_flop_per_s(size: IterationSize, device_name: str) -> float | None:
    """The GPU's dense peak in the format of the job's matrices; `None` where either is unknown."""
    peaks = gpu_peaks(device_name)
    return None if peaks is None or size.dtype is None else peaks.flop_per_s.get(size.dtype)


def efficiency(
    size: IterationSize, time_s: float, energy_j: float, peak_flop_per_s: float | None
) -> Efficiency:
    """What an iteration of `size` comes to that takes one GPU `time_s` and `energy_j`.

    Tokens per second and kJ and both readings of TFLOPs per kW are as Shafique et al. (AI,
    2026) and their earlier paper (arXiv 2507.16781) report them: 54 TFLOP/s per GPU in a node
    of 6.99 kW are 7.7 there, one GPU's share against the power of all eight; set against its
    own node a node gives 61.8. MFU counts the FLOPs that the model needs, attention in full;
    HFU those that are executed (Chowdhery et al., PaLM, arXiv 2204.02311, appendix B).
    """
    if size.gpu_count < 1:  # only in a file; nobody runs there
        return Efficiency()
    # A job of one GPU has one in its node, whatever else is in there.
    node_gpu_count = size.node_gpu_count or (1 if size.gpu_count == 1 else None)
    model_flop = _quotient(size.model_flop_count, size.gpu_count)
    kernel_flop = _quotient(size.kernel_flop_count, size.gpu_count)
    gpu_flop_per_s = _quotient(model_flop, time_s)
    gpu_kernel_flop_per_s = _quotient(kernel_flop, time_s)
    energy_j_per_token = _quotient(energy_j, _quotient(size.token_count, size.gpu_count))
    # Each of a node's GPUs brings its FLOPs and its joules, so their number drops out.
    node_flop_per_j = _quotient(model_flop, energy_j)
    return Efficiency(
        token_count_per_s=_quotient(size.token_count, time_s),
        energy_j_per_token=energy_j_per_token,
        token_count_per_kj=_quotient(1000.0, energy_j_per_token),
        gpu_flop_per_s=gpu_flop_per_s,
        gpu_kernel_flop_per_s=gpu_kernel_flop_per_s,
        mfu_ratio=_quotient(gpu_flop_per_s, peak_flop_per_s),
        hfu_ratio=_quotient(gpu_kernel_flop_per_s, peak_flop_per_s),
        node_flop_per_j=node_flop_per_j,
        gpu_by_node_flop_per_j=_quotient(node_flop_per_j, node_gpu_count),
        node_kernel_flop_per_j=_quotient(kernel_flop, energy_j),
    )


def _quotient(dividend: float | None, divisor: float | None) -> float | None:
    """`None` where either is unknown, and where files hold what no job can have."""
    if dividend is None or divisor is None or dividend <= 0 or divisor <= 0:
        return None
    try:
        quotient = dividend / divisor
    except OverflowError:  # whole numbers of hundreds of digits
        return None
    return quotient if math.isfinite(quotient) and quotient > 0 else None
