"""Fresh windows of chosen cells, interleaved, all in one measuring run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from joulewise.domain.errors import MeasurementError
from joulewise.domain.measurement import CellMeasurement, Window
from joulewise.domain.points import OperatingPoint
from joulewise.domain.ports import Lease, Progress, no_progress
from joulewise.domain.session import DeviceSession
from joulewise.measure.cell import CellVisit, measure_visit
from joulewise.measure.order import shuffled
from joulewise.measure.settings import MeasureSettings
from joulewise.measure.table import CellKey

REMEASURE_RUN = "remeasure"


def measure_fresh(  # noqa: PLR0913 - what, where, under which label, how, and whom to tell
    session: DeviceSession,
    lease: Lease,
    cells: Sequence[CellKey],
    window_count: int,
    *,
    settings: MeasureSettings,
    run: str = REMEASURE_RUN,
    first_window: int = 0,
    progress: Progress = no_progress,
) -> tuple[CellMeasurement, ...]:
    """Measure these cells in rounds: each round visits every cell once.

    Kernels come in another random order in every round, and the points of a kernel (such as
    the baseline and the chosen one) follow directly on one another, forwards in one round and
    backwards in the next, so that slow drifts fall on all of them alike. After a change the
    kernel runs until the temperature rests.

    Args:
        session: The device and what runs on it.
        lease: The right to set its clocks.
        cells: (kernel, point) pairs; repeated ones count once.
        window_count: Rounds, so windows per cell.
        settings: Length of a window, warm-up and patience.
        run: Label of the measuring run.
        first_window: Number of the first round's windows. Later calls within the same run
            must start where the earlier ones ended, or windows would repeat.
        progress: Told after every cell.

    Returns:
        One measurement per distinct cell, in the order given; idle power is not measured.

    Raises:
        MeasurementError: no rounds were asked for, or no trustworthy number came out.
        DeviceError: the device refused a point, has no energy counter, or was lost.
    """
    if window_count < 1:
        raise MeasurementError("fresh cells need at least one window each")
    distinct = tuple(dict.fromkeys(cells))
    windows: dict[CellKey, list[Window]] = {key: [] for key in distinct}
    total_count, done_count = len(distinct) * window_count, 0
    for number in range(first_window, first_window + window_count):
        order = interleaved(distinct, seed=settings.seed, label=run, round_number=number)
        for key, window in measure_in_turn(session, lease, order, run, number, settings):
            windows[key].append(window)
            done_count += 1
            progress("measuring afresh", done_count, total_count)
    return tuple(
        CellMeasurement(
            kernel=kernel,
            point=point,
            run=run,
            idle_power_w=None,
            windows=tuple(windows[kernel, point]),
        )
        for kernel, point in distinct
    )


def interleaved(
    cells: Iterable[CellKey], *, seed: int, label: str, round_number: int
) -> tuple[CellKey, ...]:
    """The order of one round: kernels at random, the points of each side by side.

    The order of a kernel's points turns around from one round to the next.
    """
    points: dict[str, list[OperatingPoint]] = {}
    for kernel, point in cells:
        points.setdefault(kernel, []).append(point)
    numbered = {kernel: number for number, kernel in enumerate(points)}
    order: list[CellKey] = []
    for kernel in shuffled(tuple(points), seed=seed, label=f"{label}/{round_number}"):
        # Half of the kernels start the other way round, so that no round favours one side.
        is_backwards = (round_number + numbered[kernel]) % 2 == 1
        side_by_side = reversed(points[kernel]) if is_backwards else points[kernel]
        order.extend((kernel, point) for point in side_by_side)
    return tuple(order)


def measure_in_turn(
    session: DeviceSession,
    lease: Lease,
    cells: Iterable[CellKey],
    run: str,
    window: int,
    settings: MeasureSettings,
) -> Iterator[tuple[CellKey, Window]]:
    """Measure one window of each cell in the order given, setting points as needed."""
    in_force: OperatingPoint | None = None
    for kernel, point in cells:
        if point != in_force:
            lease.apply(point)
            in_force = point
        visit = CellVisit(
            kernel=kernel,
            point=point,
            run=run,
            window=window,
            is_soak_optional=True,
        )
        yield (kernel, point), measure_visit(session, visit, settings).windows[0]
