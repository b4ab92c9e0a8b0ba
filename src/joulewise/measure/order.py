"""Random orders that depend on a seed and a label only, so that resuming changes none."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

_Item = TypeVar("_Item")


def shuffled(items: Sequence[_Item], *, seed: int, label: str) -> tuple[_Item, ...]:
    """The items in a random order drawn from (seed, label)."""
    digest = hashlib.sha256(f"{seed}\x1f{label}".encode()).digest()
    rng = np.random.default_rng(int.from_bytes(digest[:16], "big"))
    return tuple(items[index] for index in rng.permutation(len(items)))
