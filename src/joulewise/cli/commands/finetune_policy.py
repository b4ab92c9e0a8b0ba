"""`joulewise finetune train-policy`: rules for clocks, learned from measured curves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from joulewise.cli.finetune_render import SMOOTHED, policy_caveats, print_policy
from joulewise.cli.options import AsJson, FailOn
from joulewise.cli.outcome import Outcome, finish
from joulewise.cli.values import caveat_kinds
from joulewise.domain.plan import Status
from joulewise.store.policies import PolicyKind
from joulewise.workflow.finetune_training import TrainJob, train_to_file

OptionalCurves = Annotated[
    Path | None,
    typer.Argument(metavar="[CURVES]", help="A file of joulewise finetune sweep."),
]
SeveralCurves = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[CURVES]…", help="Files of joulewise finetune sweep; three jobs are the least."
    ),
]
TrueDevice = Annotated[
    str | None,
    typer.Option("--device", help="In place of curves: a virtual board's own, virtual:agx-orin."),
]
Kind = Annotated[
    PolicyKind,
    typer.Option(
        "--kind",
        help="regret: a tree whose splits and leaves cost least energy; tree: scikit-learn's "
        "classifier of best clocks; ffg: one clock for all.",
    ),
]
WithUtilisation = Annotated[
    bool,
    typer.Option(
        "--with-utilisation",
        help="Learn from how busy the GPU was, too; advice then asks for --utilisation.",
    ),
]
PolicyOut = Annotated[
    Path, typer.Option("--out", envvar="JOULEWISE_POLICY_OUT", help="Where the policy is written.")
]
DEFAULT_OUT = Path("policy.json")


def train_policy(
    curves: SeveralCurves = None,
    device: TrueDevice = None,
    kind: Kind = PolicyKind.REGRET,
    with_utilisation: WithUtilisation = False,
    out: PolicyOut = DEFAULT_OUT,
    as_json: AsJson = False,
    fail_on: FailOn = None,
) -> None:
    """Learn from curves which clock a job should have, as rules that can be read."""
    wanted = caveat_kinds(fail_on)
    document = train_to_file(
        TrainJob(
            curves=curves or (),
            device=device,
            kind=kind,
            out=out,
            uses_utilisation=with_utilisation,
        )
    )
    outcome = Outcome(
        status=Status.FEASIBLE,
        render=lambda console: print_policy(console, document, str(out)),
        caveats=policy_caveats(document),
        extra={
            "policy": document.policy,
            "out": str(out),
            "device": document.device,
            "device_name": document.device_name,
            "is_simulated": document.is_simulated,
            "rules": document.rules,
            "features": document.features,
            "sm_clocks_mhz": document.sm_clocks_mhz,
            "training_job_count": len(document.training_jobs),
            "most_depth_count": document.most_depth_count,
            "least_leaf_count": document.least_leaf_count,
            "judged_by": SMOOTHED,
            "left_out": msgspec.to_builtins(document.left_out),
        },
    )
    finish(outcome, as_json=as_json, fail_on=wanted)
