"""How `finetune run` reads: steps at each clock, the doubts, and one sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console

from joulewise.cli.beside import command_text
from joulewise.cli.render import (
    counted,
    joules,
    joules_within,
    percent,
    print_caveats,
    print_wrapped,
    say,
    seconds,
    signed_percent,
    table,
)
from joulewise.domain.caveats import CaveatKind, is_simulated
from joulewise.domain.finetuning import ClockChoice, ClockCost
from joulewise.finetune.learning_cost import (
    FEWEST_PAIR_COUNT,
    LEARNING_RATIO,
    VERIFYING_RATIO,
    LiveSettings,
    learning_cost,
)
from joulewise.finetune.live import Outcome, PairedSaving
from joulewise.workflow.finetune_running import FinetuneRun, Steered
from joulewise.workflow.finetune_running_advice import UNKNOWN_POLICY


def render(console: Console, result: FinetuneRun, arguments: Sequence[str]) -> None:
    """A row for each clock that was measured, the doubts, and one sentence."""
    console.print()
    for line in _advised(result.steered):
        print_wrapped(console, line)
    rows = tuple(_rows(result.steered))
    if rows:
        console.print()
        columns = ("clock", "for", "blocks", "time per step", "energy per step")
        console.print(table(None, columns, rows, left_count=2))
    print_caveats(console, result.caveats)
    say(console, sentence(result, arguments))


def sentence(result: FinetuneRun, arguments: Sequence[str]) -> str:
    """What ran, which clock it had, and what that is shown to save."""
    origin = "Simulated. " if is_simulated(result.caveats) else ""
    steered = result.steered
    took = f"{origin}{command_text(arguments)} {_ended(result)}"
    parts = [f"{took}{_steps(steered)}.", _verdict(steered)]
    if steered.learning_count:
        parts.append(
            f"{counted(steered.learning_count, 'step')} went into finding and checking the clock."
        )
    parts.append(_GIVEN_BACK[result.is_given_back])
    return " ".join(parts)


_GIVEN_BACK = {
    True: "What was set is given back.",
    False: "What was set could not be given back.",
    None: "Whether what was set is given back, joulewise status tells.",
}


def _steps(steered: Steered) -> str:
    if not steered.step_count:
        return ""
    said = f"; its {counted(steered.step_count, 'training step')} took"
    if steered.energy_j is None:
        return f"{said} {seconds(steered.steps_time_s)}"
    energy = (
        joules(steered.energy_j)
        if steered.uncertainty_j is None
        else joules_within(steered.energy_j, steered.uncertainty_j)
    )
    return f"{said} {seconds(steered.steps_time_s)} and {energy}"


def is_idle(steered: Steered) -> bool:
    """Whether the GPU did nothing in every block of steps that was measured."""
    ratios = [cost.busy_ratio for cost in _costs(steered)]
    return bool(ratios) and all(ratio is not None and ratio < _IDLE_RATIO for ratio in ratios)


# A display or a look at the board may wake the GPU now and then (assumed).
_IDLE_RATIO = 0.01


def shown(steered: Steered) -> PairedSaving | None:
    """The saving of the job; `None` where none is claimed: a clock that nothing runs at saves none.

    What a board draws less meanwhile is that of an idle GPU.
    """
    return None if is_idle(steered) else steered.shown


def _costs(steered: Steered) -> Sequence[ClockCost]:
    return [*steered.probed, *(cost for pair in steered.pairs for cost in pair)]


def _advised(steered: Steered) -> Iterator[str]:
    """Who picked which clock, and why."""
    for title, one in (("Advised", steered.advice), ("Chosen", steered.choice)):
        is_same = (one.policy, one.sm_clock_mhz) == _origin(steered.advice)
        if is_advised(steered.advice) if one is steered.advice else not is_same:
            yield f"{title} by {one.policy}: {_clock(one)}; {one.reason.rstrip('.')}."


def _origin(choice: ClockChoice) -> tuple[str, int | None]:
    return choice.policy, choice.sm_clock_mhz


def is_advised(advice: ClockChoice) -> bool:
    """Whether anything was known of the job before it ran."""
    return advice.policy != UNKNOWN_POLICY


def _ended(result: FinetuneRun) -> str:
    took = seconds(result.time_s)
    return f"took {took}" if not result.code else f"failed with {result.code} after {took}"


def _verdict(steered: Steered) -> str:
    clock = _clock(steered.choice)
    if is_idle(steered):
        return (
            "The GPU stayed idle in all of its steps that were measured, so no clock of it suits "
            "them better than another; no saving is claimed."
        )
    if steered.outcome is Outcome.SAVES and steered.saving is not None:
        return f"{clock} {_saving_text(steered.saving)} {_against(steered)}."
    if steered.saving is not None and steered.outcome in _BACK:
        why = _BACK[steered.outcome]
        energy = steered.saving.energy_interval
        return (
            f"{clock} {why}, so the governor had the clock. By "
            f"{counted(steered.saving.pair_count, 'pair')} of blocks the saving lies between "
            f"{percent(1 - energy.high_ratio)} and {percent(1 - energy.low_ratio)}, at "
            f"{signed_percent(steered.saving.time_ratio - 1)} time."
        )
    if steered.outcome in _UNCHECKED:
        return _unchecked(steered)
    if steered.outcome is Outcome.GOVERNOR and not steered.probed:
        return "No clock was tried out, so the governor kept it; no saving is claimed." + _lengths(
            steered
        )
    return _UNSHOWN[steered.outcome].format(clock=clock)


_UNCHECKED = {Outcome.NO_STEPS, Outcome.ADVICE, Outcome.UNFINISHED}


def _unchecked(steered: Steered) -> str:
    """Which clock it had, where it is from, and that nothing says what it saves."""
    choice, advice = steered.choice, steered.advice
    clock, is_mended = _clock(choice), _origin(choice) != _origin(advice)
    if steered.outcome is Outcome.UNFINISHED:
        return f"It ended before {clock} was checked; no saving is claimed.{_lengths(steered)}"
    if is_mended:
        advised = f" ({_clock(advice)} was advised)" if is_advised(advice) else ""
        held = f"Probing chose {clock}{advised}, which was held"
    elif is_advised(advice):
        held = f"{clock} was held as advised by {advice.policy}"
    else:
        held = "nothing was advised, and the governor had the clock"
    if steered.outcome is Outcome.NO_STEPS:
        return f"It marked no training step, so {held}; no saving is claimed."
    return (
        f"{held[0].upper()}{held[1:]}; nothing was checked, and no saving is claimed."
        f"{_lengths(steered)}"
    )


def _lengths(steered: Steered) -> str:
    """How long the steps of a job must last to be learned from; empty where they did."""
    if not steered.step_count:
        return ""
    step_s = steered.steps_time_s / steered.step_count
    probing_s, checking_s = shortest_job_s(step_s)
    needed_s = checking_s if steered.probed else max(probing_s, checking_s)
    if needed_s <= steered.steps_time_s:
        return ""
    return (
        f" With such steps it needs about {seconds(needed_s, 2)} of them to be probed and checked; "
        f"it had {seconds(steered.steps_time_s, 2)}."
    )


def shortest_job_s(step_s: float) -> tuple[float, float]:
    """How long steps have to last, in all, for three clocks to be probed; for one to be checked.

    Steps are taken to last alike at every clock, and power to move as often as is assumed of
    sensors. Where joulewise is not told how many steps there will be, all is tried all the same.
    """
    settings = LiveSettings(probe_clocks_mhz=(1, 2, 3), pair_count=FEWEST_PAIR_COUNT)
    cost = learning_cost(None, lambda _: step_s, settings, chosen_mhz=1)
    return (
        cost.probing_count * step_s / LEARNING_RATIO,
        cost.verifying_count * step_s / VERIFYING_RATIO,
    )


_BACK = {
    Outcome.NOT_SHOWN: "was not shown to save energy",
    Outcome.TOO_SLOW: "takes more time than allowed",
}
_UNSHOWN = {
    Outcome.GOVERNOR: "No clock was found that does better than the governor, which kept it.",
    Outcome.GIVEN_UP: "The clock was left to somebody else on the way; no saving is claimed.",
    Outcome.SAVES: "{clock} was held.",
    Outcome.NOT_SHOWN: "{clock} was not shown to save energy.",
    Outcome.TOO_SLOW: "{clock} takes more time than allowed.",
}


def _saving_text(saving: PairedSaving) -> str:
    energy, time = saving.energy_interval, saving.time_interval
    return (
        f"saves {percent(1 - saving.energy_ratio)} of the energy of a step "
        f"({percent(1 - energy.high_ratio)} … {percent(1 - energy.low_ratio)}) at "
        f"{signed_percent(saving.time_ratio - 1)} time "
        f"({signed_percent(time.low_ratio - 1)} … {signed_percent(time.high_ratio - 1)}) "
        f"by {counted(saving.pair_count, 'pair')} of blocks"
    )


def _against(steered: Steered) -> str:
    """Against what: a board that somebody had pinned is none of the governor's."""
    is_pinned = any(one.kind is CaveatKind.BASELINE_PINNED for one in steered.caveats)
    return "against the board as it was found" if is_pinned else "against the governor"


def _clock(choice: ClockChoice) -> str:
    return "the governor's clock" if choice.sm_clock_mhz is None else f"{choice.sm_clock_mhz} MHz"


def _rows(steered: Steered) -> Iterator[tuple[str, ...]]:
    for cost in steered.probed:
        yield _row(cost.sm_clock_mhz, "probing", (cost,))
    if steered.pairs:
        yield _row(None, "checking", [baseline for baseline, _ in steered.pairs])
        chosen = [one for _, one in steered.pairs]
        yield _row(chosen[0].sm_clock_mhz, "checking", chosen)


def _row(clock_mhz: int | None, purpose: str, costs: Sequence[ClockCost]) -> tuple[str, ...]:
    """Means over blocks."""
    return (
        "governor" if clock_mhz is None else f"{clock_mhz} MHz",
        purpose,
        str(len(costs)),
        seconds(sum(cost.time_s for cost in costs) / len(costs)),
        joules(sum(cost.energy_j for cost in costs) / len(costs)),
    )


_IDLE = "idle"
"""What programs read as the outcome where the GPU did nothing."""


def document(result: FinetuneRun, arguments: Sequence[str]) -> dict[str, object]:
    """What `--json` has beside the fields of every command."""
    steered = result.steered
    return {
        "command": tuple(arguments),
        "exit_code": result.code,
        "device": result.device,
        "device_name": result.device_name,
        "is_simulated": result.is_simulated,
        "advice": _choice_document(steered.advice),
        "choice": _choice_document(steered.choice),
        "outcome": _IDLE if is_idle(steered) else steered.outcome,
        "probed": [_cost_document(cost) for cost in steered.probed],
        "verification": None if steered.saving is None else _saving_document(steered.saving),
        "step_count": steered.step_count,
        "step_counts": {purpose.value: count for purpose, count in steered.step_counts.items()},
        "steps_time_s": steered.steps_time_s,
        "uncertainty_j": steered.uncertainty_j,
        "sm_clock_held_mhz": steered.sm_clock_held_mhz,
        "is_given_back": result.is_given_back,
    }


def _choice_document(choice: ClockChoice) -> dict[str, object]:
    return {
        "policy": choice.policy,
        "sm_clock_mhz": choice.sm_clock_mhz,
        "reason": choice.reason,
        "energy_ratio": choice.energy_ratio,
        "slowdown_ratio": choice.slowdown_ratio,
    }


def _cost_document(cost: ClockCost) -> dict[str, object]:
    return {
        "sm_clock_mhz": cost.sm_clock_mhz,
        "time_s": cost.time_s,
        "energy_j": cost.energy_j,
        "step_count": cost.step_count,
        "time_error_s": cost.time_error_s,
        "energy_error_j": cost.energy_error_j,
        "busy_ratio": cost.busy_ratio,
        "mem_clock_mhz": cost.mem_clock_mhz,
    }


def _saving_document(saving: PairedSaving) -> dict[str, object]:
    energy, time = saving.energy_interval, saving.time_interval
    return {
        "pair_count": saving.pair_count,
        "energy_ratio": saving.energy_ratio,
        "energy_interval": (energy.low_ratio, energy.high_ratio),
        "time_ratio": saving.time_ratio,
        "time_interval": (time.low_ratio, time.high_ratio),
    }
