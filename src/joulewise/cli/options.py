"""Options that several commands share: flag > JOULEWISE_* variable > default."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from joulewise.domain.plan import Granularity, Objective, Scope

DEFAULT_DEVICE = "virtual:rtx3080ti"
DEFAULT_WORKLOAD = "gpt3-xl"

_BUDGET_HELP = (
    "Time budget against the baseline: 0.006 and 0.6% both mean 0.6 % more time; values above 1 "
    "need %."
)

Device = Annotated[
    str,
    typer.Option(
        "--device",
        envvar="JOULEWISE_DEVICE",
        help="Device string: nvml:0, nvml:GPU-UUID, jetson, virtual:rtx3080ti,noise=0,seed=7 or "
        "recorded:sweep.parquet; see `joulewise devices`.",
    ),
]
PlanDevice = Annotated[
    str | None,
    typer.Option(
        "--device",
        envvar="JOULEWISE_DEVICE",
        help="Device string. Default: the device that the plan was made on.",
    ),
]
Workload = Annotated[
    str,
    typer.Option(
        "--workload",
        envvar="JOULEWISE_WORKLOAD",
        help="A built-in name with options, hf:PATH of a config.json, or a workload file; see "
        "`joulewise workload list`.",
    ),
]
OptionalWorkload = Annotated[
    str | None,
    typer.Option(
        "--workload",
        envvar="JOULEWISE_WORKLOAD",
        help="Workload name or file. Default: each kernel of the sweep once.",
    ),
]
AsJson = Annotated[
    bool,
    typer.Option("--json", envvar="JOULEWISE_JSON", help="Print one JSON object and nothing else."),
]
FailOn = Annotated[
    str | None,
    typer.Option(
        "--fail-on",
        envvar="JOULEWISE_FAIL_ON",
        metavar="CAVEAT,…",
        help="Exit with 2 when one of these caveats is present.",
    ),
]
MaxSlowdown = Annotated[
    str | None,
    typer.Option(
        "--max-slowdown",
        envvar="JOULEWISE_MAX_SLOWDOWN",
        help=f"{_BUDGET_HELP} Default: 0.",
    ),
]
PlanMaxSlowdown = Annotated[
    str | None,
    typer.Option(
        "--max-slowdown",
        envvar="JOULEWISE_MAX_SLOWDOWN",
        help=f"{_BUDGET_HELP} Default: 0 for energy, none for the other objectives.",
    ),
]
SmClocks = Annotated[
    str | None,
    typer.Option(
        "--sm-clocks",
        envvar="JOULEWISE_SM_CLOCKS",
        metavar="MHZ,…",
        help="SM clocks to measure, e.g. auto,1680,1890. Default: auto and ten spread evenly.",
    ),
]
MemClocks = Annotated[
    str | None,
    typer.Option(
        "--mem-clocks",
        envvar="JOULEWISE_MEM_CLOCKS",
        metavar="MHZ,…",
        help="Memory clocks to measure, e.g. auto,9501. Default: auto and all listed; on nvml "
        "and jetson devices auto only, unless the device string says memory_lock=on.",
    ),
]
PowerLimits = Annotated[
    str | None,
    typer.Option(
        "--power-limits",
        envvar="JOULEWISE_POWER_LIMITS",
        metavar="W,…",
        help="Power limits to measure, e.g. auto,250,80%: watts, or percent of the limit that "
        "the device has now, which is never exceeded. Default: auto only.",
    ),
]
Pairs = Annotated[
    int,
    typer.Option(
        "--pairs", envvar="JOULEWISE_PAIRS", min=2, max=1000, help="Paired runs to verify with."
    ),
]
Granularities = Annotated[
    Granularity,
    typer.Option(
        "--granularity",
        envvar="JOULEWISE_GRANULARITY",
        help="What shares one operating point: the iteration, each pass, each region of "
        "neighbouring launches, or each kernel: with --transition each launch, and without it "
        "all launches of a kernel, so that regions, made of launches, can then be finer.",
    ),
]
Transition = Annotated[
    str | None,
    typer.Option(
        "--transition",
        envvar="JOULEWISE_TRANSITION",
        metavar="MODEL",
        help="What changing clocks costs: a preset (see `joulewise transitions`), a file, or "
        "costs such as stall=1ms,power=60 or lag=5ms. Default: changes are not counted.",
    ),
]
MaxRegions = Annotated[
    int | None,
    typer.Option(
        "--max-regions",
        envvar="JOULEWISE_MAX_REGIONS",
        min=1,
        max=1_000_000,
        help="Most regions in an iteration, with --granularity region.",
    ),
]
Objectives = Annotated[
    Objective,
    typer.Option("--objective", envvar="JOULEWISE_OBJECTIVE", help="What to minimise."),
]
Scopes = Annotated[
    Scope,
    typer.Option(
        "--scope",
        envvar="JOULEWISE_SCOPE",
        help="Bound the time of the whole (global), or of every kernel alone (local).",
    ),
]
NoGuard = Annotated[
    bool,
    typer.Option(
        "--no-guard",
        envvar="JOULEWISE_NO_GUARD",
        help="Plan on the table as it stands: no shrinkage, no guard band.",
    ),
]
# One variable for each kind of output: a common one would let commands overwrite each other.
RunFolder = Annotated[
    Path | None,
    typer.Option(
        "--out", envvar="JOULEWISE_RUN_DIR", help="Run folder. Default: runs/ and a time stamp."
    ),
]
SweepOut = Annotated[
    Path, typer.Option("--out", envvar="JOULEWISE_SWEEP", help="Where the sweep is written.")
]
PlanOut = Annotated[
    Path | None, typer.Option("--out", envvar="JOULEWISE_PLAN", help="Write plan.json here.")
]
TransitionOut = Annotated[
    Path,
    typer.Option(
        "--out", envvar="JOULEWISE_TRANSITION_OUT", help="Where the transition model is written."
    ),
]
FigureOut = Annotated[
    Path | None,
    typer.Option("--out", envvar="JOULEWISE_FIGURE", help="Write the figure, an HTML page, here."),
]
VerificationOut = Annotated[
    Path | None,
    typer.Option("--out", envvar="JOULEWISE_VERIFICATION", help="Write verification.json here."),
]
KernelColumn = Annotated[str, typer.Option("--kernel", metavar="COLUMN", help="Kernel name.")]
TimeColumn = Annotated[
    str, typer.Option("--time", metavar="COLUMN[:UNIT]", help="Time (s, ms, us, ns).")
]
SmClockColumn = Annotated[
    str | None,
    typer.Option("--sm-clock", metavar="COLUMN[:UNIT]", help="SM clock (MHz, kHz, Hz, GHz)."),
]
MemClockColumn = Annotated[
    str | None,
    typer.Option("--mem-clock", metavar="COLUMN[:UNIT]", help="Memory clock, as the SM clock."),
]
PowerLimitColumn = Annotated[
    str | None, typer.Option("--power-limit", metavar="COLUMN[:UNIT]", help="Power limit.")
]
EnergyColumn = Annotated[
    str | None,
    typer.Option("--energy", metavar="COLUMN[:UNIT]", help="Energy (J, mJ, uJ, kJ, Wh)."),
]
PowerColumn = Annotated[
    str | None,
    typer.Option(
        "--power", metavar="COLUMN[:UNIT]", help="Mean power (W, mW, kW); energy = power x time."
    ),
]
TimeStdColumn = Annotated[
    str | None,
    typer.Option("--time-std", metavar="COLUMN[:UNIT]", help="Standard deviation of one window."),
]
EnergyStdColumn = Annotated[
    str | None,
    typer.Option("--energy-std", metavar="COLUMN[:UNIT]", help="Standard deviation of one window."),
]
WindowCountColumn = Annotated[
    str | None, typer.Option("--window-count", metavar="COLUMN", help="Windows per row.")
]
DEFAULT_SWEEP = Path("sweep.parquet")
DEFAULT_TRANSITION = Path("transition.json")
PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="A plan.json.", show_default=False)]
PlanWorkload = Annotated[
    str | None,
    typer.Option(
        "--workload",
        envvar="JOULEWISE_WORKLOAD",
        help="Where the kernels come from. Default: the workload that the plan names.",
    ),
]
SweepFile = Annotated[
    Path, typer.Argument(metavar="SWEEP", help="A sweep, CSV or Parquet.", show_default=False)
]
