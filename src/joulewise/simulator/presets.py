"""Virtual GPUs by name. Their lists and parameters are data files beside this module."""

from __future__ import annotations

import functools
from importlib import resources

import msgspec

from joulewise.domain.errors import InputError
from joulewise.simulator.spec import GpuSpec

_FILES = {
    "rtx3080ti": "rtx3080ti.json",
    "a100-sxm": "a100_sxm.json",
    "h100-sxm": "h100_sxm.json",
    "rtx4090": "rtx4090.json",
    "agx-orin": "agx_orin.json",
    "orin-nano-super": "orin_nano_super.json",
}


def preset_names() -> tuple[str, ...]:
    """Names that `virtual:NAME` takes."""
    return tuple(_FILES)


def nvml_preset_names() -> tuple[str, ...]:
    """Those of them that NVIDIA's management library serves: all but modules with rails."""
    return tuple(name for name in _FILES if not preset(name).rails)


@functools.cache
def preset(name: str) -> GpuSpec:
    """The virtual GPU of that name. Raises InputError naming the known ones."""
    if name not in _FILES:
        raise InputError(
            f"no virtual GPU is called {name!r}",
            field="device",
            hint=f"Known: {', '.join(_FILES)}.",
        )
    data = resources.files("joulewise.simulator").joinpath("data", _FILES[name])
    return msgspec.json.decode(data.read_bytes(), type=GpuSpec)
