"""Progress bars on stderr for everything over two seconds."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

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


@contextmanager
def progress_bars(*, is_shown: bool) -> Generator[ProgressPort]:
    """One bar per stage, fed by the stages through the progress port."""
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
    )
    tasks: dict[str, TaskID] = {}

    def report(what: str, done_count: int, total_count: int) -> None:
        if what not in tasks:
            tasks[what] = bars.add_task(what, total=total_count)
        bars.update(tasks[what], completed=done_count, total=total_count)

    with bars:
        yield report
