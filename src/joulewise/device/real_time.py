"""Time of the machine, as hardware lives it."""

from __future__ import annotations

import time


class MonotonicTimer:
    """A `Timer` on CLOCK_MONOTONIC (`time.monotonic`), which every process of the host shares."""

    def now_s(self) -> float:
        """Seconds since the machine started."""
        return time.monotonic()

    def sleep(self, duration_s: float) -> None:
        """Wait; nothing happens for a duration of zero or below."""
        if duration_s > 0:
            time.sleep(duration_s)
