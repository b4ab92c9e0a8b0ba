"""The board around each virtual GPU: its cooler, its sensors, how fast it obeys.

Published figures where there are some (update and averaging periods of the sensors:
arXiv 2312.02741; the rest of the sensor and lag values are plausible, not measured). None of
them touches a cell at thermal equilibrium, which the presets' physics alone decides.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from joulewise.domain.errors import InputError
from joulewise.simulator.device_string import VirtualOptions
from joulewise.simulator.sensors import SensorSpec
from joulewise.simulator.thermal import ThermalSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardSpec:
    """What belongs to the board and not to the chip's steady state.

    A requested point takes effect `transition_lag_s` later; work goes on meanwhile.
    `rail_period_s` is how long a reading of a module's rail monitor stands; `None`: no rails.
    """

    thermal: ThermalSpec
    sensors: SensorSpec
    transition_lag_s: float
    rail_period_s: float | None = None


_BOARDS = {
    "rtx3080ti": BoardSpec(
        thermal=ThermalSpec(resistance_c_per_w=0.14, leakage_w_per_c=0.25, slowdown_temp_c=93.0),
        sensors=SensorSpec(energy_period_s=0.1, power_window_s=1.0),
        transition_lag_s=0.01,
    ),
    "a100-sxm": BoardSpec(
        thermal=ThermalSpec(resistance_c_per_w=0.1, leakage_w_per_c=0.2, slowdown_temp_c=92.0),
        sensors=SensorSpec(energy_period_s=0.1, power_window_s=0.025, instant_window_s=0.025),
        transition_lag_s=0.015,
    ),
    "h100-sxm": BoardSpec(
        thermal=ThermalSpec(resistance_c_per_w=0.06, leakage_w_per_c=0.3, slowdown_temp_c=90.0),
        sensors=SensorSpec(energy_period_s=0.05, power_window_s=1.0, instant_window_s=0.025),
        transition_lag_s=0.02,
    ),
    "rtx4090": BoardSpec(
        thermal=ThermalSpec(resistance_c_per_w=0.1, leakage_w_per_c=0.25, slowdown_temp_c=90.0),
        sensors=SensorSpec(energy_period_s=0.02, power_window_s=1.0),
        transition_lag_s=0.01,
    ),
    # Modules: on an Orin Nano Super a new GPU clock is in force after 5 to 6 ms, a third of all
    # tegrastats lines 100 ms apart repeat every rail (dankang21/jetson-latency-lab), and idle at
    # 5.6 W and 47 °C went with 52 °C at 13 W. Heat sinks of developer kits differ: assumed.
    "agx-orin": BoardSpec(
        thermal=ThermalSpec(
            resistance_c_per_w=0.7,
            time_constant_s=30.0,
            leakage_w_per_c=0.03,
            slowdown_temp_c=95.0,
        ),
        sensors=SensorSpec(energy_period_s=0.1, power_window_s=0.15),
        transition_lag_s=0.0055,
        rail_period_s=0.15,
    ),
    "orin-nano-super": BoardSpec(
        thermal=ThermalSpec(
            ambient_c=35.0,
            resistance_c_per_w=1.5,
            time_constant_s=30.0,
            leakage_w_per_c=0.02,
            slowdown_temp_c=95.0,
        ),
        sensors=SensorSpec(energy_period_s=0.1, power_window_s=0.15),
        transition_lag_s=0.0055,
        rail_period_s=0.15,
    ),
}


def board(preset_name: str) -> BoardSpec:
    """The board of this preset. Raises InputError naming the known ones."""
    if preset_name not in _BOARDS:
        raise InputError(
            f"no board is known for the virtual GPU {preset_name!r}",
            field="device",
            hint=f"Known: {', '.join(_BOARDS)}.",
        )
    return _BOARDS[preset_name]


def board_of(options: VirtualOptions) -> BoardSpec:
    """The preset's board with what the device string changes."""
    spec = board(options.preset)
    thermal, sensors = spec.thermal, spec.sensors
    if options.ambient_c is not None:
        thermal = replace(thermal, ambient_c=options.ambient_c)
    if options.counter_period_s is not None:
        sensors = replace(sensors, energy_period_s=options.counter_period_s)
    return replace(spec, thermal=thermal, sensors=sensors)
