"""The order in which each stage runs its micro-batches, and what waits for what.

Sources: GPipe, Huang et al., arXiv 1811.06965, figure 2c. 1F1B and interleaved 1F1B: Narayanan et
al., Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM, arXiv
2104.04473, figure 4.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from joulewise.domain.errors import PlanError
from joulewise.domain.pipeline import Instruction, PipelineSchedule, PipelineShape
from joulewise.plan.pipeline.graph import Operation, OperationGraph, operation_graph

MOST_OPERATIONS_COUNT = 20_000
"""Operations of one iteration. The linear program takes minutes from here on."""


def schedule_graph(shape: PipelineShape) -> OperationGraph:
    """All operations of an iteration, by stage and in the stage's order, and what they wait for.

    An operation waits for the one before it on its stage, and for its micro-batch to arrive from
    the neighbouring stage.

    Raises:
        PlanError: A shape that the schedule cannot run; says why.
    """
    check_shape(shape)
    orders = [stage_order(shape, stage) for stage in range(shape.stage_count)]
    operations = [operation for order in orders for operation in order]
    edges = [pair for order in orders for pair in pairwise(order)]
    for operation in operations:
        edges += [(before, operation) for before in _arrivals(shape, operation)]
    return operation_graph(operations, edges)


def stage_order(shape: PipelineShape, stage: int) -> list[Operation]:
    """What one stage runs, first to last."""
    forwards = [_forward(shape, stage, place) for place in range(_pass_count(shape))]
    backwards = [_backward(shape, stage, place) for place in range(_pass_count(shape))]
    if shape.schedule is PipelineSchedule.GPIPE:
        return [*forwards, *backwards[::-1]]
    ahead_count = _ahead_count(shape, stage)
    order = forwards[:ahead_count]
    for forward, backward in zip(forwards[ahead_count:], backwards, strict=False):
        order += [forward, backward]
    return [*order, *backwards[len(forwards) - ahead_count :]]


def check_shape(shape: PipelineShape) -> None:
    """Refuse what the schedule cannot run.

    Raises:
        PlanError: Says which count is wrong.
    """
    counts = {
        "stages": shape.stage_count,
        "micro-batches": shape.micro_batch_count,
        "chunks per stage": shape.chunk_count,
    }
    for name, count in counts.items():
        if count < 1:
            raise PlanError(f"a pipeline needs at least 1 of its {name}, got {count}")
    operation_count = len(Instruction) * math.prod(counts.values())
    if operation_count > MOST_OPERATIONS_COUNT:
        sizes = " x ".join(f"{count} {name}" for name, count in counts.items() if count > 1)
        raise PlanError(
            f"{sizes}, forward and backward, are {operation_count} operations, more than the"
            f" {MOST_OPERATIONS_COUNT} that are planned at once",
            field="microbatches",
            hint="Ask for fewer --stages, --microbatches or --chunks.",
        )
    if shape.schedule is not PipelineSchedule.INTERLEAVED:
        if shape.chunk_count > 1:
            raise PlanError(
                f"the schedule {shape.schedule} has 1 chunk per stage, got {shape.chunk_count}",
                hint="Take the interleaved schedule for several chunks per stage.",
            )
        return
    if shape.chunk_count == 1:
        raise PlanError(
            "the interleaved schedule needs at least 2 chunks per stage, got 1",
            hint="Give the number of chunks, or take the schedule 1f1b.",
        )
    if shape.micro_batch_count % shape.stage_count:
        raise PlanError(
            "the interleaved schedule needs micro-batches in multiples of its"
            f" {shape.stage_count} stages, got {shape.micro_batch_count}",
            hint=f"Take {_next_multiple(shape)} micro-batches.",
        )


def _next_multiple(shape: PipelineShape) -> int:
    return -(-shape.micro_batch_count // shape.stage_count) * shape.stage_count


def _pass_count(shape: PipelineShape) -> int:
    """Forward passes of one stage: one per chunk and micro-batch."""
    return shape.chunk_count * shape.micro_batch_count


def _ahead_count(shape: PipelineShape, stage: int) -> int:
    """Forward passes that a stage runs before it takes turns."""
    behind_count = shape.stage_count - stage - 1
    if shape.schedule is PipelineSchedule.INTERLEAVED:
        behind_count = 2 * behind_count + (shape.chunk_count - 1) * shape.stage_count
    return min(behind_count, _pass_count(shape))


def _forward(shape: PipelineShape, stage: int, place: int) -> Operation:
    """The forward pass at this place: chunks take turns, as many micro-batches as stages each."""
    round_, place_in_round = divmod(place, shape.stage_count * shape.chunk_count)
    if shape.chunk_count == 1:
        chunk, micro_batch = 0, place
    else:
        chunk, place_in_chunk = divmod(place_in_round, shape.stage_count)
        micro_batch = round_ * shape.stage_count + place_in_chunk
    return Operation(
        stage=stage, instruction=Instruction.FORWARD, micro_batch=micro_batch, chunk=chunk
    )


def _backward(shape: PipelineShape, stage: int, place: int) -> Operation:
    """As the forward pass at this place, chunks from last to first."""
    forward = _forward(shape, stage, place)
    return Operation(
        stage=stage,
        instruction=Instruction.BACKWARD,
        micro_batch=forward.micro_batch,
        chunk=shape.chunk_count - 1 - forward.chunk,
    )


def _arrivals(shape: PipelineShape, operation: Operation) -> Iterator[Operation]:
    """Where the operation's micro-batch comes from; the first forward pass waits for nothing.

    Chunk c of stage s is part c x stages + s of the model.
    """
    stage_count = shape.stage_count
    part = operation.chunk * stage_count + operation.stage
    is_forward = operation.instruction is Instruction.FORWARD
    last_part = shape.chunk_count * stage_count - 1
    if not is_forward and part == last_part:
        yield _at(operation, part, stage_count, Instruction.FORWARD)
        return
    before = part - 1 if is_forward else part + 1
    if before >= 0:
        yield _at(operation, before, stage_count, operation.instruction)


def _at(operation: Operation, part: int, stage_count: int, instruction: Instruction) -> Operation:
    chunk, stage = divmod(part, stage_count)
    return Operation(
        stage=stage, instruction=instruction, micro_batch=operation.micro_batch, chunk=chunk
    )
