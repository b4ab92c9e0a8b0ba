"""Collectives between the GPUs of a job: time on the link, and what they do in local memory.

What each of them moves for a byte is in `joulewise.domain.collectives`, here for S bytes.

S is the whole: what all GPUs hold together after an all-gather, what each holds before the
others. Time on the link is bytes by bandwidth; latency is left out. Launches are serial: a real
job hides part of this time behind its products, so what is built here is a job that hides none.
"""

from __future__ import annotations

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.collectives import Exchange, Exchanged, ring_exchange
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


def all_gather(kernel: str, share: Share, whole_count: float, gpu_count: int) -> KernelShape:
    """Everybody gets the parts of all; `whole_count` elements then."""
    return _collective(kernel, share, whole_count, ring_exchange(Exchanged.ALL_GATHER, gpu_count))


def reduce_scatter(kernel: str, share: Share, whole_count: float, gpu_count: int) -> KernelShape:
    """Everybody gets one part of the sum; each has `whole_count` elements before."""
    exchange = ring_exchange(Exchanged.REDUCE_SCATTER, gpu_count)
    return _collective(kernel, share, whole_count, exchange)


def all_reduce(kernel: str, share: Share, whole_count: float, gpu_count: int) -> KernelShape:
    """Everybody gets the sum of `whole_count` elements."""
    return _collective(kernel, share, whole_count, ring_exchange(Exchanged.ALL_REDUCE, gpu_count))


def point_to_point(kernel: str, share: Share, whole_count: float) -> KernelShape:
    """One GPU sends `whole_count` elements to another, or gets them."""
    return _collective(kernel, share, whole_count, ring_exchange(Exchanged.POINT_TO_POINT, 2))


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
