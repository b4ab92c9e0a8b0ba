"""Fit the virtual Orin modules and the rule of training steps, and write what ships.

    python calibration/orin.py [--dry-run]

The AGX Orin is fitted to published energies of three fine-tuning jobs at eleven clocks (facts
beside this script), of which GPU, SoC and CPU are counted as there. The Orin Nano Super shares
its voltage curve and its cores with it; its times come from measured latencies under
JOULEWISE_DATA (default ../shared/data), without which nothing is written.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

_ROOT: Final = Path(__file__).resolve().parents[1]
if str(_ROOT) not in sys.path:
    sys.path.insert(0, str(_ROOT))

from calibration import orin_parts as known  # noqa: E402
from calibration.conversion import rounded, rounded_spec  # noqa: E402
from calibration.evaluation import Figure  # noqa: E402
from calibration.orin_nano import (  # noqa: E402
    fit_loops,
    latency_figures,
    nano_spec,
    power_figures,
    read_latencies,
)
from calibration.table import render  # noqa: E402
from joulewise.domain.points import OperatingPoint  # noqa: E402
from joulewise.finetune.jobs import MODELS, TASKS, TrainingJob, job_of  # noqa: E402
from joulewise.finetune.step_work import StepRule, ruled_work, step_amounts  # noqa: E402
from joulewise.simulator.load_governor import governed_level  # noqa: E402
from joulewise.simulator.physics import (  # noqa: E402
    SteadyParts,
    SteadyTable,
    kernel_load,
    steady_parts,
    steady_state_of_load,
)
from joulewise.simulator.spec import GpuSpec, LoadGovernorSpec  # noqa: E402
from joulewise.workload.transformer.model import Head, Norm, TransformerModel  # noqa: E402

FloatArray = NDArray[np.float64]

_PRESETS: Final = _ROOT / "src" / "joulewise" / "simulator" / "data"
_RULE: Final = _ROOT / "src" / "joulewise" / "finetune" / "data" / "step_rule.json"
_RESULTS: Final = _ROOT / "calibration" / "results"
_FACTS: Final = Path(__file__).parent / "facts" / "orin_fine_tuning.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """Where a parameter is expected, how sure that is, and where it must lie."""

    name: str
    centre: float
    spread: float
    least: float
    greatest: float


PRIORS: Final = (
    Prior(name="voltage_knee_ghz", centre=0.5, spread=0.1, least=0.3, greatest=0.9),
    Prior(name="voltage_slope", centre=0.5, spread=0.3, least=0.0, greatest=2.0),
    Prior(name="voltage_curve", centre=0.1, spread=0.5, least=0.0, greatest=3.0),
    Prior(name="soc_base_w", centre=3.0, spread=1.5, least=0.5, greatest=8.0),
    Prior(name="clock_tree_w_per_ghz", centre=3.0, spread=3.0, least=0.0, greatest=20.0),
    Prior(name="core_w_per_ghz", centre=20.0, spread=20.0, least=1.0, greatest=80.0),
    Prior(name="host_w", centre=3.0, spread=1.5, least=0.0, greatest=10.0),
    Prior(name="compute_efficiency", centre=0.65, spread=0.1, least=0.3, greatest=0.9),
    Prior(name="half_token_count", centre=200.0, spread=400.0, least=0.0, greatest=3000.0),
    Prior(name="activity_exponent", centre=0.5, spread=0.5, least=0.0, greatest=1.5),
    Prior(name="dispatch_s", centre=30e-6, spread=15e-6, least=5e-6, greatest=200e-6),
    Prior(name="example_host_s", centre=1e-4, spread=3e-4, least=0.0, greatest=5e-3),
)
"""All of them expectations, none a measurement: eager PyTorch on the board's Arm cores takes some
30 µs a launch, FP32 products reach two thirds of the peak, modules idle at a few watts."""
_PRIOR_WEIGHT: Final = 0.3
_SPREADS: Final = {"bert-xlarge": 0.015, "pythia-14m": 0.04}
"""Every run was made once; the second was read off a picture."""
# Energies alone say nothing of times: what fixes them is the power of both rails under load at
# MAXN and FLOPs counted per step. A user saw 40.4 W on the GPU's rail under stress
# (forums.developer.nvidia.com/t/323456); that training comes near it, with a CPU near idle, is
# assumed.
_FULL_LOAD_W, _FULL_LOAD_SPREAD_W = 40.0, 1.5
_MEMORY_EFFICIENCY_RATIO: Final = 0.7  # assumed, as are the two ratios of eager launches
_ENCODER_LAUNCH_RATIO, _DECODER_LAUNCH_RATIO = 2.0, 3.0
# MAXN has no limit of its own; nothing here comes near 75 W.
_HIGHEST_W: Final = 75.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Curve:
    """Published joules of one run at each clock, and under the governor where that is known."""

    job: TrainingJob
    sm_clocks_mhz: tuple[int, ...]
    energy_j: FloatArray
    governor_energy_j: float | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prediction:
    """Curves of jobs as the fit has them; arrays of shape (jobs, clocks)."""

    table: SteadyTable
    parts: SteadyParts
    counted_w: FloatArray
    """Power of GPU, SoC and CPU, as the paper counts."""

    @property
    def counted_j(self) -> FloatArray:
        """Energy of a step on those rails."""
        return self.counted_w * self.table.time_s


def read_curves(section: str = "curve") -> tuple[Curve, ...]:
    """The published curves: those that are fitted, or those kept as a check."""
    facts = tomllib.loads(_FACTS.read_text(encoding="utf-8"))
    return tuple(
        Curve(
            job=job_of(_model(row["model"]), TASKS[row["task"]]),
            sm_clocks_mhz=tuple(row.get("sm_clocks_mhz", facts["sm_clocks_mhz"])),
            energy_j=np.array(row["energy_j"]),
            governor_energy_j=row.get("governor_energy_j"),
        )
        for row in facts[section]
    )


def fit_agx(curves: Sequence[Curve], exponents: tuple[float, float]) -> tuple[GpuSpec, StepRule]:
    """Module and rule; `exponents` say how single kernels and how steps overlap.

    Each curve has a scale of its own, for how many steps a run took is not published.
    """
    from scipy.optimize import least_squares  # noqa: PLC0415 - heavy

    spreads = np.array([_SPREADS[curve.job.model.name] for curve in curves])[:, None]
    centres = np.array([prior.centre for prior in PRIORS])
    widths = np.array([prior.spread for prior in PRIORS])

    def off(vector: FloatArray) -> FloatArray:
        prediction = predict(agx_spec(vector, exponents), step_rule(vector), curves)
        error = errors(prediction, curves) / spreads
        load = (prediction.counted_w[0, -1] - _FULL_LOAD_W) / _FULL_LOAD_SPREAD_W
        prior = _PRIOR_WEIGHT * (vector - centres) / widths
        return np.concatenate([error.ravel(), [load], prior])

    bounds = ([prior.least for prior in PRIORS], [prior.greatest for prior in PRIORS])
    found = least_squares(off, centres, bounds=bounds, x_scale=widths).x
    # Rounded here and not before: differences between steps of the search are tiny.
    found = np.array([rounded(value) for value in found])
    spec, rule = rounded_spec(agx_spec(found, exponents)), step_rule(found)
    target = governor_target(spec, rule, curves)
    governor = LoadGovernorSpec(name="nvhost_podgov", busy_target_ratio=target)
    return dataclasses.replace(spec, load_governor=governor), rule


def predict(spec: GpuSpec, rule: StepRule, curves: Sequence[Curve]) -> Prediction:
    """Steps of the jobs at all pinned clocks, memory as the driver has it."""
    works = [ruled_work(curve.job, step_amounts(curve.job), rule) for curve in curves]
    points = [OperatingPoint(sm_clock_mhz=mhz) for mhz in spec.grid.sm_clocks_mhz]
    load = kernel_load(spec, works)
    table = steady_state_of_load(spec, load, points)
    parts = steady_parts(spec, load, points, table)
    gpu, cpu, *_ = spec.rails
    counted_w = gpu.base_w + cpu.base_w + parts.core_w + parts.host_w
    return Prediction(
        table=table, parts=parts, counted_w=counted_w + gpu.memory_ratio * parts.memory_w
    )


def errors(prediction: Prediction, curves: Sequence[Curve]) -> FloatArray:
    """Logarithms of energy against the published one, less the mean of each curve.

    Every curve has to have all clocks.
    """
    measured = np.array([curve.energy_j for curve in curves])
    error: FloatArray = np.log(prediction.counted_j / measured)
    shape_error: FloatArray = error - error.mean(axis=1, keepdims=True)
    return shape_error


def governor_target(spec: GpuSpec, rule: StepRule, curves: Sequence[Curve]) -> float:
    """The busy share that takes each job to the level whose energy its governor's run had.

    In the middle of the range that does. Raises ValueError where no target does.
    """
    prediction = predict(spec, rule, curves)
    low, high = 0.0, 1.0
    for row, curve in enumerate(curves):
        if curve.governor_energy_j is None:
            continue
        level = int(np.abs(np.log(curve.energy_j / curve.governor_energy_j)).argmin())
        busy = prediction.parts.busy_ratio[row]
        if level < len(busy) - 1:
            low = max(low, float(busy[level]))
        high = min(high, float(busy[level - 1]))
    target = rounded((low + high) / 2)
    if not low <= target < high:
        raise ValueError(f"no governor target between {low:g} and {high:g}")
    return target


def agx_figures(
    spec: GpuSpec, rule: StepRule, curves: Sequence[Curve], checks: Sequence[Curve]
) -> tuple[Figure, ...]:
    """Greatest errors in per cent, distance of optima in levels, and the check's."""
    prediction = predict(spec, rule, curves)
    lines = []
    for row, curve in enumerate(curves):
        limit = 4.0 if curve.job.model.name == "bert-xlarge" else 5.0
        error = 100 * np.abs(errors(prediction, curves)[row]).max()
        apart = abs(int(prediction.counted_j[row].argmin()) - int(curve.energy_j.argmin()))
        lines += [
            _figure(f"{curve.job.name}, greatest error %", error, limit),
            _figure(f"{curve.job.name}, optimum off by levels", apart, 1.0),
            _figure(f"{curve.job.name}, steps against one epoch", _steps(prediction, row, curve)),
        ]
        if curve.governor_energy_j is not None and spec.load_governor is not None:
            busy, target = prediction.parts.busy_ratio[row], spec.load_governor.busy_target_ratio
            level = governed_level(spec.grid.sm_clocks_mhz, busy, target)
            governed = 100 * abs(curve.energy_j[level] / curve.governor_energy_j - 1)
            lines.append(_figure(f"{curve.job.name}, governor's energy off %", governed, 2.0))
    lines.append(_figure("GPU, SoC and CPU at 1300 MHz, W", prediction.counted_w[0, -1]))
    for check in checks:
        columns = [spec.grid.sm_clocks_mhz.index(mhz) for mhz in check.sm_clocks_mhz]
        ours = predict(spec, rule, [check]).counted_j[0, columns]
        off = np.log(ours / check.energy_j)
        lines.append(
            _figure(
                f"{check.job.name} (not fitted), greatest error %",
                100 * np.abs(off - off.mean()).max(),
            )
        )
    return tuple(lines)


def agx_spec(vector: FloatArray, exponents: tuple[float, float]) -> GpuSpec:
    """The module with these parameters, without a governor."""
    at = {prior.name: float(value) for prior, value in zip(PRIORS, vector, strict=True)}
    base_w = at["soc_base_w"] + known.AGX_CPU_BASE_W + known.AGX_5V0_BASE_W
    return GpuSpec(
        name="NVIDIA Jetson AGX Orin 64 GB",
        source="energies of arXiv 2607.05933's fine-tuning runs at eleven clocks; times by FLOPs "
        "counted per step, memory and rails by logs of others; see docs/calibration.md",
        is_calibrated=True,
        grid=known.AGX_GRID,
        memory_states=known.memory_states(known.AGX_GRID, known.AGX_BYTES_PER_S),
        peak_rates=known.peak_rates(known.AGX_SM_COUNT, at["core_w_per_ghz"]),
        sm_clock_max_mhz=float(known.AGX_GRID.sm_clocks_mhz[-1]),
        launch_s=2e-6,
        gemm_overlap_exponent_ratio=exponents[0],
        other_overlap_exponent_ratio=exponents[1],
        voltage_knee_mhz=1e3 * at["voltage_knee_ghz"],
        voltage_slope_ratio_per_ghz=at["voltage_slope"],
        voltage_curve_ratio_per_ghz2=at["voltage_curve"],
        auto_voltage_knee_mhz=float(known.AGX_GRID.sm_clocks_mhz[-1]),
        auto_voltage_slope_ratio_per_ghz=0.0,
        base_w=base_w,
        clock_tree_w_per_ghz=at["clock_tree_w_per_ghz"],
        memory_j_per_byte=known.MEMORY_J_PER_BYTE,
        auto_set_point_w=_HIGHEST_W,
        locked_set_point_w=_HIGHEST_W,
        default_power_limit_w=_HIGHEST_W,
        least_power_limit_w=10.0,
        has_energy_counter=False,
        has_power_limit=False,
        host_w=at["host_w"],
        rails=known.agx_rails(at["soc_base_w"]),
    )


def step_rule(vector: FloatArray) -> StepRule:
    """The rule of training steps with these parameters."""
    at = {prior.name: float(value) for prior, value in zip(PRIORS, vector, strict=True)}
    return StepRule(
        source="fitted with virtual:agx-orin; see docs/calibration.md",
        compute_efficiency_ratio=at["compute_efficiency"],
        half_token_count=at["half_token_count"],
        activity_exponent_ratio=at["activity_exponent"],
        memory_efficiency_ratio=_MEMORY_EFFICIENCY_RATIO,
        dispatch_s=at["dispatch_s"],
        encoder_launch_ratio=_ENCODER_LAUNCH_RATIO,
        decoder_launch_ratio=_DECODER_LAUNCH_RATIO,
        example_host_s=at["example_host_s"],
    )


def _figure(name: str, value: float, limit: float | None = None) -> Figure:
    return Figure(
        name=name,
        paper=None,
        value=float(value),
        least=None if limit is None else 0.0,
        greatest=limit,
    )


def _steps(prediction: Prediction, row: int, curve: Curve) -> float:
    """Steps that the published energy amounts to, against those of one epoch."""
    scale = np.exp(np.log(curve.energy_j / prediction.counted_j[row]).mean())
    return float(scale / curve.job.step_count)


def _model(name: str) -> TransformerModel:
    if name == "pythia-14m":  # its published config.json
        return dataclasses.replace(
            MODELS["pythia-31m"],
            name=name,
            hidden_count=128,
            head_count=4,
            kv_head_count=4,
            head_width_count=32,
            ffn_count=512,
        )
    if name == "gemma-2b":  # arXiv 2403.08295, table 1
        return TransformerModel(
            name=name,
            layer_count=18,
            hidden_count=2048,
            head_count=8,
            kv_head_count=1,
            head_width_count=256,
            ffn_count=16_384,
            vocabulary_count=256_128,
            norm=Norm.RMS,
            activation=MODELS["bert-base"].activation,
            head=Head.NONE,
            rotary_ratio=1.0,
            is_gated=True,
        )
    return MODELS[name]


def main() -> None:
    """Fit, print, write."""
    parser = argparse.ArgumentParser(description="Fit the virtual Orin modules.")
    parser.add_argument("--dry-run", action="store_true", help="print, but write nothing")
    is_written = not parser.parse_args().dry_run
    data = Path(os.environ.get("JOULEWISE_DATA", _ROOT.parent / "shared" / "data"))
    latencies = read_latencies(data)
    if latencies is None:
        print(f"Virtual Orin: skipped, no jetson under {data}; set JOULEWISE_DATA.")
        return
    loops = fit_loops(latencies)
    networks, kernels = (rounded(loops.exponent_ratio[place]) for place in (0, 2))
    curves, checks = read_curves(), read_curves("check")
    agx, rule = fit_agx(curves, (kernels, networks))
    nano = rounded_spec(nano_spec(agx))
    documents = (
        ("agx-orin", _PRESETS / "agx_orin.json", agx, agx_figures(agx, rule, curves, checks)),
        (
            "orin-nano-super",
            _PRESETS / "orin_nano_super.json",
            nano,
            (*latency_figures(loops, latencies), *power_figures(nano, loops)),
        ),
    )
    for name, path, spec, lines in documents:
        print(f"\nVirtual {name}\n\n{render([lines], lines)}")
        if is_written:
            _write(path, spec)
            figures = {line.name: rounded(line.value) for line in lines}
            _write(_RESULTS / f"{name}.json", {"schema_version": 1, "figures": figures})
    if is_written:
        _write(_RULE, rule)


def _write(path: Path, document: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")


if __name__ == "__main__":
    main()
