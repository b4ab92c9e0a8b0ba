"""Options of `joulewise pipeline`, and their text turned into values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from joulewise.cli.values import power_w, slowdown_budget
from joulewise.domain.errors import InputError
from joulewise.domain.pipeline import PipelineSchedule, Straggler
from joulewise.workflow.pipelines import LONGEST_TIME_S

MOST_STAGES_COUNT = 1_000
MOST_MICRO_BATCHES_COUNT = 10_000
MOST_FRONTIER_POINTS_COUNT = 1_000
MOST_POWER_W = 1e6
MOST_STRAGGLING_RATIO = 1e3

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
    str,
    typer.Option(
        "--blocking-power",
        envvar="JOULEWISE_BLOCKING_POWER",
        metavar="W",
        help="What a stage draws while it waits for another, in W: 80 or 80W.",
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
        help="Points of the frontier that --out keeps beside the plan, for the report: none with "
        f"0, else 2 to {MOST_FRONTIER_POINTS_COUNT}.",
    ),
]
FrontierPoints = Annotated[
    int,
    typer.Option(
        "--points",
        envvar="JOULEWISE_POINTS",
        help=f"Points of the frontier, 2 to {MOST_FRONTIER_POINTS_COUNT}.",
    ),
]
PipelineOut = Annotated[
    Path | None,
    typer.Option("--out", envvar="JOULEWISE_PIPELINE", help="Write pipeline.json here."),
]


def power_while_waiting(text: str) -> float:
    """`80`, `80W`. Refuses what no stage draws. Raises InputError."""
    drawn_w = power_w(text, field="blocking-power")
    if drawn_w > MOST_POWER_W:
        raise InputError(
            f"no stage draws {drawn_w:g} W while it waits; {MOST_POWER_W:g} W are the most",
            field="blocking-power",
        )
    return drawn_w


def frontier_point_count(count: int, *, is_optional: bool = False) -> int:
    """A frontier has two ends; none at all where it is optional. Raises InputError."""
    if (is_optional and count == 0) or 2 <= count <= MOST_FRONTIER_POINTS_COUNT:  # noqa: PLR2004
        return count
    or_none = ", or 0 for no frontier" if is_optional else ""
    raise InputError(
        f"a frontier has from 2 to {MOST_FRONTIER_POINTS_COUNT} points{or_none}, not {count}",
        field="points",
    )


def time_budget(
    time_s: float | None, max_slowdown: str | None
) -> tuple[float | None, float | None]:
    """Seconds or a slowdown against the baseline, not both. Raises InputError."""
    if time_s is not None and max_slowdown is not None:
        raise InputError(
            "--time and --max-slowdown both bound the time", field="time", hint="Give one of them."
        )
    if time_s is not None and not 0.0 < time_s <= LONGEST_TIME_S:
        raise InputError(
            f"{time_s:g} s is no time of an iteration",
            field="time",
            hint=f"Give it in seconds, above 0 and up to {LONGEST_TIME_S:g}.",
        )
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
    if ratio > MOST_STRAGGLING_RATIO:
        raise InputError(
            f"{text!r} is no straggler: {100 * MOST_STRAGGLING_RATIO:g}% more time is the most",
            field="straggler",
        )
    return ratio
