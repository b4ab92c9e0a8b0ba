"""What a policy is, and the two that need no knowledge: the governor and the highest clock."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from joulewise.domain.errors import InputError
from joulewise.domain.finetuning import ClockChoice, JobFeatures

GOVERNOR = "default"
PINNED_MAX = "pinned-max"
# Labels are whole MHz and times of different clocks carry rounding.
_ROUNDING_RATIO = 1e-9


class ClockPolicy(Protocol):
    """Picks a clock by what is known of a job before it runs."""

    @property
    def name(self) -> str:
        """What `--policy` calls it."""
        ...

    def choose(
        self,
        features: JobFeatures,
        sm_clocks_mhz: Sequence[int],
        *,
        max_slowdown_ratio: float | None = None,
    ) -> ClockChoice:
        """Pick one of the listed clocks, or leave the clock to the governor.

        Args:
            features: What is known of the job.
            sm_clocks_mhz: Clocks that the device lists, in MHz.
            max_slowdown_ratio: Most time against the governor that may be lost, 0.05 for 5 %;
                `None`: any.

        Raises:
            InputError: the device lists no clocks, or lacks what the policy needs.
        """
        ...


class GovernorPolicy:
    """Leaves the clock to the device's own governor: the baseline."""

    name = GOVERNOR

    def choose(
        self,
        features: JobFeatures,  # noqa: ARG002 - it knows nothing of jobs
        sm_clocks_mhz: Sequence[int],  # noqa: ARG002
        *,
        max_slowdown_ratio: float | None = None,  # noqa: ARG002 - it loses no time
    ) -> ClockChoice:
        """No clock."""
        return ClockChoice(
            policy=self.name,
            sm_clock_mhz=None,
            reason="the clock is left to the governor",
            energy_ratio=1.0,
            slowdown_ratio=1.0,
        )


class PinnedMaxPolicy:
    """Holds the highest clock, whatever the job."""

    name = PINNED_MAX

    def choose(
        self,
        features: JobFeatures,  # noqa: ARG002 - it knows nothing of jobs
        sm_clocks_mhz: Sequence[int],
        *,
        max_slowdown_ratio: float | None = None,  # noqa: ARG002 - no clock is faster
    ) -> ClockChoice:
        """The highest clock."""
        return ClockChoice(
            policy=self.name,
            sm_clock_mhz=listed(sm_clocks_mhz)[-1],
            reason="the highest clock that the device lists",
        )


def listed(sm_clocks_mhz: Sequence[int]) -> tuple[int, ...]:
    """The clocks ascending, each once. Raises InputError where there are none."""
    if not sm_clocks_mhz:
        raise InputError("the device lists no SM clocks", hint="Use another device.")
    return tuple(sorted(set(sm_clocks_mhz)))


def nearest_listed(sm_clock_mhz: int, sm_clocks_mhz: Sequence[int]) -> int:
    """The listed clock whose ratio to the wanted one is nearest to 1; of two the faster."""
    return min(
        listed(sm_clocks_mhz), key=lambda clock: (abs(math.log(clock / sm_clock_mhz)), -clock)
    )


def least_within_budget(sm_clocks_mhz: Sequence[int], max_slowdown_ratio: float) -> int | None:
    """The lowest clock that keeps a time budget whatever the job; `None`: no clock does.

    No step takes longer than in proportion to the clock, so one that runs at f loses at most
    f_max / f against the highest clock, which no governor beats.
    """
    clocks = listed(sm_clocks_mhz)
    least_mhz = clocks[-1] / (1.0 + max_slowdown_ratio) * (1.0 - _ROUNDING_RATIO)
    return next((clock for clock in clocks if clock >= least_mhz), None)
