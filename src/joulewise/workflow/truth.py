"""What a virtual device would show without noise, sensors and runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from joulewise.domain.plan import Plan
from joulewise.domain.sweep import Sweep, SweepSource
from joulewise.domain.workload import Workload
from joulewise.plan.make import make_plan
from joulewise.simulator.device_string import VirtualOptions, is_virtual, parse_device
from joulewise.simulator.oracle import open_oracle
from joulewise.store.sweeps import sweep_sha256
from joulewise.workflow.devices import points_to_measure


def is_noise_free(device: str) -> bool:
    """Whether a device string names a virtual GPU that measures its own truth, nothing else.

    Raises InputError for a virtual device string that cannot be read.
    """
    if not is_virtual(device):
        return False
    options = parse_device(device)
    plain = VirtualOptions(preset=options.preset, noise=options.noise, seed=options.seed)
    level = options.noise_level
    return options == plain and level == level.scaled(0.0)


def true_iterations(
    device: str, workload: Workload, plan: Plan
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Time (s) and energy (J) of one iteration at the baseline and as planned.

    Raises InputError, NotSupported as the oracle does.
    """
    oracle = open_oracle(device, workload.works)
    at_baseline = [replace(launch, point=plan.baseline) for launch in plan.launches]
    return oracle.true_iteration(at_baseline), oracle.true_iteration(plan.launches)


def replanned_on_truth(device: str, workload: Workload, plan: Plan) -> Plan:
    """The plan that the same request gets on the noise-free table of another workload.

    Chosen among the default operating points and those of the given plan.
    Raises InfeasibleBudget, PlanError.
    """
    oracle = open_oracle(device, workload.works)
    default = points_to_measure(oracle.spec.grid, None, None)
    used = (launch.point for launch in plan.launches)
    points = tuple(dict.fromkeys((plan.baseline, *default, *used)))
    time_s, energy_j = oracle.table(points)
    table = Sweep(
        kernels=oracle.kernels,
        points=points,
        baseline=plan.baseline,
        source=SweepSource(
            device=device,
            device_name=oracle.spec.name,
            tool="joulewise",
            workload=workload.name,
            is_simulated=True,
        ),
        is_present=np.ones(time_s.shape, dtype=np.bool_),
        time_s=time_s,
        energy_j=energy_j,
    )
    return make_plan(table, workload, plan.request, sweep_sha256=sweep_sha256(table))
