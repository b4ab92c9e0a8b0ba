"""The order of operations, by hand and by the bubbles that the papers promise."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest

from joulewise.domain.errors import PlanError
from joulewise.domain.pipeline import Instruction, PipelineSchedule, PipelineShape
from joulewise.plan.pipeline.graph import (
    Operation,
    OperationGraph,
    earliest_ends,
    iteration_time,
    operation_graph,
)
from joulewise.plan.pipeline.schedules import schedule_graph, stage_order

FORWARD_S = 1.0
BACKWARD_S = 2.0


def shape(stages: int, micro_batches: int, schedule: str, chunks: int = 1) -> PipelineShape:
    return PipelineShape(
        stage_count=stages,
        micro_batch_count=micro_batches,
        schedule=PipelineSchedule(schedule),
        chunk_count=chunks,
    )


def orders(one: PipelineShape) -> list[str]:
    """Each stage as people write it: F0 is the forward pass of micro-batch 0, F0' of chunk 1."""
    return [
        " ".join(
            f"{operation.instruction[0].upper()}{operation.micro_batch}{operation.chunk * chr(39)}"
            for operation in stage_order(one, stage)
        )
        for stage in range(one.stage_count)
    ]


def even_times(graph: OperationGraph, chunk_count: int = 1) -> np.ndarray:
    return np.array(
        [
            (FORWARD_S if operation.instruction is Instruction.FORWARD else BACKWARD_S)
            / chunk_count
            for operation in graph.operations
        ]
    )


def test_1f1b_fills_up_takes_turns_and_drains() -> None:
    assert [
        "F0 F1 F2 B0 F3 B1 B2 B3",
        "F0 F1 B0 F2 B1 F3 B2 B3",
        "F0 B0 F1 B1 F2 B2 F3 B3",
    ] == orders(shape(3, 4, "1f1b"))


def test_1f1b_with_fewer_micro_batches_than_stages_runs_all_forwards_first() -> None:
    assert ["F0 F1 B0 B1", "F0 F1 B0 B1", "F0 F1 B0 B1", "F0 B0 F1 B1"] == orders(
        shape(4, 2, "1f1b")
    )


def test_gpipe_runs_all_forwards_then_the_backwards_last_to_first() -> None:
    assert ["F0 F1 F2 B2 B1 B0", "F0 F1 F2 B2 B1 B0"] == orders(shape(2, 3, "gpipe"))


def test_interleaved_gives_each_chunk_as_many_micro_batches_as_stages_in_turn() -> None:
    assert [
        "F0 F1 F0' F1' F2 B0' F3 B1' F2' B0 F3' B1 B2' B3' B2 B3",
        "F0 F1 F0' B0' F1' B1' F2 B0 F3 B1 F2' B2' F3' B3' B2 B3",
    ] == orders(shape(2, 4, "interleaved", 2))


def test_an_operation_waits_for_its_stage_and_for_its_micro_batch() -> None:
    graph = schedule_graph(shape(2, 2, "1f1b"))
    labels = [operation.label for operation in graph.operations]
    waits = {
        (labels[before], labels[after])
        for before, after in graph.edges.tolist()
        if graph.operations[before].stage != graph.operations[after].stage
    }

    assert {
        (f"forward of micro-batch {m} on stage 0", f"forward of micro-batch {m} on stage 1")
        for m in range(2)
    } | {
        (f"backward of micro-batch {m} on stage 1", f"backward of micro-batch {m} on stage 0")
        for m in range(2)
    } == waits


def test_chunks_pass_micro_batches_from_the_last_stage_to_the_first() -> None:
    graph = schedule_graph(shape(2, 2, "interleaved", 2))
    places = {operation: place for place, operation in enumerate(graph.operations)}
    edges = set(map(tuple, graph.edges.tolist()))
    forward, backward = Instruction.FORWARD, Instruction.BACKWARD
    out = Operation(stage=1, instruction=forward, micro_batch=1, chunk=0)
    in_ = Operation(stage=0, instruction=forward, micro_batch=1, chunk=1)
    back = Operation(stage=1, instruction=backward, micro_batch=1, chunk=0)
    home = Operation(stage=0, instruction=backward, micro_batch=1, chunk=1)

    assert {(places[out], places[in_]), (places[home], places[back])} <= edges


@pytest.mark.parametrize(("stages", "micro_batches"), [(1, 1), (1, 5), (2, 2), (4, 9), (8, 3)])
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_the_bubble_is_one_pass_of_every_other_stage(
    stages: int, micro_batches: int, schedule: str
) -> None:
    graph = schedule_graph(shape(stages, micro_batches, schedule))

    both_s = FORWARD_S + BACKWARD_S
    assert (micro_batches + stages - 1) * both_s == iteration_time(graph, even_times(graph))


@pytest.mark.parametrize(
    ("stages", "rounds", "chunks"), [*product((1, 2, 3, 4), (1, 2, 3), (2, 3, 4))]
)
def test_chunks_divide_the_bubble(stages: int, rounds: int, chunks: int) -> None:
    one = shape(stages, rounds * stages, "interleaved", chunks)
    graph = schedule_graph(one)

    both_s = FORWARD_S + BACKWARD_S
    expected_s = one.micro_batch_count * both_s + (stages - 1) * both_s / chunks
    assert expected_s == pytest.approx(iteration_time(graph, even_times(graph, chunks)))


def test_many_plans_are_timed_as_one_by_one() -> None:
    graph = schedule_graph(shape(3, 4, "1f1b"))
    times = np.random.default_rng(1).uniform(0.5, 2.0, (len(graph.operations), 5))

    one_by_one = np.stack([earliest_ends(graph, column) for column in times.T], axis=1)

    assert np.array_equal(one_by_one, earliest_ends(graph, times))


@pytest.mark.parametrize(
    ("one", "message"),
    [
        (shape(0, 4, "1f1b"), "a pipeline needs at least 1 of its stages, got 0"),
        (shape(2, 0, "gpipe"), "a pipeline needs at least 1 of its micro-batches, got 0"),
        (
            shape(2, 4, "interleaved", 0),
            "a pipeline needs at least 1 of its chunks per stage, got 0",
        ),
        (shape(2, 4, "1f1b", 2), "the schedule 1f1b has 1 chunk per stage, got 2"),
        (
            shape(2, 4, "interleaved", 1),
            "the interleaved schedule needs at least 2 chunks per stage, got 1",
        ),
        (
            shape(4, 6, "interleaved", 2),
            "the interleaved schedule needs micro-batches in multiples of its 4 stages, got 6",
        ),
    ],
)
def test_a_shape_that_the_schedule_cannot_run_is_refused(one: PipelineShape, message: str) -> None:
    with pytest.raises(PlanError) as caught:
        schedule_graph(one)

    assert message == caught.value.message


def forward(micro_batch: int, stage: int = 0) -> Operation:
    return Operation(stage=stage, instruction=Instruction.FORWARD, micro_batch=micro_batch)


def test_a_cycle_names_the_operations_on_it_and_no_others() -> None:
    first, *loop = (forward(m) for m in range(4))
    edges = [(first, loop[0]), *zip(loop, [*loop[1:], loop[0]], strict=True)]

    with pytest.raises(PlanError) as caught:
        operation_graph([first, *loop, forward(9)], [*edges, (loop[1], forward(9))])

    named = caught.value.message.removeprefix("operations wait for one another: ").split(" -> ")
    assert named[0] == named[-1]
    assert {operation.label for operation in loop} == set(named)
    turned = [pair for pair in edges if pair[0] is not first]
    assert all((a, b) in {(x.label, y.label) for x, y in turned} for a, b in pairwise(named))


def test_an_operation_that_waits_for_itself_is_a_cycle() -> None:
    with pytest.raises(PlanError, match="wait for one another: forward of micro-batch 0"):
        operation_graph([forward(0)], [(forward(0), forward(0))])


def test_a_list_of_operations_must_be_sound() -> None:
    with pytest.raises(PlanError, match="at least one operation"):
        operation_graph([], [])
    with pytest.raises(PlanError, match="forward of micro-batch 1 on stage 0 is listed twice"):
        operation_graph([forward(1), forward(0), forward(1)], [])
    with pytest.raises(PlanError, match="names forward of micro-batch 2 on stage 0"):
        operation_graph([forward(1)], [(forward(1), forward(2))])


def test_a_dependency_listed_twice_counts_once() -> None:
    graph = operation_graph([forward(0), forward(1)], [(forward(0), forward(1))] * 2)

    assert [[0, 1]] == graph.edges.tolist()
