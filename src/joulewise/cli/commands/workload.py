"""`joulewise workload`: what is there, what it is made of, and new ones from a model's shape."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from joulewise.cli.commands.workload_building import build
from joulewise.cli.options import AsJson, FailOn
from joulewise.cli.outcome import Outcome, finish
from joulewise.cli.render import print_caveats, print_line, print_wrapped, say, table
from joulewise.cli.sentences import device_efficiency_line
from joulewise.cli.values import caveat_kinds
from joulewise.cli.workload_render import facts_document, print_workload
from joulewise.domain.plan import Status
from joulewise.report.workload_words import workload_sentence
from joulewise.workflow.workload_facts import ShowJob, show_workload
from joulewise.workflow.workloads import workload_lines

app = typer.Typer(
    help="List, show and build workloads: the kernels of one iteration, in order.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.command("build", short_help="Build a workload from a model's shape.")(build)

WorkloadText = Annotated[
    str,
    typer.Argument(
        metavar="WORKLOAD",
        help="A built-in name with options, hf:PATH of a config.json, or a workload file.",
        show_default=False,
    ),
]
VirtualDevice = Annotated[
    str | None,
    typer.Option(
        "--device",
        help="A virtual GPU: say what each kernel takes on it with clocks at auto.",
    ),
]
Top = Annotated[
    int,
    typer.Option("--top", envvar="JOULEWISE_TOP", min=1, max=100_000, help="Kernels to list."),
]
Html = Annotated[
    Path | None,
    typer.Option(
        "--html", envvar="JOULEWISE_WORKLOAD_HTML", help="Write a page with figures here."
    ),
]


@app.command("list")
def list_workloads(as_json: AsJson = False, fail_on: FailOn = None) -> None:
    """List the workloads that --workload takes by name."""
    wanted = caveat_kinds(fail_on)
    lines = workload_lines()

    def render(console: Console) -> None:
        rows = [(line.workload, line.description) for line in lines]
        console.print(table(None, ("workload", "what it is"), rows, left_count=2, copied_count=1))
        say(
            console,
            "Options follow after commas, as in llama3-8b,batch=2,seq=4096. hf:PATH takes the "
            "config.json of a model; joulewise import reads profiles.",
        )

    outcome = Outcome(status=Status.FEASIBLE, render=render, extra={"workloads": lines})
    finish(outcome, as_json=as_json, fail_on=wanted)


@app.command("show")
def show(
    workload: WorkloadText,
    device: VirtualDevice = None,
    top: Top = 15,
    html: Html = None,
    as_json: AsJson = False,
    fail_on: FailOn = None,
) -> None:
    """Show what a workload is made of: kernels, passes, FLOPs, bytes, gaps; times if known."""
    wanted = caveat_kinds(fail_on)
    shown = show_workload(ShowJob(workload=workload, device=device, html=html))

    def render(console: Console) -> None:
        print_workload(console, shown.facts, top)
        print_caveats(console, shown.caveats)
        say(console, workload_sentence(shown.facts))
        if device is not None:
            print_wrapped(console, device_efficiency_line(shown.workload, shown.efficiency))
        print_line(console, None if html is None else f"Page: {html}")

    outcome = Outcome(
        status=Status.FEASIBLE,
        render=render,
        caveats=shown.caveats,
        time_s=shown.facts.time_s,
        energy_j=shown.facts.energy_j,
        extra={
            **facts_document(shown.facts, top),
            "traced_time_s": shown.facts.traced_time_s,
            "html": None if html is None else str(html),
        },
    )
    finish(outcome, as_json=as_json, fail_on=wanted)
