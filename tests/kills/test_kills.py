"""Whatever ends, at whatever moment: a second later nothing is left set.

`python studies/kills.py --seed N` runs one scenario again, and `--count 500` many more.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.kills.harness import library_path, run_scenario, run_seeds
from tests.kills.processes import Oracle
from tests.kills.scenarios import ALL_KINDS, scenario_of

SEED_COUNT = 40
GROUP_COUNT = 5
CORE_GROUP_COUNT = 2
JOB_COUNT = 3


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(first, marks=() if first < CORE_GROUP_COUNT else pytest.mark.integration)
        for first in range(GROUP_COUNT)
    ],
)
def test_a_second_after_a_kill_nothing_is_left_set(first: int, fake_library: Path) -> None:
    assert fake_library == library_path()
    seeds = range(first, SEED_COUNT, GROUP_COUNT)

    outcomes = list(run_seeds(seeds, JOB_COUNT))

    assert sorted(seeds) == sorted(outcome.seed for outcome in outcomes)
    assert [] == [
        f"python studies/kills.py --seed {outcome.seed}: {outcome.title}: {outcome.trouble}"
        for outcome in outcomes
        if outcome.trouble is not None
    ]


def test_every_kind_of_kill_is_among_them() -> None:
    drawn = [scenario_of(seed) for seed in range(SEED_COUNT)]

    assert set(ALL_KINDS) == {(scenario.kind, scenario.has_daemon) for scenario in drawn}
    assert {"start", "opened", "leased", "set", "releasing"} == {one.mark for one in drawn}
    assert {"lease", "restore", "daemon"} <= {
        one.restart for one in map(scenario_of, range(500)) if one.kind == "kill all at once"
    }


def test_what_is_left_set_is_found_out(fake_library: Path) -> None:
    """Client and guard are killed, and nobody comes after them."""
    kind = ALL_KINDS.index(("kill all at once", False))
    left = replace(scenario_of(kind), restart="nobody", mark="set", mark_count=1, delay_s=0.0)
    with closing(Oracle(fake_library)) as oracle:
        outcome = run_scenario(left, oracle, fake_library)

    assert outcome.given_back_s is None
    assert outcome.trouble is not None
    assert "after 1 s" in outcome.trouble
