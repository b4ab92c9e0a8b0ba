"""The passes of a training iteration."""

from __future__ import annotations

from enum import StrEnum


class Pass(StrEnum):
    """The part of a training iteration that a launch belongs to."""

    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    COMMUNICATION = "communication"
