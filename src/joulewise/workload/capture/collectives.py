"""What collectives move: bytes on the link and in local memory, additions of reductions.

Bytes on the link are those of the ring algorithms as nccl-tests counts them
(doc/PERFORMANCE.md): 2 (n-1)/n of the data for an all-reduce, (n-1)/n for all-gather,
reduce-scatter and all-to-all, all of it for broadcast, reduce and send or receive.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from joulewise.domain.trace import Collective, KernelSignature
from joulewise.domain.workload import Dtype, KernelKind
from joulewise.workload.capture.fitting import RawWork

_DTYPE_BYTES = {
    "Byte": 1,
    "Char": 1,
    "Bool": 1,
    "Float8_e4m3fn": 1,
    "Float8_e5m2": 1,
    "Half": 2,
    "BFloat16": 2,
    "Float": 4,
    "Int": 4,
    "Double": 8,
    "Long": 8,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTraffic:
    """What one GPU sends in one collective, and how many elements it adds up."""

    link_bytes: float
    added_count: float


def link_traffic(collective: Collective) -> LinkTraffic | None:
    """Bytes on the link of one GPU; `None` where the profile does not tell enough."""
    size = _DTYPE_BYTES.get(_plain(collective.dtype or ""))
    counts = [collective.input_element_count, collective.output_element_count]
    elements = max((count for count in counts if count is not None and count > 0), default=0)
    gpus = collective.group_gpu_count
    if size is None or not elements or gpus is None or gpus < 1:
        return None
    name = re.sub(r"[^a-z]", "", (collective.name or "").lower())
    if not name:
        return None
    others = (gpus - 1) / gpus
    is_reduction = "reduce" in name
    passes = _passes(name, others)
    return LinkTraffic(
        link_bytes=elements * size * passes,
        added_count=elements * others if is_reduction else 0.0,
    )


def collective_work(signature: KernelSignature, time_s: float) -> RawWork:
    """The work of a communication kernel of this duration.

    Local memory reads what is sent and writes what is received: twice the bytes on the link.
    Where the profile does not tell them, the kernel only waits.
    """
    traffic = None if signature.collective is None else link_traffic(signature.collective)
    return RawWork(
        kind=KernelKind.COLLECTIVE,
        dtype=Dtype.FP32,
        flop_count=0.0 if traffic is None else traffic.added_count,
        traffic_bytes=0.0 if traffic is None else 2.0 * traffic.link_bytes,
        link_s=time_s,
    )


def _passes(name: str, others: float) -> float:
    if "allreduce" in name:
        return 2.0 * others
    if any(one in name for one in ("gather", "scatter", "alltoall")):
        return others
    return 1.0


def _plain(dtype: str) -> str:
    return dtype.removeprefix("c10::").removeprefix("torch.").strip()
