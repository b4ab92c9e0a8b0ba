"""Policies at work: which clock for which job, within which budget, and with which doubts."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.finetuning_curves import ORIN_MHZ, features_of, training_curves

from joulewise.domain.caveats import CaveatKind
from joulewise.domain.errors import InputError
from joulewise.domain.finetuning import ClockChoice, JobFeatures
from joulewise.finetune.policies.catalogue import open_policy, policy_names, shipped_policy
from joulewise.finetune.policies.learned import LearnedPolicy
from joulewise.finetune.policies.policy import (
    GovernorPolicy,
    PinnedMaxPolicy,
    least_within_budget,
    nearest_listed,
)
from joulewise.finetune.policies.published import PaperPolicy
from joulewise.finetune.policies.training import train_policy
from joulewise.store.policies import PolicyKind, read_policy, write_policy

CURVES = training_curves()
DOCUMENT = train_policy(CURVES, PolicyKind.REGRET)
LEARNED = LearnedPolicy(DOCUMENT)


@pytest.mark.parametrize(
    ("layers", "length", "expected_mhz"),
    [
        (7, 32.5, 510),
        (7, 32.6, 612),
        (4, 14, 510),
        (8, 53.0, 714),
        (8, 53.1, 816),
        (24, 14, 714),
        (24, 68, 816),
    ],
)
def test_the_published_tree_has_its_four_leaves(
    layers: int, length: float, expected_mhz: int
) -> None:
    chosen = PaperPolicy().choose(features_of(layers, length), ORIN_MHZ)

    assert (expected_mhz, ()) == (chosen.sm_clock_mhz, chosen.caveats)
    assert "utilisation" in chosen.reason
    assert "is not published" in chosen.reason
    assert (None, None) == (chosen.energy_ratio, chosen.slowdown_ratio)


def test_on_another_board_the_published_clocks_are_the_nearest_listed_ones() -> None:
    jetpack_5 = (114, 216, 318, 420, 522, 624, 726, 828, 930, 1032, 1134, 1236, 1300)

    chosen = PaperPolicy().choose(features_of(4, 14), jetpack_5)

    assert 522 == chosen.sm_clock_mhz
    assert [CaveatKind.EXTRAPOLATED] == [one.kind for one in chosen.caveats]
    assert "510 MHz" in chosen.caveats[0].seen


def test_the_governor_and_the_highest_clock_need_no_knowledge() -> None:
    job = features_of()

    assert GovernorPolicy().choose(job, ORIN_MHZ).sm_clock_mhz is None
    assert 1300 == PinnedMaxPolicy().choose(job, ORIN_MHZ).sm_clock_mhz
    with pytest.raises(InputError, match="no SM clocks"):
        PinnedMaxPolicy().choose(job, ())


@given(st.lists(st.integers(50, 3000), min_size=1, max_size=20, unique=True), st.integers(50, 3000))
def test_no_listed_clock_is_nearer_than_the_nearest(clocks: list[int], wanted: int) -> None:
    found = nearest_listed(wanted, clocks)

    def ratio(clock: int) -> float:
        return max(clock / wanted, wanted / clock)

    assert all(ratio(found) <= ratio(clock) * (1 + 1e-12) for clock in clocks)


def test_a_policy_without_times_keeps_a_budget_by_the_clock_alone() -> None:
    paper = PaperPolicy()
    job = features_of(4, 14)

    within = paper.choose(job, ORIN_MHZ, max_slowdown_ratio=0.3)
    wide = paper.choose(job, ORIN_MHZ, max_slowdown_ratio=5.0)

    assert 1020 == within.sm_clock_mhz
    assert "raised" in within.reason
    assert 510 == wide.sm_clock_mhz
    assert 1300 == least_within_budget(ORIN_MHZ, 0.0)
    assert least_within_budget(ORIN_MHZ, -0.1) is None
    beyond = paper.choose(job, ORIN_MHZ, max_slowdown_ratio=-0.1)
    assert 1300 == beyond.sm_clock_mhz
    assert "no clock is sure" in beyond.reason


def test_a_learned_policy_takes_the_clock_of_the_leaf_and_says_why() -> None:
    job = CURVES[0]
    assert job.features is not None

    chosen = LEARNED.choose(job.features, ORIN_MHZ)

    leaf = next(node for node in DOCUMENT.nodes if job.job in node.jobs)
    assert leaf.sm_clock_mhz == chosen.sm_clock_mhz
    assert "layers <= 9" in chosen.reason
    assert chosen.energy_ratio is not None
    assert chosen.energy_ratio < 1 < (chosen.slowdown_ratio or 0)
    assert [CaveatKind.SIMULATED_DEVICE] == [one.kind for one in chosen.caveats]


@given(st.integers(0, len(CURVES) - 1), st.floats(-0.5, 2.0))
def test_a_training_job_never_loses_more_time_than_its_budget(place: int, budget: float) -> None:
    job = CURVES[place]
    assert job.features is not None

    chosen = LEARNED.choose(job.features, ORIN_MHZ, max_slowdown_ratio=budget)

    picked = job.at(chosen.sm_clock_mhz)
    assert picked is not None
    limit = max(budget, 0.0) if chosen.sm_clock_mhz is None else budget
    assert picked.time_s <= job.baseline.time_s * (1 + limit) * (1 + 1e-9)
    wider = LEARNED.choose(job.features, ORIN_MHZ, max_slowdown_ratio=budget + 0.2)
    assert (wider.energy_ratio or 0) <= (chosen.energy_ratio or 0) + 1e-12


def test_where_no_clock_keeps_the_budget_the_governor_stays_and_that_is_said() -> None:
    chosen = LEARNED.choose(features_of(24, 51), ORIN_MHZ, max_slowdown_ratio=-0.3)

    assert chosen.sm_clock_mhz is None
    assert "no clock is within the time budget" in chosen.reason


@pytest.mark.parametrize("energy_ratio", [0.99, 1.019, 1.03])
def test_a_clock_that_lost_more_than_single_runs_differ_by_is_left_to_the_governor(
    energy_ratio: float,
) -> None:
    is_left = energy_ratio > 1.02
    document = train_policy(CURVES, PolicyKind.FFG)
    (leaf,) = document.nodes
    losing = tuple(
        replace(one, energy_ratio=energy_ratio) if one.sm_clock_mhz == leaf.sm_clock_mhz else one
        for one in leaf.expectations
    )
    policy = LearnedPolicy(replace(document, nodes=(replace(leaf, expectations=losing),)))

    chosen = policy.choose(features_of(), ORIN_MHZ)

    assert chosen.sm_clock_mhz == (None if is_left else leaf.sm_clock_mhz)
    assert is_left is ("no clock saves energy" in chosen.reason)
    assert chosen.energy_ratio == (1.0 if is_left else energy_ratio)


def test_a_budget_is_held_against_more_than_the_worst_job_of_a_leaf() -> None:
    document = train_policy(CURVES, PolicyKind.FFG)
    (leaf,) = document.nodes
    refused_count = 0

    for one in leaf.expectations:
        most = min(1300 / one.sm_clock_mhz, one.worst_slowdown_ratio**2 / one.slowdown_ratio)
        budget = one.worst_slowdown_ratio - 1 + 1e-9
        chosen = LearnedPolicy(document).choose(features_of(), ORIN_MHZ, max_slowdown_ratio=budget)
        if most > 1 + budget + 1e-6:
            refused_count += 1
            assert chosen.sm_clock_mhz != one.sm_clock_mhz
    assert refused_count > 0


def test_a_leaf_of_few_jobs_keeps_a_budget_by_the_clock_alone() -> None:
    document = train_policy(CURVES, PolicyKind.FFG)
    (leaf,) = document.nodes
    two = replace(document, nodes=(replace(leaf, jobs=leaf.jobs[:2]),))
    for budget in (0.05, 0.1, 0.3):
        clock = (
            LearnedPolicy(two)
            .choose(features_of(), ORIN_MHZ, max_slowdown_ratio=budget)
            .sm_clock_mhz
        )
        assert 1300 / (clock or 1300) <= 1 + budget


def test_a_policy_that_asks_for_utilisation_says_what_helps() -> None:
    busy = tuple(
        replace(one, baseline=replace(one.baseline, busy_ratio=0.3 if place < 6 else 0.95))
        for place, one in enumerate(CURVES)
    )
    document = train_policy(busy, PolicyKind.REGRET, uses_utilisation=True)
    asks = replace(
        document,
        nodes=tuple(
            one if one.feature is None else replace(one, feature="gpu_busy_ratio", threshold=0.6)
            for one in document.nodes
        ),
    )
    assert asks.nodes[0].feature == "gpu_busy_ratio"

    (doubt,) = (
        one
        for one in LearnedPolicy(asks).choose(features_of(48, 51), ORIN_MHZ).caveats
        if one.kind is CaveatKind.EXTRAPOLATED
    )

    assert "asks for GPU utilisation, which is not known" in doubt.seen
    assert "layers 48, where those had 4 to 24" in doubt.seen
    assert doubt.helps.startswith("Give --utilisation: ")
    assert "joulewise finetune run" in doubt.helps
    known = replace(features_of(12, 51), gpu_busy_ratio=0.9)
    assert not doubts(LearnedPolicy(asks).choose(known, ORIN_MHZ))


def doubts(chosen: ClockChoice) -> str:
    return " ".join(one.seen for one in chosen.caveats if one.kind is CaveatKind.EXTRAPOLATED)


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (features_of(48, 51), "layers 48, where those had 4 to 24"),
        (features_of(12, 500), "mean sequence length 500, where those had 14 to 55"),
        (features_of(12, 51, hidden=4096), "hidden size 4096, where those had 256 to 1024"),
    ],
)
def test_a_job_unlike_all_training_jobs_is_doubted(job: JobFeatures, said: str) -> None:
    assert said in doubts(LEARNED.choose(job, ORIN_MHZ))
    assert not doubts(LEARNED.choose(features_of(12, 51), ORIN_MHZ))


def test_clocks_of_another_board_are_mapped_to_the_nearest_with_a_doubt() -> None:
    job = features_of(12, 51)
    wanted = LEARNED.choose(job, ORIN_MHZ).sm_clock_mhz or 0
    others = tuple(clock + 30 for clock in ORIN_MHZ)

    chosen = LEARNED.choose(job, others)

    assert wanted + 30 == chosen.sm_clock_mhz
    assert f"this device's nearest is {wanted + 30} MHz" in doubts(chosen)


def test_on_a_slower_board_a_budget_is_kept_by_the_clock_alone() -> None:
    slow = (306, 408, 510)

    for budget in (0.0, 0.02, 0.3):
        chosen = LEARNED.choose(features_of(24, 51), slow, max_slowdown_ratio=budget)
        assert 510 / (chosen.sm_clock_mhz or 510) <= 1 + budget


def test_a_policy_comes_back_from_its_file_as_it_was_written(tmp_path: Path) -> None:
    for kind in (PolicyKind.REGRET, PolicyKind.FFG):
        document = train_policy(CURVES, kind)
        path = tmp_path / f"{kind}.json"

        write_policy(path, document)

        assert document == read_policy(path)
        assert document == cast("LearnedPolicy", open_policy(str(path))).document


Document = dict[str, object]


def node(document: Document, index: int) -> Document:
    return cast("list[Document]", document["nodes"])[index]


def trained(document: Document, index: int) -> Document:
    return cast("list[Document]", document["training_jobs"])[index]


def leaf_index(document: Document) -> int:
    nodes = cast("list[Document]", document["nodes"])
    return next(place for place, one in enumerate(nodes) if one["feature"] is None)


def spoil_feature(document: Document, *, name: str, value: float) -> None:
    cast("Document", trained(document, 0)["features"])[name] = value


SPOILT: list[tuple[Callable[[Document], object], str]] = [
    (lambda d: d.pop("nodes"), "nodes"),
    (lambda d: d.update(nodes=[]), "nodes"),
    (lambda d: d.update(schema_version=9), "schema_version"),
    (lambda d: d.update(kind="guess"), "kind"),
    (lambda d: d.update(sm_clocks_mhz=[]), "sm_clocks_mhz"),
    (lambda d: d.update(sm_clocks_mhz=[0, *ORIN_MHZ[1:]]), "sm_clocks_mhz[0]"),
    (lambda d: d.update(sm_clocks_mhz=list(ORIN_MHZ[::-1])), "sm_clocks_mhz"),
    (lambda d: d.update(features=["layer_count", "luck"]), "features[1]"),
    (lambda d: node(d, 0).update(feature="gpu_busy_ratio"), "nodes[0].feature"),
    (lambda d: node(d, 0).update(threshold=None), "nodes[0].threshold"),
    (lambda d: node(d, 0).update(sm_clock_mhz=510), "nodes[0]"),
    (lambda d: node(d, 0).update(feature=None), "nodes[0].feature"),
    (lambda d: cast("list[Document]", d["nodes"]).pop(), "nodes"),
    (lambda d: cast("list[Document]", d["nodes"]).append(node(d, leaf_index(d))), "nodes[5]"),
    (lambda d: node(d, leaf_index(d)).update(sm_clock_mhz=500), "nodes[2].sm_clock_mhz"),
    (lambda d: node(d, leaf_index(d)).update(jobs=[]), "nodes"),
    (lambda d: node(d, leaf_index(d)).update(expectations=[]), "nodes[2].expectations"),
    (lambda d: d.update(training_jobs=[]), "nodes"),
    (lambda d: trained(d, 0).update(best_sm_clock_mhz=1), "training_jobs[0].best_sm_clock_mhz"),
    (
        lambda d: cast("Document", d["left_out"]).update(accuracy_ratio=2.0),
        "left_out.accuracy_ratio",
    ),
    (lambda d: cast("Document", d["left_out"]).update(mean_regret_ratio=9.0), "left_out"),
    (lambda d: d.update(rules=["always: 1300 MHz"]), "rules"),
    (lambda d: d.update(policy="paper-mlg"), "policy"),
    (lambda d: d.update(device=""), "device"),
    (lambda d: d.update(device_name="Orin\0"), "device_name"),
    (lambda d: d.update(most_depth_count=0), "most_depth_count"),
    (lambda d: d.update(most_depth_count=10**9), "most_depth_count"),
    (lambda d: d.update(least_leaf_count=0), "least_leaf_count"),
    (lambda d: d.update(device="virtual:agx-orin", is_simulated=False), "is_simulated"),
    (
        lambda d: cast("list[Document]", node(d, leaf_index(d))["expectations"])[3].update(
            worst_slowdown_ratio=0.5
        ),
        "nodes[2].expectations[3].worst_slowdown_ratio",
    ),
    *(
        (partial(spoil_feature, name=name, value=value), f"training_jobs[0].features.{name}")
        for name, value in (
            *(("gpu_busy_ratio", -1.0), ("gpu_busy_ratio", 1e308), ("parameter_count", 0)),
            *(("mean_sequence_count", 1e-320), ("layer_count", -1), ("hidden_count", 0)),
        )
    ),
]


@pytest.mark.parametrize(("spoil", "field"), SPOILT)
def test_what_is_wrong_with_a_policy_file_names_its_field(
    tmp_path: Path, spoil: Callable[[Document], object], field: str
) -> None:
    path = tmp_path / "policy.json"
    write_policy(path, DOCUMENT)
    document = json.loads(path.read_text("utf-8"))
    spoil(document)
    path.write_text(json.dumps(document), encoding="utf-8")

    with pytest.raises(InputError) as caught:
        open_policy(str(path))

    assert (str(path), field) == (caught.value.file, caught.value.field)
    assert caught.value.hint


def test_the_same_training_job_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    twice = (*DOCUMENT.training_jobs[:-1], DOCUMENT.training_jobs[0])
    write_policy(path, replace(DOCUMENT, training_jobs=twice))

    with pytest.raises(InputError):
        read_policy(path)


def test_policies_are_opened_by_name_and_unknown_names_are_refused() -> None:
    assert policy_names()
    for name in policy_names():
        assert open_policy(name).choose(features_of(), ORIN_MHZ).reason

    with pytest.raises(InputError, match="'best'") as caught:
        open_policy("best")
    assert "paper-mlg" in (caught.value.hint or "")
    with pytest.raises(InputError, match="no such file"):
        open_policy("nowhere/policy.json")


def test_the_policy_that_is_shipped_says_that_it_is_simulated() -> None:
    document = shipped_policy().document

    assert (True, ORIN_MHZ) == (document.is_simulated, document.sm_clocks_mhz)
    assert 27 == len(document.training_jobs)
    chosen = shipped_policy().choose(features_of(), ORIN_MHZ)
    assert CaveatKind.SIMULATED_DEVICE in {one.kind for one in chosen.caveats}
