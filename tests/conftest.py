"""Fixtures every suite shares."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def measured_data() -> Path:
    """Folder of measured data sets, or a skip that says what is missing."""
    folder = Path(os.environ.get("JOULEWISE_DATA", REPOSITORY.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"measured data sets not found at {folder}; set JOULEWISE_DATA")
    return folder
