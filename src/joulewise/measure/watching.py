"""Looking at the device again and again while something runs on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from joulewise.domain.errors import JoulewiseError
from joulewise.domain.measurement import GpuSample
from joulewise.domain.ports import Gpu, IterationLoop, KernelLoop


@contextmanager
def window_of(loop: KernelLoop | IterationLoop, number: int) -> Iterator[None]:
    """Begin a window of a loop that the caller ends after the block.

    Where the block fails the window is ended here, so that the next one can begin; what failed
    first is raised.
    """
    loop.begin_window(number)
    try:
        yield
    except Exception:
        with suppress(JoulewiseError):
            loop.end_window()
        raise


def watch(
    gpu: Gpu, let_pass: Callable[[float], None], duration_s: float, sample_s: float
) -> list[GpuSample]:
    """Let time pass and read everything each time another `sample_s` has gone.

    Args:
        gpu: What to look at.
        let_pass: Lets that many seconds pass, with or without load.
        duration_s: How long in all.
        sample_s: Time between samples.

    Returns:
        Samples within the time, in order; the last one right at its end.

    Raises:
        DeviceLost: it no longer answers.
    """
    whole_count = max(0, int(duration_s // sample_s))
    pieces_s = [sample_s] * whole_count
    rest_s = duration_s - whole_count * sample_s
    if rest_s > 0:
        pieces_s.append(rest_s)
    samples = []
    for piece_s in pieces_s:
        let_pass(piece_s)
        samples.append(gpu.sample())
    return samples
