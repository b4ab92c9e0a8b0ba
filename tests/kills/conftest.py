"""Fixtures of kill tests: the fake driver is built before any process loads it."""

from __future__ import annotations

import sys

from tests.fake_nvml import fake_library

__all__ = ["fake_library"]

if not sys.platform.startswith("linux"):
    collect_ignore_glob = ["test_*.py"]
