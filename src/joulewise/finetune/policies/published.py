"""The tree of arXiv 2607.05933, as far as it is published."""

from __future__ import annotations

from collections.abc import Sequence

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.finetuning import ClockChoice, JobFeatures
from joulewise.finetune.policies.policy import least_within_budget, listed, nearest_listed

PAPER = "paper-mlg"

# Four leaves: "layers <= 7: sequence <= 32.5 -> 510 else 612; layers > 7: sequence <= 53.0 -> 714
# else 816 MHz" (a summary page of the paper; its drawing was not to be had).
_MOST_FEW_LAYERS_COUNT = 7
_SHORT_WHEN_FEW_COUNT, _SHORT_WHEN_MANY_COUNT = 32.5, 53.0
_FEW_SHORT_MHZ, _FEW_LONG_MHZ, _MANY_SHORT_MHZ, _MANY_LONG_MHZ = 510, 612, 714, 816

PAPER_RULES = (
    "layers <= 7:",
    "  mean sequence <= 32.5: 510 MHz",
    "  mean sequence > 32.5: 612 MHz",
    "layers > 7:",
    "  mean sequence <= 53: 714 MHz",
    "  mean sequence > 53: 816 MHz",
)
LEFT_OUT = (
    "A node of the published tree is left out: it sends GPU utilisation up to 22 % to 1020 MHz, "
    "and where it hangs is not published."
)
# Levels of its board (arXiv 2607.05933: eleven, 306 to 1300 MHz).
_PAPER_CLOCKS_MHZ = (306, 408, 510, 612, 714, 816, 918, 1020, 1122, 1224, 1300)


class PaperPolicy:
    """Four published leaves, learned on an AGX Orin 64 GB and the energy of its GPU and CPU rails.

    Where a device does not list one of their clocks, its nearest one is taken. The tree tells
    neither time nor energy, so a time budget is held by the clock alone.
    """

    name = PAPER

    def choose(
        self,
        features: JobFeatures,
        sm_clocks_mhz: Sequence[int],
        *,
        max_slowdown_ratio: float | None = None,
    ) -> ClockChoice:
        """The leaf's clock, raised to what keeps the budget at any job."""
        wanted_mhz, rule = _leaf(features)
        clock_mhz = nearest_listed(wanted_mhz, sm_clocks_mhz)
        reason = f"{rule} ({LEFT_OUT[:-1]})"
        caveats = _of_other_clocks(wanted_mhz, clock_mhz, listed(sm_clocks_mhz))
        if max_slowdown_ratio is not None:
            least_mhz = least_within_budget(sm_clocks_mhz, max_slowdown_ratio)
            if least_mhz is None:
                return _beyond_budget(listed(sm_clocks_mhz)[-1], caveats)
            if least_mhz > clock_mhz:
                clock_mhz = least_mhz
                reason += "; raised to the lowest clock that keeps the time budget at any job"
        return ClockChoice(policy=self.name, sm_clock_mhz=clock_mhz, reason=reason, caveats=caveats)


def _leaf(features: JobFeatures) -> tuple[int, str]:
    """Its clock, and the rule that led there."""
    length = f"mean sequence {features.mean_sequence_count:g}"
    if features.layer_count <= _MOST_FEW_LAYERS_COUNT:
        is_short = features.mean_sequence_count <= _SHORT_WHEN_FEW_COUNT
        clock_mhz = _FEW_SHORT_MHZ if is_short else _FEW_LONG_MHZ
        where, limit = f"{features.layer_count} layers <= 7", _SHORT_WHEN_FEW_COUNT
    else:
        is_short = features.mean_sequence_count <= _SHORT_WHEN_MANY_COUNT
        clock_mhz = _MANY_SHORT_MHZ if is_short else _MANY_LONG_MHZ
        where, limit = f"{features.layer_count} layers > 7", _SHORT_WHEN_MANY_COUNT
    sign = "<=" if is_short else ">"
    return clock_mhz, f"published tree: {where} and {length} {sign} {limit:g}: {clock_mhz} MHz"


def _of_other_clocks(
    wanted_mhz: int, clock_mhz: int, listed_mhz: tuple[int, ...]
) -> tuple[Caveat, ...]:
    if wanted_mhz == clock_mhz and listed_mhz == _PAPER_CLOCKS_MHZ:
        return ()
    if wanted_mhz == clock_mhz:
        seen = (
            "The published tree was learned on an AGX Orin 64 GB, and this device lists other "
            "clocks: it is another board or in another power mode."
        )
        return (Caveat(kind=CaveatKind.EXTRAPOLATED, seen=seen),)
    seen = f"The published tree says {wanted_mhz} MHz, and this device's nearest is {clock_mhz}."
    return (Caveat(kind=CaveatKind.EXTRAPOLATED, seen=seen),)


def _beyond_budget(top_mhz: int, caveats: tuple[Caveat, ...]) -> ClockChoice:
    return ClockChoice(
        policy=PAPER,
        sm_clock_mhz=top_mhz,
        reason="no clock is sure to be within the time budget; the highest one loses least",
        caveats=caveats,
    )
