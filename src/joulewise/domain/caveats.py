"""Doubts as data: the closed list, and how each one reads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class CaveatKind(StrEnum):
    """Every doubt that a result can carry."""

    BASELINE_ASSUMED = "BaselineAssumed"
    BASELINE_PINNED = "BaselinePinned"
    CHANGES_EARLY = "ChangesEarly"
    CHANGES_LATE = "ChangesLate"
    CLOCK_NOT_HELD = "ClockNotHeld"
    COUNTER_DISAGREES = "CounterDisagrees"
    COUNTER_TOO_COARSE = "CounterTooCoarse"
    EFFICIENCY_ASSUMED = "EfficiencyAssumed"
    ENERGY_FROM_POWER = "EnergyFromPower"
    ENERGY_OF_MODULE = "EnergyOfModule"
    EXTRAPOLATED = "Extrapolated"
    FOREIGN_CONTROL = "ForeignControl"
    GPU_PARTITIONED = "GpuPartitioned"
    ITERATION_ASSUMED = "IterationAssumed"
    KERNELS_STOOD_IN = "KernelsStoodIn"
    LINK_ASSUMED = "LinkAssumed"
    MEMORY_CLOCK_MOVED = "MemoryClockMoved"
    MEMORY_EXCEEDED = "MemoryExceeded"
    MEMORY_LOCK_SLOWS = "MemoryLockSlows"
    MOSTLY_GAPS = "MostlyGaps"
    NOT_STEADY = "NotSteady"
    NOT_VERIFIED = "NotVerified"
    NO_UNCERTAINTY = "NoUncertainty"
    OTHER_GPUS_LEFT_OUT = "OtherGpusLeftOut"
    OTHER_PROCESS_ON_GPU = "OtherProcessOnGpu"
    OUTLIERS_SEEN = "OutliersSeen"
    OVER_CURRENT = "OverCurrent"
    PERSISTENCE_OFF = "PersistenceOff"
    POWER_CAPPED = "PowerCapped"
    POWER_MODE_CAPS = "PowerModeCaps"
    PREDICTION_MISSED = "PredictionMissed"
    PROMISE_NOT_SHOWN = "PromiseNotShown"
    RECORDING_REPLAYED = "RecordingReplayed"
    SELECTION_BIAS = "SelectionBias"
    SIMULATED_DEVICE = "SimulatedDevice"
    STEPS_UNMARKED = "StepsUnmarked"
    STREAMS_MERGED = "StreamsMerged"
    THERMALLY_THROTTLED = "ThermallyThrottled"
    TPCS_GATED = "TpcsGated"
    TRACED_ELSEWHERE = "TracedElsewhere"
    TRACE_INCOMPLETE = "TraceIncomplete"
    TRANSITIONS_ASSUMED = "TransitionsAssumed"
    TRANSITIONS_NOT_COUNTED = "TransitionsNotCounted"
    UNCALIBRATED = "Uncalibrated"
    WORK_ESTIMATED = "WorkEstimated"
    WORKLOAD_ASSUMED = "WorkloadAssumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caveat:
    """One typed doubt: what was seen; why it matters and what helps follow from the kind.

    `advice` says what helps here, where what helps against most of its kind does not.
    """

    kind: CaveatKind
    seen: str
    advice: str | None = None

    @property
    def why(self) -> str:
        """Why it matters."""
        return _WHY_AND_HELP[self.kind][0]

    @property
    def helps(self) -> str:
        """What helps."""
        return _WHY_AND_HELP[self.kind][1] if self.advice is None else self.advice


def first_of_each_kind(*caveats: Caveat) -> tuple[Caveat, ...]:
    """One doubt of a kind, the first, in the order in which kinds first come."""
    first: dict[CaveatKind, Caveat] = {}
    for caveat in caveats:
        first.setdefault(caveat.kind, caveat)
    return tuple(first.values())


def by_gravity(caveats: Iterable[Caveat]) -> tuple[Caveat, ...]:
    """What casts doubt on the promise first; what only says where figures come from last."""
    return tuple(sorted(caveats, key=lambda caveat: gravity(caveat.kind)))


def gravity(kind: CaveatKind) -> int:
    """Where a kind stands in a list of doubts: the graver, the lower the number."""
    return _GRAVEST_FIRST.index(kind)


def is_simulated(caveats: Iterable[Caveat]) -> bool:
    """Whether figures with these doubts come from a physics model."""
    return any(caveat.kind is CaveatKind.SIMULATED_DEVICE for caveat in caveats)


# The promise, then the table and the costs it stands on, then how it was measured, then what is
# as it should be on this device.
_GRAVEST_FIRST = (
    CaveatKind.PROMISE_NOT_SHOWN,
    CaveatKind.PREDICTION_MISSED,
    CaveatKind.CHANGES_LATE,
    CaveatKind.CHANGES_EARLY,
    CaveatKind.NOT_VERIFIED,
    CaveatKind.SELECTION_BIAS,
    CaveatKind.TRANSITIONS_NOT_COUNTED,
    CaveatKind.TRANSITIONS_ASSUMED,
    CaveatKind.WORKLOAD_ASSUMED,
    CaveatKind.MOSTLY_GAPS,
    CaveatKind.MEMORY_EXCEEDED,
    CaveatKind.TRACED_ELSEWHERE,
    CaveatKind.TRACE_INCOMPLETE,
    CaveatKind.ITERATION_ASSUMED,
    CaveatKind.WORK_ESTIMATED,
    CaveatKind.EFFICIENCY_ASSUMED,
    CaveatKind.LINK_ASSUMED,
    CaveatKind.STREAMS_MERGED,
    CaveatKind.OTHER_GPUS_LEFT_OUT,
    CaveatKind.KERNELS_STOOD_IN,
    CaveatKind.BASELINE_ASSUMED,
    CaveatKind.BASELINE_PINNED,
    CaveatKind.STEPS_UNMARKED,
    CaveatKind.EXTRAPOLATED,
    CaveatKind.NO_UNCERTAINTY,
    CaveatKind.FOREIGN_CONTROL,
    CaveatKind.OTHER_PROCESS_ON_GPU,
    CaveatKind.MEMORY_LOCK_SLOWS,
    CaveatKind.MEMORY_CLOCK_MOVED,
    CaveatKind.OVER_CURRENT,
    CaveatKind.COUNTER_DISAGREES,
    CaveatKind.ENERGY_FROM_POWER,
    CaveatKind.COUNTER_TOO_COARSE,
    CaveatKind.ENERGY_OF_MODULE,
    CaveatKind.GPU_PARTITIONED,
    CaveatKind.NOT_STEADY,
    CaveatKind.THERMALLY_THROTTLED,
    CaveatKind.OUTLIERS_SEEN,
    CaveatKind.PERSISTENCE_OFF,
    CaveatKind.CLOCK_NOT_HELD,
    CaveatKind.POWER_CAPPED,
    CaveatKind.TPCS_GATED,
    CaveatKind.POWER_MODE_CAPS,
    CaveatKind.RECORDING_REPLAYED,
    CaveatKind.UNCALIBRATED,
    CaveatKind.SIMULATED_DEVICE,
)

_WHY_AND_HELP: dict[CaveatKind, tuple[str, str]] = {
    CaveatKind.BASELINE_ASSUMED: (
        "Savings are against a setting that is not what users have by default.",
        "Measure the (auto, auto) point too.",
    ),
    CaveatKind.BASELINE_PINNED: (
        "A pinned baseline makes savings look larger or smaller than they are.",
        "Give the clocks back to the driver before the baseline is measured.",
    ),
    CaveatKind.CHANGES_EARLY: (
        "Launches ended at the point of the next one, so the plan was not carried out as made.",
        "Plan with what joulewise probe transitions measures; several knobs still come one by one.",
    ),
    CaveatKind.CHANGES_LATE: (
        "Launches began at another point than planned, so the plan was not carried out as made.",
        "Run joulewise probe transitions on the device and plan with the file that it writes.",
    ),
    CaveatKind.CLOCK_NOT_HELD: (
        "The device ran at another clock than asked, so the cell stands for what it did.",
        "Use the nearest clock that the device holds.",
    ),
    CaveatKind.COUNTER_DISAGREES: (
        "Two meters of the same GPU tell different energies, so one of them is wrong.",
        "Compare with an outside meter; ratios between points are safer than joules.",
    ),
    CaveatKind.COUNTER_TOO_COARSE: (
        "The energy counter moves too rarely for a window this short.",
        "Measure longer windows.",
    ),
    CaveatKind.EFFICIENCY_ASSUMED: (
        "What kernels reach of a GPU's peaks decides how long they take at other clocks.",
        "Profile on a GPU whose peaks are known, or name it with --device-name.",
    ),
    CaveatKind.ENERGY_FROM_POWER: (
        "No energy counter moves here; power readings were added up, and miss what lies between.",
        "Measure longer windows.",
    ),
    CaveatKind.ENERGY_OF_MODULE: (
        "The energy includes the CPU and the memory of the module, not the GPU alone.",
        "Compare only with figures of the same scope.",
    ),
    CaveatKind.EXTRAPOLATED: (
        "The model was asked about points beyond those it was fitted on.",
        "Measure those points.",
    ),
    CaveatKind.FOREIGN_CONTROL: (
        "Somebody else set clocks or a power limit, so the window shows their setting.",
        "Stop the other controller, or give its clocks back: nvidia-smi -rgc; nvidia-smi -rmc.",
    ),
    CaveatKind.GPU_PARTITIONED: (
        "All MIG instances share one clock and one energy counter.",
        "Disable MIG, or measure while no other instance works.",
    ),
    CaveatKind.ITERATION_ASSUMED: (
        "No mark says where an iteration begins, so what was taken for one may be more or less.",
        "Mark iterations: profiler.step() in PyTorch, or NVTX ranges named step.",
    ),
    CaveatKind.KERNELS_STOOD_IN: (
        "Kernels of the same arithmetic and traffic ran in place of the workload's own.",
        "Verify the plan on the real job.",
    ),
    CaveatKind.LINK_ASSUMED: (
        "How long GPUs exchange data hangs on the link between them, which nobody measured.",
        "Give the link's bandwidth, or import a profile of the job on its GPUs.",
    ),
    CaveatKind.MEMORY_CLOCK_MOVED: (
        "Time and energy at one GPU clock differ from one memory clock to the next.",
        "Lock the memory clock, or compare only runs that saw the same one.",
    ),
    CaveatKind.MEMORY_EXCEEDED: (
        "What does not fit into memory does not run there, whatever its clocks.",
        "Choose a GPU with more memory, a smaller batch, recomputation, or more GPUs.",
    ),
    CaveatKind.MEMORY_LOCK_SLOWS: (
        "A lock on the memory clock slows this GPU although the clock is its highest.",
        "Leave the memory clock at auto on this GPU.",
    ),
    CaveatKind.MOSTLY_GAPS: (
        "Without the gaps the same work takes less time and energy than clocks can save.",
        "Mend those first (data loader, launches), or import another step.",
    ),
    CaveatKind.NOT_STEADY: (
        "Temperature was still moving, and power moves with it.",
        "Warm up longer.",
    ),
    CaveatKind.NOT_VERIFIED: (
        "The figures are the plan's own; nobody has run it afresh.",
        "Run joulewise verify on the device.",
    ),
    CaveatKind.NO_UNCERTAINTY: (
        "Without scatter in the table, lucky outliers cannot be told from good points.",
        "Measure each cell more than once and keep the standard deviation.",
    ),
    CaveatKind.OTHER_GPUS_LEFT_OUT: (
        "The iteration is that of one GPU; others may work more, and wait for each other.",
        "Import each GPU, and give GPUs that exchange data the same clocks.",
    ),
    CaveatKind.OTHER_PROCESS_ON_GPU: (
        "Another process drew power and took time on the same GPU.",
        "Stop it and measure again.",
    ),
    CaveatKind.OUTLIERS_SEEN: (
        "Some windows lay far from the rest; medians were used.",
        "Look for another load on the machine.",
    ),
    CaveatKind.OVER_CURRENT: (
        "The supply drew too much or sagged, and the board slows itself down when it does.",
        "Look at the supply and its cable, or at what else hangs on it.",
    ),
    CaveatKind.PERSISTENCE_OFF: (
        "The driver unloads when its last user leaves, and forgets limits then.",
        "Switch persistence mode on: nvidia-smi -pm 1.",
    ),
    CaveatKind.POWER_CAPPED: (
        "The power limit lowered the clock, so the clock asked for is not the clock run.",
        "Nothing to mend: that is what this setting does on this board.",
    ),
    CaveatKind.POWER_MODE_CAPS: (
        "The power mode holds clocks down, so another mode's figures do not hold here.",
        "Compare only within this mode; nvpmodel -q says which it is.",
    ),
    CaveatKind.PREDICTION_MISSED: (
        "The device does not take what the plan's arithmetic says, so its saving may not be there.",
        "Measure what changes cost on the device and plan with that, or measure the sweep anew.",
    ),
    CaveatKind.PROMISE_NOT_SHOWN: (
        "The fresh runs do not show that the slowdown stays within the budget.",
        "Verify with more pairs, or plan for a smaller budget.",
    ),
    CaveatKind.RECORDING_REPLAYED: (
        "Nothing ran: a recording answers the same every time, and knows no scatter.",
        "Repeat the run on the GPU in question.",
    ),
    CaveatKind.SELECTION_BIAS: (
        "The best of many noisy numbers is partly luck; fresh runs will promise less.",
        "Use joulewise tune, or plan with the guard band and verify.",
    ),
    CaveatKind.SIMULATED_DEVICE: (
        "The figures come from a physics model, not from hardware.",
        "Repeat the run on the GPU in question.",
    ),
    CaveatKind.STEPS_UNMARKED: (
        "Steps that are not marked as they should be are not counted, or not as what they are.",
        "Mark the steps: joulewise.integrations.transformers_callback, or a line per step.",
    ),
    CaveatKind.STREAMS_MERGED: (
        "Kernels that ran at the same time share one clock, so they are planned as one.",
        "Nothing to mend: a region is measured and set as a whole.",
    ),
    CaveatKind.THERMALLY_THROTTLED: (
        "Heat lowered the clock, so the cell says more about the cooling than the setting.",
        "Improve cooling or lower the power limit.",
    ),
    CaveatKind.TPCS_GATED: (
        "The power mode switches part of the GPU off, so its curve is another one than in full.",
        "Measure in the power mode that will be used; a change of mask needs a reboot.",
    ),
    CaveatKind.TRACED_ELSEWHERE: (
        "Time and saving are those of the device named here, not of the job that was traced.",
        "Measure on the kind of GPU that was traced, or import a profile of this one.",
    ),
    CaveatKind.TRACE_INCOMPLETE: (
        "The profile lacks part of what ran, so times and FLOPs may be too low.",
        "Profile again: a warm-up step, record_shapes=True, larger buffers.",
    ),
    CaveatKind.TRANSITIONS_ASSUMED: (
        "What a change of clocks costs differs between GPUs, drivers and clocks.",
        "Measure it on the device with joulewise probe transitions.",
    ),
    CaveatKind.TRANSITIONS_NOT_COUNTED: (
        "Each kernel is timed alone; changing clocks between kernels takes time on real GPUs.",
        "Plan with --transition, or prefer a coarser granularity on hardware that switches slowly.",
    ),
    CaveatKind.UNCALIBRATED: (
        "This virtual device was never fitted to measurements.",
        "Use a calibrated device (rtx3080ti, a100-sxm) or real hardware.",
    ),
    CaveatKind.WORK_ESTIMATED: (
        "What these kernels compute and move was guessed from their names and times.",
        "Profile with record_shapes=True, or count with Nsight Compute.",
    ),
    CaveatKind.WORKLOAD_ASSUMED: (
        "What changes of clocks cost hangs on which kernel follows which, and how often.",
        "Name the workload with --workload.",
    ),
}
