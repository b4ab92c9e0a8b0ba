"""Run lowtime, the planner of Perseus and Zeus, on a stage profile; print its frontier as JSON.

    .venv-peers/bin/python benchmarks/peers/lowtime_frontier.py PROFILE.csv --stages 8
        --microbatches 12 --blocking-power 83.64

Runs in an environment of its own (requirements-peers.txt), so it imports nothing of joulewise.
Schedule, dependency rules, cost models and solver are lowtime's; times are cut to 1 ms, as in
Perseus. Seconds are CPU time of this process, imports left out.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise, product
from pathlib import Path
from time import process_time

import networkx as nx
from lowtime.cost_model import ExponentialModel
from lowtime.graph_utils import add_sink_node, add_source_node
from lowtime.operation import CandidateExecutionOptions, ExecutionOption, OperationSpec
from lowtime.perseus.instruction import Backward, Forward, Instruction, backward_dep, forward_dep
from lowtime.perseus.schedule import Synchronous1F1B
from lowtime.solver import PhillipsDessouky

UNIT_S = 0.001
TYPES = {"forward": Forward, "backward": Backward}


def specs(profile: Path, blocking_power_w: float) -> dict[tuple[int, str], OperationSpec]:
    """Cost model of every instruction on every stage, in energy beyond waiting."""
    options = defaultdict(list)
    with profile.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            time_s, energy_j = float(row["time"]), float(row["energy"])
            options[int(row["stage"]), row["instruction"]].append(
                ExecutionOption(
                    real_time=time_s,
                    unit_time=UNIT_S,
                    cost=energy_j - blocking_power_w * time_s,
                    knob=int(row["frequency"]),
                )
            )
    found = {}
    for key, own in options.items():
        candidates = CandidateExecutionOptions(options=own)
        model = ExponentialModel(candidates, search_strategy="best")
        found[key] = OperationSpec(options=candidates, cost_model=model)
    return found


def graph_of(
    by_pass: dict[tuple[int, str], OperationSpec], stage_count: int, micro_batch_count: int
) -> tuple[nx.DiGraph, list[Instruction]]:
    """Operations as nodes, with a source and a sink."""
    graph = nx.DiGraph()
    instructions: list[Instruction] = []
    for stage in range(stage_count):
        own = {type_: by_pass[stage, name] for name, type_ in TYPES.items()}
        begin = len(instructions)
        instructions += Synchronous1F1B(stage_count, micro_batch_count, stage, own)
        graph.add_nodes_from(
            (node, {"op": instructions[node]}) for node in range(begin, len(instructions))
        )
        graph.add_edges_from(pairwise(range(begin, len(instructions))))
    graph.add_edges_from(arrivals(instructions))
    count = len(instructions)
    add_source_node(graph, count)
    add_sink_node(graph, count + 1)
    graph.graph.update(source_node=count, sink_node=count + 1)
    return graph, instructions


def arrivals(instructions: list[Instruction]) -> Iterator[tuple[int, int]]:
    """What waits for a neighbouring stage."""
    for (a, first), (b, second) in product(enumerate(instructions), repeat=2):
        if isinstance(first, Forward) and isinstance(second, Forward):
            if forward_dep(first, second):
                yield a, b
        elif (
            isinstance(first, Backward)
            and isinstance(second, Backward)
            and backward_dep(first, second)
        ):
            yield a, b


def main() -> None:
    """Print the frontier and how long it took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("profile", type=Path)
    parser.add_argument("--stages", type=int, required=True)
    parser.add_argument("--microbatches", type=int, required=True)
    parser.add_argument("--blocking-power", type=float, required=True)
    wish = parser.parse_args()
    start_s = process_time()
    by_pass = specs(wish.profile, wish.blocking_power)
    fitted_s = process_time()
    graph, instructions = graph_of(by_pass, wish.stages, wish.microbatches)
    solver = PhillipsDessouky(graph)
    plans = []
    for result in solver.run():
        waiting_j = wish.stages * wish.blocking_power * result.real_time
        clocks = [operation.assigned_knob for operation in instructions]
        plans.append((result.real_time, result.cost + waiting_j, clocks))
    solved_s = process_time()
    print(
        json.dumps(
            {
                "fit_s": fitted_s - start_s,
                "solve_s": solved_s - fitted_s,
                "operations": [
                    (o.stage_id, type(o).__name__.lower(), o.micro_batch_id) for o in instructions
                ],
                "plans": [
                    {"time_s": time_s, "energy_j": energy_j, "clocks_mhz": clocks}
                    for time_s, energy_j, clocks in plans
                ],
            }
        )
    )


if __name__ == "__main__":
    main()
