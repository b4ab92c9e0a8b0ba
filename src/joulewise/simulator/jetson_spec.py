"""The physics behind a fake board: a calibrated virtual module, or one made to fit the lists."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from joulewise.domain.points import ClockGrid
from joulewise.domain.transition import TransitionCost, TransitionDomain, TransitionModel
from joulewise.simulator.jetson_layout import BoardLayout
from joulewise.simulator.jetson_tree import TreeFiles
from joulewise.simulator.presets import preset
from joulewise.simulator.spec import GpuSpec, MemoryState, PeakRate

DEFAULT_PRESET = "agx-orin"
"""The module whose physics boards have that none is calibrated for."""

# Median times until a new clock is in force, on an Orin Nano Super (dankang21/jetson-latency-lab,
# analysis_trans.txt: GPU 4.8 to 5.3 ms and at most 6.3, memory 7.5 to 8.7 and at most 9.7).
_SM_LAG_S = 0.0055
_MEMORY_LAG_S = 0.009


def preset_of(layout: BoardLayout) -> str:
    """The virtual GPU that this board is made of."""
    return layout.preset or DEFAULT_PRESET


def spec_of(layout: BoardLayout) -> GpuSpec:
    """The board's physics.

    Where its clocks are those of a calibrated module it is that module. Else it is an AGX Orin
    whose clocks were stretched to the board's list, so that it draws as much and computes as
    fast at its highest clock: uncalibrated, for adapters to be tried on.
    """
    whole = preset(preset_of(layout))
    is_same = whole.grid.sm_clocks_mhz == layout.sm_clocks_mhz
    if is_same and whole.grid.mem_clocks_mhz == layout.mem_clocks_mhz:
        return whole
    stretch = layout.sm_clocks_mhz[-1] / whole.grid.sm_clocks_mhz[-1]
    return replace(
        whole,
        name=layout.board,
        source=f"{whole.name} stretched to the clocks of {layout.name}; not calibrated",
        is_calibrated=False,
        grid=ClockGrid(sm_clocks_mhz=layout.sm_clocks_mhz, mem_clocks_mhz=layout.mem_clocks_mhz),
        memory_states=tuple(_state(whole, layout, mhz) for mhz in layout.mem_clocks_mhz),
        peak_rates=tuple(_stretched(rate, stretch) for rate in whole.peak_rates),
        sm_clock_max_mhz=whole.sm_clock_max_mhz * stretch,
        voltage_knee_mhz=whole.voltage_knee_mhz * stretch,
        voltage_slope_ratio_per_ghz=whole.voltage_slope_ratio_per_ghz / stretch,
        voltage_curve_ratio_per_ghz2=whole.voltage_curve_ratio_per_ghz2 / stretch**2,
        auto_voltage_knee_mhz=whole.auto_voltage_knee_mhz * stretch,
        auto_voltage_slope_ratio_per_ghz=whole.auto_voltage_slope_ratio_per_ghz / stretch,
        clock_tree_w_per_ghz=whole.clock_tree_w_per_ghz / stretch,
        rails=(),
    )


def spec_of_tree(root: Path, layout: BoardLayout) -> GpuSpec:
    """The physics of the board in a tree, whose power mode may have switched TPCs off.

    Those that are left compute as before: all work takes longer, and curves of the whole GPU do
    not carry over.
    """
    spec = spec_of(layout)
    if not layout.has_tpc_mask:
        return spec
    mask = TreeFiles(root).read_number(f"{layout.gpu_folder}/tpc_pg_mask")
    ratio = layout.living_tpc_ratio(mask or 0)
    if not 0 < ratio < 1:
        return spec
    rates = tuple(
        replace(
            rate,
            flop_count_per_cycle=rate.flop_count_per_cycle * ratio,
            core_w_per_ghz=rate.core_w_per_ghz * ratio,
        )
        for rate in spec.peak_rates
    )
    return replace(spec, peak_rates=rates, is_calibrated=False)


def transition_of(layout: BoardLayout) -> TransitionModel:
    """What a change of clocks takes: nothing but a lag, during which work goes on."""
    lags = {
        TransitionDomain.SM: _SM_LAG_S,
        TransitionDomain.MEMORY: _MEMORY_LAG_S,
        TransitionDomain.BOTH: _MEMORY_LAG_S,
    }
    return TransitionModel(
        name="virtual",
        source=f"lags of an Orin Nano Super (jetson-latency-lab), as of {layout.name}",
        costs=tuple(TransitionCost(domain=domain, lag_s=lag_s) for domain, lag_s in lags.items()),
    )


def _state(whole: GpuSpec, layout: BoardLayout, mem_clock_mhz: int) -> MemoryState:
    """A memory clock at the same share of the highest one, between the module's own states."""
    share = mem_clock_mhz / layout.mem_clocks_mhz[-1]
    top = whole.memory_states[-1]
    shares = [state.mem_clock_mhz / top.mem_clock_mhz for state in whole.memory_states]
    above = next(index for index, one in enumerate(shares) if one >= share)
    below = max(0, above - 1)
    span = shares[above] - shares[below]
    part = min(1.0, max(0.0, (share - shares[below]) / span)) if span else 1.0
    low, high = whole.memory_states[below], whole.memory_states[above]
    return MemoryState(
        mem_clock_mhz=mem_clock_mhz,
        bandwidth_bytes_per_s=top.bandwidth_bytes_per_s * share,
        standby_w=low.standby_w + part * (high.standby_w - low.standby_w),
        energy_ratio=low.energy_ratio + part * (high.energy_ratio - low.energy_ratio),
    )


def _stretched(rate: PeakRate, stretch: float) -> PeakRate:
    return replace(
        rate,
        flop_count_per_cycle=rate.flop_count_per_cycle / stretch,
        core_w_per_ghz=rate.core_w_per_ghz / stretch,
    )
