"""Pull noisy cells toward the model, the more so the less they can be trusted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.sweep import FloatTable, Sweep
from joulewise.model.surrogate import Surrogate

# In standard deviations of the cell's own noise.
_LARGEST_MOVE = 2.0


def shrink(sweep: Sweep, surrogate: Surrogate) -> Sweep:
    """The sweep with every measured cell moved toward its prediction.

    A cell keeps the share `error^2 / (error^2 + noise^2)` of its distance from the model,
    where the prediction did not use the cell, `error` is the model's own and `noise` the
    cell's (both standard deviations); but no cell moves by more than two of its own standard
    deviations, for what lies further off the model is an exception to it and not noise. Times
    lose the shift that their visit seems to share; what the host alone times stays as it is.
    Time and power are shrunk apart; energy is their product. Deviations of windows stay as
    measured: they are those of the windows, not of the new values.

    Without scatter nothing says how far to pull: the sweep comes back as it is, with the
    caveat `NoUncertainty`.

    Source: B. Efron and C. Morris, JASA 70 (1975), for the normal-normal case of empirical
    Bayes; JASA 67 (1972) for limiting the way.
    """
    scatter = surrogate.scatter
    if scatter is None:
        return replace(sweep, caveats=_with_doubt(sweep.caveats))
    present = sweep.is_present
    log_time = np.log(np.where(present, sweep.time_s, 1.0))
    log_power = np.log(np.where(present, sweep.energy_j, 1.0)) - log_time
    model_time = np.log(surrogate.held_out_time_s)
    model_power = np.log(surrogate.held_out_energy_j) - model_time
    log_time = log_time - np.log(surrogate.cell_shift_ratio)
    time = _pulled(log_time, model_time, surrogate.time_error_ratio, scatter.time_ratio)
    power = _pulled(log_power, model_power, surrogate.power_error_ratio, scatter.power_ratio)
    return replace(
        sweep,
        time_s=np.where(present, np.exp(time), np.inf),
        energy_j=np.where(present, np.exp(time + power), np.inf),
    )


def remaining_error_ratio(error_ratio: FloatTable, noise_ratio: FloatTable) -> FloatTable:
    """Standard deviation of a shrunk cell, as a share of its value."""
    total = np.hypot(error_ratio, noise_ratio)
    return np.divide(error_ratio * noise_ratio, total, out=np.zeros_like(total), where=total > 0)


def _pulled(
    observed: FloatTable, model: FloatTable, error_ratio: FloatTable, noise_ratio: FloatTable
) -> FloatTable:
    given_up = noise_ratio**2 / (error_ratio**2 + noise_ratio**2)
    limit = _LARGEST_MOVE * noise_ratio
    return np.asarray(observed - np.clip(given_up * (observed - model), -limit, limit))


def _with_doubt(caveats: tuple[Caveat, ...]) -> tuple[Caveat, ...]:
    if any(caveat.kind is CaveatKind.NO_UNCERTAINTY for caveat in caveats):
        return caveats
    doubt = Caveat(
        kind=CaveatKind.NO_UNCERTAINTY,
        seen="The sweep has no standard deviations, so no cell was pulled toward the model.",
    )
    return (*caveats, doubt)
