"""Windows whose loop fails while they are open."""

from __future__ import annotations

import pytest

from joulewise.domain.errors import DeviceLost, MeasurementError
from joulewise.domain.measurement import LoopTiming
from joulewise.domain.points import AUTO
from joulewise.domain.ports import KernelLoop
from joulewise.measure.settings import MeasureSettings
from joulewise.measure.window import REPEAT_STRIDE, measure_window
from joulewise.simulator.virtual import open_virtual
from joulewise.workload.gpt3_xl import gpt3_xl

WORKS = gpt3_xl().works[:1]
KERNEL = WORKS[0].kernel
QUIET = "virtual:rtx3080ti,noise=0"
SETTINGS = MeasureSettings()


@pytest.mark.parametrize("failing_count", [1, 2])
def test_a_loop_that_fails_within_a_window_can_begin_the_next(failing_count: int) -> None:
    session = open_virtual(QUIET, WORKS)

    class Faltering:
        """Fails in the midst of its first windows."""

        def __init__(self, loop: KernelLoop) -> None:
            self._loop = loop
            self._left_count = failing_count
            self._is_open = False

        def begin_window(self, window: int) -> None:
            self._is_open = True
            self._loop.begin_window(window)

        def run_for(self, duration_s: float) -> None:
            self._loop.run_for(duration_s)
            if self._is_open and self._left_count:
                self._left_count -= 1
                raise MeasurementError("the launches stopped for a moment")

        def end_window(self) -> LoopTiming:
            self._is_open = False
            return self._loop.end_window()

    with session.runner.loop(KERNEL, run="test") as loop:
        window = measure_window(session.gpu, Faltering(loop), AUTO, 0, SETTINGS)
    assert failing_count * REPEAT_STRIDE == window.window
    assert () == window.caveats


def test_what_failed_within_a_window_is_raised_though_the_window_cannot_end_either() -> None:
    session = open_virtual(QUIET, WORKS)

    class Lost:
        def begin_window(self, window: int) -> None:
            """Begin nothing."""

        def run_for(self, _duration_s: float) -> None:
            raise DeviceLost("the GPU fell off the bus")

        def end_window(self) -> LoopTiming:
            raise MeasurementError("no window is open")

    with pytest.raises(DeviceLost, match="fell off"):
        measure_window(session.gpu, Lost(), AUTO, 0, SETTINGS)
