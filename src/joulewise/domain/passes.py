"""The passes of a training iteration, and which kernels communicate."""

from __future__ import annotations

import re
from enum import StrEnum


class Pass(StrEnum):
    """The part of a training iteration that a launch belongs to."""

    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    COMMUNICATION = "communication"


_COMMUNICATION = re.compile(
    r"nccl|rccl|nvshmem|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|send_?recv"
    r"|cross_device_reduce",
    re.IGNORECASE,
)


def is_communication_kernel(name: str) -> bool:
    """Whether a kernel or operation of this name exchanges data with other GPUs.

    Names are those of NCCL, RCCL and NVSHMEM, and of collectives wherever they come from, such
    as the custom all-reduce of vLLM.
    """
    return _COMMUNICATION.search(name) is not None
