"""Options of `joulewise pipeline`, and their text turned into values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from joulewise.cli.values import slowdown_budget
from joulewise.domain.errors import InputError
from joulewise.domain.pipeline import PipelineSchedule, Straggler

MOST_STAGES_COUNT = 1_000
MOST_MICRO_BATCHES_COUNT = 10_000

Profiles = Annotated[
    list[Path],
    typer.Argument(
        metavar="PROFILE...",
        help="A Perseus CSV or a sweep of stageN/forward and stageN/backward, or one "
        "kernel-level sweep per stage, in order.",
        show_default=False,
    ),
]
Stages = Annotated[
    int | None,
    typer.Option(
        "--stages",
        envvar="JOULEWISE_STAGES",
        min=1,
        max=MOST_STAGES_COUNT,
        help="Stages of the pipeline. Default: as many as the profile has.",
    ),
]
MicroBatches = Annotated[
    int,
    typer.Option(
        "--microbatches",
        envvar="JOULEWISE_MICROBATCHES",
        min=1,
        max=MOST_MICRO_BATCHES_COUNT,
        help="Micro-batches of one iteration.",
    ),
]
Schedules = Annotated[
    PipelineSchedule,
    typer.Option(
        "--schedule",
        envvar="JOULEWISE_SCHEDULE",
        help="In which order a stage runs its micro-batches.",
    ),
]
Chunks = Annotated[
    int | None,
    typer.Option(
        "--chunks",
        envvar="JOULEWISE_CHUNKS",
        min=1,
        max=MOST_STAGES_COUNT,
        help="Model chunks per stage, for the interleaved schedule. Default: 2 there, else 1.",
    ),
]
BlockingPower = Annotated[
    float,
    typer.Option(
        "--blocking-power",
        envvar="JOULEWISE_BLOCKING_POWER",
        metavar="W",
        help="What a stage draws while it waits for another, in W.",
    ),
]
TimeBudget = Annotated[
    float | None,
    typer.Option(
        "--time",
        envvar="JOULEWISE_TIME",
        metavar="S",
        help="Time budget of one iteration in seconds. Default: that of the baseline.",
    ),
]
Stragglers = Annotated[
    list[str] | None,
    typer.Option(
        "--straggler",
        envvar="JOULEWISE_STRAGGLER",
        metavar="STAGE:SLOWDOWN",
        help="A stage that takes longer than its profile says: 3:10% (stages count from 0). May "
        "be given for several stages.",
    ),
]
PlanWorkload = Annotated[
    str | None,
    typer.Option(
        "--workload",
        envvar="JOULEWISE_WORKLOAD",
        help="What one micro-batch launches on a stage, for kernel-level sweeps. Default: the "
        "built-in workload that each sweep names.",
    ),
]
PlanPoints = Annotated[
    int,
    typer.Option(
        "--points",
        envvar="JOULEWISE_POINTS",
        min=0,
        max=10_000,
        help="Points of the frontier that --out keeps beside the plan, for the report.",
    ),
]
FrontierPoints = Annotated[
    int,
    typer.Option(
        "--points",
        envvar="JOULEWISE_POINTS",
        min=2,
        max=10_000,
        help="Points of the frontier.",
    ),
]
PipelineOut = Annotated[
    Path | None,
    typer.Option("--out", envvar="JOULEWISE_PIPELINE", help="Write pipeline.json here."),
]


def power_while_waiting(power_w: float) -> float:
    """Refuse what no board draws. Raises InputError."""
    if not 0.0 <= power_w < math.inf:
        raise InputError(
            f"{power_w} is no power", field="blocking-power", hint="Give it in W, from 0 up."
        )
    return power_w


def time_budget(
    time_s: float | None, max_slowdown: str | None
) -> tuple[float | None, float | None]:
    """Seconds or a slowdown against the baseline, not both. Raises InputError."""
    if time_s is not None and max_slowdown is not None:
        raise InputError(
            "--time and --max-slowdown both bound the time", field="time", hint="Give one of them."
        )
    if time_s is not None and not 0.0 < time_s < math.inf:
        raise InputError(f"{time_s} is no time", field="time", hint="Give it in seconds, above 0.")
    return time_s, None if max_slowdown is None else slowdown_budget(max_slowdown)


def chunk_count(chunks: int | None, schedule: PipelineSchedule) -> int:
    """Two chunks by default where they interleave. Raises InputError where they cannot."""
    if schedule is PipelineSchedule.INTERLEAVED:
        return 2 if chunks is None else chunks
    if chunks is not None and chunks > 1:
        raise InputError(
            f"the {schedule} schedule runs a stage as one chunk, not {chunks}",
            field="chunks",
            hint="Add --schedule interleaved.",
        )
    return 1


def stragglers(texts: Sequence[str]) -> tuple[Straggler, ...]:
    """`3:10%`: stage 3 takes 10 % longer. Raises InputError."""
    found: dict[int, Straggler] = {}
    for text in texts:
        stage_text, colon, slowdown = text.partition(":")
        stage_text = stage_text.strip()
        is_stage = stage_text.isascii() and stage_text.isdecimal() and len(stage_text) < 7  # noqa: PLR2004
        if not colon or not is_stage:
            raise InputError(
                f"{text!r} does not name a stage and its slowdown",
                field="straggler",
                hint="Write 3:10% for a stage 3 that takes 10 % longer.",
            )
        stage = int(stage_text)
        if stage in found:
            raise InputError(f"stage {stage} is named twice", field="straggler")
        found[stage] = Straggler(stage=stage, slowdown_ratio=1.0 + _slowdown(text, slowdown))
    return tuple(found.values())


def _slowdown(text: str, slowdown: str) -> float:
    try:
        ratio = slowdown_budget(slowdown)
    except InputError as error:
        raise InputError(
            f"{text!r}: {error.message}", field="straggler", hint="Write 3:10% or 3:0.1."
        ) from error
    if ratio < 0:
        raise InputError(
            f"{text!r} would make the stage faster",
            field="straggler",
            hint="A straggler takes longer than its profile says.",
        )
    return ratio
