"""Gaps between kernels, as reports know them: by their names."""

from __future__ import annotations

from joulewise.domain.gaps import is_gap

__all__ = ["is_gap"]
