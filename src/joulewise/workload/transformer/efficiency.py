"""What share of a GPU's peak a transformer's kernels reach, carried over from fitted kernels.

The kernels of `gpt3-xl` were fitted to measurements of an RTX 3080 Ti (docs/calibration.md). A
built kernel takes the median over the fitted kernels of its family. Nobody has measured built
kernels: on another GPU, or at sizes far from those of GPT-3 XL, shares are assumed.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from joulewise.workload import gpt3_xl

HIGHEST_RATIO = 1.0
LOWEST_RATIO = 1e-6


class Family(StrEnum):
    """Kernels of one kind of work, that reach a similar share of a GPU's peak."""

    GEMM = "gemm"
    GEMM_INPUT_GRADIENT = "gemm-input-gradient"
    GEMM_WEIGHT_GRADIENT = "gemm-weight-gradient"
    SCORES = "scores"
    VALUES = "values"
    FLASH = "flash"
    FLASH_GRADIENT = "flash-gradient"
    SOFTMAX = "softmax"
    SOFTMAX_GRADIENT = "softmax-gradient"
    NORM = "norm"
    NORM_GRADIENT = "norm-gradient"
    ACTIVATION = "activation"
    ACTIVATION_GRADIENT = "activation-gradient"
    PERMUTE = "permute"
    BIAS_GRADIENT = "bias-gradient"
    EMBEDDING = "embedding"
    EMBEDDING_GRADIENT = "embedding-gradient"
    LOSS = "loss"
    COLLECTIVE = "collective"
    GAP = "gap"


# Numbers are those of the kernels in table 1 of arXiv 2601.08539.
_FITTED_INDICES: dict[Family, tuple[int, ...]] = {
    Family.GEMM: (2, 8, 10, 12, 14),
    Family.GEMM_INPUT_GRADIENT: (16, 22, 26, 31, 41),
    Family.GEMM_WEIGHT_GRADIENT: (17, 24, 27, 32, 42),
    Family.SCORES: (4, 34),
    Family.VALUES: (6, 35, 37, 38),
    Family.FLASH: (2, 8, 10, 12, 14),
    Family.FLASH_GRADIENT: (16, 22, 26, 31, 41),
    Family.SOFTMAX: (5,),
    Family.SOFTMAX_GRADIENT: (36,),
    Family.NORM: (1, 9, 13),
    Family.NORM_GRADIENT: (18, 28, 43),
    Family.ACTIVATION: (11, 19),
    Family.ACTIVATION_GRADIENT: (23,),
    Family.PERMUTE: (3, 7, 33, 39),
    Family.BIAS_GRADIENT: (20, 25, 29, 40),
    Family.EMBEDDING: (0,),
    Family.EMBEDDING_GRADIENT: (44, 45),
    Family.LOSS: (15,),
    # NCCL copies and adds: nearest to kernels that move rows about. Assumed.
    Family.COLLECTIVE: (3, 7, 33, 39),
}

# FlashAttention-2 reaches 50 to 73 % of an A100's peak (Dao, arXiv 2307.08691, abstract), at
# best 73 % forward and 63 % backward (section 4.1). Taken here: the middle forward, and less
# backward by the ratio of those two. Assumed for every GPU.
_FLASH_RATIO = {Family.FLASH: 0.615, Family.FLASH_GRADIENT: 0.615 * 0.63 / 0.73}


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """Shares and activities as `KernelWork` has them."""

    compute_efficiency_ratio: float
    memory_efficiency_ratio: float
    core_activity_ratio: float
    memory_activity_ratio: float


# What collectives add up keeps pace with the link at any clock, so it shall not set their time.
# Assumed.
_COLLECTIVE_COMPUTE_RATIO = 1.0

# Nothing runs in a gap.
_OF_GAP = Efficiency(
    compute_efficiency_ratio=1.0,
    memory_efficiency_ratio=1.0,
    core_activity_ratio=1.0,
    memory_activity_ratio=1.0,
)


def efficiency_of(family: Family, operation_count_per_element: float | None) -> Efficiency:
    """Medians over the fitted kernels of the family.

    The share of the arithmetic peak that a vector kernel reaches says how long the chip takes
    to move an element past its arithmetic units. That time is carried over, so a kernel with
    twice the operations per element moved reaches twice the share; `None`: a matrix product.
    """
    if family is Family.GAP:
        return _OF_GAP
    median = _medians()[family]
    if family is Family.COLLECTIVE:
        return replace(median, compute_efficiency_ratio=_COLLECTIVE_COMPUTE_RATIO)
    if family in _FLASH_RATIO:
        return replace(median, compute_efficiency_ratio=_FLASH_RATIO[family])
    if operation_count_per_element is None:
        return median
    share = _share_per_operation()[family] * operation_count_per_element
    return replace(median, compute_efficiency_ratio=min(max(share, LOWEST_RATIO), HIGHEST_RATIO))


@functools.cache
def _medians() -> dict[Family, Efficiency]:
    works = gpt3_xl.gpt3_xl().works
    return {
        family: Efficiency(
            compute_efficiency_ratio=_median(
                works[index].compute_efficiency_ratio for index in indices
            ),
            memory_efficiency_ratio=_median(
                works[index].memory_efficiency_ratio for index in indices
            ),
            core_activity_ratio=_median(works[index].core_activity_ratio for index in indices),
            memory_activity_ratio=_median(works[index].memory_activity_ratio for index in indices),
        )
        for family, indices in _FITTED_INDICES.items()
    }


@functools.cache
def _share_per_operation() -> dict[Family, float]:
    """The fitted share of peak for each operation per element moved, by family."""
    works = gpt3_xl.gpt3_xl().works
    return {
        family: _median(
            works[index].compute_efficiency_ratio
            / (works[index].flop_count / (works[index].traffic_bytes / gpt3_xl.ELEMENT_BYTES))
            for index in indices
        )
        for family, indices in _FITTED_INDICES.items()
    }


def _median(values: Iterable[float]) -> float:
    return statistics.median(values)
