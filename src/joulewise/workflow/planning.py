"""`plan` and `frontier`: clocks from a sweep file."""

from __future__ import annotations
