"""joulewise: the same AI work, in the same time, for less energy, by choosing GPU clocks."""

from __future__ import annotations

__version__ = "0.1.0"
