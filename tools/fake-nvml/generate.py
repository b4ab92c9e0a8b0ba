# ruff: noqa: INP001
"""Write the C sources that follow from joulewise and from nvidia-ml-py.

`profiles.c` holds the presets and boards of joulewise.simulator, so that the virtual GPUs and the
fake driver have one source of truth; `stubs.c` holds a function that answers NOT_SUPPORTED for
every NVML function that nvidia-ml-py binds and the driver does not model, and for the older
versions of each.

Usage: python generate.py OUT_FOLDER
"""

from __future__ import annotations

import importlib.util
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from joulewise.domain.transition_presets import STALL_POWER_W
from joulewise.simulator.boards import BoardSpec, board
from joulewise.simulator.presets import nvml_preset_names, preset
from joulewise.simulator.spec import GpuSpec

HERE = Path(__file__).resolve().parent
_GIB = 2**30
_AMPERE, _ADA, _HOPPER = 7, 8, 9
_BRAND_GEFORCE, _BRAND_NVIDIA = 5, 14
_LOCK_AT_ONCE, _LOCK_UNSUPPORTED, _LOCK_DEFERRED = 0, 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What NVML tells of a GPU and its physics do not need: public data of the products.

    `memory_lock` is the exception: which board takes memory locks at once, after a reload of the
    driver or never is chosen here so that each kind exists.
    """

    name: str
    arch: int
    compute_capability: tuple[int, int]
    sm_count: int
    cores_per_sm_count: int
    brand: int
    pci_device_id: int
    memory_bus_bits: int
    fan_count: int
    base_clock_mhz: int
    memory_bytes: int
    max_power_limit_w: float
    memory_lock: int

    @property
    def is_data_center(self) -> bool:
        """Whether it is a board without fans, displays and the like."""
        return self.brand == _BRAND_NVIDIA

    @property
    def is_instant_usage(self) -> bool:
        """Whether PowerUsage is not averaged: GA100 and all before it (NVML's header)."""
        return self.arch < _AMPERE or (self.arch == _AMPERE and self.is_data_center)


_FACTS = {
    "rtx3080ti": Facts(
        name="NVIDIA GeForce RTX 3080 Ti",
        arch=_AMPERE,
        compute_capability=(8, 6),
        sm_count=80,
        cores_per_sm_count=128,
        brand=_BRAND_GEFORCE,
        pci_device_id=0x220810DE,
        memory_bus_bits=384,
        fan_count=2,
        base_clock_mhz=1365,
        memory_bytes=12 * _GIB,
        max_power_limit_w=400.0,
        memory_lock=_LOCK_AT_ONCE,
    ),
    "a100-sxm": Facts(
        name="NVIDIA A100-SXM4-40GB",
        arch=_AMPERE,
        compute_capability=(8, 0),
        sm_count=108,
        cores_per_sm_count=64,
        brand=_BRAND_NVIDIA,
        pci_device_id=0x20B010DE,
        memory_bus_bits=5120,
        fan_count=0,
        base_clock_mhz=1095,
        memory_bytes=40 * _GIB,
        max_power_limit_w=500.0,
        memory_lock=_LOCK_UNSUPPORTED,
    ),
    "h100-sxm": Facts(
        name="NVIDIA H100 80GB HBM3",
        arch=_HOPPER,
        compute_capability=(9, 0),
        sm_count=132,
        cores_per_sm_count=128,
        brand=_BRAND_NVIDIA,
        pci_device_id=0x233010DE,
        memory_bus_bits=5120,
        fan_count=0,
        base_clock_mhz=1590,
        memory_bytes=80 * _GIB,
        max_power_limit_w=700.0,
        memory_lock=_LOCK_DEFERRED,
    ),
    "rtx4090": Facts(
        name="NVIDIA GeForce RTX 4090",
        arch=_ADA,
        compute_capability=(8, 9),
        sm_count=128,
        cores_per_sm_count=128,
        brand=_BRAND_GEFORCE,
        pci_device_id=0x268410DE,
        memory_bus_bits=384,
        fan_count=2,
        base_clock_mhz=2235,
        memory_bytes=24 * _GIB,
        max_power_limit_w=600.0,
        memory_lock=_LOCK_AT_ONCE,
    ),
}

_SPEC_FIELDS = (
    "sm_clock_max_mhz",
    "launch_s",
    "voltage_knee_mhz",
    "voltage_slope_ratio_per_ghz",
    "voltage_curve_ratio_per_ghz2",
    "auto_voltage_knee_mhz",
    "auto_voltage_slope_ratio_per_ghz",
    "base_w",
    "clock_tree_w_per_ghz",
    "auto_set_point_w",
    "locked_set_point_w",
    "default_power_limit_w",
    "least_power_limit_w",
)
_THERMAL_FIELDS = (
    "ambient_c",
    "resistance_c_per_w",
    "time_constant_s",
    "leakage_w_per_c",
    "slowdown_temp_c",
)
_SENSOR_FIELDS = ("energy_period_s", "power_period_s", "instant_window_s")


def profiles_source() -> str:
    """The table of profiles, as C."""
    tables = [_lists(name) for name in nvml_preset_names()]
    entries = [
        _entry(name, preset(name), board(name), _FACTS[name]) for name in nvml_preset_names()
    ]
    return "\n".join(
        (
            '#include "profile.h"',
            "",
            *tables,
            "const profile_t fake_profiles[] = {",
            *entries,
            "};",
            f"const unsigned fake_profile_count = {len(entries)};",
            "",
        )
    )


def _identifier(preset_name: str) -> str:
    return re.sub(r"\W", "_", preset_name)


def _lists(preset_name: str) -> str:
    spec, name = preset(preset_name), _identifier(preset_name)
    clocks = ", ".join(str(clock) for clock in spec.grid.sm_clocks_mhz)
    states = "".join(
        f"  {{{state.mem_clock_mhz}, {state.bandwidth_bytes_per_s!r}, {state.standby_w!r}, "
        f"{state.energy_ratio!r}, {float(state.sm_clock_ceiling_mhz or 0)!r}}},\n"
        for state in spec.memory_states
    )
    return (
        f"static const unsigned sm_clocks_{name}[] = {{{clocks}}};\n"
        f"static const memory_state_t memory_states_{name}[] = {{\n{states}}};\n"
    )


def _entry(preset_name: str, spec: GpuSpec, board_spec: BoardSpec, facts: Facts) -> str:
    name = _identifier(preset_name)
    major, minor = facts.compute_capability
    values: dict[str, object] = {
        "preset": f'"{preset_name}"',
        "name": f'"{facts.name}"',
        "arch": facts.arch,
        "cc_major": major,
        "cc_minor": minor,
        "sm_count": facts.sm_count,
        "core_count": facts.sm_count * facts.cores_per_sm_count,
        "brand": facts.brand,
        "pci_device_id": hex(facts.pci_device_id),
        "memory_bus_bits": facts.memory_bus_bits,
        "fan_count": facts.fan_count,
        "base_clock_mhz": facts.base_clock_mhz,
        "memory_bytes": f"{facts.memory_bytes}ull",
        "is_data_center": int(facts.is_data_center),
        "has_gpm": int(facts.arch >= _HOPPER),
        "is_instant_usage": int(facts.is_instant_usage),
        "max_power_limit_w": facts.max_power_limit_w,
        "sm_clocks_mhz": f"sm_clocks_{name}",
        "sm_clock_count": len(spec.grid.sm_clocks_mhz),
        "memory_states": f"memory_states_{name}",
        "memory_state_count": len(spec.memory_states),
        "transition_lag_s": board_spec.transition_lag_s,
        "stall_power_w": STALL_POWER_W,
        "memory_lock": facts.memory_lock,
    }
    values |= {field: getattr(spec, field) for field in _SPEC_FIELDS}
    values |= {field: getattr(board_spec.thermal, field) for field in _THERMAL_FIELDS}
    values |= {field: getattr(board_spec.sensors, field) for field in _SENSOR_FIELDS}
    lines = "".join(f"    .{field} = {value},\n" for field, value in values.items())
    return f"  {{\n{lines}  }},"


def bound_symbols() -> set[str]:
    """Every NVML function that nvidia-ml-py asks the library for."""
    found = importlib.util.find_spec("pynvml")
    if found is None or found.origin is None:
        raise SystemExit("nvidia-ml-py is missing: pip install nvidia-ml-py")
    text = Path(found.origin).read_text(encoding="utf-8")
    return set(re.findall(r'_nvmlGetFunctionPointer\(\s*["\'](nvml\w+)', text))


def modelled_symbols() -> set[str]:
    """Every NVML function that the sources beside this file define."""
    defined = re.compile(r"^(?:NVML_API [^(]*\b|NUMBER\()(nvml\w+)", re.MULTILINE)
    sources = (path.read_text(encoding="utf-8") for path in sorted(HERE.glob("*.c")))
    return {name for text in sources for name in defined.findall(text)}


def stubs_source() -> str:
    """A function for each symbol that is not modelled, and for older versions of each, as C."""
    wanted = bound_symbols()
    for name in tuple(wanted):
        versioned = re.fullmatch(r"(\w+)_v([2-9])", name)
        if versioned:
            base, version = versioned.group(1), int(versioned.group(2))
            wanted |= {base, *(f"{base}_v{older}" for older in range(2, version))}
    stubs = sorted(wanted - modelled_symbols())
    return "\n".join(
        (
            '#include "calls.h"',
            "",
            *(f'NVML_API int {name}(void) {{ return call_stub("{name}"); }}' for name in stubs),
            "",
        )
    )


def main(folder: Path) -> None:
    """Write both sources, each only where it changed."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("profiles.c", profiles_source()), ("stubs.c", stubs_source())):
        path = folder / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
