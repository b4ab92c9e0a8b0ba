"""Doubts of many windows, told once per kind."""

from __future__ import annotations

from collections.abc import Iterable

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.measurement import ReplayWindow, Window


def tally(windows: Iterable[Window | ReplayWindow]) -> tuple[Caveat, ...]:
    """One caveat per kind seen in any window, in how many, with the first one's words."""
    window_count = 0
    seen: dict[CaveatKind, list[str]] = {}
    for window in windows:
        window_count += 1
        if window.caveats:
            for kind, text in {caveat.kind: caveat.seen for caveat in window.caveats}.items():
                seen.setdefault(kind, []).append(text)
    return tuple(
        Caveat(kind=kind, seen=f"{texts[0]} ({len(texts)} of {window_count} windows)")
        for kind, texts in sorted(seen.items())
    )
