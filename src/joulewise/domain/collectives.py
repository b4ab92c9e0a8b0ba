"""What collectives of GPUs in a ring move: past the link and in local memory, for each byte.

Every GPU of n sends its part to the next, n - 1 times (Thakur, Rabenseifner and Gropp 2005,
Optimization of Collective Communication Operations in MPICH; NCCL's ring algorithm). Per GPU,
with c = (n - 1)/n and S bytes that all hold together after an all-gather, and each before the
others:

| collective | on the link | in local memory | sums |
| --- | --- | --- | --- |
| all-gather, gather, scatter | c S | c S sent from, c S received into memory: 2 c S | 0 |
| all-to-all | c S | the same: 2 c S | 0 |
| reduce-scatter | c S | received, read again, and added to an own copy: 3 c S | c S / element |
| all-reduce | 2 c S | a reduce-scatter and an all-gather: 5 c S | c S / element |
| broadcast | S | received and sent on: 2 S | 0 |
| reduce | S | received, read again, and added to an own copy: 3 S | S / element |
| send or receive | S | S | 0 |

Bytes on the link are those that nccl-tests counts (doc/PERFORMANCE.md); those in local memory
follow from the steps of the algorithm.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Exchanged(StrEnum):
    """Collectives, and sends and receives between two GPUs."""

    ALL_GATHER = "all-gather"
    ALL_REDUCE = "all-reduce"
    ALL_TO_ALL = "all-to-all"
    BROADCAST = "broadcast"
    POINT_TO_POINT = "point-to-point"
    REDUCE = "reduce"
    REDUCE_SCATTER = "reduce-scatter"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """How often each byte of a collective passes the link and the local memory of one GPU.

    `sum_ratio` is the number of additions for each element.
    """

    link_ratio: float
    traffic_ratio: float
    sum_ratio: float


def ring_exchange(collective: Exchanged, gpu_count: int) -> Exchange:
    """What a collective among so many GPUs, at least one, moves for each byte of the whole."""
    part = (gpu_count - 1) / gpu_count
    if collective in _OF_ONE_PART:
        once = _OF_ONE_PART[collective]
        return Exchange(
            link_ratio=once.link_ratio * part,
            traffic_ratio=once.traffic_ratio * part,
            sum_ratio=once.sum_ratio * part,
        )
    return _WHOLE[collective]


# Times c.
_OF_ONE_PART = {
    Exchanged.ALL_GATHER: Exchange(link_ratio=1, traffic_ratio=2, sum_ratio=0),
    Exchanged.ALL_TO_ALL: Exchange(link_ratio=1, traffic_ratio=2, sum_ratio=0),
    Exchanged.REDUCE_SCATTER: Exchange(link_ratio=1, traffic_ratio=3, sum_ratio=1),
    Exchanged.ALL_REDUCE: Exchange(link_ratio=2, traffic_ratio=5, sum_ratio=1),
}
_WHOLE = {
    Exchanged.BROADCAST: Exchange(link_ratio=1, traffic_ratio=2, sum_ratio=0),
    Exchanged.REDUCE: Exchange(link_ratio=1, traffic_ratio=3, sum_ratio=1),
    Exchanged.POINT_TO_POINT: Exchange(link_ratio=1, traffic_ratio=1, sum_ratio=0),
}
