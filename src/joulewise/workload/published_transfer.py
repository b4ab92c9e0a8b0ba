"""Published figures of plans that were carried over to other batch sizes and degrees."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources

import msgspec


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedSpread:
    """Mean, best and worst over the pairs of a study, as ratios to the baseline."""

    mean_ratio: float
    best_ratio: float
    worst_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTransfer:
    """What a study saw of its plan on one workload: slowdown (1.01 = 1 % slower) and saving."""

    figure: str
    batch_count: int
    tensor_parallel_count: int
    slowdown: PublishedSpread
    saving: PublishedSpread


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedStudy:
    """Where the figures come from, on which GPU, and how they were taken."""

    source: str
    device_name: str
    pair_count: int
    method: str
    rows: tuple[PublishedTransfer, ...]


def gpt3_xl_transfer() -> PublishedStudy:
    """Figures 7 and 8 of arXiv 2601.08539: GPT-3 XL on an RTX 3080 Ti."""
    file = resources.files("joulewise.workload").joinpath("data/gpt3_xl_transfer.json")
    return msgspec.json.decode(file.read_bytes(), type=PublishedStudy)
