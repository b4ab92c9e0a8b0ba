"""Collectives between the GPUs of a job: time on the link, and what they do in local memory.

A ring of n GPUs moves each of S bytes past n - 1 links (Thakur et al. 2005, Optimization of
Collective Communication Operations in MPICH; NCCL's ring algorithm). Per GPU, with
c = (n - 1)/n:

| collective | on the link | in local memory | sums |
| --- | --- | --- | --- |
| all-gather | c S | c S sent from, c S received into memory: 2 c S | 0 |
| reduce-scatter | c S | received, read again, and added to an own copy: 3 c S | c S / element |
| all-reduce | 2 c S | a reduce-scatter and an all-gather: 5 c S | c S / element |
| send or receive | S | S | 0 |

S is the whole: what all GPUs hold together after an all-gather, what each holds before the
others. Time on the link is bytes by bandwidth; latency is left out. Launches are serial: a real
job hides part of this time behind its products, so what is built here is a job that hides none.
"""

from __future__ import annotations

from dataclasses import dataclass

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.passes import Pass
from joulewise.domain.workload import KernelKind
from joulewise.workload.transformer.efficiency import Family
from joulewise.workload.transformer.parallel import Share, job_gpu_count
from joulewise.workload.transformer.setup import TrainingSetup
from joulewise.workload.transformer.shapes import KernelShape

# NVLink 4 of an H100: 900 GB/s for both directions (NVIDIA H100 Tensor Core GPU datasheet).
DEFAULT_LINK_BYTES_PER_S = 450e9

# What PyTorch's DistributedDataParallel reduces at once: bucket_cap_mb=25.
DDP_BUCKET_BYTES = 25 * 2**20
# What DeepSpeed's ZeRO 1 and 2 exchange at once: reduce_bucket_size and allgather_bucket_size.
ZERO_BUCKET_COUNT = 500_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """How often each byte of a collective passes the link and the local memory."""

    link_ratio: float
    traffic_ratio: float
    sum_ratio: float


def all_gather(kernel: str, share: Share, whole_count: float, gpu_count: int) -> KernelShape:
    """Everybody gets the parts of all; `whole_count` elements then."""
    part = (gpu_count - 1) / gpu_count
    exchange = Exchange(link_ratio=part, traffic_ratio=2 * part, sum_ratio=0)
    return _collective(kernel, share, whole_count, exchange)


def reduce_scatter(kernel: str, share: Share, whole_count: float, gpu_count: int) -> KernelShape:
    """Everybody gets one part of the sum; each has `whole_count` elements before."""
    part = (gpu_count - 1) / gpu_count
    exchange = Exchange(link_ratio=part, traffic_ratio=3 * part, sum_ratio=part)
    return _collective(kernel, share, whole_count, exchange)


def all_reduce(kernel: str, share: Share, whole_count: float, gpu_count: int) -> KernelShape:
    """Everybody gets the sum of `whole_count` elements."""
    part = (gpu_count - 1) / gpu_count
    exchange = Exchange(link_ratio=2 * part, traffic_ratio=5 * part, sum_ratio=part)
    return _collective(kernel, share, whole_count, exchange)


def point_to_point(kernel: str, share: Share, whole_count: float) -> KernelShape:
    """One GPU sends `whole_count` elements to another, or gets them."""
    exchange = Exchange(link_ratio=1, traffic_ratio=1, sum_ratio=0)
    return _collective(kernel, share, whole_count, exchange)


def link_bytes_per_s(setup: TrainingSetup) -> float:
    """What one GPU sends in one direction, assumed where the setup does not say."""
    return DEFAULT_LINK_BYTES_PER_S if setup.link_bytes_per_s is None else setup.link_bytes_per_s


def link_caveats(setup: TrainingSetup) -> tuple[Caveat, ...]:
    """The doubt about a link that nobody named, where the job has one."""
    if job_gpu_count(setup) == 1 or setup.link_bytes_per_s is not None:
        return ()
    seen = (
        f"collectives take as long as {DEFAULT_LINK_BYTES_PER_S / 1e9:g} GB/s per direction "
        "allow, NVLink of an H100"
    )
    return (Caveat(kind=CaveatKind.LINK_ASSUMED, seen=seen),)


def _collective(kernel: str, share: Share, whole_count: float, exchange: Exchange) -> KernelShape:
    whole_bytes = whole_count * share.formats.element_bytes
    return KernelShape(
        kernel=kernel,
        family=Family.COLLECTIVE,
        kind=KernelKind.COLLECTIVE,
        dtype=share.formats.vector,
        pass_=Pass.COMMUNICATION,
        flop_count=whole_count * exchange.sum_ratio,
        traffic_bytes=whole_bytes * exchange.traffic_ratio,
        wait_s=whole_bytes * exchange.link_ratio / link_bytes_per_s(share.setup),
    )
