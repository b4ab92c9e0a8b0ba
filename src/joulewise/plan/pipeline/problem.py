"""A pipeline's graph and options side by side, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from joulewise.domain.errors import PlanError
from joulewise.domain.pipeline import PipelineRequest, StageProfile
from joulewise.domain.sweep import FloatTable, IntTable
from joulewise.plan.pipeline.graph import OperationGraph, iteration_time
from joulewise.plan.pipeline.options import PassOptions, pass_options
from joulewise.plan.pipeline.schedules import schedule_graph


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PipelineProblem:
    """N operations, each with the options of one of P passes.

    A *choice* (N,) holds for every operation an index into its profile's options. `all_time_s`
    and `all_net_j` (P, L) are what these cost; `time_s` and `net_j` (P, M) are the
    undominated among them, from fast to frugal. Times and energies are padded with +inf.
    `waiting_power_w` is what all stages together draw while they wait.
    """

    graph: OperationGraph
    passes: tuple[PassOptions, ...]
    pass_of: IntTable
    all_time_s: FloatTable
    all_net_j: FloatTable
    time_s: FloatTable
    net_j: FloatTable
    waiting_power_w: float

    def indices(self, places: IntTable) -> IntTable:
        """(N,) choice from places among the undominated options."""
        return np.array(
            [
                self.passes[own].indices[place]
                for own, place in zip(self.pass_of.tolist(), places.tolist(), strict=True)
            ]
        )

    def times(self, choice: IntTable) -> FloatTable:
        """(N,) time of each operation."""
        return self.all_time_s[self.pass_of, choice]

    def least_time_s(self) -> float:
        """Iteration time with every operation at its fastest."""
        return iteration_time(self.graph, self.time_s[self.pass_of, 0])

    def totals(self, choice: IntTable) -> tuple[float, float]:
        """Time and energy of an iteration, waiting included."""
        time_s = iteration_time(self.graph, self.times(choice))
        net_j = float(self.all_net_j[self.pass_of, choice].sum())
        return time_s, net_j + self.waiting_power_w * time_s


def pipeline_problem(
    profiles: Sequence[StageProfile],
    request: PipelineRequest,
    graph: OperationGraph | None = None,
) -> PipelineProblem:
    """Put a request's graph and options together.

    Args:
        profiles: One of each instruction on each stage.
        request: Shape, blocking power and stragglers.
        graph: Dependencies other than those of the request's schedule.

    Raises:
        PlanError: A shape that the schedule cannot run, or profiles that do not fit it.
    """
    graph = schedule_graph(request.shape) if graph is None else graph
    by_pass = pass_options(profiles, request)
    place_of = {key: place for place, key in enumerate(by_pass)}
    passes = tuple(by_pass.values())
    for operation in graph.operations:
        if (operation.stage, operation.instruction) not in place_of:
            raise PlanError(
                f"{operation.label} is on none of the {request.shape.stage_count} stages"
            )
    return PipelineProblem(
        graph=graph,
        passes=passes,
        pass_of=np.array([place_of[o.stage, o.instruction] for o in graph.operations]),
        all_time_s=_padded([options.all_time_s for options in passes]),
        all_net_j=_padded([options.all_net_j for options in passes]),
        time_s=_padded([options.time_s for options in passes]),
        net_j=_padded([options.net_j for options in passes]),
        waiting_power_w=request.shape.stage_count * request.blocking_power_w,
    )


def _padded(rows: Sequence[FloatTable]) -> FloatTable:
    table = np.full((len(rows), max(row.size for row in rows)), np.inf)
    for place, row in enumerate(rows):
        table[place, : row.size] = row
    return table
