"""The tables of `docs/fine-tuning.md`, from the kept result of `studies/finetune.py`.

    python studies/finetune_tables.py          # prints them
    python studies/finetune_tables.py --write  # puts them into the page

A test compares the page with the kept result.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from joulewise.domain.plan import Interval
from joulewise.finetune.evaluation import ONE_EPOCH
from joulewise.report.policy_table import GROUP_TITLES, JobGroup, PolicyScore, scored

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "studies" / "results" / "finetune.json"
PAGE = ROOT / "docs" / "fine-tuning.md"
BEGIN = "% begin of the tables of studies/finetune_tables.py\n"
END = "% end of the tables\n"
HEAD = (
    "| policy | saving, % | worst job, % | regret, % | worst job, % | time, % | slowest job, % |",
    "| --- | --- | --- | --- | --- | --- | --- |",
)


def kept_scores(kept: Mapping[str, object], setting: str) -> tuple[PolicyScore, ...]:
    """The scores of one setting in a kept result."""
    results = msgspec.convert(kept["results"], list[dict[str, object]])
    found = next(one for one in results if one["setting"] == setting)
    return msgspec.convert(found["scores"], tuple[PolicyScore, ...])


def tables_text(kept: Mapping[str, object]) -> str:
    """All tables in Markdown, with the sentences around them."""
    usual = kept_scores(kept, "usual")
    lines = [str(kept["simulated"]), ""]
    for group in (
        JobGroup.LEFT_OUT,
        JobGroup.UNSEEN,
        JobGroup.LEFT_OUT_SMALL,
        JobGroup.UNSEEN_SMALL,
    ):
        lines += [*_table(usual, group, GROUP_TITLES[group]), ""]
    lines += [*_epochs(usual), "", *_trees(usual), ""]
    budget = kept_scores(kept, "budget")
    for group in (JobGroup.LEFT_OUT, JobGroup.UNSEEN):
        title = f"{GROUP_TITLES[group]}; at most 10 % more time than the governor"
        lines += [*_table(budget, group, title), ""]
    lines += [*_budgets(budget), "", *_variants(kept), "", str(kept["published"])]
    return "\n".join(lines) + "\n"


def with_tables(page: str, tables: str) -> str:
    """The page with these tables between its two marks."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{tables}\n{END}{rest.split(END)[1]}"


def _table(scores: Sequence[PolicyScore], group: JobGroup, title: str) -> Iterator[str]:
    members = [one for one in scores if one.group is group]
    yield f"**{title}** ({members[0].job_count} jobs, {members[0].seed_count} seeds)"
    yield ""
    yield from HEAD
    for one in members:
        cells = (
            f"`{one.policy}`" if one.policy != ONE_EPOCH else ONE_EPOCH,
            _cell(one.mean_saving_ratio, one.mean_saving_interval, 1),
            _cell(one.worst_saving_ratio, one.worst_saving_interval, 1),
            _cell(one.mean_regret_ratio, one.mean_regret_interval, 2),
            _cell(one.worst_regret_ratio, one.worst_regret_interval, 2),
            _cell(one.mean_slowdown_ratio - 1, _less_one(one.mean_slowdown_interval), 1),
            _cell(one.worst_slowdown_ratio - 1, _less_one(one.worst_slowdown_interval), 1),
        )
        yield f"| {' | '.join(cells)} |"


def _cell(ratio: float, interval: Interval, digit_count: int) -> str:
    low, high = interval.low_ratio, interval.high_ratio
    figures = (_figure(100 * one, digit_count) for one in (ratio, low, high))
    return "{} ({} … {})".format(*figures)


def _figure(value: float, digit_count: int) -> str:
    # Adding 0.0 turns -0.0 into 0.0.
    return f"{round(value, digit_count) + 0.0:.{digit_count}f}"


def _less_one(interval: Interval) -> Interval:
    return Interval(low_ratio=interval.low_ratio - 1, high_ratio=interval.high_ratio - 1)


def _found(scores: Sequence[PolicyScore], policy: str, group: JobGroup) -> PolicyScore:
    one = scored(scores, policy, group)
    if one is None:
        raise ValueError(f"{policy} has no score on {group}")
    return one


def _epochs(scores: Sequence[PolicyScore]) -> Iterator[str]:
    for group in (JobGroup.LEFT_OUT, JobGroup.UNSEEN):
        one = _found(scores, ONE_EPOCH, group)
        interval = one.whole_job_saving_interval
        if one.whole_job_saving_ratio is None or interval is None:
            raise ValueError("the kept result lacks the savings of whole epochs")
        yield (
            f"Over one whole epoch, with all steps that probing and checking take, the "
            f"{one.job_count} {'training' if group is JobGroup.LEFT_OUT else 'unseen'} jobs save "
            f"{_cell(one.whole_job_saving_ratio, interval, 1)} %; "
            f"{one.probed_job_count or 0.0:.1f} of them are long enough to be probed."
        )


def _trees(scores: Sequence[PolicyScore]) -> Iterator[str]:
    """What a tree is worth beside one fixed clock."""
    parts, is_overlapping = [], True
    for group, name in ((JobGroup.LEFT_OUT, "left-out"), (JobGroup.UNSEEN, "unseen")):
        ffg, tree, regret = (_found(scores, one, group) for one in ("ffg", "tree", "regret"))
        gains = [100 * (ffg.mean_regret_ratio - one.mean_regret_ratio) for one in (tree, regret)]
        parts.append(f"{gains[0]:+.2f} and {gains[1]:+.2f} points on {name} jobs")
        is_overlapping &= all(
            one.mean_regret_interval.high_ratio >= ffg.mean_regret_interval.low_ratio
            for one in (tree, regret)
        )
    if not is_overlapping:
        raise ValueError("a tree is shown to beat one fixed clock: say so on the page")
    yield (
        "`tree` and `regret` regret less than the one fixed clock `ffg` by "
        f"{' and by '.join(parts)}, and their intervals overlap: our trees are not shown to beat "
        "one fixed clock on these jobs."
    )


def _budgets(scores: Sequence[PolicyScore]) -> Iterator[str]:
    parts = []
    for policy in ("paper-mlg", "tree", "regret", "probe"):
        shares = [
            _found(scores, policy, group).within_budget_ratio or 0.0
            for group in (JobGroup.LEFT_OUT, JobGroup.UNSEEN, JobGroup.UNSEEN_SMALL)
        ]
        parts.append(f"`{policy}` {' / '.join(_figure(100 * share, 1) for share in shares)} %")
    yield (
        "Share of picks that truly keep the budget (left-out / unseen / unseen of up to 70M "
        f"parameters): {', '.join(parts)}."
    )
    worst = min(
        _found(scores, policy, group).worst_saving_ratio
        for policy in ("tree", "regret")
        for group in (JobGroup.LEFT_OUT, JobGroup.UNSEEN)
    )
    yield (
        "What remains: where nobody looked at the GPU's utilisation, nothing that is known "
        "beforehand tells a job that waits for its host from its likes, and such a job runs at a "
        "low clock under its governor already; the worst one that its policy was not trained on "
        f"loses {_figure(-100 * worst, 1)} % at the clock that `tree` or "
        "`regret` advises within the budget. Probing with a budget measures the governor, too, and "
        "`finetune run` goes back to it where a job is long enough to be checked."
    )


def _variants(kept: Mapping[str, object]) -> Iterator[str]:
    """Probing with other laws and other clocks."""
    yield "**Probing in other ways**: mean regret and that of the worst job, %"
    yield ""
    yield "| law and clocks | noise | left-out | unseen |"
    yield "| --- | --- | --- | --- |"
    for result in msgspec.convert(kept["results"], list[dict[str, object]]):
        rows: dict[str, list[str]] = {}
        for one in msgspec.convert(result["variants"], list[dict[str, str | float]]):
            mean, worst = (float(one[f"{name}_regret_ratio"]) for name in ("mean", "worst"))
            cell = f"{_figure(100 * mean, 2)}, {_figure(100 * worst, 2)}"
            rows.setdefault(str(one["method"]), []).append(cell)
        for method, cells in rows.items():
            yield f"| {method} | {result['setting']} | {' | '.join(cells)} |"


def main() -> None:
    """Print the tables, or put them into the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true")
    tables = tables_text(json.loads(RESULT.read_text("utf-8")))
    if parser.parse_args().write:
        PAGE.write_text(with_tables(PAGE.read_text("utf-8"), tables), encoding="utf-8")
    else:
        print(tables)


if __name__ == "__main__":
    main()
