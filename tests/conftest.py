"""Fixtures every suite shares."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

# Shared machines stand still now and then: how long one example takes says nothing.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session", autouse=True)
def usual_signals() -> None:
    """Signals as a terminal leaves them: `nohup` and background jobs ignore some of them.

    What is ignored stays ignored in every process that a test starts, too.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if os.name == "posix":
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def leases_apart(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Leases of tests neither meet those of this machine nor go through its joulewised."""
    os.environ["JOULEWISE_SOCKET"] = "off"
    os.environ["JOULEWISE_STATE_DIR"] = str(tmp_path_factory.mktemp("leases"))


@pytest.fixture(scope="session")
def measured_data() -> Path:
    """Folder of measured data sets, or a skip that says what is missing."""
    folder = Path(os.environ.get("JOULEWISE_DATA", REPOSITORY.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"measured data sets not found at {folder}; set JOULEWISE_DATA")
    return folder
