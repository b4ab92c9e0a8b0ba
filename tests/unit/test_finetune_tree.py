"""Trees that learn clocks: how they split, how large they grow, and what cross-validation is."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.finetuning_curves import Law, curve, features_of, training_curves

from joulewise.domain.errors import InputError
from joulewise.domain.finetuning import ClockCurve
from joulewise.finetune.policies.curve_table import CurveTable, curve_table
from joulewise.finetune.policies.growing import (
    Grown,
    LabelGrower,
    OneClockGrower,
    RegretGrower,
    clock_at,
)
from joulewise.finetune.policies.training import train_policy
from joulewise.finetune.policies.trees import descend, rules_of
from joulewise.store.policies import PolicyKind, PolicyNode

CURVES = training_curves()
TABLE = curve_table(CURVES)
EVERYONE = range(len(CURVES))


def leaves(tree: Grown) -> Iterator[Grown]:
    if tree.low is None or tree.high is None:
        yield tree
    else:
        yield from leaves(tree.low)
        yield from leaves(tree.high)


def regret(table: CurveTable, tree: Grown) -> float:
    return sum(
        float(table.regrets[job, leaf.clock_index]) for leaf in leaves(tree) for job in leaf.jobs
    )


def with_regrets(regrets: np.ndarray) -> CurveTable:
    """The table of the made-up jobs with other regrets, at as many clocks."""
    return replace(TABLE, regrets=regrets, sm_clocks_mhz=TABLE.sm_clocks_mhz[: regrets.shape[1]])


@given(st.lists(st.lists(st.floats(0, 1), min_size=4, max_size=4), min_size=12, max_size=12))
@settings(max_examples=25)
def test_the_first_split_is_the_best_of_all_and_leaves_take_their_best_clock(
    rows: list[list[float]],
) -> None:
    table = with_regrets(np.array(rows))

    tree = RegretGrower(table).grow(EVERYONE, 2)

    for leaf in leaves(tree):
        totals = table.regrets[list(leaf.jobs)].sum(axis=0)
        assert totals[leaf.clock_index] == pytest.approx(totals.min())
        assert len(leaf.jobs) >= 2
    best = table.regrets.sum(axis=0).min()
    for column in range(table.values.shape[1]):
        for middle in np.unique(table.values[:, column])[:-1]:
            low = table.values[:, column] <= middle
            if min(low.sum(), (~low).sum()) >= 2:
                sides = [table.regrets[side].sum(axis=0).min() for side in (low, ~low)]
                best = min(best, sum(sides))
    if tree.low is None or tree.high is None:
        assert best == pytest.approx(table.regrets.sum(axis=0).min())
    else:
        split = sum(table.regrets[list(s.jobs)].sum(axis=0).min() for s in (tree.low, tree.high))
        assert split == pytest.approx(best)


def test_more_branches_never_cost_more_on_the_jobs_themselves() -> None:
    one = regret(TABLE, OneClockGrower(TABLE).grow(EVERYONE, 1))
    many = RegretGrower(TABLE).grow(EVERYONE, 1)

    costs = [
        sum(float(TABLE.regrets[job, clock_at(many, TABLE.values[job], depth)]) for job in EVERYONE)
        for depth in range(5)
    ]

    assert costs[0] == pytest.approx(one)
    assert all(after <= before + 1e-12 for before, after in itertools.pairwise(costs))
    assert costs[-1] < 0.5 * one


def test_the_label_tree_predicts_what_scikit_learn_predicts() -> None:
    from sklearn.tree import DecisionTreeClassifier

    model = DecisionTreeClassifier(max_depth=4, min_samples_leaf=1, random_state=0)
    model.fit(TABLE.values.astype(np.float32), TABLE.best)

    tree = LabelGrower(TABLE).grow(EVERYONE, 1)

    predicted = [clock_at(tree, TABLE.values[job], 4) for job in EVERYONE]
    assert model.predict(TABLE.values.astype(np.float32)).tolist() == predicted


@pytest.mark.parametrize("kind", [PolicyKind.REGRET, PolicyKind.FFG])
def test_what_a_left_out_job_gets_does_not_hang_on_its_own_curve(kind: PolicyKind) -> None:
    before = train_policy(CURVES, kind)
    strange = curve(CURVES[4].job, Law(fixed_s=5.0, fixed_w=1.0), features=CURVES[4].features)

    after = train_policy((*CURVES[:4], strange, *CURVES[5:]), kind)

    assert strange.best.sm_clock_mhz != CURVES[4].best.sm_clock_mhz
    own = [document.training_jobs[4].left_out_sm_clock_mhz for document in (before, after)]
    assert own[0] == own[1]
    assert before.training_jobs[4].best_sm_clock_mhz != after.training_jobs[4].best_sm_clock_mhz


def test_the_one_clock_for_all_is_that_of_least_mean_regret() -> None:
    document = train_policy(CURVES, PolicyKind.FFG)

    index = int(TABLE.regrets.mean(axis=0).argmin())
    assert (f"always: {TABLE.sm_clocks_mhz[index]} MHz",) == document.rules
    left_out = [
        TABLE.sm_clocks_mhz[int(np.delete(TABLE.regrets, job, axis=0).mean(axis=0).argmin())]
        for job in EVERYONE
    ]
    assert left_out == [one.left_out_sm_clock_mhz for one in document.training_jobs]


def test_figures_on_left_out_jobs_are_those_of_the_clocks_that_they_got() -> None:
    document = train_policy(CURVES, PolicyKind.REGRET)

    picks = [TABLE.sm_clocks_mhz.index(o.left_out_sm_clock_mhz) for o in document.training_jobs]
    regrets = [float(TABLE.regrets[job, pick]) for job, pick in enumerate(picks)]
    assert document.left_out.mean_regret_ratio == pytest.approx(np.mean(regrets))
    assert document.left_out.worst_regret_ratio == pytest.approx(max(regrets))
    one_clock = train_policy(CURVES, PolicyKind.FFG)
    assert document.left_out.mean_regret_ratio < one_clock.left_out.mean_regret_ratio


def test_every_training_job_comes_to_the_leaf_that_holds_it() -> None:
    nodes = train_policy(CURVES, PolicyKind.REGRET).nodes

    for one in CURVES:
        assert one.features is not None
        assert one.job in descend(nodes, one.features).leaf.jobs


def test_rules_read_as_people_say_them() -> None:
    nodes = (
        PolicyNode(feature="layer_count", threshold=7.0),
        PolicyNode(sm_clock_mhz=510),
        PolicyNode(feature="model_type", threshold=0.5),
        PolicyNode(feature="gpu_busy_ratio", threshold=0.22, is_high_if_unknown=True),
        PolicyNode(sm_clock_mhz=1020),
        PolicyNode(sm_clock_mhz=714),
        PolicyNode(sm_clock_mhz=816),
    )

    assert (
        "layers <= 7: 510 MHz",
        "layers > 7:",
        "  encoder:",
        "    GPU utilisation <= 22 %: 1020 MHz",
        "    GPU utilisation > 22 %: 714 MHz",
        "  decoder: 816 MHz",
    ) == rules_of(nodes)
    found = descend(nodes, features_of(12))
    assert (714, ("GPU utilisation",)) == (found.leaf.sm_clock_mhz, found.unknown)
    known = descend(nodes, replace(features_of(12), gpu_busy_ratio=0.2))
    assert (1020, ()) == (known.leaf.sm_clock_mhz, known.unknown)


def test_smoothing_takes_noise_away_and_hardly_bends_exact_curves() -> None:
    rng = np.random.default_rng(3)

    def blurred(one: ClockCurve) -> ClockCurve:
        factors = np.exp(0.02 * rng.standard_normal(len(one.costs)))
        costs = tuple(
            replace(cost, energy_j=cost.energy_j * float(factor))
            for cost, factor in zip(one.costs, factors, strict=True)
        )
        return replace(one, costs=costs)

    noisy = curve_table([blurred(one) for one in CURVES])
    raw = np.array([[c.energy_j / o.baseline.energy_j for c in o.costs] for o in CURVES])
    measured = np.array([[c.energy_j / o.baseline.energy_j for c in o.costs] for o in noisy.curves])

    assert np.abs(TABLE.energy_ratios / raw - 1).max() < 0.025
    assert np.std(np.log(noisy.energy_ratios / raw)) < 0.75 * np.std(np.log(measured / raw))


@pytest.mark.parametrize(
    ("curves", "field", "message"),
    [
        (CURVES[:2], "curves", "at least 3 jobs"),
        ((*CURVES[:3], CURVES[0]), "curves[3].job", "twice"),
        (
            (*CURVES[:3], curve("x", features=features_of(), clocks=(306, 408))),
            "curves[3].costs",
            "other clocks",
        ),
        ((*CURVES[:3], curve("x")), "curves[3].features", "nothing is known"),
        ((*CURVES[:3], replace(CURVES[3], device_name="Nano")), "curves[3].device_name", "Nano"),
    ],
)
def test_curves_that_cannot_be_laid_side_by_side_are_refused(
    curves: tuple[ClockCurve, ...], field: str, message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        curve_table(curves)

    assert field == caught.value.field
    assert caught.value.hint
