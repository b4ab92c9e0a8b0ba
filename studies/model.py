"""How well the surrogate and its rivals predict cells that they were not shown.

    python studies/model.py

One cell in five is left out in turn. On the virtual RTX 3080 Ti (seed 1) the truth is the
simulator's own, without noise; on measured A100 data (JOULEWISE_DATA, skipped where absent) it
is the cell itself. Figures are root mean squares in percent, over cells up to 30 % slower than
the baseline. Held clocks of left-out cells are known, as they are when a cell is shrunk.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

_ROOT = Path(__file__).resolve().parents[1]
if str(_ROOT) not in sys.path:
    sys.path.insert(0, str(_ROOT))

from joulewise.domain.sweep import BoolTable, FloatTable, Sweep  # noqa: E402
from joulewise.model.conditions import conditions_of  # noqa: E402
from joulewise.model.lowrank import smooth_residuals  # noqa: E402
from joulewise.model.surrogate import fit_surrogate  # noqa: E402
from joulewise.store.importers import import_csv  # noqa: E402
from joulewise.workload.builtin import builtin_workload  # noqa: E402
from studies.promise import DEVICE, WORKLOAD, SteadyBench, Truth, swept_points  # noqa: E402

NEAR_RATIO = 1.3
FOLD_COUNT = 5
ASSUMED_NOISE_RATIO = 0.005
FACTOR_COUNTS = (1, 2, 3)
DEGREES = (2, 3, 4)

Model = Callable[[FloatTable, BoolTable], FloatTable]
"""From logarithms (K, P) and the cells that are shown to predictions of all."""


def factors_alone(factor_count: int) -> Model:
    """Rows, columns and a few products, without physics."""

    def predict(table: FloatTable, shown: BoolTable) -> FloatTable:
        level = (table * shown).sum(axis=1, keepdims=True) / shown.sum(axis=1, keepdims=True)
        precision = shown / ASSUMED_NOISE_RATIO**2
        return np.asarray(level + smooth_residuals(table - level, precision, factor_count))

    return predict


def polynomials(sweep: Sweep, degree: int) -> Model:
    """One polynomial in the logarithm of the clock per kernel and memory setting."""
    conditions = conditions_of(sweep)
    x = np.log(conditions.clock_ratio)

    def predict(table: FloatTable, shown: BoolTable) -> FloatTable:
        predicted = np.empty_like(table)
        for k in range(len(table)):
            for m in range(conditions.memory_count):
                cells = conditions.memory == m
                known = cells & shown[k]
                powers = np.vander(x[k], degree + 1)
                # A faint pull to zero: settings that hold one clock determine no curve.
                inner = powers[known].T @ powers[known] + 1e-8 * np.eye(degree + 1)
                weights = np.linalg.solve(inner, powers[known].T @ table[k, known])
                predicted[k, cells] = powers[cells] @ weights
        return predicted

    return predict


def held_out(model: Model, table: FloatTable) -> FloatTable:
    """Every cell as predicted when its fold was left out."""
    rows, columns = np.indices(table.shape)
    folds = (2 * rows + columns) % FOLD_COUNT
    predicted = np.empty_like(table)
    for fold in range(FOLD_COUNT):
        left_out = folds == fold
        predicted[left_out] = model(table, ~left_out)[left_out]
    return predicted


def report(title: str, sweep: Sweep, true_time_s: FloatTable, true_energy_j: FloatTable) -> None:
    """Print the errors of every model on one sweep."""
    baseline = true_time_s[:, [sweep.baseline_index]]
    near = true_time_s <= NEAR_RATIO * baseline
    time, power = np.log(sweep.time_s), np.log(sweep.energy_j / sweep.time_s)
    true_time, true_power = np.log(true_time_s), np.log(true_energy_j / true_time_s)

    def line(name: str, of_time: FloatTable, of_power: FloatTable) -> None:
        errors = [
            100 * np.sqrt(np.mean((seen - true)[near] ** 2))
            for seen, true in ((of_time, true_time), (of_power, true_power))
        ]
        print(f"  {name:<34} time {errors[0]:6.2f} %   power {errors[1]:6.2f} %")

    print(f"{title}: {near.sum()} of {near.size} cells")
    line("the cells as measured", time, power)
    for count in FACTOR_COUNTS:
        model = factors_alone(count)
        line(f"{count} factors", held_out(model, time), held_out(model, power))
    for degree in DEGREES:
        model = polynomials(sweep, degree)
        line(f"polynomials of degree {degree}", held_out(model, time), held_out(model, power))
    surrogate = fit_surrogate(sweep)
    surrogate_time = np.log(surrogate.held_out_time_s)
    line("the surrogate", surrogate_time, np.log(surrogate.held_out_energy_j) - surrogate_time)


def main() -> None:
    """Compare on the virtual RTX 3080 Ti, and on the A100 where its data are."""
    workload = builtin_workload(WORKLOAD)
    points = swept_points()
    truth = Truth(workload, points)
    exact = SteadyBench(f"{DEVICE},noise=0", truth.operations).sweep(workload.kernels, points)
    for noise in ("default", "stress"):
        bench = SteadyBench(f"{DEVICE},noise={noise},gain=0,seed=1", truth.operations)
        sweep = bench.sweep(workload.kernels, points)
        report(f"virtual RTX 3080 Ti, {noise} noise", sweep, exact.time_s, exact.energy_j)
    data = Path(os.environ.get("JOULEWISE_DATA", _ROOT.parent / "shared" / "data"))
    path = data / "a100-spec" / "a100_spec_accel_clock_sweep.csv"
    if not path.exists():
        print(f"A100: no measured data at {path}; set JOULEWISE_DATA")
        return
    measured = import_csv(
        path, kernel="application", sm_clock="sm_app_clock", time="run_time", power="power_usage"
    )
    report("measured A100", measured, measured.time_s, measured.energy_j)


if __name__ == "__main__":
    main()
