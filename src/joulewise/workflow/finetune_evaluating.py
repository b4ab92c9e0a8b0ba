"""What policies that pick clocks are worth: on a virtual board's truth or on measured curves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.errors import InputError
from joulewise.domain.finetuning import ClockCost, ClockCurve
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.finetune.jobs import TrainingJob
from joulewise.finetune.step_work import step_work
from joulewise.simulator.device_string import is_virtual, parse_device
from joulewise.simulator.oracle import open_oracle


def true_curves(device: str, jobs: Sequence[TrainingJob]) -> tuple[ClockCurve, ...]:
    """The noise-free curves of built-in jobs on a virtual board, at every clock that it lists.

    Time and energy are those of one training step, the memory clock is left to the board.

    Raises:
        InputError: the device is not virtual, or its string cannot be read.
    """
    if not is_virtual(device):
        raise InputError(
            f"the truth of {device!r} is not known",
            field="device",
            hint="Name a virtual board, virtual:agx-orin, or give a file of measured curves.",
        )
    oracle = open_oracle(device, [step_work(job) for job in jobs])
    clocks = oracle.spec.grid.sm_clocks_mhz
    points = (AUTO, *(OperatingPoint(sm_clock_mhz=clock) for clock in clocks))
    time_s, energy_j = oracle.table(points)
    seen = f"The curves are the physics of {parse_device(device).preset}, without noise."
    doubts = (Caveat(kind=CaveatKind.SIMULATED_DEVICE, seen=seen),)
    return tuple(
        ClockCurve(
            job=job.name,
            device=device,
            device_name=oracle.spec.name,
            is_simulated=True,
            features=job.features,
            baseline=ClockCost(
                sm_clock_mhz=None,
                time_s=float(time_s[row, 0]),
                energy_j=float(energy_j[row, 0]),
            ),
            costs=tuple(
                ClockCost(
                    sm_clock_mhz=clock,
                    time_s=float(time_s[row, column]),
                    energy_j=float(energy_j[row, column]),
                )
                for column, clock in enumerate(clocks, start=1)
            ),
            caveats=doubts,
        )
        for row, job in enumerate(jobs)
    )
