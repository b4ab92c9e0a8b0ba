"""Learning a policy from measured curves, or from a virtual board's built-in jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from joulewise.domain.errors import InputError
from joulewise.domain.finetuning import ClockCurve
from joulewise.finetune.jobs import training_jobs
from joulewise.finetune.policies.training import train_policy
from joulewise.store.atomic import require_place
from joulewise.store.clock_curves import read_curves
from joulewise.store.policies import PolicyDocument, PolicyKind, write_policy
from joulewise.workflow.finetune_evaluating import true_curves


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainJob:
    """What to learn from: curve files, or the truth of a virtual board; and where to write."""

    curves: Sequence[Path]
    device: str | None
    kind: PolicyKind
    out: Path
    uses_utilisation: bool = False


def train_to_file(job: TrainJob) -> PolicyDocument:
    """Learn a policy and write it.

    Raises:
        InputError: neither curves nor a virtual device or both, curves that cannot be read or
            laid side by side, or a place that cannot be written to.
    """
    if bool(job.curves) == (job.device is not None):
        raise InputError(
            "a policy is learned from files of curves or on a virtual device, one of the two",
            field="curves",
            hint="Write joulewise finetune train-policy curves.json, or --device virtual:agx-orin.",
        )
    if job.curves:
        require_place(job.out, sources=tuple(job.curves))
        document = _named(job.curves, job)
    else:
        require_place(job.out)
        document = _trained(true_curves(str(job.device), training_jobs()), job)
    write_policy(job.out, document)
    return document


def _trained(curves: Sequence[ClockCurve], job: TrainJob) -> PolicyDocument:
    return train_policy(curves, job.kind, uses_utilisation=job.uses_utilisation)


def _named(paths: Sequence[Path], job: TrainJob) -> PolicyDocument:
    """What is wrong with curves names the files that they are from."""
    curves: dict[str, ClockCurve] = {}
    for path in paths:
        for number, curve in enumerate(read_curves(path)):
            if curve.job in curves:
                raise InputError(
                    f"there are two curves of the job {curve.job!r}",
                    file=str(path),
                    field=f"curves[{number}].job",
                    hint="Name each file once, and jobs apart: joulewise finetune sweep --name.",
                )
            curves[curve.job] = curve
    try:
        return _trained(tuple(curves.values()), job)
    except InputError as error:
        raise InputError(
            error.message, file=", ".join(map(str, paths)), field=error.field, hint=error.hint
        ) from error
