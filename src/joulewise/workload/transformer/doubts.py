"""What every built workload leaves in doubt: nobody has run its kernels."""

from __future__ import annotations

from collections.abc import Iterator

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.workload.transformer.collectives import link_caveats
from joulewise.workload.transformer.parallel import job_gpu_count
from joulewise.workload.transformer.setup import Attention, TrainingSetup


def build_doubts(setup: TrainingSetup) -> tuple[Caveat, ...]:
    """Efficiencies that are carried over, and a link that nobody named."""
    seen = "; ".join(_carried_over(setup))
    advice = "Import a profile of the job to see what its kernels reach, and what overlaps."
    assumed = Caveat(kind=CaveatKind.EFFICIENCY_ASSUMED, seen=seen, advice=advice)
    return (assumed, *link_caveats(setup))


def _carried_over(setup: TrainingSetup) -> Iterator[str]:
    """As `joulewise.workload.transformer.efficiency` has it."""
    yield "kernels reach what those of GPT-3 XL, fitted to an RTX 3080 Ti, reach of a GPU's peaks"
    if setup.attention is Attention.FLASH:
        yield "flash attention reaches what was published of an A100"
    if job_gpu_count(setup) > 1:
        yield "no collective hides behind computing"
