"""How advice on clocks, policies and their evaluation read in a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console

from joulewise.cli.render import counted, percent, print_caveats, print_line, say, signed_percent
from joulewise.cli.render import table as grid
from joulewise.cli.sentences import with_origin
from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.report.policy_table import GROUP_TITLES, policy_rows, policy_sentence
from joulewise.store.policies import PolicyDocument, PolicyKind
from joulewise.workflow.finetune_advising import Advice
from joulewise.workflow.finetune_evaluating import Evaluation

# The columns of `policy_rows`, in per cent: told so, the table goes into 80 columns.
_EVALUATION_COLUMNS = (
    *("policy", "saving", "worst\nsaving", "regret", "95 %\ninterval", "worst\nregret"),
    *("time", "slowest"),
)
_BUSY = "GPU utilisation"
_NOTHING_EXPECTED = (
    "Nothing is expected of it: the policy was learned on another board or in another power mode, "
    "and what was saved there says nothing of this one."
)
SMOOTHED = "smoothed curves"
UNSMOOTHED = "curves as they are"


def is_utilisation_used(found: Advice) -> bool | None:
    """Whether the policy asks how busy the GPU is; `None` where that was not given.

    The rules in words say what a policy does, and `rules_of` calls this feature so.
    """
    if found.features.gpu_busy_ratio is None:
        return None
    return any(_BUSY in rule for rule in found.rules)


def advice_rows(found: Advice) -> Iterator[tuple[str, str]]:
    """What is known of a job."""
    features = found.features
    yield "model type", features.model_type.value
    yield "layers", str(features.layer_count)
    yield "hidden size", str(features.hidden_count)
    yield "mean sequence", f"{features.mean_sequence_count:g} tokens"
    if features.parameter_count is not None:
        yield "parameters", f"{features.parameter_count / 1e6:.4g} M without the head"
    if features.gpu_busy_ratio is not None:
        unused = "" if is_utilisation_used(found) else ", not used by this policy"
        yield _BUSY, f"{percent(features.gpu_busy_ratio, 0)}{unused}"


def advice_sentence(found: Advice) -> str:
    """Which clock and why, and what is expected of it."""
    choice = found.choice
    clock = (
        "Leave the clock to the governor"
        if choice.sm_clock_mhz is None
        else f"Run at {choice.sm_clock_mhz} MHz"
    )
    said = f"{clock} ({choice.policy}): {choice.reason}."
    if choice.sm_clock_mhz is None:
        return said
    if choice.energy_ratio is None:
        is_learned = choice.policy in set(PolicyKind)
        return f"{said} {_NOTHING_EXPECTED}" if is_learned else said
    time = "" if choice.slowdown_ratio is None else signed_percent(choice.slowdown_ratio - 1, 1)
    expected = f" Expected against the governor: {percent(1 - choice.energy_ratio)} less energy"
    if choice.energy_ratio > 1:
        expected = f" Expected against the governor: {percent(choice.energy_ratio - 1)} more energy"
    return f"{said}{expected}{f' at {time} time' if time else ''}."


def print_advice(console: Console, found: Advice) -> None:
    """The features, the rules, the doubts and the clock."""
    console.print(grid(None, ("job", ""), advice_rows(found), left_count=2))
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
        f"{percent(figures.worst_regret_ratio, 2)} at worst, by {SMOOTHED} (from "
        f"eight clocks on); joulewise finetune evaluate goes by the {UNSMOOTHED}. "
        f"Written to {out}."
    )


def print_evaluation(console: Console, found: Evaluation) -> None:
    """A table for each group of jobs, the doubts, the verdict."""
    for group, title in GROUP_TITLES.items():
        rows = list(policy_rows(found.scores, group))
        if rows:
            count = next(one.job_count for one in found.scores if one.group is group)
            cells = [tuple(cell.removesuffix("%").rstrip() for cell in row) for row in rows]
            told = f"{title} ({counted(count, 'job')}), all in %"
            console.print(grid(told, _EVALUATION_COLUMNS, cells, copied_count=1))
            console.print()
    print_caveats(console, found.caveats)
    said = (
        f"{policy_sentence(found.scores)} Regret is by the {UNSMOOTHED}; that which train-policy "
        f"tells is by {SMOOTHED}."
    )
    say(console, with_origin(said, found.caveats))
