"""What changes of the operating point cost, by the name of the hardware.

No preset was measured on the device that it will be used for, so a plan made with one carries
the caveat TransitionsAssumed. All of them let the GPU wait for the whole latency: the figures
in the literature are times from a request until it is in force, and to take all of that for a
stall is the reading that promises least. The power during the stall is assumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from joulewise.domain.transition import TransitionModel, uniform_transition

STALL_POWER_W = 60.0
"""Power of a GPU that waits for its clocks. Assumed: no source measures it; between what an
idle board with a context draws and what the same board draws in a memory stall."""

_POWER_TEXT = f"stall power of {STALL_POWER_W:g} W assumed"


def _stall(name: str, stall_s: float, source: str) -> TransitionModel:
    return uniform_transition(
        name,
        f"{source}; {_POWER_TEXT}",
        stall_s=stall_s,
        energy_j=STALL_POWER_W * stall_s,
    )


TRANSITION_PRESETS: Mapping[str, TransitionModel] = MappingProxyType(
    {
        model.name: model
        for model in (
            uniform_transition(
                "free",
                "no cost: what planners assume that take each kernel by itself "
                "(arXiv 2601.08539 adds up kernels that were measured alone)",
            ),
            _stall(
                "fast-ivr",
                10e-6,
                "10 us, assumed: voltage regulators on the chip switch within nanoseconds in "
                "simulation and within 1 us on AMD Raven Ridge (Hot Chips 2018), Intel Alder "
                "Lake takes 40 to 100 us (arXiv 2601.08539, section 2.2)",
            ),
            _stall(
                "ascend",
                1e-3,
                "1 ms: Huawei Ascend switches within that (Wang et al., ASPLOS 2025, as cited "
                "by arXiv 2601.08539, section 2.2)",
            ),
            _stall(
                "hopper",
                6e-3,
                "about 6 ms: measured by Velicka et al. (arXiv 2502.20075) on Hopper, as cited "
                "by arXiv 2601.08539, section 9",
            ),
            _stall(
                "ampere",
                15e-3,
                "15 ms, assumed: A100 is said to lie between 5 and 25 ms; Velicka et al. "
                "(arXiv 2502.20075) measured it, but their table was not at hand",
            ),
            _stall(
                "turing",
                150e-3,
                "about 150 ms: measured by Velicka et al. (arXiv 2502.20075) on a Quadro RTX "
                "6000, as cited by arXiv 2601.08539, section 9",
            ),
        )
    }
)


def transition_preset(name: str) -> TransitionModel | None:
    """The preset of that name; `None` where there is none."""
    return TRANSITION_PRESETS.get(name)


def transition_preset_names() -> tuple[str, ...]:
    """Names of the presets, the fastest first."""
    return tuple(TRANSITION_PRESETS)
