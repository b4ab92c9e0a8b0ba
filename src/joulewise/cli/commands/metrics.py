"""`joulewise metrics`: what the GPUs here do, for Prometheus to scrape."""

from __future__ import annotations

import sys
import threading
from contextlib import closing, suppress
from typing import Annotated

import typer

from joulewise.cli.outcome import stderr_console
from joulewise.cli.render import visible
from joulewise.workflow.metrics import watch_machine

DEFAULT_LISTEN = "127.0.0.1:9835"

Listen = Annotated[
    str,
    typer.Option(
        "--listen",
        envvar="JOULEWISE_METRICS_LISTEN",
        metavar="ADDRESS:PORT",
        help="Where to be scraped. Anyone who reaches that address may read.",
    ),
]
Once = Annotated[
    bool,
    typer.Option(
        "--once", help="Print the metrics once to standard output, and end; nothing listens."
    ),
]


def metrics(listen: Listen = DEFAULT_LISTEN, once: Once = False) -> None:
    """Serve metrics of every GPU here to Prometheus, until stopped.

    Reads alone: needs no rights and no joulewised, which serves the same and more of its own.
    GPUs are read when they are scraped, at most twice a second.
    """
    from joulewise.integrations.prometheus import (  # noqa: PLC0415 - others start without it
        metrics_text,
        parse_listen,
        serve_metrics,
    )

    # Also where nothing listens: an address that is none is a mistake.
    parse_listen(listen)
    with closing(watch_machine()) as watch:
        if once:
            sys.stdout.write(metrics_text(watch.gpus))
            return
        close = serve_metrics(listen, watch.gpus)
        try:
            stderr_console().print(visible(f"metrics: {close.url}"), markup=False)
            # Whoever started this stops it; that is how it ends well.
            with suppress(KeyboardInterrupt):
                threading.Event().wait()
        finally:
            close()
