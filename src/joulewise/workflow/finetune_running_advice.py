"""What a job begins at: advice where something is known of it, and clocks to try out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from joulewise.domain.errors import InputError
from joulewise.domain.finetuning import ClockChoice, ClockCost
from joulewise.domain.ports import Gpu
from joulewise.finetune.learning_cost import DEFAULT_PAIR_COUNT, LiveSettings
from joulewise.finetune.live import LiveGovernor
from joulewise.finetune.policies.catalogue import DEFAULT_POLICY
from joulewise.finetune.probing import choose_by_probing, probe_clocks
from joulewise.workflow.finetune_advising import advise, job_features
from joulewise.workflow.hardware import open_visible

UNKNOWN_POLICY = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedGovernor:
    """How a job is to be steered.

    `config` is the model's config.json, which policies advise by; without it nothing is known of
    the job, and probing picks the clock alone.
    """

    config: Path | None = None
    mean_sequence_count: float | None = None
    policy: str | None = None
    is_probing: bool = True
    max_slowdown_ratio: float | None = None
    pair_count: int = DEFAULT_PAIR_COUNT
    step_count: int | None = None


def only_gpu(device: str | None) -> Gpu:
    """The device named, or the only one that is here.

    Raises:
        InputError: no such device, or several that could be meant.
        NotSupported: nothing is here, or no command runs on it.
        DeviceError: it does not answer.
    """
    gpus: Sequence[Gpu] = open_visible(() if device is None else (device,))
    if len(gpus) != 1:
        raise InputError(
            f"{len(gpus)} GPUs are here, and a training program's clock is set on one",
            field="device",
            hint="Name it: --device nvml:0.",
        )
    return gpus[0]


def governor_for(gpu: Gpu, asked: AskedGovernor) -> LiveGovernor:
    """Advise for this device, and say which clocks to try out; nothing is set.

    Raises:
        InputError: neither a config to advise by nor probing; no such policy; a config that
            cannot be read or lacks what policies go by; too few clocks to probe.
    """
    clocks = gpu.clock_grid().sm_clocks_mhz
    advice = _advice(clocks, asked)
    budget = asked.max_slowdown_ratio

    def choose(costs: Sequence[ClockCost], baseline: ClockCost | None) -> ClockChoice:
        return choose_by_probing(costs, clocks, baseline=baseline, max_slowdown_ratio=budget)

    probed = probe_clocks(advice.sm_clock_mhz, clocks) if asked.is_probing else ()
    settings = LiveSettings(
        probe_clocks_mhz=probed,
        pair_count=asked.pair_count,
        max_slowdown_ratio=budget,
        step_count=asked.step_count,
        top_mhz=max(clocks, default=None),
    )
    return LiveGovernor(advice, settings, choose)


def _advice(clocks: Sequence[int], asked: AskedGovernor) -> ClockChoice:
    if asked.config is not None and asked.mean_sequence_count is not None:
        features = job_features(asked.config, mean_sequence_count=asked.mean_sequence_count)
        return advise(
            features,
            clocks,
            policy=asked.policy or DEFAULT_POLICY,
            max_slowdown_ratio=asked.max_slowdown_ratio,
        )
    if asked.config is not None or asked.mean_sequence_count is not None:
        missing = "avg-seq-len" if asked.config is not None else "config"
        raise InputError(
            "policies advise by a model's config and the mean length of its training examples",
            field=missing,
            hint="Give both, as in --config config.json --avg-seq-len 48, or neither.",
        )
    if asked.policy is not None:
        raise InputError(
            "a policy advises by a model's config, and none was given",
            field="config",
            hint="Give --config config.json --avg-seq-len 48, or leave --policy out.",
        )
    if not asked.is_probing:
        raise InputError(
            "there is neither a config to advise by nor probing",
            field="no-probe",
            hint="Give --config config.json --avg-seq-len 48, or leave --no-probe out.",
        )
    return ClockChoice(
        policy=UNKNOWN_POLICY,
        sm_clock_mhz=None,
        reason="nothing is known of the job, so it begins under the governor",
    )
