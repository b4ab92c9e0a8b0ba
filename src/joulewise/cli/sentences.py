"""Verdicts in one sentence, and the rows of the tables beside them."""

from __future__ import annotations

import shlex
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from joulewise.cli.render import counted, joules, percent, seconds, signed_percent
from joulewise.domain.caveats import Caveat, is_simulated
from joulewise.domain.efficiency import Efficiency
from joulewise.domain.plan import FrontierPoint, Objective, Plan, Status, Verification
from joulewise.domain.sweep import Sweep
from joulewise.domain.workload import Workload
from joulewise.report.compare import ComparisonRow
from joulewise.report.efficiency import significant
from joulewise.report.regions import change_indices
from joulewise.report.verdict import headline, leaves_changes_out, proof, ran_on
from joulewise.workflow.preparing import leaves_memory_clock

_BUDGETS_RATIO = (
    *(-0.02, -0.01, -0.005, 0.0, 0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.03),
    *(0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0),
)
_ROUNDING_RATIO = 1e-12


def comparison_rows(rows: Sequence[ComparisonRow]) -> Iterator[tuple[str, ...]]:
    """setting, time, energy, slowdown, saving."""
    for row in rows:
        yield (
            row.label,
            seconds(row.time_s),
            joules(row.energy_j),
            signed_percent(row.slowdown_ratio - 1),
            percent(row.saving_ratio),
        )


def frontier_rows(points: Sequence[FrontierPoint]) -> Iterator[tuple[str, ...]]:
    """time, energy, slowdown, saving: the best within each of a row of budgets, and both ends."""
    slowdowns = [point.slowdown_ratio for point in points]
    budgets = [
        bisect_right(slowdowns, 1 + budget + _ROUNDING_RATIO) - 1 for budget in _BUDGETS_RATIO
    ]
    shown = sorted({0, len(points) - 1, *(index for index in budgets if index >= 0)})
    for point in (points[index] for index in shown):
        yield (
            seconds(point.time_s),
            joules(point.energy_j),
            signed_percent(point.slowdown_ratio - 1),
            percent(point.saving_ratio),
        )


def verification_rows(seen: Verification) -> Iterator[tuple[str, ...]]:
    """what, promised, verified, interval."""
    slow, saved = seen.slowdown_interval, seen.saving_interval
    slowest, fastest = signed_percent(slow.high_ratio - 1), signed_percent(slow.low_ratio - 1)
    yield (
        "slowdown",
        signed_percent(seen.promised_slowdown_ratio - 1),
        signed_percent(seen.slowdown_ratio - 1),
        f"{fastest} … {slowest}",
    )
    yield (
        "saving",
        percent(seen.promised_saving_ratio, 2),
        percent(seen.saving_ratio, 2),
        f"{percent(saved.low_ratio, 2)} … {percent(saved.high_ratio, 2)}",
    )


def plan_sentence(
    plan: Plan, rows: Sequence[ComparisonRow], out: Path | None, *, is_table_simulated: bool
) -> str:
    """What the plan promises, for which work, and how sure that is."""
    parts = [f"Workload: {plan.workload}"]
    if plan.status is not Status.NO_GAIN:
        parts.append(proof(plan.status, plan.bound_gap_ratio))
    if plan.request.objective in (Objective.EDP, Objective.ED2P):
        parts.append(_product(plan))
    if plan.guard_band_ratio > 0:
        parts.append(f"{percent(plan.guard_band_ratio, 2)} of the time kept back as a guard band")
    if plan.request.transition is not None or change_indices(plan):
        parts.append(changes_text(plan))
    if out is not None:
        parts.append(f"written to {out}")
    said = headline(plan, None, rows, is_table_simulated=is_table_simulated)
    return f"{said} {'; '.join(parts)}."


def changes_text(plan: Plan) -> str:
    """How often an iteration changes its point, and what of it that takes where that counts."""
    change_count = len(change_indices(plan))
    if not change_count:
        return "no change of the operating point"
    text = f"{counted(change_count, 'change')} of the operating point per iteration"
    if leaves_changes_out(plan):
        return f"{text}, not counted"
    lead_s = max((request.lead_s for request in plan.requests), default=0.0)
    if lead_s:
        text += f", asked for up to {seconds(lead_s)} ahead"
    taken = [
        *([seconds(plan.transition_time_s)] if plan.transition_time_s else []),
        *([joules(plan.transition_energy_j)] if plan.transition_energy_j else []),
    ]
    return f"{text}, which take {' and '.join(taken)} of it" if taken else text


def _product(plan: Plan) -> str:
    exponent = 1 if plan.request.objective is Objective.EDP else 2
    product = (1 - plan.saving_ratio) * plan.slowdown_ratio**exponent
    return f"{plan.request.objective} {product:.3f} of the baseline's"


def sweep_sentence(sweep: Sweep, out: Path) -> str:
    """What was measured, on what, and what was left alone."""
    source = sweep.source
    parts = [
        ran_on(source.device_name, source.device, sweep.caveats),
        (
            f"{counted(len(sweep.kernels), 'kernel')} at "
            f"{counted(len(sweep.points), 'operating point')}, written to {out}."
        ),
        *memory_clock_note(source.device),
    ]
    return " ".join(parts)


def memory_clock_note(device: str) -> tuple[str, ...]:
    """That the memory clock was left alone, where the device string has it so."""
    if not leaves_memory_clock(device):
        return ()
    return ("The memory clock was left to the driver (device option memory_lock=on locks it).",)


def with_origin(sentence: str, caveats: Iterable[Caveat]) -> str:
    """A sentence about figures of several devices or tables: simulated, where any is."""
    return f"Simulated. {sentence}" if is_simulated(caveats) else sentence


def tune_sentence(plan: Plan, seen: Verification, rows: Sequence[ComparisonRow]) -> str:
    """The verdict of `tune`, and whether the memory clock was left alone."""
    return " ".join((verified_sentence(plan, seen, rows), *memory_clock_note(seen.device)))


def verified_sentence(plan: Plan, seen: Verification, rows: Sequence[ComparisonRow]) -> str:
    """What fresh runs showed, on what, and how many changes of clocks are in it."""
    said = headline(plan, seen, rows, is_table_simulated=False)
    if plan.request.transition is None:
        return said
    text = changes_text(plan)
    return f"{said} {text[:1].upper()}{text[1:]}."


def replay_line(
    plan: Plan, file: Path, *, device: str | None = None, workload: str | None = None
) -> str | None:
    """How to see what the changes of clocks take, where nothing that was run shows it.

    `device` and `workload` are those that were asked for where the plan's own did not serve.
    """
    if not leaves_changes_out(plan):
        return None
    changes = counted(len(change_indices(plan)), "change")
    command = ["joulewise", "replay", str(file)]
    for option, value in (("--device", device), ("--workload", workload)):
        if value is not None:
            command += [option, value]
    return f"With its {changes} of clocks per iteration: {shlex.join(command)}"


def device_efficiency_line(workload: Workload, found: Efficiency | None) -> str | None:
    """What an iteration comes to on a device; how to know the tokens where an import lacks them."""
    size = workload.size
    hint = None
    if workload.trace is not None and (size is None or size.token_count is None):
        hint = "--tokens N at import gives tokens/kJ."
    parts = [] if found is None else list(_efficiency_parts(found))
    if not parts or size is None:
        return hint
    job = "" if size.gpu_count == 1 else f" of {counted(size.gpu_count, 'GPU')} run alike"
    said = f"Efficiency{job}: {', '.join(parts)}."
    return said if hint is None else f"{said} {hint}"


def _efficiency_parts(found: Efficiency) -> Iterator[str]:
    """Tokens where they are known, else FLOPs."""
    if found.token_count_per_kj is not None:
        yield f"{significant(found.token_count_per_kj)} tokens/kJ"
    if found.energy_j_per_token is not None:
        yield f"{significant(found.energy_j_per_token)} J/token"
    if found.token_count_per_s is not None:
        yield f"{significant(found.token_count_per_s)} tokens/s"
    elif found.gpu_flop_per_s is not None:
        yield f"{significant(found.gpu_flop_per_s / 1e12)} TFLOP/s per GPU"
    elif found.gpu_kernel_flop_per_s is not None:
        yield f"{significant(found.gpu_kernel_flop_per_s / 1e12)} computed TFLOP/s per GPU"
    if found.mfu_ratio is not None:
        yield f"MFU {percent(found.mfu_ratio)}"
