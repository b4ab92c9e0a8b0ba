"""What was learned on one board is no expectation on another."""

from __future__ import annotations

import pytest

from joulewise.domain.caveats import CaveatKind
from joulewise.domain.finetuning import JobFeatures, ModelType
from joulewise.finetune.policies.catalogue import DEFAULT_POLICY, open_policy
from joulewise.finetune.policies.published import PAPER
from joulewise.simulator.presets import preset

JOB = JobFeatures(
    model_type=ModelType.ENCODER, layer_count=12, hidden_count=768, mean_sequence_count=48.0
)
ORIN, NANO = (preset(name).grid.sm_clocks_mhz for name in ("agx-orin", "orin-nano-super"))


@pytest.mark.parametrize("budget_ratio", [None, 0.3])
def test_nothing_is_expected_on_another_board(budget_ratio: float | None) -> None:
    policy = open_policy(DEFAULT_POLICY)

    here = policy.choose(JOB, ORIN, max_slowdown_ratio=budget_ratio)
    there = policy.choose(JOB, NANO, max_slowdown_ratio=budget_ratio)

    assert here.energy_ratio is not None
    assert (there.energy_ratio, there.slowdown_ratio) in {(None, None), (1.0, 1.0)}
    assert CaveatKind.EXTRAPOLATED not in {caveat.kind for caveat in here.caveats}
    (doubt,) = (one for one in there.caveats if one.kind is CaveatKind.EXTRAPOLATED)
    assert "another board" in doubt.seen
    assert "least energy" not in there.reason


def test_a_power_mode_that_hides_clocks_makes_another_board_of_it() -> None:
    there = open_policy(DEFAULT_POLICY).choose(JOB, ORIN[:-3])

    assert CaveatKind.EXTRAPOLATED in {caveat.kind for caveat in there.caveats}
    assert there.energy_ratio is None


def test_the_published_tree_is_doubted_on_another_board_though_its_clock_is_listed_there() -> None:
    paper = open_policy(PAPER)
    few = JobFeatures(
        model_type=ModelType.DECODER, layer_count=6, hidden_count=256, mean_sequence_count=48.0
    )

    assert (paper.choose(few, ORIN).sm_clock_mhz, paper.choose(few, NANO).sm_clock_mhz) == (
        612,
        612,
    )
    assert [] == list(paper.choose(few, ORIN).caveats)
    (doubt,) = paper.choose(few, NANO).caveats
    assert "another board" in doubt.seen
