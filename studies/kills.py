"""Whether clocks are given back whatever ends: 500 seeded kills on the fake NVIDIA driver.

    python studies/kills.py --count 500 --jobs 2
    python studies/kills.py --seed 17

Every seed is a scenario: processes that set clocks under a lease, directly or through joulewised,
and something that ends one or all of them at a random moment (`tests/kills/scenarios.py`). One
second later no clock may be locked, the power limit and the persistence mode have to be as they
were found, and no journal or process may be left; the next lease has to be had, too. Where all are
killed at once, the second counts from the restart. Results go to `studies/results/kills.json`.
Exit status 1 if anything was left in any scenario.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))

from tests.kills.harness import Outcome, library_path, run_seeds  # noqa: E402

RESULT = Path(__file__).parent / "results" / "kills.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """All scenarios of one kind. `worst_s` is the longest until all was given back."""

    title: str
    run_count: int
    failure_count: int
    median_s: float | None
    worst_s: float | None


def summarise(outcomes: Sequence[Outcome]) -> list[Row]:
    """A row for every kind."""
    rows = []
    for title in sorted({one.title for one in outcomes}):
        of_kind = [one for one in outcomes if one.title == title]
        times = sorted(one.given_back_s for one in of_kind if one.given_back_s is not None)
        rows.append(
            Row(
                title=title,
                run_count=len(of_kind),
                failure_count=sum(one.trouble is not None for one in of_kind),
                median_s=times[len(times) // 2] if times else None,
                worst_s=times[-1] if times else None,
            )
        )
    return rows


def table_text(rows: Sequence[Row]) -> str:
    """The table for people."""
    head = f"{'what ends':<36} {'runs':>5} {'median s':>9} {'worst s':>8} {'failures':>9}"
    lines = [
        f"{row.title:<36} {row.run_count:>5} {_seconds(row.median_s):>9} "
        f"{_seconds(row.worst_s):>8} {row.failure_count:>9}"
        for row in rows
    ]
    return "\n".join([head, *lines])


def _seconds(duration_s: float | None) -> str:
    return "-" if duration_s is None else f"{duration_s:.3f}"


def main() -> int:
    """Run the scenarios, print the table and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, help="run this scenario alone, and write nothing")
    parser.add_argument("--out", type=Path, default=RESULT)
    arguments = parser.parse_args()
    if not library_path().exists():
        print(f"{library_path()} is missing: run make fake-nvml")
        return 1
    seeds = range(arguments.count) if arguments.seed is None else [arguments.seed]
    outcomes = []
    for outcome in run_seeds(seeds, arguments.jobs):
        outcomes.append(outcome)
        if outcome.trouble is not None:
            print(f"seed {outcome.seed}: {outcome.title}: {outcome.trouble}")
            print(f"again: python studies/kills.py --seed {outcome.seed}")
        if len(outcomes) % 50 == 0:
            print(f"{len(outcomes)} of {len(seeds)}", file=sys.stderr)
    rows = summarise(outcomes)
    print(table_text(rows))
    failed = [one.seed for one in outcomes if one.trouble is not None]
    print(f"failed seeds: {failed}" if failed else f"all {len(outcomes)} gave everything back")
    if arguments.seed is None:
        document = {
            "schema_version": 1,
            "is_simulated": True,
            "job_count": arguments.jobs,
            "failed_seeds": failed,
            "rows": [asdict(row) for row in rows],
        }
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
