"""Fine-tuning jobs: what is known of them before they run, and what a clock makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from joulewise.domain.caveats import Caveat


class ModelType(StrEnum):
    """Encoders see all tokens at once (BERT), decoders those before (Pythia)."""

    ENCODER = "encoder"
    DECODER = "decoder"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFeatures:
    """What is known of a fine-tuning job before it runs (arXiv 2607.05933: five features).

    `mean_sequence_count` is the mean number of tokens of a training example, without padding.
    `gpu_busy_ratio` is the share of time in which the GPU runs anything, under the stock
    governor: `None` before anybody looked.
    """

    model_type: ModelType
    layer_count: int
    hidden_count: int
    mean_sequence_count: float
    gpu_busy_ratio: float | None = None
    parameter_count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMark:
    """The end of one training step, as the program that trains tells it.

    `step` counts from 1; 0 marks the begin of the first step. `time_s` is the machine's monotonic
    clock, which all its processes share.
    """

    step: int
    time_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockCost:
    """Time and energy of one training step at one setting.

    `sm_clock_mhz` is the clock that was pinned; `None`: the governor chose. `energy_j` is the
    module's. The uncertainties are standard errors; `None`: there was no scatter to tell.
    """

    sm_clock_mhz: int | None
    time_s: float
    energy_j: float
    step_count: int | None = None
    time_error_s: float | None = None
    energy_error_j: float | None = None
    busy_ratio: float | None = None
    mem_clock_mhz: int | None = None
    """The memory clock that most samples saw; a curve holds for it alone."""
    caveats: tuple[Caveat, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockCurve:
    """One job at every clock that was measured, and at the baseline: the U-curve of its energy.

    `costs` ascend by clock. `baseline` is the job under the stock governor. The baseline with
    the clock pinned at its highest is the last of `costs`, where that was measured.
    `features` is `None` for a command of which nothing is known.
    """

    job: str
    device: str
    device_name: str
    is_simulated: bool
    features: JobFeatures | None
    baseline: ClockCost
    costs: tuple[ClockCost, ...]
    caveats: tuple[Caveat, ...] = ()

    def __post_init__(self) -> None:
        """Refuse an empty curve, and clocks that are auto or do not ascend."""
        clocks = [cost.sm_clock_mhz for cost in self.costs]
        known = [clock for clock in clocks if clock is not None]
        if not clocks or len(known) < len(clocks) or known != sorted(set(known)):
            raise ValueError(f"the clocks of a curve must ascend, got {clocks}")
        if self.baseline.sm_clock_mhz is not None:
            raise ValueError("the baseline of a curve is the governor's")

    @property
    def sm_clocks_mhz(self) -> tuple[int, ...]:
        """Clocks that were pinned, ascending."""
        return tuple(cost.sm_clock_mhz for cost in self.costs if cost.sm_clock_mhz is not None)

    @property
    def best(self) -> ClockCost:
        """The clock of least energy; of two that are equal the faster one."""
        return min(self.costs, key=lambda cost: (cost.energy_j, -(cost.sm_clock_mhz or 0)))

    def at(self, sm_clock_mhz: int | None) -> ClockCost | None:
        """What was measured at this clock; `None` is the governor's. `None` where nothing was."""
        if sm_clock_mhz is None:
            return self.baseline
        return next((cost for cost in self.costs if cost.sm_clock_mhz == sm_clock_mhz), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockChoice:
    """A clock that a policy picked, and why.

    `sm_clock_mhz` is listed by the device; `None` leaves the clock to the governor. `reason` is
    a sentence. `energy_ratio` and `slowdown_ratio` are what the policy expects against the
    baseline, where it expects anything.
    """

    policy: str
    sm_clock_mhz: int | None
    reason: str
    energy_ratio: float | None = None
    slowdown_ratio: float | None = None
    caveats: tuple[Caveat, ...] = ()
