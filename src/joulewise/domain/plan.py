"""Plans, frontiers and their verification."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from joulewise.domain.caveats import Caveat
from joulewise.domain.points import OperatingPoint
from joulewise.domain.transition import TransitionModel
from joulewise.domain.workload import IterationSize, Pass


class Objective(StrEnum):
    """What a plan minimises. `energy` keeps a time budget; the others have none by default."""

    ENERGY = "energy"
    EDP = "edp"
    ED2P = "ed2p"
    MIN_ENERGY = "min-energy"


class Granularity(StrEnum):
    """How much of an iteration shares one operating point.

    At `kernel` granularity all launches of a kernel share one, unless transitions count: then
    each launch has its own, for what runs before and after it matters. At `region` granularity
    neighbouring launches share one, as many or as few as serve.
    """

    ITERATION = "iteration"
    PASS = "pass"  # noqa: S105 - the pass of an iteration
    REGION = "region"
    KERNEL = "kernel"


class Scope(StrEnum):
    """Whether the time bound holds for every class alone or for the sum."""

    GLOBAL = "global"
    LOCAL = "local"


class Status(StrEnum):
    """How a result is meant: proven best, good, impossible, or 'leave the clocks alone'."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    NO_GAIN = "no_gain"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """What to plan for.

    `max_slowdown_ratio` is the budget as a share of the baseline's time: 0.006 allows 0.6 %
    more; `None` sets no bound. `transition` says what changing the point costs; `None` leaves
    that out of the account. `max_region_count` bounds the regions of an iteration; `None` not.
    """

    objective: Objective = Objective.ENERGY
    granularity: Granularity = Granularity.KERNEL
    scope: Scope = Scope.GLOBAL
    max_slowdown_ratio: float | None = 0.0
    transition: TransitionModel | None = None
    max_region_count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A 95 % interval."""

    low_ratio: float
    high_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLaunch:
    """One launch of the iteration with the operating point it shall run at."""

    kernel: str
    pass_: Pass
    point: OperatingPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRequest:
    """When to ask for a point: `lead_s` before launch `launch_index` of the iteration begins.

    Launches count from 0. A lead may reach back into the iteration before, which is the same.
    """

    launch_index: int
    lead_s: float
    point: OperatingPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Operating points for every launch of an iteration, with what they promise.

    Times and energies are per iteration. `slowdown_ratio` is time / baseline time;
    `saving_ratio` is 1 - energy / baseline energy. `guard_band_ratio` is the part of the
    budget kept back; `bound_gap_ratio` bounds how far the objective can lie above the proven
    optimum; `None` where nothing was proven. `sweep_sha256` names the table planned on,
    `remeasured_sha256` the cells measured afresh that the promise stands on, if there are any.

    `requests` is the plan as it is carried out, in order of launches: empty where one point
    serves the whole iteration. `size` is what an iteration of the job does, where the workload
    says. `time_s` and `energy_j` include the changes where the request
    has a transition model; `transition_time_s` and `transition_energy_j` are their part of it.
    """

    status: Status
    request: PlanRequest
    device: str
    device_name: str
    workload: str
    sweep_sha256: str
    baseline: OperatingPoint
    time_s: float
    energy_j: float
    baseline_time_s: float
    baseline_energy_j: float
    slowdown_ratio: float
    saving_ratio: float
    bound_gap_ratio: float | None
    guard_band_ratio: float
    launches: tuple[PlannedLaunch, ...]
    remeasured_sha256: str | None = None
    requests: tuple[PlannedRequest, ...] = ()
    transition_time_s: float = 0.0
    transition_energy_j: float = 0.0
    size: IterationSize | None = None
    caveats: tuple[Caveat, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierPoint:
    """One non-dominated trade of time for energy, per iteration."""

    time_s: float
    energy_j: float
    slowdown_ratio: float
    saving_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationPair:
    """One iteration's worth of baseline and plan, measured side by side in one run."""

    baseline_time_s: float
    baseline_energy_j: float
    plan_time_s: float
    plan_energy_j: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """Fresh paired runs that the plan was not chosen from.

    Ratios are medians over pairs; intervals are 95 % intervals of paired log-ratios: bootstrap
    from six pairs on, Student's below. `is_within_budget` says whether the median slowdown
    keeps the budget; `None` where the plan had none.
    """

    plan_sha256: str
    device: str
    device_name: str
    pairs: tuple[VerificationPair, ...]
    promised_slowdown_ratio: float
    promised_saving_ratio: float
    slowdown_ratio: float
    slowdown_interval: Interval
    saving_ratio: float
    saving_interval: Interval
    max_slowdown_ratio: float | None
    is_within_budget: bool | None
    caveats: tuple[Caveat, ...] = ()
