"""A workload from the shape of a transformer and the way it is trained.

One training iteration as one GPU of the job runs it, kernel by kernel. Launches are serial, as
if nothing ran at the same time: collectives and gaps add to the time that kernels take. What
share of a GPU's peak each kernel reaches is carried over from fitted kernels (`efficiency`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from joulewise.domain.errors import InputError
from joulewise.domain.workload import IterationSize, KernelKind, KernelWork, Launch, Workload
from joulewise.workload.transformer.build_iteration import Iteration, iteration_of
from joulewise.workload.transformer.collectives import link_caveats
from joulewise.workload.transformer.efficiency import efficiency_of
from joulewise.workload.transformer.flops import closed_flop_count, job_token_count
from joulewise.workload.transformer.model import TransformerModel
from joulewise.workload.transformer.parallel import Share, check_setup, job_gpu_count
from joulewise.workload.transformer.parameters import parameter_count
from joulewise.workload.transformer.setup import TrainingSetup
from joulewise.workload.transformer.shapes import KernelShape

# No kernel of any GPU comes near; physics and workload files take no more.
MOST_FLOP_COUNT = 1e21
MOST_TRAFFIC_BYTES = 1e18
LONGEST_WAIT_S = 3600.0
_FIELD_OF_SIZE = {KernelKind.GAP: "gap_ms", KernelKind.COLLECTIVE: "link_gb_per_s"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixFlops:
    """FLOPs of all matrix products of an iteration of the whole job, attention in full.

    `model_count` leaves out what is computed a second time, `run_count` does not.
    """

    model_count: float
    run_count: float


def transformer_workload(
    model: TransformerModel, setup: TrainingSetup, *, name: str | None = None
) -> Workload:
    """One iteration on one GPU of pipeline stage `setup.stage`; its size is that of the job.

    `name` is the workload's; that of the model where `None`.

    Raises:
        InputError: the setup does not fit the model, or the work is beyond all GPUs; names the
            option in question.
    """
    check_setup(model, setup)
    iteration = iteration_of(Share(model=model, setup=setup))
    works = tuple(_work_of(shape) for shape in iteration.distinct)
    for work in works:
        _check_work(work)
    flops = matrix_flops(model, setup)
    size = IterationSize(
        gpu_count=job_gpu_count(setup),
        token_count=job_token_count(setup),
        parameter_count=parameter_count(model),
        model_flop_count=closed_flop_count(model, setup),
        kernel_flop_count=flops.run_count,
        dtype=setup.dtype,
    )
    return Workload(
        name=model.name if name is None else name,
        launches=_launches(iteration),
        works=works,
        size=size,
        caveats=link_caveats(setup),
    )


def kernel_shapes(model: TransformerModel, setup: TrainingSetup) -> tuple[KernelShape, ...]:
    """What each distinct kernel of the iteration computes and moves, before any efficiency.

    Raises InputError as `transformer_workload` does.
    """
    check_setup(model, setup)
    return iteration_of(Share(model=model, setup=setup)).distinct


def matrix_flops(model: TransformerModel, setup: TrainingSetup) -> MatrixFlops:
    """Sums over the kernels of all GPUs, stages and micro-batches.

    `model_count` agrees with `closed_flop_count` but for padded vocabularies. Raises InputError
    as `transformer_workload` does.
    """
    check_setup(model, setup)
    stages = setup.pipeline_parallel_count
    # Stages between the first and the last are alike.
    times = Counter(min(stage, 1) if stage < stages - 1 else stage for stage in range(stages))
    model_count = run_count = 0.0
    for stage, count in times.items():
        iteration = iteration_of(Share(model=model, setup=replace(setup, stage=stage)))
        each = (*iteration.forward, *iteration.backward)
        model_count += count * sum(shape.model_flop_count for shape in each)
        run_count += count * sum(shape.matrix_flop_count for shape in each)
    ranks = setup.micro_batch_count * setup.data_parallel_count * setup.tensor_parallel_count
    return MatrixFlops(model_count=ranks * model_count, run_count=ranks * run_count)


def _launches(iteration: Iteration) -> tuple[Launch, ...]:
    """Equal launches are one object: there may be a million."""
    known = {
        shape.kernel: Launch(kernel=shape.kernel, pass_=shape.pass_) for shape in iteration.distinct
    }
    return tuple(known[shape.kernel] for shape in iteration.launches())


def _work_of(shape: KernelShape) -> KernelWork:
    efficiency = efficiency_of(shape.family, shape.operation_count_per_element)
    return KernelWork(
        kernel=shape.kernel,
        kind=shape.kind,
        dtype=shape.dtype,
        flop_count=shape.flop_count,
        traffic_bytes=shape.traffic_bytes,
        compute_efficiency_ratio=efficiency.compute_efficiency_ratio,
        memory_efficiency_ratio=efficiency.memory_efficiency_ratio,
        core_activity_ratio=efficiency.core_activity_ratio,
        memory_activity_ratio=efficiency.memory_activity_ratio,
        wait_s=shape.wait_s,
    )


def _check_work(work: KernelWork) -> None:
    bounds = {
        "FLOPs": (work.flop_count, MOST_FLOP_COUNT),
        "bytes": (work.traffic_bytes, MOST_TRAFFIC_BYTES),
        "seconds of waiting": (work.wait_s, LONGEST_WAIT_S),
    }
    for what, (value, most) in bounds.items():
        if value > most:
            raise InputError(
                f"one launch of {work.kernel} takes {value:.3g} {what}, more than {most:g}",
                field=_FIELD_OF_SIZE.get(work.kind, "batch"),
                hint="Build what one GPU really runs: smaller batches, shorter gaps.",
            )
