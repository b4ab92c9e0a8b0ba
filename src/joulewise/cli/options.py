"""Options that several commands share: flag > JOULEWISE_* variable > default."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

DEFAULT_DEVICE = "virtual:rtx3080ti"
DEFAULT_WORKLOAD = "gpt3-xl"

Device = Annotated[
    str,
    typer.Option(
        "--device",
        envvar="JOULEWISE_DEVICE",
        help="Device string, e.g. virtual:rtx3080ti,noise=0,seed=7; see `joulewise devices`.",
    ),
]
Workload = Annotated[
    str,
    typer.Option(
        "--workload",
        envvar="JOULEWISE_WORKLOAD",
        help="Name of a built-in workload or a workload file; see `joulewise workloads`.",
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
        help="Time budget: 0.006 and 0.6% both mean 0.6 % more time; values above 1 need %.",
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
        help="Memory clocks to measure, e.g. auto,9501. Default: auto and all listed.",
    ),
]
Pairs = Annotated[
    int,
    typer.Option(
        "--pairs", envvar="JOULEWISE_PAIRS", min=2, max=1000, help="Paired runs to verify with."
    ),
]
SweepFile = Annotated[
    Path, typer.Argument(metavar="SWEEP", help="A sweep, CSV or Parquet.", show_default=False)
]
