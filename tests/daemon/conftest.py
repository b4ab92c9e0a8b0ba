"""Fixtures of tests on a real `joulewised`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.daemon.running import RunningDaemon, started_daemon
from tests.fake_nvml import driver, fake_library, make_driver

__all__ = ["daemon", "driver", "fake_library", "make_driver"]

if not sys.platform.startswith("linux"):
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="module")
def daemon(fake_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """One daemon with two GPUs for the tests of a module, which leave them as they were."""
    folder = tmp_path_factory.mktemp("daemon")
    with started_daemon(
        fake_library,
        folder,
        driver={"FAKE_NVML_DEVICES": "2", "FAKE_NVML_KNOBS": "set_call_s=0.001"},
    ) as running:
        yield running
