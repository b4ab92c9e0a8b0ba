"""What a user may decide about a capture."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureChoice:
    """What to take from a trace; `None` leaves it to the trace.

    `gpu` is the one with the most kernel time by default. `step` is the iteration: the number
    that its mark bears (`ProfilerStep#12` is 12), or else its place from 0; by default the one
    of median duration among complete ones. `token_count`, `gpu_count` and `node_gpu_count` are
    the user's word on the size of an iteration of the whole job, and `device_name` the GPU's
    name where the trace does not say it.
    """

    name: str | None = None
    gpu: int | None = None
    step: int | None = None
    token_count: int | None = None
    gpu_count: int | None = None
    node_gpu_count: int | None = None
    device_name: str | None = None
