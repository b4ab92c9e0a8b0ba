"""From the linear program's durations to measured options, within the time and exactly.

Plans start near the program's durations. Then time is sold at falling prices, backwards and
forwards in turn, until nobody can use what is left. Many plans that differ by a little noise in
the prices are swept side by side; the best are varied again. Noise is drawn from a fixed seed: the
same problem always has the same plan.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from joulewise.domain.sweep import FloatTable, IntTable
from joulewise.plan.pipeline.problem import PipelineProblem
from joulewise.plan.pipeline.program import Relaxed
from joulewise.plan.pipeline.sweeping import Plans, Sweeping

_ROUND_COUNT = 2
_PARENT_COUNT = 4
# An odd number, so that a round ends in the direction in which it began.
_PRICE_SHARES = (0.95, 0.8, 0.5, 0.0, 0.0)
_LARGEST_NOISE_RATIO = 0.3
_SEED = 20_231_206


def rounded(
    problem: PipelineProblem, relaxed: Sequence[Relaxed], *, plan_count: int
) -> list[IntTable]:
    """Choose an option for every operation, close to the program's optimum.

    Args:
        problem: Operations and options.
        relaxed: The program's optimum within each time allowed.
        plan_count: How many plans are tried side by side for each.

    Returns:
        For each, (N,) places among the undominated options, with an iteration time of at most
        its `time_s`.
    """
    sweeping = Sweeping(problem, relaxed)
    random = np.random.default_rng(_SEED)
    noisy = sweeping.sold(sweeping.start(), _noise(sweeping, random, plan_count - 2))
    plans = _filled(sweeping, sweeping.near().joined(noisy))
    for _ in range(_ROUND_COUNT):
        parents = _best(sweeping, plans, _PARENT_COUNT)
        children = parents.picked(np.resize(np.arange(_PARENT_COUNT), (1, plan_count)))
        varied = sweeping.sold(children, _noise(sweeping, random, plan_count))
        plans = _filled(sweeping, varied).joined(parents)
    return list(sweeping.places(_best(sweeping, plans, 1))[:, :, 0].T)


def _noise(sweeping: Sweeping, random: np.random.Generator, plan_count: int) -> FloatTable:
    """(N, 1, R) factors on prices: none for the first plan, more and more for the next."""
    noise = random.uniform(-1.0, 1.0, (sweeping.order.size, 1, plan_count))
    return 1.0 + noise * np.linspace(0.0, _LARGEST_NOISE_RATIO, plan_count)


def _filled(sweeping: Sweeping, plans: Plans) -> Plans:
    """Sell the time that is left at falling prices."""
    for share_ratio in _PRICE_SHARES:
        plans = sweeping.sold(plans, np.full((1, 1, 1), share_ratio))
    return plans


def _best(sweeping: Sweeping, plans: Plans, count: int) -> Plans:
    """The best plans of each budget."""
    order = np.argsort(sweeping.energy_j(plans), axis=1, kind="stable")
    return plans.picked(order[:, :count])
