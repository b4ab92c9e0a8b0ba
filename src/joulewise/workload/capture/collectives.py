"""What collectives move: bytes on the link and in local memory, additions of reductions.

How often each byte moves is in `joulewise.domain.collectives`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from joulewise.domain.collectives import Exchanged, ring_exchange
from joulewise.domain.trace import Collective, KernelSignature
from joulewise.domain.workload import Dtype, KernelKind
from joulewise.workload.capture.fitting import RawWork
from joulewise.workload.capture.number_types import number_bytes
from joulewise.workload.capture.ops.formulas import MOST_BYTES

# What a collective moves in local memory is at most five times as much.
_MOST_WHOLE_BYTES = MOST_BYTES / 5
# By parts of the names that NCCL's metadata and PyTorch give; the first that fits.
_COLLECTIVES = (
    ("allreduce", Exchanged.ALL_REDUCE),
    ("reducescatter", Exchanged.REDUCE_SCATTER),
    ("alltoall", Exchanged.ALL_TO_ALL),
    ("gather", Exchanged.ALL_GATHER),
    ("scatter", Exchanged.ALL_GATHER),
    ("broadcast", Exchanged.BROADCAST),
    ("reduce", Exchanged.REDUCE),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTraffic:
    """What one GPU sends in one collective, what its memory moves, how many elements it adds."""

    link_bytes: float
    local_bytes: float
    added_count: float


def link_traffic(collective: Collective) -> LinkTraffic | None:
    """What a collective moves of one GPU; `None` where the profile does not tell enough.

    A name that is no collective's is taken for a send or receive.
    """
    size = number_bytes(collective.dtype or "")
    counts = [collective.input_element_count, collective.output_element_count]
    elements = max((count for count in counts if count is not None and count > 0), default=0)
    gpus = collective.group_gpu_count
    name = re.sub(r"[^a-z]", "", (collective.name or "").lower())
    if size is None or not elements or gpus is None or gpus < 1 or not name:
        return None
    if elements * size > _MOST_WHOLE_BYTES:
        return None
    exchange = ring_exchange(_exchanged(name), gpus)
    whole_bytes = elements * size
    return LinkTraffic(
        link_bytes=whole_bytes * exchange.link_ratio,
        local_bytes=whole_bytes * exchange.traffic_ratio,
        added_count=elements * exchange.sum_ratio,
    )


def collective_work(signature: KernelSignature, time_s: float) -> RawWork:
    """The work of a communication kernel of this duration.

    Where the profile does not tell what it moves, the kernel only waits.
    """
    traffic = None if signature.collective is None else link_traffic(signature.collective)
    return RawWork(
        kind=KernelKind.COLLECTIVE,
        dtype=Dtype.FP32,
        flop_count=0.0 if traffic is None else traffic.added_count,
        traffic_bytes=0.0 if traffic is None else traffic.local_bytes,
        link_s=time_s,
    )


def _exchanged(name: str) -> Exchanged:
    found = (collective for part, collective in _COLLECTIVES if part in name)
    return next(found, Exchanged.POINT_TO_POINT)
