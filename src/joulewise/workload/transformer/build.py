"""A workload from the shape of a transformer and the way it is trained.

One training iteration as one GPU of the job runs it, kernel by kernel. Launches are serial, as
if nothing ran at the same time: collectives and gaps add to the time that kernels take. What
share of a GPU's peak each kernel reaches is carried over from fitted kernels (`efficiency`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from joulewise.domain.workload import IterationSize, KernelKind, KernelWork, Launch, Workload
from joulewise.store.columns import Field, names
from joulewise.workload.transformer.bounds import check_built_size, check_built_works
from joulewise.workload.transformer.build_iteration import Iteration, iteration_of
from joulewise.workload.transformer.doubts import build_doubts
from joulewise.workload.transformer.efficiency import efficiency_of
from joulewise.workload.transformer.flops import closed_flop_count, job_token_count
from joulewise.workload.transformer.model import TransformerModel
from joulewise.workload.transformer.parallel import Share, check_setup, job_gpu_count
from joulewise.workload.transformer.parameters import parameter_count
from joulewise.workload.transformer.setup import TrainingSetup
from joulewise.workload.transformer.shapes import KernelShape


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixFlops:
    """FLOPs of all matrix products of an iteration of the whole job.

    `model_count` counts attention in full and nothing twice; `run_count` is what kernels execute:
    recomputation too, and of causal flash attention about half.
    """

    model_count: float
    run_count: float


def transformer_workload(
    model: TransformerModel, setup: TrainingSetup, *, name: str | None = None
) -> Workload:
    """One iteration on one GPU of pipeline stage `setup.stage`; its size is that of the job.

    `name` is the workload's; that of the model where `None`. Whatever is built can be written
    to a workload file and read back.

    Raises:
        InputError: the setup does not fit the model, or the work is beyond all GPUs; names the
            option in question.
    """
    full_name = model.name if name is None else name
    names([full_name], Field(file="", name="name"))
    check_setup(model, setup)
    size = _size(model, setup)
    check_built_size(size, model, setup)
    iteration = iteration_of(Share(model=model, setup=setup))
    works = tuple(_work_of(shape) for shape in iteration.distinct)
    check_built_works(works, model, setup)
    return Workload(
        name=full_name,
        launches=_launches(iteration),
        works=works,
        size=size,
        caveats=build_doubts(setup),
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
        products = [shape for shape in each if shape.kind is KernelKind.GEMM]
        model_count += count * sum(shape.model_flop_count for shape in products)
        run_count += count * sum(shape.flop_count for shape in products)
    ranks = setup.micro_batch_count * setup.data_parallel_count * setup.tensor_parallel_count
    return MatrixFlops(model_count=ranks * model_count, run_count=ranks * run_count)


def _launches(iteration: Iteration) -> tuple[Launch, ...]:
    """Equal launches are one object: there may be a million."""
    known = {
        shape.kernel: Launch(kernel=shape.kernel, pass_=shape.pass_) for shape in iteration.distinct
    }
    return tuple(known[shape.kernel] for shape in iteration.launches())


def _size(model: TransformerModel, setup: TrainingSetup) -> IterationSize:
    """What the job does; of a pipeline only what it is.

    One stage's time is not the job's: stages wait for each other, and for the slowest of them.
    Tokens or FLOPs set against it would be off by that.
    """
    size = IterationSize(
        gpu_count=job_gpu_count(setup),
        node_gpu_count=setup.node_gpu_count,
        parameter_count=parameter_count(model),
        dtype=setup.dtype,
    )
    if setup.pipeline_parallel_count > 1:
        return size
    return replace(
        size,
        token_count=job_token_count(setup),
        model_flop_count=closed_flop_count(model, setup),
        kernel_flop_count=matrix_flops(model, setup).run_count,
    )


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
