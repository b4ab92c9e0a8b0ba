"""A policy that was learned from curves, at work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from joulewise.domain.caveats import Caveat, CaveatKind, first_of_each_kind
from joulewise.domain.finetuning import ClockChoice, JobFeatures
from joulewise.finetune.characterisation import NEAR_RATIO
from joulewise.finetune.features import HIDDEN, LAYERS, SEQUENCE, feature_value
from joulewise.finetune.policies.policy import listed, nearest_listed
from joulewise.finetune.policies.trees import Descent, descend
from joulewise.store.policies import ClockExpectation, PolicyDocument

_RANGES = {LAYERS: "layers", HIDDEN: "hidden size", SEQUENCE: "mean sequence length"}
# Fewer jobs in a leaf do not tell how far apart such jobs lie (assumed).
_FEWEST_TO_SPREAD_COUNT = 3
# Labels of one clock on two boards differ by rounding: 1300 and 1301 MHz.
_SAME_CLOCK_RATIO = 0.005
_LEAST_WITHIN = ", the least energy within the time budget"
_KEPT_BY_CLOCK = ", which keeps the time budget whatever the job"
_NO_GAIN_WITHIN = "within the time budget saves energy"
_LOOK_AT_UTILISATION = (
    "Give --utilisation: the share of time in which the GPU is busy under its governor, as "
    "tegrastats shows it while the job runs (GR3D_FREQ)."
)


class LearnedPolicy:
    """Follows a tree to a leaf and takes its clock, or the best of its clocks within a budget."""

    def __init__(self, document: PolicyDocument) -> None:
        """Take a policy as it was trained or read."""
        self.document = document

    @property
    def name(self) -> str:
        """What it is called."""
        return self.document.policy

    def choose(
        self,
        features: JobFeatures,
        sm_clocks_mhz: Sequence[int],
        *,
        max_slowdown_ratio: float | None = None,
    ) -> ClockChoice:
        """The leaf's clock; within a budget that of least expected energy.

        The budget is held against the training job of the leaf that lost most time, and as much
        beyond it as that lies beyond the mean; another job may lose more still. No job loses more
        than in proportion to the clock. Where the clock took the leaf's jobs more energy than
        the governor, it is left to that: any more within a budget, and more than single runs may
        differ by (2 %) without one, for a leaf of one job is often as noisy as that.
        """
        descent = descend(self.document.nodes, features)
        clocks = _reachable(self.document.sm_clocks_mhz, listed(sm_clocks_mhz))
        is_other = listed(sm_clocks_mhz) != self.document.sm_clocks_mhz
        doubts = self._doubts(features, descent, is_other=is_other)
        expected = descent.leaf.expectations
        if max_slowdown_ratio is None:
            wanted_mhz = descent.leaf.sm_clock_mhz
            picked = next(one for one in expected if one.sm_clock_mhz == wanted_mhz)
            if picked.energy_ratio > 1.0 + NEAR_RATIO:
                return self._governor(descent, doubts, "saves energy")
            return _without_figures(
                self._choice(descent, picked, clocks, doubts), is_other=is_other
            )
        limit = 1.0 + max_slowdown_ratio
        is_spread = len(descent.leaf.jobs) >= _FEWEST_TO_SPREAD_COUNT and not is_other
        fitting = [
            one
            for one in expected
            if _most_slowdown(one, clocks, max(sm_clocks_mhz), is_spread=is_spread) <= limit
        ]
        best = min(fitting, key=lambda one: one.energy_ratio, default=None)
        if best is None or best.energy_ratio >= 1.0:
            why = "is within the time budget" if best is None else _NO_GAIN_WITHIN
            return self._governor(descent, doubts, why)
        within = _KEPT_BY_CLOCK if is_other else _LEAST_WITHIN
        chosen = self._choice(descent, best, clocks, doubts, within)
        return _without_figures(chosen, is_other=is_other)

    def _choice(
        self,
        descent: Descent,
        chosen: ClockExpectation,
        clocks: Mapping[int, int],
        doubts: tuple[Caveat, ...],
        within: str = "",
    ) -> ClockChoice:
        clock_mhz = clocks[chosen.sm_clock_mhz]
        if abs(clock_mhz / chosen.sm_clock_mhz - 1.0) > _SAME_CLOCK_RATIO:
            seen = (
                f"The policy picks {chosen.sm_clock_mhz} MHz, and this device's nearest is "
                f"{clock_mhz} MHz."
            )
            doubts = first_of_each_kind(Caveat(kind=CaveatKind.EXTRAPOLATED, seen=seen), *doubts)
        return ClockChoice(
            policy=self.name,
            sm_clock_mhz=clock_mhz,
            reason=f"{_way(descent)}: {chosen.sm_clock_mhz} MHz{within}",
            energy_ratio=chosen.energy_ratio,
            slowdown_ratio=chosen.slowdown_ratio,
            caveats=doubts,
        )

    def _governor(self, descent: Descent, doubts: tuple[Caveat, ...], why: str) -> ClockChoice:
        return ClockChoice(
            policy=self.name,
            sm_clock_mhz=None,
            reason=f"{_way(descent)}: no clock {why}, so it is left to the governor",
            energy_ratio=1.0,
            slowdown_ratio=1.0,
            caveats=doubts,
        )

    def _doubts(
        self, features: JobFeatures, descent: Descent, *, is_other: bool
    ) -> tuple[Caveat, ...]:
        """What the job has in which no training job was like it, and the board in which it is."""
        parts = [f"{_RANGES[name]} {text}" for name, text in self._beyond(features)]
        doubts = list(self.document.caveats)
        strange, helps = [], []
        if is_other:
            strange.append(
                f"The policy was learned on {self.document.device_name}, and this device lists "
                "other clocks: it is another board or in another power mode."
            )
            helps.append("Learn one from curves of this board: joulewise finetune sweep.")
        if descent.unknown:
            what = descent.unknown[0]
            strange.append(
                f"The policy asks for {what}, which is not known; the side of more training jobs "
                "was taken."
            )
            helps.append(_LOOK_AT_UTILISATION)
        if parts:
            strange.append(f"No training job was like this one: {'; '.join(parts)}.")
            helps.append("Let joulewise finetune run correct the clock on the job's own steps.")
        if strange:
            doubts.append(
                Caveat(kind=CaveatKind.EXTRAPOLATED, seen=" ".join(strange), advice=" ".join(helps))
            )
        if self.document.is_simulated:
            seen = f"The policy was trained on {self.document.device_name}, which is simulated."
            doubts.append(Caveat(kind=CaveatKind.SIMULATED_DEVICE, seen=seen))
        return first_of_each_kind(*doubts)

    def _beyond(self, features: JobFeatures) -> list[tuple[str, str]]:
        """Features outside what the training jobs had, with both told."""
        found = []
        for name in _RANGES:
            value = feature_value(features, name)
            known = [feature_value(one.features, name) for one in self.document.training_jobs]
            trained = [one for one in known if one is not None]
            if value is not None and not min(trained) <= value <= max(trained):
                told = f"{value:g}, where those had {min(trained):g} to {max(trained):g}"
                found.append((name, told))
        return found


def _without_figures(choice: ClockChoice, *, is_other: bool) -> ClockChoice:
    """What was saved on one board is no expectation on another."""
    return replace(choice, energy_ratio=None, slowdown_ratio=None) if is_other else choice


def _reachable(wanted_mhz: Sequence[int], listed_mhz: Sequence[int]) -> dict[int, int]:
    """For each clock of the policy the nearest one that the device lists."""
    return {clock: nearest_listed(clock, listed_mhz) for clock in wanted_mhz}


def _most_slowdown(
    one: ClockExpectation, clocks: Mapping[int, int], top_mhz: int, *, is_spread: bool
) -> float:
    """What a clock may cost in time, on a device with this highest clock.

    A clock below the policy's own says nothing of what that one would lose, and neither does a
    leaf of too few jobs: there it is what no job exceeds.
    """
    clock_mhz = clocks[one.sm_clock_mhz]
    bound = top_mhz / clock_mhz
    if not is_spread or clock_mhz < one.sm_clock_mhz * (1.0 - _SAME_CLOCK_RATIO):
        return bound
    return min(bound, one.worst_slowdown_ratio**2 / one.slowdown_ratio)


def _way(descent: Descent) -> str:
    return " and ".join(descent.conditions) or "whatever the job"
