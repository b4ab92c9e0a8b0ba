"""Which clock a fine-tuning job should run at, by what is known of it beforehand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from joulewise.device.jetson_string import is_jetson
from joulewise.domain.caveats import Caveat, CaveatKind, first_of_each_kind
from joulewise.domain.errors import InputError, NotSupported
from joulewise.domain.finetuning import ClockChoice, JobFeatures
from joulewise.finetune.features import features_of_config
from joulewise.finetune.policies.catalogue import DEFAULT_POLICY, open_policy, shipped_policy
from joulewise.finetune.policies.learned import LearnedPolicy
from joulewise.finetune.policies.policy import ClockPolicy
from joulewise.finetune.policies.published import PAPER, PAPER_RULES
from joulewise.simulator.device_string import is_recorded, is_virtual, parse_device
from joulewise.simulator.presets import preset
from joulewise.store.hf_config import read_hf_config
from joulewise.workflow.hardware import open_hardware
from joulewise.workflow.jetson_boards import open_board


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviseJob:
    """What to advise on.

    `policy` is a name or a file. Without a `device` the clocks are those that the policy was
    learned on.
    """

    config: Path
    mean_sequence_count: float
    gpu_busy_ratio: float | None = None
    policy: str = DEFAULT_POLICY
    device: str | None = None
    max_slowdown_ratio: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A clock for a job, among which clocks it was picked, and the rules that were followed."""

    choice: ClockChoice
    features: JobFeatures
    sm_clocks_mhz: tuple[int, ...]
    rules: tuple[str, ...]
    is_simulated: bool


def advise(
    features: JobFeatures,
    sm_clocks_mhz: Sequence[int],
    *,
    policy: str = DEFAULT_POLICY,
    max_slowdown_ratio: float | None = None,
) -> ClockChoice:
    """A clock for a job on a device that lists these clocks.

    Args:
        features: What is known of the job; see `job_features`.
        sm_clocks_mhz: Clocks that the device lists, in MHz.
        policy: A policy's name or file.
        max_slowdown_ratio: Most time that may be lost against the governor; `None`: any.

    Raises:
        InputError: no such policy, anything wrong with its file, or no clocks.
    """
    return open_policy(policy).choose(
        features, sm_clocks_mhz, max_slowdown_ratio=max_slowdown_ratio
    )


def job_features(
    config: Path, *, mean_sequence_count: float, gpu_busy_ratio: float | None = None
) -> JobFeatures:
    """Features of a job from its model's `config.json` (or the folder that holds it).

    Raises:
        InputError: the file cannot be read, or lacks what policies go by; names file and field.
    """
    return features_of_config(
        read_hf_config(config),
        file=str(config),
        mean_sequence_count=mean_sequence_count,
        gpu_busy_ratio=gpu_busy_ratio,
    )


def advise_on_config(job: AdviseJob) -> Advice:
    """Read a config, look up the device's clocks, and advise.

    Raises:
        InputError: as `job_features` and `advise` do, and for a device that is none.
        NotSupported: the device is not here, or lists no clocks.
        DeviceError: the device does not answer.
    """
    features = job_features(
        job.config,
        mean_sequence_count=job.mean_sequence_count,
        gpu_busy_ratio=job.gpu_busy_ratio,
    )
    policy = open_policy(job.policy)
    clocks = _clocks_of_policy(policy) if job.device is None else clocks_of_device(job.device)
    choice = policy.choose(features, clocks, max_slowdown_ratio=job.max_slowdown_ratio)
    doubts = (*choice.caveats, *_doubts_of_budget(choice, clocks, job.max_slowdown_ratio))
    return Advice(
        choice=replace(choice, caveats=first_of_each_kind(*doubts)),
        features=features,
        sm_clocks_mhz=clocks,
        rules=_rules(policy),
        is_simulated=isinstance(policy, LearnedPolicy) and policy.document.is_simulated,
    )


def _doubts_of_budget(
    choice: ClockChoice, sm_clocks_mhz: Sequence[int], max_slowdown_ratio: float | None
) -> Iterator[Caveat]:
    """PromiseNotShown where a clock is so low that some job might lose more than the budget.

    No step takes longer than in proportion to the clock. `finetune run` measures it, and then
    needs no such doubt.
    """
    clock_mhz = choice.sm_clock_mhz
    if max_slowdown_ratio is None or clock_mhz is None:
        return
    most_ratio = max(sm_clocks_mhz) / clock_mhz
    if most_ratio > 1.0 + max_slowdown_ratio:
        yield Caveat(
            kind=CaveatKind.PROMISE_NOT_SHOWN,
            seen=f"The budget of {max_slowdown_ratio:+.1%} time is held against what the policy's "
            f"training jobs lost; at {clock_mhz} MHz another job may lose up to "
            f"{most_ratio - 1:+.0%}.",
            advice="Let joulewise finetune run measure it; where the job is long enough to tell, "
            "it goes back to the governor if the budget is broken.",
        )


def clocks_of_device(device: str) -> tuple[int, ...]:
    """SM clocks that a device lists, ascending; nothing is set on it.

    Raises:
        InputError: no such device, or a recording, which lists none.
        NotSupported: it is not here, or lists no clocks.
        DeviceError: it does not answer.
    """
    if is_recorded(device):
        raise InputError(
            "a recording is no device that a job could run on",
            field="device",
            hint="Name the device, or leave it out.",
        )
    if is_virtual(device):
        return preset(parse_device(device).preset).grid.sm_clocks_mhz
    # Reading a list takes no time of the device's own, so a tree that stands still will do.
    gpu = open_board(device) if is_jetson(device) else open_hardware(device)
    clocks = gpu.clock_grid().sm_clocks_mhz
    if not clocks:
        raise NotSupported(f"{gpu.identity.name} lists no SM clocks")
    return tuple(sorted(clocks))


def _clocks_of_policy(policy: ClockPolicy) -> tuple[int, ...]:
    """Clocks that a policy was learned on; the published ones are an AGX Orin's."""
    learned = policy if isinstance(policy, LearnedPolicy) else shipped_policy()
    return learned.document.sm_clocks_mhz


def _rules(policy: ClockPolicy) -> tuple[str, ...]:
    if isinstance(policy, LearnedPolicy):
        return policy.document.rules
    return PAPER_RULES if policy.name == PAPER else ()
