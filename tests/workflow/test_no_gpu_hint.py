"""Where there is no GPU, the hint names every kind of device that could be meant."""

from __future__ import annotations

import pytest

from joulewise.workflow import hardware
from joulewise.workflow.findings import Diagnosis


def test_a_hint_without_a_gpu_names_boards_too(monkeypatch: pytest.MonkeyPatch) -> None:
    none = Diagnosis(
        verdict="There is no NVIDIA GPU",
        hint="Take a virtual one.",
        can_read=False,
        can_set=False,
        machine=(),
    )
    monkeypatch.setattr(hardware, "examine", lambda: none)
    monkeypatch.setattr(hardware, "socket_path", lambda: None)
    error = hardware.no_gpu_here()

    assert error is not None
    assert "Take a virtual one." in (error.hint or "")
    assert "--device jetson" in (error.hint or "")
    assert "JOULEWISE_JETSON_ROOT" in (error.hint or "")
