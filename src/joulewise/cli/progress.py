"""Progress bars on stderr for everything over two seconds."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from threading import Timer

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from joulewise.cli.outcome import stderr_console
from joulewise.domain.ports import Progress as ProgressPort
from joulewise.domain.ports import no_progress

# A cell on hardware takes most of a minute: the time that remains shows only over several.
_SPEED_OVER_S = 1800.0


@contextmanager
def progress_bars(*, is_shown: bool, after_s: float = 0.0) -> Generator[ProgressPort]:
    """One bar per stage, fed by the stages through the progress port.

    Nothing is shown of what is over within `after_s`: a bar that flashes by says nothing.
    """
    if not is_shown:
        yield no_progress
        return
    bars = Progress(
        TextColumn("{task.description:<28}"),
        BarColumn(bar_width=36),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=stderr_console(),
        speed_estimate_period=_SPEED_OVER_S,
    )
    tasks: dict[str, TaskID] = {}

    def report(what: str, done_count: int, total_count: int) -> None:
        if what not in tasks:
            tasks[what] = bars.add_task(what, total=total_count)
        bars.update(tasks[what], completed=done_count, total=total_count)

    start = Timer(after_s, bars.start)
    start.daemon = True
    if after_s > 0:
        start.start()
    else:
        bars.start()
    try:
        yield report
    finally:
        start.cancel()
        if after_s > 0:
            start.join()
        if not tasks:
            bars.live.stop()
        elif bars.live.is_started:
            bars.stop()  # ends with a line of its own where nobody watches
