"""Being somebody else for a moment, which only root can where other users exist."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

SOMEBODY = 4001
_HIGHEST = 65534


def _can_be_others() -> bool:
    """Whether this is root, of a namespace that has all the users the tests name."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return False
    lines = Path("/proc/self/uid_map").read_text(encoding="ascii").splitlines()
    ranges = [tuple(map(int, line.split())) for line in lines]
    is_mapped = any(first == 0 and count > _HIGHEST for first, _, count in ranges)
    return is_mapped and "allow" in Path("/proc/self/setgroups").read_text(encoding="ascii")


as_root = pytest.mark.skipif(not _can_be_others(), reason="only root can be somebody else")


@contextmanager
def as_user(uid: int, gid: int, groups: Sequence[int] = ()) -> Iterator[None]:
    """Be somebody else for whom one connects to meanwhile; only root can."""
    kept_groups, kept_gid = os.getgroups(), os.getegid()
    os.setgroups(groups)
    os.setegid(gid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(kept_gid)
        os.setgroups(kept_groups)
