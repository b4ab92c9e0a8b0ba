"""`joulewise finetune advise`: the clock of a job, by what is known of it beforehand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from joulewise.cli.finetune_render import is_utilisation_used, print_advice
from joulewise.cli.options import AsJson, FailOn
from joulewise.cli.outcome import Outcome, finish
from joulewise.cli.values import caveat_kinds, slowdown_budget
from joulewise.domain.errors import InputError
from joulewise.domain.plan import Status
from joulewise.finetune.policies.catalogue import DEFAULT_POLICY, policy_names
from joulewise.store.policies import PolicyKind
from joulewise.workflow.finetune_advising import Advice, AdviseJob, advise_on_config

ConfigFile = Annotated[
    Path,
    typer.Option(
        "--config",
        help="The model's config.json, or the folder that holds it.",
        show_default=False,
    ),
]
SequenceLength = Annotated[
    float,
    typer.Option(
        "--avg-seq-len",
        metavar="TOKENS",
        help="Mean tokens of a training example, without padding.",
        show_default=False,
    ),
]
Utilisation = Annotated[
    str | None,
    typer.Option(
        "--utilisation",
        metavar="SHARE",
        help="Share of time in which the GPU is busy under its governor: 0.9 or 90%.",
    ),
]
PolicyName = Annotated[
    str,
    typer.Option(
        "--policy",
        envvar="JOULEWISE_POLICY",
        metavar="NAME|FILE",
        help=f"{', '.join(policy_names())}, or a file of joulewise finetune train-policy.",
    ),
]
AdviseDevice = Annotated[
    str | None,
    typer.Option(
        "--device",
        envvar="JOULEWISE_DEVICE",
        help="Whose clocks to pick from: jetson, virtual:agx-orin … Default: those that the "
        "policy was learned on.",
    ),
]
SlowdownBudget = Annotated[
    str | None,
    typer.Option(
        "--max-slowdown",
        envvar="JOULEWISE_MAX_SLOWDOWN",
        help="Most time that may be lost against the governor: 5% or 0.05. Default: any.",
    ),
]


def advise(
    config: ConfigFile,
    avg_seq_len: SequenceLength,
    policy: PolicyName = DEFAULT_POLICY,
    device: AdviseDevice = None,
    utilisation: Utilisation = None,
    max_slowdown: SlowdownBudget = None,
    as_json: AsJson = False,
    fail_on: FailOn = None,
) -> None:
    """Say which GPU clock a fine-tuning job should run at, and why."""
    wanted = caveat_kinds(fail_on)
    _check_policy(policy)
    found = advise_on_config(
        AdviseJob(
            config=config,
            mean_sequence_count=avg_seq_len,
            gpu_busy_ratio=share(utilisation),
            policy=policy,
            device=device,
            max_slowdown_ratio=None if max_slowdown is None else slowdown_budget(max_slowdown),
        )
    )
    choice = found.choice
    outcome = Outcome(
        status=Status.NO_GAIN if choice.sm_clock_mhz is None else Status.FEASIBLE,
        render=lambda console: print_advice(console, found),
        slowdown_ratio=choice.slowdown_ratio,
        saving_ratio=None if choice.energy_ratio is None else 1.0 - choice.energy_ratio,
        caveats=choice.caveats,
        extra=_extra(found, device),
    )
    finish(outcome, as_json=as_json, fail_on=wanted)


def share(text: str | None) -> float | None:
    """`0.9` and `90%` as 0.9; `None` for `None`. Raises InputError for what is no share."""
    if text is None:
        return None
    body = text.strip()
    try:
        value = float(body.removesuffix("%"))
    except ValueError:
        value = math.nan
    ratio = value / 100 if body.endswith("%") else value
    if "_" in body or not body.isascii() or not 0 <= ratio <= 1:
        raise InputError(
            f"{text!r} is no share of time",
            field="utilisation",
            hint="Write 0.9 or 90%, from 0 to 100%.",
        )
    return ratio


def _check_policy(text: str) -> None:
    """Raise InputError for a kind of policy that has to be learned before it can advise."""
    if text in set(PolicyKind) and not Path(text).exists():
        raise InputError(
            f"{text!r} is a kind of policy, and advice needs one that was learned",
            field="policy",
            hint=f"Learn it: joulewise finetune train-policy CURVES --kind {text} "
            f"--out {text}.json; then --policy {text}.json. Known by name: "
            f"{', '.join(policy_names())}.",
        )


def _extra(found: Advice, device: str | None) -> dict[str, object]:
    choice = found.choice
    return {
        "policy": choice.policy,
        "sm_clock_mhz": choice.sm_clock_mhz,
        "reason": choice.reason,
        "device": device,
        "sm_clocks_mhz": found.sm_clocks_mhz,
        "features": msgspec.to_builtins(found.features),
        "is_utilisation_used": is_utilisation_used(found),
        "rules": found.rules,
        "is_simulated": found.is_simulated,
    }
