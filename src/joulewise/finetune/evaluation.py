"""What policies pick from noisy curves, to be held against the true ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from joulewise.domain.finetuning import ClockCurve, JobFeatures
from joulewise.finetune.evaluation_epoch import JobEpoch, Picked, job_epoch
from joulewise.finetune.evaluation_noise import EvaluationNoise, noisy_curves, probed_costs
from joulewise.finetune.learning_cost import LiveSettings
from joulewise.finetune.policies.curve_table import with_utilisation
from joulewise.finetune.policies.learned import LearnedPolicy
from joulewise.finetune.policies.policy import (
    GOVERNOR,
    PINNED_MAX,
    ClockPolicy,
    GovernorPolicy,
    PinnedMaxPolicy,
)
from joulewise.finetune.policies.published import PAPER, PaperPolicy
from joulewise.finetune.policies.training import train_policies
from joulewise.finetune.probing import PROBE, choose_by_probing, probe_clocks
from joulewise.store.policies import PolicyKind

ONE_EPOCH = "probe, one epoch"
LEARNED_KINDS = (PolicyKind.FFG, PolicyKind.TREE, PolicyKind.REGRET)
EVALUATED_POLICIES = (
    *(GOVERNOR, PINNED_MAX, PolicyKind.FFG.value, PAPER),
    *(PolicyKind.TREE.value, PolicyKind.REGRET.value, PROBE, ONE_EPOCH),
)
"""In the order in which they are shown. `ONE_EPOCH` is what `joulewise finetune run` holds to the
end of one epoch: it probes where the job is long enough for that and takes the advice elsewhere,
and goes back to the governor where pairs of blocks show no saving."""

Clocks = tuple[int | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """True curves of jobs that policies are trained on and of jobs that they never see.

    `steps` are the training steps of one epoch by job; a job that is not in it is taken to be
    so long that nothing of what learning takes matters.
    """

    training: tuple[ClockCurve, ...]
    unseen: tuple[ClockCurve, ...]
    steps: Mapping[str, int]
    noise: EvaluationNoise
    max_slowdown_ratio: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedPicks:
    """What every policy picks under the noise of one seed, in the order of the bench's jobs.

    `None` leaves the clock to the governor. Training jobs are each left out of the training of
    whoever picks for them. `epochs` are those of the training jobs, then of the unseen ones.
    """

    seed: int
    left_out: Mapping[str, Clocks]
    unseen: Mapping[str, Clocks]
    epochs: tuple[JobEpoch, ...]


def pick_clocks(bench: Bench, seed: int) -> SeedPicks:
    """Measure the training jobs once under this seed's noise, train, and let all policies pick.

    Raises:
        InputError: curves that no policy can be learned from; see `curve_table`.
    """
    rng = np.random.default_rng(seed)
    noisy = noisy_curves(bench.training, bench.noise, rng)
    left_out: dict[str, Clocks] = {}
    unseen: dict[str, Clocks] = {}
    for kind in LEARNED_KINDS:
        whole, of_others = train_policies(noisy, kind)
        left_out[kind.value] = tuple(
            clock
            for document, curve in zip(of_others, bench.training, strict=True)
            for clock in _picked(LearnedPolicy(document), (curve,), bench)
        )
        unseen[kind.value] = _picked(LearnedPolicy(whole), bench.unseen, bench)
    for policy in (GovernorPolicy(), PinnedMaxPolicy(), PaperPolicy()):
        left_out[policy.name] = _picked(policy, bench.training, bench)
        unseen[policy.name] = _picked(policy, bench.unseen, bench)
    epochs = []
    for curves, picks in ((bench.training, left_out), (bench.unseen, unseen)):
        picks[PROBE], lived = _probed(curves, picks[PolicyKind.REGRET.value], bench, rng)
        picks[ONE_EPOCH] = tuple(one.held_mhz for one in lived)
        epochs += lived
    return SeedPicks(seed=seed, left_out=left_out, unseen=unseen, epochs=tuple(epochs))


def _picked(policy: ClockPolicy, curves: Sequence[ClockCurve], bench: Bench) -> Clocks:
    return tuple(
        policy.choose(
            known(curve), curve.sm_clocks_mhz, max_slowdown_ratio=bench.max_slowdown_ratio
        ).sm_clock_mhz
        for curve in curves
    )


def known(curve: ClockCurve) -> JobFeatures:
    """What a policy is told of a curve's job. Raises ValueError where nothing is known."""
    features = with_utilisation(curve)
    if features is None:
        raise ValueError(f"nothing is known of {curve.job!r}")
    return features


def _probed(
    curves: Sequence[ClockCurve], advised: Clocks, bench: Bench, rng: np.random.Generator
) -> tuple[Clocks, list[JobEpoch]]:
    """What probing picks for each job, and what becomes of its one epoch."""
    budget, picks, lived = bench.max_slowdown_ratio, [], []
    for curve, advice in zip(curves, advised, strict=True):
        settings = LiveSettings(
            probe_clocks_mhz=probe_clocks(advice, curve.sm_clocks_mhz),
            max_slowdown_ratio=budget,
            top_mhz=curve.sm_clocks_mhz[-1],
        )
        blocks = probed_costs(curve, settings.probe_settings, bench.noise, rng)
        choice = choose_by_probing(
            [one for one in blocks if one.sm_clock_mhz is not None],
            curve.sm_clocks_mhz,
            baseline=next((one for one in blocks if one.sm_clock_mhz is None), None),
            max_slowdown_ratio=budget,
        )
        picks.append(choice.sm_clock_mhz)
        lived.append(
            job_epoch(
                curve,
                settings,
                Picked(advised_mhz=advice, probed_mhz=choice.sm_clock_mhz),
                step_count=bench.steps.get(curve.job),
                block_energy_ratio=bench.noise.block_energy_ratio,
            )
        )
    return tuple(picks), lived
