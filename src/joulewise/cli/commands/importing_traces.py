"""`joulewise import kineto|nsys|ncu`: profiles of a training job or of serving."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from joulewise.cli.options import AsJson, FailOn
from joulewise.cli.outcome import Outcome, finish
from joulewise.cli.progress import progress_bars
from joulewise.cli.render import print_caveats, say
from joulewise.cli.values import caveat_kinds
from joulewise.cli.workload_options import DEFAULT_WORKLOAD_FILE, WorkloadOut
from joulewise.cli.workload_render import facts_document, print_workload
from joulewise.domain.plan import Status
from joulewise.report.workload_words import workload_sentence
from joulewise.store.importers.traces.file_kinds import Profiler
from joulewise.workflow.importing_traces import (
    ImportedTrace,
    TraceJob,
    import_trace_to_file,
)
from joulewise.workload.capture.choice import CaptureChoice

_TOP_COUNT = 15
_QUIET_S = 2.0

TraceFile = Annotated[Path, typer.Argument(metavar="FILE", show_default=False)]
Gpu = Annotated[
    int | None,
    typer.Option(
        "--gpu",
        envvar="JOULEWISE_TRACED_GPU",
        min=0,
        help="Which GPU, as the profiler numbers them. Default: the one with most kernel time.",
    ),
]
Step = Annotated[
    int | None,
    typer.Option(
        "--step",
        envvar="JOULEWISE_TRACED_STEP",
        min=0,
        help="Which iteration: the number in its mark, else its place from 0. Default: the one of "
        "median duration.",
    ),
]
Tokens = Annotated[
    int | None,
    typer.Option(
        "--tokens",
        envvar="JOULEWISE_TOKENS",
        help="Tokens that the whole job works through in one iteration.",
    ),
]
Gpus = Annotated[
    int | None,
    typer.Option("--gpus", envvar="JOULEWISE_GPUS", help="GPUs of the whole job."),
]
NodeGpus = Annotated[
    int | None,
    typer.Option(
        "--node-gpus", envvar="JOULEWISE_NODE_GPUS", help="How many of them share one node."
    ),
]
Name = Annotated[
    str | None,
    typer.Option(
        "--name", envvar="JOULEWISE_WORKLOAD_NAME", help="Name of the workload. Default: the file."
    ),
]
DeviceName = Annotated[
    str | None,
    typer.Option(
        "--device-name",
        envvar="JOULEWISE_DEVICE_NAME",
        metavar="TEXT",
        help="The GPU's name, such as 'NVIDIA A100-SXM4-80GB', where the file does not tell it.",
    ),
]


def import_timeline(profiler: Profiler, what: str) -> Callable[..., None]:
    """The command that imports files of a profiler that tells when each kernel ran."""

    def command(
        file: TraceFile,
        gpu: Gpu = None,
        step: Step = None,
        tokens: Tokens = None,
        gpus: Gpus = None,
        node_gpus: NodeGpus = None,
        name: Name = None,
        device_name: DeviceName = None,
        out: WorkloadOut = DEFAULT_WORKLOAD_FILE,
        as_json: AsJson = False,
        fail_on: FailOn = None,
    ) -> None:
        choice = CaptureChoice(
            name=name,
            gpu=gpu,
            step=step,
            token_count=tokens,
            gpu_count=gpus,
            node_gpu_count=node_gpus,
            device_name=device_name,
        )
        job = TraceJob(profiler=profiler, file=file, out=out, choice=choice)
        _import(job, as_json=as_json, fail_on=fail_on)

    command.__doc__ = f"Import {what} as a workload."
    return command


def import_ncu(
    file: TraceFile,
    tokens: Tokens = None,
    gpus: Gpus = None,
    node_gpus: NodeGpus = None,
    name: Name = None,
    device_name: DeviceName = None,
    out: WorkloadOut = DEFAULT_WORKLOAD_FILE,
    as_json: AsJson = False,
    fail_on: FailOn = None,
) -> None:
    """Import an Nsight Compute page (ncu --csv) as a workload, with the counts that it measured."""
    choice = CaptureChoice(
        name=name,
        token_count=tokens,
        gpu_count=gpus,
        node_gpu_count=node_gpus,
        device_name=device_name,
    )
    job = TraceJob(profiler=Profiler.NCU, file=file, out=out, choice=choice)
    _import(job, as_json=as_json, fail_on=fail_on)


def _import(job: TraceJob, *, as_json: bool, fail_on: str | None) -> None:
    wanted = caveat_kinds(fail_on)
    with progress_bars(is_shown=not as_json, after_s=_QUIET_S) as progress:
        done = import_trace_to_file(job, progress)

    def render(console: Console) -> None:
        print_workload(console, done.facts, _TOP_COUNT)
        print_caveats(console, done.caveats)
        say(console, f"{workload_sentence(done.facts)} Written to {job.out}.")
        if done.virtual_device is not None:
            workload, device = shlex.quote(str(job.out)), done.virtual_device
            say(console, f"Next: joulewise tune --workload {workload} --device {device}")

    outcome = Outcome(
        status=Status.FEASIBLE,
        render=render,
        caveats=done.caveats,
        time_s=done.facts.time_s,
        extra=_document(done, job.out),
    )
    finish(outcome, as_json=as_json, fail_on=wanted)


def _document(done: ImportedTrace, out: Path) -> dict[str, object]:
    return {
        "workload": str(out),
        **facts_document(done.facts, _TOP_COUNT),
        "workload_kernel_count": len(done.workload.kernels),
        "workload_launch_count": len(done.workload.launches),
        "trace_kernel_count": done.trace_kernel_count,
        "trace_kernel_time_s": done.trace_kernel_time_s,
        "trace_top_kernels": done.top_kernels,
    }
