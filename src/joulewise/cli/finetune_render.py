"""How advice on clocks, policies and their evaluation read in a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console

from joulewise.cli.render import counted, percent, print_caveats, print_line, say, signed_percent
from joulewise.cli.render import table as grid
from joulewise.cli.sentences import with_origin
from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.finetuning import JobFeatures
from joulewise.report.policy_table import GROUP_TITLES, POLICY_COLUMNS, policy_rows, policy_sentence
from joulewise.store.policies import PolicyDocument
from joulewise.workflow.finetune_advising import Advice
from joulewise.workflow.finetune_evaluating import Evaluation


def advice_rows(features: JobFeatures) -> Iterator[tuple[str, str]]:
    """What is known of a job."""
    yield "model type", features.model_type.value
    yield "layers", str(features.layer_count)
    yield "hidden size", str(features.hidden_count)
    yield "mean sequence", f"{features.mean_sequence_count:g} tokens"
    if features.parameter_count is not None:
        yield "parameters", f"{features.parameter_count / 1e6:.4g} M"
    if features.gpu_busy_ratio is not None:
        yield "GPU utilisation", percent(features.gpu_busy_ratio, 0)


def advice_sentence(found: Advice) -> str:
    """Which clock and why, and what is expected of it."""
    choice = found.choice
    clock = (
        "Leave the clock to the governor"
        if choice.sm_clock_mhz is None
        else f"Run at {choice.sm_clock_mhz} MHz"
    )
    said = f"{clock} ({choice.policy}): {choice.reason}."
    if choice.sm_clock_mhz is None or choice.energy_ratio is None:
        return said
    time = "" if choice.slowdown_ratio is None else signed_percent(choice.slowdown_ratio - 1, 1)
    expected = f" Expected against the governor: {percent(1 - choice.energy_ratio)} less energy"
    if choice.energy_ratio > 1:
        expected = f" Expected against the governor: {percent(choice.energy_ratio - 1)} more energy"
    return f"{said}{expected}{f' at {time} time' if time else ''}."


def print_advice(console: Console, found: Advice) -> None:
    """The features, the rules, the doubts and the clock."""
    console.print(grid(None, ("job", ""), advice_rows(found.features), left_count=2))
    if found.rules:
        console.print()
        console.print("Rules", style="bold")
        for rule in found.rules:
            print_line(console, f"  {rule}")
    print_caveats(console, found.choice.caveats)
    say(console, advice_sentence(found))


def print_policy(console: Console, document: PolicyDocument, out: str) -> None:
    """The rules of a policy that was learned, and how it does on jobs that it was not shown."""
    for rule in document.rules:
        print_line(console, rule)
    print_caveats(console, policy_caveats(document))
    say(console, with_origin(policy_learned_sentence(document, out), policy_caveats(document)))


def policy_caveats(document: PolicyDocument) -> tuple[Caveat, ...]:
    """Those of its curves, and that they are simulated."""
    if not document.is_simulated:
        return document.caveats
    seen = f"The curves are those of {document.device_name}, a physics model."
    return (*document.caveats, Caveat(kind=CaveatKind.SIMULATED_DEVICE, seen=seen))


def policy_learned_sentence(document: PolicyDocument, out: str) -> str:
    """How good a policy is on left-out jobs."""
    figures = document.left_out
    return (
        f"Learned from {counted(len(document.training_jobs), 'job')}. Each left out in turn: the "
        f"best clock for {percent(figures.accuracy_ratio, 0)} of them, within 2 % of the least "
        f"energy for {percent(figures.within_band_ratio, 0)}, regret "
        f"{percent(figures.mean_regret_ratio, 2)} in the mean and "
        f"{percent(figures.worst_regret_ratio, 2)} at worst. Written to {out}."
    )


def print_evaluation(console: Console, found: Evaluation) -> None:
    """A table for each group of jobs, the doubts, the verdict."""
    for group, title in GROUP_TITLES.items():
        rows = list(policy_rows(found.scores, group))
        if rows:
            count = next(one.job_count for one in found.scores if one.group is group)
            console.print(grid(f"{title} ({counted(count, 'job')})", POLICY_COLUMNS, rows))
            console.print()
    print_caveats(console, found.caveats)
    say(console, with_origin(policy_sentence(found.scores), found.caveats))
