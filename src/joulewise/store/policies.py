"""Policies that pick a clock by what is known of a job: documents in and out of JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from pathlib import Path

from joulewise.domain.caveats import Caveat
from joulewise.domain.errors import InputError
from joulewise.domain.finetuning import JobFeatures
from joulewise.store.atomic import write_atomically
from joulewise.store.record_files import (
    LARGEST_AMOUNT,
    read_record,
    record_document,
    require_positive,
    unlike,
)

MOST_NODE_COUNT = 4095
_FEATURES = ("model_type", "layer_count", "hidden_count", "mean_sequence_count", "gpu_busy_ratio")
_SHARES = ("accuracy_ratio", "within_band_ratio")
# 1 GHz in MHz times a hundred: no GPU runs this fast, and most arithmetic still goes.
_LARGEST_MHZ = 100_000
# As for the curves that policies are learned from.
_LEAST_AMOUNT = 1e-30

_VIRTUAL = "virtual:"
# The mean over one job is its worst, but for rounding.
_ROUNDING_RATIO = 1e-9


class PolicyKind(StrEnum):
    """How the clocks of a policy were found."""

    TREE = "tree"
    REGRET = "regret"
    FFG = "ffg"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockExpectation:
    """What one clock made of the training jobs that came to one leaf, against the governor.

    `energy_ratio` and `slowdown_ratio` are geometric means over the jobs, `worst_slowdown_ratio`
    is that of the job which lost most time.
    """

    sm_clock_mhz: int
    energy_ratio: float
    slowdown_ratio: float
    worst_slowdown_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyNode:
    """A branch or a leaf of a tree that is written down branch first, then low side, then high.

    A branch has a `feature` and a `threshold`, in the feature's own unit (encoders are 0 and
    decoders 1): values up to it go to the low side. A job of which the feature is not known goes
    to the high side where `is_high_if_unknown`. A leaf has a clock, the training jobs that came
    to it and what every clock made of them.
    """

    feature: str | None = None
    threshold: float | None = None
    is_high_if_unknown: bool = False
    sm_clock_mhz: int | None = None
    jobs: tuple[str, ...] = ()
    expectations: tuple[ClockExpectation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedJob:
    """A job that a policy was trained on, and its best clock.

    `left_out_sm_clock_mhz` is what a policy picks for it that was learned from all others.
    """

    job: str
    features: JobFeatures
    best_sm_clock_mhz: int
    left_out_sm_clock_mhz: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFigures:
    """How a policy does on jobs that were left out of its training, one at a time.

    `accuracy_ratio` is the share of them for which it picks the best clock, `within_band_ratio`
    that for which it picks one within 2 % of the least energy. Regret is the energy at the picked
    clock against the least, less one.
    """

    accuracy_ratio: float
    within_band_ratio: float
    mean_regret_ratio: float
    worst_regret_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyDocument:
    """A policy: a tree over features, whose leaves are clocks, and where it comes from.

    `sm_clocks_mhz` are the clocks that it may pick, ascending. `rules` say in words what `nodes`
    do. `most_depth_count` and `least_leaf_count` (jobs in a leaf) are what leave-one-out cross
    validation picked; `left_out` is what it found.
    """

    policy: str
    kind: PolicyKind
    device: str
    device_name: str
    is_simulated: bool
    sm_clocks_mhz: tuple[int, ...]
    features: tuple[str, ...]
    rules: tuple[str, ...]
    nodes: tuple[PolicyNode, ...]
    training_jobs: tuple[TrainedJob, ...]
    most_depth_count: int
    least_leaf_count: int
    left_out: PolicyFigures
    caveats: tuple[Caveat, ...] = ()


def read_policy(path: Path) -> PolicyDocument:
    """Read a policy.

    Raises:
        InputError: anything wrong with the file, also a tree that is not whole or clocks that are
            not the policy's own; names file, line or field.
    """
    document, file = read_record(path, PolicyDocument), str(path)
    _check_names(document, file)
    _check_clocks(document, file)
    _check_features(document, file)
    _check_nodes(document, file)
    _check_jobs(document, file)
    _check_figures(document.left_out, file)
    return document


def write_policy(path: Path, document: PolicyDocument) -> None:
    """Write a policy, whole or not at all.

    Raises:
        InputError: the place cannot be written to, or the device has no name that could be read.
    """
    _check_device(document, str(path))
    write_atomically(path, record_document(document))


def _check_names(document: PolicyDocument, file: str) -> None:
    """A policy is called what it is, and never by the name of another."""
    if document.policy != document.kind.value:
        raise unlike(f"a policy of this kind is called {document.kind.value}", file, "policy")
    _check_device(document, file)


def _check_device(document: PolicyDocument, file: str) -> None:
    for field in ("device", "device_name"):
        name: str = getattr(document, field)
        if not name.strip() or not name.isprintable():
            raise InputError(
                "this is no name of a device",
                file=file,
                field=field,
                hint="Name the device that the curves are of, such as virtual:agx-orin.",
            )
    if document.device.startswith(_VIRTUAL) and not document.is_simulated:
        raise unlike("a virtual device is simulated", file, "is_simulated")


def _check_clocks(document: PolicyDocument, file: str) -> None:
    clocks = document.sm_clocks_mhz
    if not clocks:
        raise unlike("the policy has no clocks", file, "sm_clocks_mhz")
    for index, clock in enumerate(clocks):
        if not 0 < clock <= _LARGEST_MHZ:
            raise unlike("this is no clock in MHz", file, f"sm_clocks_mhz[{index}]")
    if any(after <= before for before, after in pairwise(clocks)):
        raise unlike("the clocks must ascend", file, "sm_clocks_mhz")


def _check_features(document: PolicyDocument, file: str) -> None:
    for index, name in enumerate(document.features):
        if name not in _FEATURES or name in document.features[:index]:
            raise unlike(
                f"this must be one of {', '.join(_FEATURES)}, each once", file, f"features[{index}]"
            )


def _check_nodes(document: PolicyDocument, file: str) -> None:
    """Every branch is followed by its two sides, and nothing is left over."""
    nodes = document.nodes
    if not 0 < len(nodes) <= MOST_NODE_COUNT:
        raise unlike(f"a tree has 1 to {MOST_NODE_COUNT} nodes", file, "nodes")
    open_count = 1
    for index, node in enumerate(nodes):
        where = f"nodes[{index}]"
        if open_count == 0:
            raise unlike("the tree is complete before this node", file, where)
        if node.feature is None:
            _check_leaf(node, document, where, file)
            open_count -= 1
        else:
            _check_branch(node, document, where, file)
            open_count += 1
    if open_count:
        raise unlike("a branch lacks one of its sides", file, "nodes")
    leaf_jobs = sorted(job for node in nodes for job in node.jobs)
    if leaf_jobs != sorted(one.job for one in document.training_jobs):
        raise unlike("the leaves do not hold every training job once", file, "nodes")
    _check_size(document, file)


def _check_size(document: PolicyDocument, file: str) -> None:
    """The tree is no deeper than was said; its leaves may hold more jobs than they must."""
    if not _depth_count(document.nodes) <= document.most_depth_count <= MOST_NODE_COUNT:
        raise unlike("this is not how deep the tree is", file, "most_depth_count")
    if not 1 <= document.least_leaf_count <= len(document.training_jobs):
        raise unlike("this is no number of jobs in a leaf", file, "least_leaf_count")


def _depth_count(nodes: Sequence[PolicyNode]) -> int:
    """Branches in a row, of a tree that is whole."""
    open_depths, deepest = [0], 0
    for node in nodes:
        depth = open_depths.pop()
        deepest = max(deepest, depth)
        if node.feature is not None:
            open_depths += [depth + 1, depth + 1]
    return deepest


def _check_branch(node: PolicyNode, document: PolicyDocument, where: str, file: str) -> None:
    if node.feature not in document.features:
        raise unlike("this is none of the policy's features", file, f"{where}.feature")
    if node.threshold is None:
        raise unlike("a branch needs a threshold", file, f"{where}.threshold")
    if node.sm_clock_mhz is not None or node.jobs or node.expectations:
        raise unlike("a branch has neither a clock nor jobs", file, where)


def _check_leaf(node: PolicyNode, document: PolicyDocument, where: str, file: str) -> None:
    if node.threshold is not None:
        raise unlike("a threshold needs a feature", file, f"{where}.feature")
    if node.sm_clock_mhz not in document.sm_clocks_mhz:
        raise unlike("this is none of the policy's clocks", file, f"{where}.sm_clock_mhz")
    clocks = tuple(one.sm_clock_mhz for one in node.expectations)
    if clocks != document.sm_clocks_mhz:
        raise unlike("a leaf expects something of each clock", file, f"{where}.expectations")
    names = ("energy_ratio", "slowdown_ratio", "worst_slowdown_ratio")
    for index, one in enumerate(node.expectations):
        place = f"{where}.expectations[{index}]."
        require_positive(one, names, place, file)
        if one.worst_slowdown_ratio < one.slowdown_ratio * (1.0 - _ROUNDING_RATIO):
            raise unlike("the worst job is no faster than the mean", file, f"{place}{names[-1]}")


def _check_jobs(document: PolicyDocument, file: str) -> None:
    names: Sequence[str] = [one.job for one in document.training_jobs]
    if not names:
        raise unlike("the policy was trained on nothing", file, "training_jobs")
    for index, one in enumerate(document.training_jobs):
        where = f"training_jobs[{index}]"
        if one.job in names[:index]:
            raise unlike("this job comes twice", file, f"{where}.job")
        for name in ("best_sm_clock_mhz", "left_out_sm_clock_mhz"):
            if getattr(one, name) not in document.sm_clocks_mhz:
                raise unlike("this is none of the policy's clocks", file, f"{where}.{name}")
        _check_job_features(one.features, f"{where}.features.", file)


def _check_job_features(features: JobFeatures, where: str, file: str) -> None:
    require_positive(features, ("layer_count", "hidden_count"), where, file)
    if not _LEAST_AMOUNT <= features.mean_sequence_count <= LARGEST_AMOUNT:
        raise unlike("this must be above 0 and possible", file, f"{where}mean_sequence_count")
    if features.parameter_count is not None:
        require_positive(features, ("parameter_count",), where, file)
    if features.gpu_busy_ratio is not None and not 0 <= features.gpu_busy_ratio <= 1:
        raise unlike("this is a share, from 0 to 1", file, f"{where}gpu_busy_ratio")


def _check_figures(figures: PolicyFigures, file: str) -> None:
    for name in _SHARES:
        if not 0 <= getattr(figures, name) <= 1:
            raise unlike("this is a share, from 0 to 1", file, f"left_out.{name}")
    if not 0 <= figures.mean_regret_ratio <= figures.worst_regret_ratio:
        raise unlike("the mean regret lies between 0 and the worst", file, "left_out")
